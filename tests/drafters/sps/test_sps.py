"""A draft model that is the target itself is always right, whatever its cache went through."""

from __future__ import annotations

import copy
import gc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from attrs import define, field, frozen

from draftmux.costs import CostCurve
from draftmux.engine.scheduler import Scheduler
from draftmux.errors import PluginError
from draftmux.generation import Generation
from draftmux.protocols import Drafter, DraftRequest, Resources
from draftmux.routing import BaseRouter
from draftmux.testing.harness import Outcome, assemble, open_sequences, serve
from draftmux.testing.reference import Ask
from draftmux.testing.routers import RandomRouter, Watching
from draftmux.testing.targets import MODEL_VOCAB, MODELS, tiny_model
from draftmux.types import Budget, Choice, Context, Draft
from draftmux.verifiers.rejection import Rejection

GREEDY, SAMPLED = Generation(max_new_tokens=200), Generation(max_new_tokens=60, temperature=0.8, seed=4)
DEPTHS = (6, 2, 5, 3, 4, 1)  # shallow ones between deep ones, which sit out the later passes


@frozen
class ByName(BaseRouter):
    """A draft as deep as the request's id says."""

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        return Choice("sps", Budget(max_depth=DEPTHS[int(context.request_id)]))


def asks(count: int, generation: Generation, lengths: Sequence[int] = ()) -> list[Ask]:
    """Requests with prompts of different length, and of other lengths than the first."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(count):
        tokens = tuple(rng.integers(0, MODEL_VOCAB, 1 + 7 * number).tolist())
        length = lengths[number] if lengths else generation.max_new_tokens
        settings = Generation(max_new_tokens=length, temperature=generation.temperature, seed=number)
        found.append(Ask(tokens, settings, str(number)))
    return found


def check_all_accepted(outcomes: Mapping[str, Outcome], plain: Mapping[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        assert outcome.finished.tokens == plain[name].finished.tokens
        metrics = outcome.finished.metrics
        assert metrics.drafted and metrics.accepted == metrics.drafted, f"request {name}: {metrics}"


@pytest.mark.parametrize(
    ("backend", "dtype", "generation"),
    [
        ("static", torch.float32, GREEDY),
        ("static", torch.float64, SAMPLED),
        ("transformers", torch.float32, SAMPLED),
        ("transformers", torch.float64, GREEDY),
    ],
)
def test_of_its_own_twin_a_target_takes_every_token(
    make_target: Any, make_sps: Any, backend: str, dtype: torch.dtype, generation: Generation
) -> None:
    """Chains of 1 to 6, side by side in one batch."""
    target, asked = make_target(backend, dtype, positions=512), asks(6, generation)
    sps = make_sps(target, depth=6)
    outcomes = serve(assemble(target, {"sps": sps}, ByName()), asked, max_batch=6)
    check_all_accepted(outcomes, serve(assemble(target), asked, max_batch=6))
    for name, outcome in outcomes.items():
        assert outcome.finished.metrics.steps == -(-generation.max_new_tokens // (DEPTHS[int(name)] + 1))


@pytest.mark.parametrize(
    ("backend", "generation", "depth"), [("static", GREEDY, 6), ("static", SAMPLED, 4), ("transformers", GREEDY, 3)]
)
def test_also_when_it_is_skipped_and_the_batch_changes(
    make_target: Any, make_sps: Any, backend: str, generation: Generation, depth: int
) -> None:
    target = make_target(backend, torch.float32)
    asked = asks(6, generation, (200 if generation is GREEDY else 40, 20, 50, 9, 30, 15))
    outcomes = serve(assemble(target, {"sps": make_sps(target, depth=depth)}, RandomRouter(depth)), asked, 3)
    check_all_accepted(outcomes, serve(assemble(target), asked, max_batch=3))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{"depth": 5}, {"depth": 4, "top_k": 2, "max_nodes": 9}], ids=["chain", "tree"])
def test_on_the_runner_of_h100(make_target: Any, make_sps: Any, shape: dict[str, int]) -> None:
    """Drafts of more levels than two stand on nodes that are in the slots already; two sequences of uneven length."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("its graphs are tried where they are captured")
    from draftmux.backends.h100.backend import H100Backend

    model = copy.deepcopy(tiny_model("llama")).to(torch.float32)
    target = H100Backend(rows=(1, 2, 4), context=64, self_check=False).over(model)
    target._curve = CostCurve((1,), (1.0,))
    asked = asks(2, GREEDY, (10, 5))
    outcomes = serve(assemble(target, {"sps": make_sps(target, **shape)}), asked, 2)
    usual = make_target("static", torch.float32)
    expected = serve(assemble(usual, {"sps": make_sps(usual, **shape)}), asked, 2)
    for name, outcome in outcomes.items():
        assert outcome.finished.tokens == expected[name].finished.tokens
        assert outcome.finished.metrics.accepted == expected[name].finished.metrics.accepted > 3


