"""Numbers that a router reads off hidden states: which row they are of, what a failing one does, what they cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from attrs import define, field, frozen

from draftmux.binding import bind_parts
from draftmux.config.spec import PipelineSpec, PluginSpec
from draftmux.drafting import SequenceDrafter
from draftmux.errors import PluginError
from draftmux.generation import Generation
from draftmux.routing import BaseRouter
from draftmux.testing.drafters import ahead
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted, tiny_target
from draftmux.types import Budget, Choice, Draft, Emits, Needs, Reading, Tap
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from draftmux.types import Context

TAP = Tap(1, "resid_post")


@define(eq=False)
class Reads(BaseRouter):
    """Drafts with the only drafter, and keeps what it was given to read."""

    readings: tuple[Reading, ...]
    needs: Needs = field(init=False)
    seen: list[tuple[str, int, tuple[float, ...]]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.needs = Needs(taps=(TAP,), readings=self.readings)

    def choose(self, state: Any, context: Context, drafters: Any) -> Choice:
        values = tuple(context.readings[reading] for reading in self.readings)
        self.seen.append((context.request_id, len(context.tokens), values))
        return Choice(next(iter(drafters), None))


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("llama", taps=(TAP,))


def asks(count: int) -> list[Ask]:
    return [
        Ask((1, 2, 3, 4 + number), Generation(max_new_tokens=9 + number, ignore_eos=True), f"r{number}")
        for number in range(count)
    ]


def drafters(target: Any, wanted: list[Ask]) -> dict[str, Any]:
    plain = serve(assemble(target), wanted)
    texts = [(*ask.tokens, *plain[ask.request_id].finished.tokens) for ask in wanted]
    return {"draft": Second(texts, target.vocab_size)}


@frozen
class Second(SequenceDrafter):
    """A wrong branch of two, then the right one of two, so that accepted nodes are not the first ones."""

    texts: list[tuple[int, ...]]
    size: int
    emits = Emits(tree=True)

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        true = ahead(self.texts, context, 2)
        return Draft.from_candidates([[(true[0] + 1) % self.size, 0], true], budget) if true else Draft.empty()


@pytest.mark.parametrize("batch", [1, 3])
def test_readings_are_of_the_position_before_the_root(target: Any, batch: int) -> None:
    """After the prefill, after accepted and refused drafts, in batches: as in one forward over the whole text."""
    size = target.model.config.hidden_size
    weights = torch.linspace(-1, 1, size), torch.ones(size)
    router = Reads(tuple(Reading(TAP, lambda states, w=w: states.float() @ w) for w in weights))
    wanted = asks(3)
    found = serve(assemble(target, drafters(target, wanted), router), wanted, batch)
    assert sum(found[ask.request_id].finished.metrics.accepted for ask in wanted) > 0
    for ask in wanted:
        text = (*ask.tokens, *found[ask.request_id].finished.tokens)
        opened = target.open(text)
        target.close(opened.sequence)
        own = [(length, values) for name, length, values in router.seen if name == ask.request_id]
        assert len(own) > 1
        for length, values in own:
            state = opened.taps[TAP][length - 2].float()
            assert values == pytest.approx([float(state @ weight) for weight in weights], abs=1e-4)


@pytest.mark.parametrize(
    "read",
    [
        lambda states: 1 / 0,
        lambda states: states,
        lambda states: 0.5,
        lambda states: states.sum(),
    ],
)
def test_a_reading_that_fails_is_not_a_number_and_costs_nothing_else(target: Any, read: Any) -> None:
    good = Reading(TAP, lambda states: states.float().sum(-1))
    router, wanted = Reads((Reading(TAP, read), good)), asks(2)
    plain = serve(assemble(target), wanted)
    found = serve(assemble(target, {}, router, policy="skip"), wanted, 2)
    for ask in wanted:
        assert found[ask.request_id].finished.tokens == plain[ask.request_id].finished.tokens
        assert any("router" in fault for fault in found[ask.request_id].finished.metrics.faults)
    assert all(math.isnan(values[0]) and math.isfinite(values[1]) for _, _, values in router.seen)
    failed = serve(assemble(target, {}, Reads((Reading(TAP, read),)), policy="raise"), wanted, 2)
    assert all(isinstance(failed[ask.request_id].error, PluginError) for ask in wanted)


def test_a_prompt_of_one_token_gives_nothing_to_read(target: Any) -> None:
    router = Reads((Reading(TAP, lambda states: states.float().sum(-1)),))
    serve(assemble(target, {}, router), [Ask((1,), Generation(max_new_tokens=3, ignore_eos=True), "one")])
    assert math.isnan(router.seen[0][2][0]) and math.isfinite(router.seen[1][2][0])


def waits(target: Any, readings: tuple[Reading, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a run reads a tensor: on a device each time would wait for it."""
    count = 0

    def counting(real: Any) -> Any:
        def counted(tensor: Any) -> Any:
            nonlocal count
            count += 1
            return real(tensor)

        return counted

    with monkeypatch.context() as patched:
        for name in ("tolist", "item", "__float__", "__int__", "__bool__"):
            patched.setattr(torch.Tensor, name, counting(getattr(torch.Tensor, name)))
        ask = Ask((1, 2, 3), Generation(max_new_tokens=8, ignore_eos=True), "one")
        serve(assemble(target, {}, Reads(readings)), [ask])
    return count


def test_readings_come_with_the_picks(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more read in all, of the prompt's last state."""
    reading = Reading(TAP, lambda states: states.float().sum(-1))
    assert waits(target, (reading,), monkeypatch) == waits(target, (), monkeypatch) + 1


@pytest.mark.parametrize("readings", [(Reading(Tap(3, "attn_out"), torch.sum),), ("score",)])
def test_what_cannot_be_read_is_refused_when_bound(readings: Any) -> None:
    plugin = PluginSpec("reader", "reader", Reads(readings), {})
    spec = PipelineSpec(
        origin="p.yaml",
        models={},
        drafters={},
        router=plugin,
        verifier=PluginSpec("verifier", "exact-match", ExactMatch(), {}),
        backend=PluginSpec("backend", "scripted", None, {}),
    )
    with pytest.raises(PluginError, match=r"(?s)'reader'.*needs.readings holds"):
        bind_parts(spec, scripted(hash_law(1, 5), 5))
