"""Keeps an unpacked copy of a GGUF checkpoint in the cache, since reading the GGUF takes half a minute each time."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import transformers
from attrs import evolve
from safetensors import SafetensorError

from draftmux.models.checkpoint import Checkpoint, quietly, read_model, read_tokenizer
from draftmux.models.fetch import announce, cache_folder, cache_workspace

LARGEST = 1 << 30  # bytes; the copy is several times as big as the file, too much to store unasked for a big one


def converted(gguf: Checkpoint, fingerprint: str) -> Checkpoint:
    """The same model and tokenizer, bit for bit, as a folder of safetensors and tokenizer.json.

    The folder is written the first time. `fingerprint` names the file's content. A file above LARGEST stays as it is.
    """
    file = Path(gguf.name, gguf.gguf or "")
    if file.stat().st_size > LARGEST:
        return gguf
    key = f"{file.stem}-{fingerprint[:32]}-{gguf.dtype}-transformers-{transformers.__version__}"
    folder = cache_folder() / "converted" / key
    if not folder.is_dir():
        announce(f"unpacking {file.name}, once…")
        _write(gguf, folder)
    return evolve(gguf, name=str(folder), gguf=None)


def _write(gguf: Checkpoint, target: Path) -> None:
    """Put the folder into place in one step, unless another process was first."""
    model, tokenizer = read_model(gguf, torch.device("cpu")), read_tokenizer(gguf)
    with cache_workspace() as workspace, quietly():
        folder = workspace / "model"
        try:
            model.save_pretrained(folder)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise OSError(str(error)) from error
        tokenizer.save_pretrained(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(folder, target)
        except OSError:
            if not target.is_dir():
                raise
