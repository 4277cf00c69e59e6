"""Reads checkpoints with transformers, under draftmux's rules: silent, nothing unpickled, no code run unasked.

Knows nothing of where a checkpoint came from. Imports torch and transformers; command-line start-up must not import it.
"""

from __future__ import annotations

import io
import os
import re
import threading
import warnings
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from attrs import frozen
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from draftmux.errors import ModelError
from draftmux.models.shards import shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ALIGNMENT = 64  # bytes, a cache line; torch's own allocations keep it
_NUMBERED = re.compile(r"(.+?)\.(\d+)\.")  # how weights of layers are named: the list of layers, the layer's number
_LOADING = threading.RLock()  # the silence below is global to the process


@frozen
class Checkpoint:
    """What transformers is to read: a folder or hub repository, or one GGUF file in a folder."""

    name: str
    dtype: str
    gguf: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Keywords that every `from_pretrained` gets. The trust is always said, since silence would prompt the user."""
        gguf = {"gguf_file": self.gguf} if self.gguf else {}
        return {"revision": self.revision, "trust_remote_code": self.trust_remote_code, **gguf}


def read_tokenizer(checkpoint: Checkpoint) -> Any:
    """The checkpoint's tokenizer; ModelError when its files are missing."""
    with quietly():
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.name, **checkpoint.arguments)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes of a folder without tokenizer files
        raise ModelError(f"{checkpoint.name} has no tokenizer: files such as tokenizer.json are missing")
    return tokenizer


def read_model(checkpoint: Checkpoint, device: torch.device, processes: int = 1) -> Any:
    """The causal language model on `device`, in evaluation mode and without gradients.

    With several `processes`, this one's shard of it, on the device that torch made current. ModelError for other kinds
    of models, and for a checkpoint that lacks some of the model's weights or holds more layers than its config counts.
    """
    with quietly(), _no_bar_of_its_own(checkpoint):
        config = AutoConfig.from_pretrained(checkpoint.name, **checkpoint.arguments)
        _refuse_other_kinds(config, checkpoint)
        model, found = AutoModelForCausalLM.from_pretrained(
            checkpoint.name,
            config=config,
            dtype=checkpoint.dtype,
            **_placement(config, checkpoint, device, processes),
            use_safetensors=True,
            output_loading_info=True,
            # Packed GGUF weights would go through slow kernels; unpacked ones are plain linear layers.
            quantization_config=GgufConfig(dequantize=True) if checkpoint.gguf else None,
            **checkpoint.arguments,
        )
    missing = sorted(found["missing_keys"])
    if missing:
        raise ModelError(
            f"{checkpoint.name} lacks {len(missing)} weights of a {type(model).__name__} "
            f"({', '.join(missing[:3])}…), which would be random; use a complete checkpoint"
        )
    _refuse_surplus_layers(model, found["unexpected_keys"], checkpoint)
    _align(model)
    return model.eval().requires_grad_(False)


def _placement(config: Any, checkpoint: Checkpoint, device: torch.device, processes: int) -> dict[str, Any]:
    if processes == 1:
        return {"device_map": device}
    return {"distributed_config": shards(config, checkpoint.name, processes)}


def _refuse_surplus_layers(model: Any, unexpected: Iterable[str], checkpoint: Checkpoint) -> None:
    """transformers leaves out the layers that the config does not count, and what is left writes nonsense.

    Layers that predict further tokens stand after the model's own and are left out rightly, if the config counts them.
    """
    lists = {name: len(part) for name, part in model.named_modules() if isinstance(part, torch.nn.ModuleList)}
    further = getattr(model.config, "num_nextn_predict_layers", None) or 0
    numbered = [(int(found[2]), found[1], name) for name in unexpected if (found := _NUMBERED.match(name))]
    surplus = sorted(entry for entry in numbered if entry[1] in lists and entry[0] >= lists[entry[1]] + further)
    if surplus:
        held, (_, layers, first) = surplus[-1][0] + 1, surplus[0]
        raise ModelError(
            f"{checkpoint.name} holds {held} layers, but its config counts {lists[layers]}; the first tensor too many "
            f"is {first}; correct the number of layers in config.json, or use the weights that belong to it"
        )


def _align(model: Any) -> None:
    """Weights mapped from a safetensors file start at any address, and there a CPU multiplies 3 to 4 times slower."""
    for weight in model.parameters():
        if weight.device.type == "cpu" and weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()


def _refuse_other_kinds(config: Any, checkpoint: Checkpoint) -> None:
    """Some encoders load as causal models and then decode nonsense, so what they were saved as decides."""
    own_code = checkpoint.trust_remote_code and "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    saved_as = config.architectures or []
    causal = {name.lower() for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()}
    other = bool(saved_as) and causal.isdisjoint(name.lower() for name in saved_as)
    if config.is_encoder_decoder or (other and not own_code):
        raise ModelError(
            f"{checkpoint.name} is a {', '.join(saved_as) or config.model_type}, not a causal language model; "
            "draftmux decodes causal (decoder-only) models only"
        )


def _refuse_to_unpickle(*_: Any, **__: Any) -> NoReturn:
    raise ModelError("weights are never unpickled: convert the checkpoint to safetensors (save_pretrained does it)")


@contextmanager
def quietly() -> Iterator[None]:
    """Silence transformers' bars and warnings, but not errors and the hub's download bars; refuse to unpickle."""
    with _LOADING, warnings.catch_warnings(), ExitStack() as restore:
        warnings.simplefilter("ignore")
        restore.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity_error()
        restore.callback(logging.set_tqdm_hook, logging.set_tqdm_hook(_hidden_bar))
        # A folder's index may name any file, so the one door that leads to pickle is shut.
        restore.callback(setattr, torch, "load", torch.load)
        torch.load = _refuse_to_unpickle
        # Otherwise transformers asks a service on the hub to convert a repository that has no safetensors.
        restore.enter_context(_environment("DISABLE_SAFETENSORS_CONVERSION", "1"))
        yield


def _hidden_bar(make: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return make(*args, **keywords | {"disable": True})


@contextmanager
def _no_bar_of_its_own(checkpoint: Checkpoint) -> Iterator[None]:
    """The GGUF reader draws a bar that no setting reaches; faults still arrive as exceptions."""
    with redirect_stderr(io.StringIO()) if checkpoint.gguf else ExitStack():
        yield


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
