"""The exact law of what a verifier lets through, by enumeration, compared with the target's own law.

Runs the production code (drafter, guard, verifier, dead ends, stopping) on toy laws in float64, once for every course
that its random decisions can take. Knows how random numbers are keyed, and no rule of acceptance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import evolve, field, frozen

from draftmux.backends.scripted import ScriptedSequence, ScriptedTarget
from draftmux.constraining import advanced
from draftmux.drafting import SequenceDrafter
from draftmux.engine.accepting import accept
from draftmux.engine.proposing import Drafted, propose
from draftmux.engine.session import Session
from draftmux.engine.step import Parts, sampler_of
from draftmux.engine.stopping import Stopping
from draftmux.errors import DeadEndError
from draftmux.generation import Generation
from draftmux.protocols import Row
from draftmux.routers.fixed import Fixed
from draftmux.sampling import RuleContext, SamplingRule
from draftmux.testing.chances import Chances, EnumeratedNoise, EnumeratedRule, courses
from draftmux.testing.sampled import KINDS
from draftmux.types import Choice, Emits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from draftmux.protocols import Verifier
    from draftmux.testing.chances import Intervals
    from draftmux.testing.sampled import SampledDrafter
    from draftmux.testing.toys import String, Toy
    from draftmux.types import Budget, Context, Draft, Scores

    Distribution = dict[String, float]

NEAR = 1e-9
DEAD = -1  # stands after a string that nothing can follow


@frozen(eq=False)
class _Enumerated(SequenceDrafter):
    inner: SampledDrafter
    chances: Chances

    @property
    def emits(self) -> Emits:  # type: ignore[override]
        return self.inner.emits

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        return self.inner.grow(context, budget, EnumeratedNoise(self.chances, len(context.tokens)))


@frozen(eq=False)
class Trial:
    """A verifier, a drafter, a toy and the settings of a request of `length` tokens."""

    verifier: Verifier
    drafter: SampledDrafter
    toy: Toy
    generation: Generation
    rule: EnumeratedRule

    @classmethod
    def prepare(cls, verifier: Verifier, drafts: str | SampledDrafter, toy: Toy, generation: Generation) -> Trial:
        """`drafts` is one of `KINDS`, drawn from the toy's q, or a drafter."""
        context = RuleContext(toy.vocab_size, len(toy.prompt), toy.eos_ids)
        rule = SamplingRule.build(generation, context)
        drafter = KINDS[drafts](toy.q) if isinstance(drafts, str) else drafts
        own = EnumeratedRule(rule.greedy, rule.seed, rule.processors, rule.warpers, rule.constraint)
        return cls(verifier, drafter, toy, generation, own)

    def rounds(
        self, count: int, string: String = (), intervals: Intervals | None = None
    ) -> Iterator[tuple[String, float]]:
        """What `count` rounds can append to `string`, and with which probability; a string may come up again."""
        for drafted in courses(partial(self._draft, string), intervals or {}):
            decide = partial(self._decide, drafted.result, self._scores(drafted.result))
            for decided in courses(decide, drafted.intervals):
                run, over = decided.result
                probability = drafted.probability * decided.probability
                if over or count == 1:
                    yield (*string, *run), probability
                else:
                    for longer, more in self.rounds(count - 1, (*string, *run), decided.intervals):
                        yield longer, probability * more

    def drafts(self) -> Iterator[tuple[Draft, float]]:
        """Every draft of the first round, as the engine took it, and its probability."""
        for drafted in courses(partial(self._draft, ()), {}):
            yield drafted.result.draft, drafted.probability

    def accepted(self) -> float:
        """Expected number of drafted tokens that one round accepts."""
        return sum(probability * (len(run) - 1) for run, probability in self.rounds(1))

    def _draft(self, string: String, chances: Chances) -> Drafted:
        session = self._session(chances, string)
        parts = self._parts(_Enumerated(self.drafter, chances))
        drafted = propose(parts, [Drafted(session, session.context(), Choice("drafter"))])[0]
        _raise_fault(session)
        return drafted

    def _scores(self, drafted: Drafted) -> Scores:
        handle, root = ScriptedSequence(drafted.session.tokens[:-1].tolist()), drafted.session.root
        return self._target().score([Row(handle, root, drafted.draft)])[0]

    def _decide(self, drafted: Drafted, scores: Scores, chances: Chances) -> tuple[String, bool]:
        """What the round commits, and whether the request ends with it."""
        session = self._session(chances, tuple(drafted.session.tokens[len(self.toy.prompt) :].tolist()))
        drafted = evolve(drafted, session=session)
        [acceptance] = accept(self._parts(None), [drafted], [sampler_of(drafted, scores)])
        if isinstance(session.error, DeadEndError):
            return (), True
        _raise_fault(session)
        run = (*drafted.draft.tokens[list(acceptance.path)].tolist(), acceptance.token)
        texts, reason = session.stopping.cut(run)
        return run[: len(texts)], reason is not None

    def _session(self, chances: Chances, string: String) -> Session:
        stopping = Stopping.build(self.generation, self.toy.eos_ids, self.generation.max_new_tokens, None)
        stopping.cut(string)
        tokens = np.array((*self.toy.prompt, *string), dtype=np.int64)
        session = Session(
            request_id="request",
            generation=self.generation,
            rule=evolve(self.rule, chances=chances),
            stopping=stopping,
            handle=ScriptedSequence([]),
            prompt_length=len(self.toy.prompt),
            taps={},
            tokens=tokens,
            constraint=advanced(self.rule.constraint, string) if self.rule.constraint is not None else None,
            states={"drafter": None},
        )
        session._length = len(tokens)
        return session

    def _parts(self, drafter: Any) -> Parts:
        return Parts(self._target(), {"drafter": drafter}, Fixed(drafter="drafter"), self.verifier)

    def _target(self) -> ScriptedTarget:
        return ScriptedTarget(self.toy.p, self.toy.vocab_size, self.toy.eos_ids)


