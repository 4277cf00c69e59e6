"""What a training run is told besides its recipe: for which target, where to write, how to come by answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftmux.models.source import ModelSpec
    from draftmux.training.answers import Sample
    from draftmux.training.loop import Report
    from draftmux.types import Tap


@frozen(eq=False)
class Job:
    """`collect(taps)` gives the answers to learn from and the held-out ones, a share `held_out` of all, with these
    states. `prompts` and `command` say for a model card where they are from, and what was typed."""

    spec: ModelSpec
    folder: Path
    collect: Callable[[tuple[Tap, ...]], tuple[list[Sample], list[Sample]]]
    report: Report
    held_out: float = 0.0
    prompts: str = ""
    command: str = ""

    def about(self, taps: Sequence[Tap]) -> dict[str, Any]:
        """What another run must have alike to go on with this one's weights, whatever it trains."""
        own = {"target": self.spec.source, "dtype": self.spec.dtype, "held_out": self.held_out}
        return {**own, "taps": [str(tap) for tap in taps]}

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes, of several."""
        from accelerate import PartialState

        return bool(PartialState().is_main_process)

    @property
    def work(self) -> Path:
        """Where the state of the run is kept, and its answers unless they have another folder."""
        return self.folder / "work"
