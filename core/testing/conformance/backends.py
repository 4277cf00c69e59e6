"""How the kit gets a bound backend: as it was given, or from its options with a tiny model that it saves itself."""

from __future__ import annotations

import tempfile
from functools import cache
from typing import TYPE_CHECKING, Any

from draftmux.errors import ModelError
from draftmux.models.source import ModelSpec
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import small_tokenizer
from draftmux.testing.targets import tiny_model
from draftmux.types import Tap

if TYPE_CHECKING:
    from draftmux.testing.conformance.subject import Subject

TAPS = (Tap(0, "resid_post"), Tap(-1, "attn_out"))


def bound(subject: Subject) -> Any:
    """The target, bound once for all checks that need no taps."""
    return subject.once("bound", lambda: bind(subject, ()))


def bind(subject: Subject, taps: tuple[Tap, ...]) -> Any:
    """The target with these taps; ModelError when it cannot have them."""
    if hasattr(subject.plugin, "score"):
        return subject.plugin
    if not subject.plugin.takes_model:
        return subject.plugin.bind(None, taps)
    return subject.plugin.bind(subject.setting.models.get("target") or saved_model(), taps)


def tapped(subject: Subject) -> tuple[Any, tuple[Tap, ...]]:
    """A target with taps, and which."""
    if hasattr(subject.plugin, "score"):
        opened = subject.plugin.open((0, 0))
        subject.plugin.close(opened.sequence)
        if not opened.taps:
            raise NotApplicableError("it was bound without taps")
        return subject.plugin, tuple(opened.taps)
    try:
        return bind(subject, TAPS), TAPS
    except ModelError as error:
        raise NotApplicableError(f"it refuses taps: {error}") from error


@cache
def saved_model() -> ModelSpec:
    """A folder with a tiny random Llama in float64 and a tokenizer; it is gone when the process ends."""
    from draftmux.models.checkpoint import quietly

    folder = _folder().name
    with quietly():
        tiny_model("llama").save_pretrained(folder)
        small_tokenizer().save_pretrained(folder)
    return ModelSpec(source=folder, dtype="float64", device="cpu")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="draftmux-", ignore_cleanup_errors=True)