def _raise_fault(session: Session) -> None:
    if session.error is not None:
        raise session.error


@frozen(eq=False)
class Book:
    """The plain law by the book: one token after the other, the whole prefix each time."""

    toy: Toy
    generation: Generation
    known: dict[String, NDArray[np.float64] | None] = field(factory=dict)

    def after(self, string: String) -> NDArray[np.float64] | None:
        """The law `(V,)` of the next token; None where none can follow."""
        if string not in self.known:
            self.known[string] = self._after(string)
        return self.known[string]

    def _after(self, string: String) -> NDArray[np.float64] | None:
        context = RuleContext(self.toy.vocab_size, len(self.toy.prompt), self.toy.eos_ids)
        rule = SamplingRule.build(self.generation, context)
        prefix, state = (*self.toy.prompt, *string), rule.constraint
        row = torch.tensor([list(self.toy.p(prefix))], dtype=torch.float64)
        for processor in rule.processors:
            row = processor(torch.tensor([prefix]), row)
        for token in string:
            state = state and state.advance(token)
        if state is not None:
            row[0, ~torch.from_numpy(state.allowed())] = -math.inf
        for warper in rule.warpers:
            row = warper(None, row)
        logits = row[0].numpy()
        if not math.isfinite(logits.max()):
            return None
        if self.generation.greedy:
            return np.asarray(np.eye(len(logits))[int(logits.argmax())])
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def strings(self, length: int, begun: Mapping[String, float] | None = None) -> Distribution:
        """The law of strings of `length` tokens, or up to an end token, or `DEAD`; `begun`: what they begin with."""
        found: Distribution = defaultdict(float)
        ends = self.generation.end_ids(self.toy.eos_ids)
        pending = list((begun or {(): 1.0}).items())
        while pending:
            string, probability = pending.pop()
            if len(string) >= length or not ends.isdisjoint(string[-1:]):
                found[string] += probability
            elif (law := self.after(string)) is None:
                found[(*string, DEAD)] += probability
            else:
                pending += [((*string, x), probability * float(law[x])) for x in np.flatnonzero(law).tolist()]
        return found


def total_variation(one: Distribution, other: Distribution) -> float:
    """Half the sum of all differences."""
    return sum(abs(one.get(string, 0.0) - other.get(string, 0.0)) for string in {*one, *other}) / 2


def distance(
    verifier: Verifier,
    drafts: str | SampledDrafter,
    toy: Toy,
    generation: Generation | None = None,
    *,
    rounds: int = 1,
) -> float:
    """Total variation between plain decoding and `rounds` rounds that are completed plainly, on whole strings."""
    generation = generation or Generation(temperature=1.0)
    trial, book = Trial.prepare(verifier, drafts, toy, generation), Book(toy, generation)
    runs: Distribution = defaultdict(float)
    for string, probability in trial.rounds(rounds):
        runs[string] += probability
    length = min(generation.max_new_tokens, max(len(string) for string in runs) + 1)
    return total_variation(book.strings(length, runs), book.strings(length))


def check_law(
    verifier: Verifier,
    drafts: str | SampledDrafter,
    toy: Toy,
    generation: Generation | None = None,
    *,
    rounds: int = 1,
) -> None:
    """The output has the target's own law; AssertionError with the total variation when it has not.

    `drafts` names one of `draftmux.testing.sampled.KINDS` (a verifier of chains: one of `CHAINS`), or is a drafter.
    """
    off = distance(verifier, drafts, toy, generation, rounds=rounds)
    name = drafts if isinstance(drafts, str) else type(drafts).__name__
    assert off <= NEAR, f"{type(verifier).__name__} on {name}: total variation {off:.3g} from the target's law"


@frozen(eq=False)
class Bias:
    """A verifier and a drafter that bend the law by `at_least` (total variation), and a pair that does not."""

    at_least: float
    toy: Toy
    wrong: tuple[Verifier, SampledDrafter]
    right: tuple[Verifier, SampledDrafter]
    generation: Generation = field(factory=lambda: Generation(temperature=1.0))
    rounds: int = 1


def check_biased(bias: Bias) -> None:
    """`check_law` passes the right pair and catches the wrong one, which is as far off as it should be."""
    check_law(*bias.right, bias.toy, bias.generation, rounds=bias.rounds)
    off = distance(*bias.wrong, bias.toy, bias.generation, rounds=bias.rounds)
    assert off >= max(bias.at_least, NEAR), f"total variation {off:.3g}; a fault of {bias.at_least} should show"
