"""SwitchSD's router (2609.20186): copy where the probe and the text both say so, otherwise draft with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from draftmux.drafters.ngram import LONGEST
from draftmux.options import option
from draftmux.routers.gate import CopyGate, Gate
from draftmux.routers.linear_probe.artefact import read_about
from draftmux.routers.linear_probe.scorer import load_scorer, states_for
from draftmux.routers.match_length import Matches

if TYPE_CHECKING:
    from draftmux.drafters.ngram.index import NgramIndex
    from draftmux.protocols import Resources
    from draftmux.types import Context, Needs, Reading, Step

RESTS = 4  # steps that do not copy, after copies that brought nothing


@frozen
class LinearProbe(CopyGate):
    """The copying drafter where a linear probe on one hidden state of the target scores `threshold` or more and the
    last `min_match` tokens occurred before; the other one elsewhere, or what another router chooses.

    Another drafter is also asked when the copying one has no draft after all.
    """

    probe: str = option("folder, `package:NAME/PATH` or hub id of a probe that `draftmux train probe` has written")
    revision: str | None = option("of a probe on the hub", default=None)
    threshold: float | None = option(
        "score from which it copies; by default the probe's own", default=None, minimum=0, maximum=1
    )
    min_match: int | None = option(
        "tokens that must have occurred before; by default the probe's own", default=None, minimum=1, maximum=LONGEST
    )
    decides: str = option(
        "what must agree to a copy; others than both are for comparison",
        default="probe-and-ngram",
        choices=("probe-and-ngram", "probe", "ngram", "neither"),
    )
    hold: bool = option("go on copying without asking the probe while copies are accepted to their end", default=False)
    refractory: int = option(
        "copies in a row without an accepted token after which four steps do not copy; 0: never", default=0, minimum=0
    )

    def fetch(self) -> None:
        """Download what says which hidden state is read."""
        super().fetch()
        read_about(self.probe, self.revision)

    def reads(self) -> Needs:
        """The probe's hidden state; none while the probe is not at hand."""
        return states_for(self.probe, self.revision)

    def gate(self, resources: Resources) -> Gate:
        """Load the probe; ModelError when it is unreadable, or was trained for another target."""
        scorer, about = load_scorer(self.probe, self.revision, resources)
        threshold = about.threshold if self.threshold is None else self.threshold
        return ProbeGate(self, Matches(self.min_match or about.min_match), scorer, threshold)


@define(eq=False)
class Watched:
    """One sequence: its index, whether the last copy was accepted to its end, copies in a row that brought nothing, and
    steps that will not copy."""

    index: NgramIndex
    whole: bool = False
    missed: int = 0
    resting: int = 0


@frozen(eq=False)
class ProbeGate(Gate):
    """Open where all agree that it asks."""

    options: LinearProbe
    matches: Matches
    scorer: Any  # a Scorer
    threshold: float

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The probe's score, unless nobody asks for it."""
        return (self.scorer.reading,) if "probe" in self.options.decides else ()

    def watch(self, context: Context) -> Watched:
        """What is remembered of the sequence."""
        return Watched(self.matches.watch(context))

    def opens(self, state: Watched, context: Context) -> bool:
        """Whether this step is to copy."""
        decides = self.options.decides
        if decides == "neither" or state.resting:
            return False
        if "ngram" in decides and not self.matches.opens(state.index, context):
            return False
        held = self.options.hold and state.whole
        return "probe" not in decides or held or self.scorer.score(context) >= self.threshold

    def saw(self, state: Watched, step: Step) -> None:
        """Remember how copies went."""
        state.resting = max(0, state.resting - 1)
        copied = step.drafter == self.options.copy
        accepted = len(step.acceptance.path)
        state.whole = copied and accepted > 0 and step.acceptance.path[-1] not in step.draft.siblings  # to a leaf
        if copied:
            state.missed = 0 if accepted else state.missed + 1
            if self.options.refractory and state.missed >= self.options.refractory:
                state.missed, state.resting = 0, RESTS