@define(eq=False)
class Compared:
    """A drafter, and how far its drafts are from those of a state that has read nothing yet."""

    inner: Any
    drafts: int = 0
    rows: list[int] = field(factory=list)  # open at a time

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts: list[Draft] = self.inner.propose(requests)
        self.rows.append(open_sequences(self.inner.reader.target))
        fresh = [DraftRequest(r.context, self.inner.begin(r.context), r.budget) for r in requests]
        for draft, other in zip(drafts, self.inner.propose(fresh), strict=True):
            assert draft.tokens.tolist() == other.tokens.tolist() and draft.parents.tolist() == other.parents.tolist()
            if draft.q is not None and other.q is not None:
                assert float((draft.q - other.q).abs().max()) < 1e-9
            self.drafts += len(draft)
        return drafts


SHAPES: dict[str, dict[str, Any]] = {
    "sampled": {"draw": "sampled"},
    "unsure": {"draw": "sampled", "min_confidence": 0.35},
    "tree": {"top_k": 3, "depth": 3},
}


@pytest.mark.parametrize(("backend", "shape"), [("transformers", "sampled"), *(("static", shape) for shape in SHAPES)])
def test_the_cache_is_that_of_a_fresh_prefill(make_target: Any, make_sps: Any, backend: str, shape: str) -> None:
    """After rejected drafts, skipped steps and neighbours that came and went; fresh states come and go as well."""
    target = make_target(backend)
    compared = Compared(make_sps(target, copy.deepcopy(tiny_model("qwen3")), **SHAPES[shape]))
    verifier = None if shape == "tree" else Rejection()
    parts = assemble(target, {"sps": compared}, RandomRouter(1), verifier=verifier)
    outcomes = serve(parts, asks(5, SAMPLED, (40, 12, 30, 5, 20)), max_batch=3).values()
    assert compared.drafts > 20 and sum(each.finished.metrics.accepted for each in outcomes) > 2


