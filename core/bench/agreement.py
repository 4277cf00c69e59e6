"""How far the outputs of contenders agree, token for token, and how close the call was where they first differ.

The judgement follows the numerics policy: float64 must agree; float32 may differ where the two best logits are within
1e-4; in bfloat16 and float16, when sampling, and behind a lossy verifier a difference is reported, and nothing follows.
Under `numerics: exact` every format must agree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from attrs import define, field, frozen

from draftmux.constraining import advanced
from draftmux.noise import perturbed
from draftmux.protocols import Row
from draftmux.sampling import RuleContext, SamplingRule
from draftmux.tree import ROOT
from draftmux.types import Context, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.bench.conversation import Prompt
    from draftmux.bench.run import Unit
    from draftmux.generation import Generation

TIE = 1e-4  # largest gap between the two best float32 logits that rounding may close

Verdict = Literal["tie", "breach", "reported", "law"]


@frozen(eq=False)
class Difference:
    """The first token in which an output leaves the reference's, which chose by `margin` (None: it had ended there).

    `margin` is the reference's gap between its two best logits there, after processors and with its noise.
    """

    prompt: Prompt
    index: int
    margin: float | None
    verdict: Verdict
    reference: tuple[int, ...]
    tokens: tuple[int, ...]


@frozen(eq=False)
class Agreement:
    """Of `prompts` prompts `identical` agree in every repeat; the others' first differences."""

    prompts: int
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> int:
        """Prompts that agree."""
        return self.prompts - len(self.differences)

    @property
    def complete(self) -> bool:
        """Whether all of them do."""
        return not self.differences

    @property
    def in_law(self) -> bool:
        """Whether texts differ as two samples of one law do."""
        return any(difference.verdict == "law" for difference in self.differences)

    @property
    def breaches(self) -> list[Difference]:
        """Differences that the numerics policy does not allow."""
        return [difference for difference in self.differences if difference.verdict == "breach"]


@frozen
class Policy:
    """What a difference means.

    `demands_text`: both sides are meant to give the target's own greedy text. `in_law`: both sample from the target's
    law, and not with the same random numbers, so that no text of a seed can be expected of both. `exact`: the
    backend's numerics give both the same bits, whatever the number format.
    """

    dtype: str
    demands_text: bool
    in_law: bool = False
    exact: bool = False

    def verdict(self, margin: float | None) -> Verdict:
        """Judge the first difference by its margin."""
        if self.in_law:
            return "law"
        if self.exact and self.demands_text:
            return "breach"
        if not self.demands_text or self.dtype not in ("float64", "float32"):
            return "reported"
        within = self.dtype == "float32" and margin is not None and margin <= TIE
        return "tie" if within else "breach"


def compare(units: Sequence[Unit], name: str, reference: str, policy: Policy, margins: Margins) -> Agreement:
    """Compare every output of contender `name` with the reference's first one for the same prompt."""
    differences: list[Difference] = []
    prompts = 0
    for unit in units:
        for i, prompt in enumerate(unit.prompts):
            prompts += 1
            expected = unit.trials[reference][0].outputs[i].tokens
            made = [trial.outputs[i].tokens for trial in unit.trials[name]]
            found = next((tokens for tokens in made if tokens != expected), None)
            if found is not None:
                index = first_difference(expected, found)
                margin = margins.at(prompt.tokens, expected[:index]) if index < len(expected) else None
                differences.append(Difference(prompt, index, margin, policy.verdict(margin), expected, found))
    return Agreement(prompts, tuple(differences))


def first_difference(one: Sequence[int], two: Sequence[int]) -> int:
    """Index of the first token that differs; where one ends and the other goes on, the length of the shorter."""
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


@define(eq=False)
class Margins:
    """Recomputes how the target chose the token after a prefix, by a pass of its own. Remembers what it has computed.

    After an interrupt it computes no more, so that a report does not have to wait.
    """

    backend: Any
    generation: Generation
    stopped: bool = False
    _known: dict[tuple[int, ...], float | None] = field(factory=dict, init=False)

    def at(self, prompt: Sequence[int], generated: Sequence[int]) -> float | None:
        """Gap between the two best logits after prompt and generated; None when nothing rivals the best."""
        tokens = (*prompt, *generated)
        if tokens not in self._known and not self.stopped:
            try:
                self._known[tokens] = self._compute(tokens, len(prompt))
            except KeyboardInterrupt:
                self.stopped = True
        return self._known.get(tokens)

    def _compute(self, tokens: tuple[int, ...], prompt_length: int) -> float | None:
        backend, generation = self.backend, self.generation
        rule = SamplingRule.build(
            generation,
            RuleContext(backend.vocab_size, prompt_length, backend.eos_ids, backend.device, backend.tokenizer),
        )
        context = Context("margin", np.array(tokens, dtype=np.int64), prompt_length, 1, {}, (), generation)
        handle = backend.open(tokens).sequence
        try:
            scores = backend.score([Row(handle, tokens[-1], Draft.empty())])[0]
        finally:
            backend.close(handle)
        constraint = rule.constraint and advanced(rule.constraint, tokens[prompt_length:])
        logits = rule.at(context, Draft.empty(), scores, constraint).logits(ROOT)
        if not generation.greedy:
            logits = perturbed(logits, generation.seed, len(tokens))
        best = logits.topk(min(2, len(logits))).values.tolist()
        gap = best[0] - best[-1]
        return gap if len(best) == 2 and math.isfinite(gap) else None


def logits_dtype(backend: Any) -> str:
    """Number format in which the target computes, such as `bfloat16`."""
    dtype = getattr(getattr(backend, "model", None), "dtype", None)
    if dtype is None:
        handle = backend.open((0,)).sequence
        dtype = backend.score([Row(handle, 0, Draft.empty())])[0].logits.dtype
        backend.close(handle)
    return str(dtype).removeprefix("torch.")
