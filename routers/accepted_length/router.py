"""The router that copies where it expects enough of the copy to be accepted (after Hybrid Verified Decoding)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.errors import ModelError
from draftmux.options import option
from draftmux.routers.accepted_length.artefact import Regressor, read_regressor
from draftmux.routers.accepted_length.features import Course, TokenClasses
from draftmux.routers.gate import CopyGate, Gate
from draftmux.routers.linear_probe.artefact import read_about
from draftmux.routers.linear_probe.scorer import Scorer, load_scorer, mark_of, states_for
from draftmux.types import Needs

if TYPE_CHECKING:
    from draftmux.protocols import Resources
    from draftmux.types import Context, Reading, Step


@frozen
class AcceptedLength(CopyGate):
    """The copying drafter where a regressor expects `least` or more of its tokens to be accepted; elsewhere the other
    one, or what another router chooses. The regressor sees the text and past copies; a hidden state only through the
    score of a probe that it was trained beside.

    Another drafter is also asked when the copying one has no draft after all.
    """

    regressor: str = option(
        "folder, `package:NAME/PATH` or hub id of what `draftmux train accepted-length` has written"
    )
    revision: str | None = option("of a regressor on the hub", default=None)
    probe: str | None = option(
        "folder, `package:NAME/PATH` or hub id of the probe whose score the regressor was trained with", default=None
    )
    probe_revision: str | None = option("of a probe on the hub", default=None)
    least: float = option("expected tokens from which it copies", default=6.0, minimum=0)

    def fetch(self) -> None:
        """Download what says which hidden state is read."""
        super().fetch()
        if self.probe is not None:
            read_about(self.probe, self.probe_revision)

    def reads(self) -> Needs:
        """The probe's hidden state."""
        return Needs() if self.probe is None else states_for(self.probe, self.probe_revision)

    def gate(self, resources: Resources) -> Gate:
        """Load the regressor; ModelError when it is unreadable, or was trained beside a probe and has none."""
        regressor = read_regressor(self.regressor, self.revision)
        if regressor.scored != (self.probe is not None):
            which = "with a probe's score; name it in 'probe'" if regressor.scored else "without a probe; drop 'probe'"
            raise ModelError(f"regressor '{self.regressor}' was trained {which}")
        self._compare(regressor, resources.drafters.get(self.copy))
        scorer = None if self.probe is None else load_scorer(self.probe, self.probe_revision, resources)[0]
        if scorer is not None and regressor.probe and regressor.probe != mark_of(scorer.weight):
            raise ModelError(
                f"regressor '{self.regressor}' was trained beside another probe than '{self.probe}'; name that one, "
                f"or train it beside this one"
            )
        return Expects(self.copy, regressor, self.least, TokenClasses(resources.tokenizer), scorer)

    def _compare(self, regressor: Regressor, copy: object) -> None:
        """Warn of a copying drafter whose copies are not those that the regressor has learned from."""
        for name in ("min_match", "max_branches", "max_depth"):
            learned, own = getattr(regressor, name), getattr(copy, name, None)
            if own not in (None, learned):
                warnings.warn(
                    f"regressor '{self.regressor}' learned from copies of {name} {learned}; drafter '{self.copy}' has "
                    f"{own}, so that it will be off. Set {name}: {learned}, or train another",
                    stacklevel=2,
                )


@frozen(eq=False)
class Expects(Gate):
    """Open where the regressor expects `least` tokens or more."""

    copy: str
    regressor: Regressor
    least: float
    classes: TokenClasses
    scorer: Scorer | None = None

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The probe's score, if it is a feature."""
        return () if self.scorer is None else (self.scorer.reading,)

    def watch(self, context: Context) -> Course:
        """What is remembered of the sequence."""
        return Course.begin(context.tokens, context.prompt_length, self.regressor.min_match)

    def opens(self, state: Course, context: Context) -> bool:
        """Whether a copy is worth it."""
        score = None if self.scorer is None else self.scorer.score(context)
        found = state.features(context.tokens, self.classes, score)
        return found is not None and self.regressor.predict(found) >= self.least

    def saw(self, state: Course, step: Step) -> None:
        """Remember how copies went."""
        state.note(len(step.acceptance.path) if step.drafter == self.copy else None)