def test_stale_keys_would_show(make_target: Any, make_sps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped steps leave rejected tokens where others should stand."""
    monkeypatch.setattr("draftmux.drafters.sps.bound.common_prefix", lambda read, tokens: min(len(read), len(tokens)))
    target = make_target()
    compared = Compared(make_sps(target, copy.deepcopy(tiny_model("qwen3")), draw="sampled"))
    [outcome] = serve(assemble(target, {"sps": compared}, RandomRouter(1)), asks(1, SAMPLED)).values()
    assert isinstance(outcome.error, PluginError)


def test_twice_asked_at_one_place_it_says_the_same(make_target: Any, make_sps: Any, make_context: Any) -> None:
    sps = make_sps(make_target(), depth=4)
    context = make_context([3, 1, 4, 1, 5])
    request = DraftRequest(context, sps.begin(context), Budget())
    first, again = (sps.propose([request])[0].tokens.tolist() for _ in range(2))
    assert first == again and len(first) == 4


def test_a_failed_pass_is_not_taken_for_read(
    make_target: Any, make_sps: Any, make_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sps = make_sps(make_target(), depth=3)
    short, long = make_context([3, 1, 4]), make_context([3, 1, 4, 7, 7, 2])
    state = sps.begin(short)
    sps.propose([DraftRequest(short, state, Budget())])
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(type(sps.reader.target), "_pass", lambda *_: 1 / 0)
        sps.propose([DraftRequest(long, state, Budget())])
    found = [sps.propose([DraftRequest(long, each, Budget())])[0].tokens.tolist() for each in (state, sps.begin(long))]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("backend", "name"), [("transformers", "llama"), ("transformers", "gpt2"), *(("static", name) for name in MODELS)]
)
def test_where_the_draft_model_s_context_ends_drafts_stop(
    make_target: Any, make_sps: Any, backend: str, name: str
) -> None:
    """Neighbours that are shorter draft on."""
    target, watch = make_target(backend, name=name), Watching()
    sps = make_sps(target, copy.deepcopy(tiny_model(name, 24)), depth=5)
    asked = [Ask((1, 2, 3), Generation(max_new_tokens=40), "1"), Ask((4,), Generation(max_new_tokens=14), "2")]
    asked.append(Ask(tuple(range(30)), Generation(max_new_tokens=8), "3"))
    outcomes = serve(assemble(target, {"sps": sps}, watch), asked, max_batch=2)
    plain = serve(assemble(target), asked, max_batch=2)
    assert [each.finished.tokens for each in outcomes.values()] == [each.finished.tokens for each in plain.values()]
    drafted = [(len(c.tokens), len(s.draft)) for c, s in zip(watch.contexts, watch.steps, strict=True)]
    assert all(length + nodes <= 24 for length, nodes in drafted if nodes)
    assert all(nodes for length, nodes in drafted if length < 10) and max(length for length, _ in drafted) > 35


@pytest.mark.parametrize("size", [32, 48])
def test_ids_that_only_one_of_both_has(make_target: Any, make_sps: Any, size: int) -> None:
    """With a smaller embedding it reads no text that has ids beyond it; with a larger one it drafts none of them."""
    target, draft = make_target(), copy.deepcopy(tiny_model("llama"))
    draft.resize_token_embeddings(size, mean_resizing=False)
    draft.double()
    asked = [
        Ask((1, 2), Generation(max_new_tokens=30, logit_bias=dict.fromkeys(range(32, 40), -99.0)), "1"),
        Ask((39, 2), Generation(max_new_tokens=9), "2"),
        Ask((3,), Generation(max_new_tokens=60, temperature=2.0), "3"),
    ]
    outcomes = serve(assemble(target, {"sps": make_sps(target, draft)}), asked, max_batch=3)
    plain = serve(assemble(target), asked, max_batch=3)
    assert [each.finished.tokens for each in outcomes.values()] == [each.finished.tokens for each in plain.values()]
    first, second, _ = (each.finished.metrics for each in outcomes.values())
    assert first.accepted == first.drafted > 20
    assert (second.drafted == 0) == (size == 32)


def test_rows_are_freed_when_requests_end(make_target: Any, make_sps: Any, make_context: Any) -> None:
    target = make_target()
    compared = Compared(make_sps(target))
    serve(assemble(target, {"sps": compared}), asks(6, GREEDY, (8, 20, 12, 30, 9, 5)), max_batch=2)
    assert 0 < max(compared.rows) <= 2 + 2 + 2  # running, just ended, and the fresh ones to compare with
    gc.collect()
    assert not compared.inner.propose([])
    assert open_sequences(compared.inner.reader.target) == 0


def test_a_cancelled_request_gives_its_row_back(make_target: Any, make_sps: Any) -> None:
    target = make_target()
    sps = make_sps(target)
    scheduler = Scheduler(assemble(target, {"sps": sps}), None, max_batch=2)
    for name in ("1", "2"):
        scheduler.submit((1, 2), Generation(max_new_tokens=50), name)
    scheduler.advance()
    assert open_sequences(sps.reader.target) == 2
    scheduler.cancel("1")
    gc.collect()
    scheduler.advance()
    assert open_sequences(sps.reader.target) == 1


def test_a_state_that_never_drafted_has_no_row(make_target: Any, make_sps: Any, make_context: Any) -> None:
    sps = make_sps(make_target())
    state = sps.begin(make_context([1, 2]))
    assert state.sequence is None and open_sequences(sps.reader.target) == 0
    assert sps.bind(Resources()) is sps and sps.uses() == () and sps.needs.taps == ()
