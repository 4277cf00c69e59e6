"""A learned arbiter at work gives what a pass over whole blocks gives; it changes neither model; others are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from safetensors.torch import load_file, save_file

from draftmux.drafters.sps.bound import BoundSps
from draftmux.engine.scheduler import Scheduler
from draftmux.errors import ModelError, PluginError
from draftmux.generation import Generation
from draftmux.models.adapters import adapt, own_copy, read_adapter
from draftmux.protocols import Resources
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import BACKENDS, hash_law, scripted
from draftmux.verifiers.cospec import layout, learned, window
from draftmux.verifiers.cospec.checkpoint import CONFIG, HEAD
from draftmux.verifiers.cospec.features import features
from draftmux.verifiers.cospec.learned import LearnedArbiter, headless
from draftmux.verifiers.cospec.network import Batch, Network, Sample
from draftmux.verifiers.cospec.new_network import studied
from draftmux.verifiers.cospec.recipe import ArbiterRecipe
from draftmux.verifiers.cospec.verifier import CospecArbiter

ASKS = [Ask((1, i, 3), Generation(max_new_tokens=40 - 6 * i, ignore_eos=True), f"r{i}") for i in range(3)]


def network(pair: Any, segment_only_lora: bool = False) -> Network:
    """The same arbiter as it is trained."""
    model = own_copy(pair.drafter.reader.target.model)
    adapt(model, read_adapter(pair.folder), "it")
    adapter = read_adapter(pair.folder)
    down = [model.get_submodule(path).down for path in adapter.pairs] if segment_only_lora else ()
    return Network(headless(model), pair.bound().judge.head, down)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sample, torch.Tensor]]:
    """Blocks with what the arbiter at work said of them; contexts are what its window held."""
    seen: list[tuple[Sample, torch.Tensor]] = []
    logits = LearnedArbiter.logits

    def noted(self: LearnedArbiter, blocks: Any) -> Any:
        found = logits(self, blocks)
        for block, each in zip(blocks, found, strict=True):
            context = block.request.context.tokens[getattr(block.state, "start", 0) :]
            numbers = features(block).numpy()
            seen.append((Sample(context.copy(), block.drafted, block.verified, numbers), each))
        return found

    monkeypatch.setattr(LearnedArbiter, "logits", noted)
    return seen


def agree(seen: list[tuple[Sample, torch.Tensor]], trained: Network, separator: int = 39) -> None:
    with torch.no_grad():
        for sample, found in seen:
            whole = trained(Batch.of([sample], 10_000, separator))[0]
            assert float((whole - found).abs().max()) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("size", "slack"), [(64, 256), (12, 5)])
def test_kept_rows_give_what_whole_blocks_give(
    pair: Any, monkeypatch: pytest.MonkeyPatch, backend: str, batch: int, size: int, slack: int
) -> None:
    monkeypatch.setattr(window, "SLACK", slack)
    ours, seen = pair(backend, window=size), watched(monkeypatch)
    parts = assemble(ours.target, {"draft": ours.drafter}, verifier=ours.bound())
    found = serve(parts, ASKS, batch)
    assert len(seen) > 10 and all(len(sample.context) <= size + slack for sample, _ in seen)
    told = found["r0"].finished.metrics.verifier
    assert 0 < told["kept"] < told["decisions"] and told["seconds"] > 0
    agree(seen, network(ours))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_draft_models_own_rows_give_what_whole_blocks_give(
    pair: Any, monkeypatch: pytest.MonkeyPatch, backend: str, batch: int
) -> None:
    """Adapted behind the context alone. The drafts are those that they were: nothing stays in the drafter's rows."""
    ours, seen = pair(backend, window=1 << 30, segment_only_lora=True), watched(monkeypatch)
    verifier = ours.bound()
    assert verifier.judge.reader.target.cache is ours.drafter.reader.target.cache
    found = serve(assemble(ours.target, {"draft": ours.drafter}, verifier=verifier), ASKS, batch)
    told = found["r0"].finished.metrics.verifier
    assert len(seen) > 10 and 0 < told["kept"] < told["decisions"]
    agree(seen, network(ours, segment_only_lora=True))
    with pytest.raises(AssertionError):  # an adapter that is active everywhere would be seen
        agree(seen, network(ours))
    refusing = ours.bound(threshold=1.5, basis="coupled")
    passes = [
        serve(assemble(ours.target, {"draft": ours.drafter}, **more), ASKS, batch)["r0"].finished.metrics.steps
        for more in ({}, {"verifier": refusing})
    ]
    assert passes[0] == passes[1]


def test_a_row_that_is_taken_for_read_would_be_seen(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: segments stay in the drafter's rows as if they were its drafts."""
    whole = BoundSps.whole

    def stays(self: Any, request_id: str, tokens: Any) -> Any:
        before = self.readings[request_id].read
        found = whole(self, request_id, tokens)
        self.readings[request_id].read = before
        return found

    monkeypatch.setattr(BoundSps, "whole", stays)
    ours = pair(window=1 << 30, segment_only_lora=True)
    refusing = ours.bound(threshold=1.5, basis="coupled")
    passes = [
        serve(assemble(ours.target, {"draft": ours.drafter}, **more), ASKS)["r0"].finished.metrics.steps
        for more in ({}, {"verifier": refusing})
    ]
    assert passes[0] < passes[1]


def crooked(context: int, drafted: int) -> Any:
    return np.tri(context + layout.size(drafted), dtype=np.bool_)


def test_planted_faults_of_the_window_are_caught(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a segment that stay in the cache; a segment that sees only what is before."""
    for fault in ("rows stay", "one way"):
        with monkeypatch.context() as patch:
            read = window.WindowReader.read

            def stays(self: Any, asks: Any, read: Any = read) -> Any:
                found = read(self, asks)
                for ask in asks:
                    ask.state.sequence.length += 1
                return found

            def blind(self: Any, asks: Any, read: Any = read) -> Any:
                return read(self, [window.Ask(a.state, a.tokens, a.behind, two_way=False) for a in asks])

            patch.setattr(window.WindowReader, "read", stays if fault == "rows stay" else blind)
            ours, seen = pair(), watched(patch)
            serve(assemble(ours.target, {"draft": ours.drafter}, verifier=ours.bound()), ASKS[:1])
            with pytest.raises(AssertionError):
                agree(seen, network(ours))


def test_context_rows_do_not_depend_on_what_follows(pair: Any) -> None:
    trained = network(pair())
    rng = np.random.default_rng(0)
    one = Sample(rng.integers(0, 39, 9), (1, 2, 3), (1, 5, 6), np.zeros((3, 5), dtype=np.float32))
    two = Sample(one.context, (7, 8, 9), (4, 4, 4), one.features)
    far = Sample(one.context, one.drafted, (*one.verified[:2], 30), one.features)
    states = []
    for sample in (one, two, far):
        batch = Batch.of([sample], 64, 39)
        hidden: Any = trained.backbone(
            input_ids=batch.ids,
            position_ids=batch.positions,
            attention_mask=torch.zeros(batch.mask.shape, dtype=torch.float64).masked_fill(~batch.mask, -1e30),
            use_cache=False,
        ).logits[0]
        states.append(hidden)
    assert float((states[0][:10] - states[1][:10]).abs().max()) == 0
    assert float((states[0][layout.drafted_rows(9, 3)][0] - states[2][layout.drafted_rows(9, 3)][0]).abs().max()) > 1e-6


def test_padding_changes_nothing(pair: Any) -> None:
    trained = network(pair())
    rng = np.random.default_rng(1)
    samples = [
        Sample(
            rng.integers(0, 39, 3 + 5 * i),
            (1, 2, 3)[: i + 1],
            (3, 2, 1)[: i + 1],
            rng.random((i + 1, 5)).astype(np.float32),
        )
        for i in range(3)
    ]
    together = trained(Batch.of(samples, 64, 39)).detach()
    for i, sample in enumerate(samples):
        alone = trained(Batch.of([sample], 64, 39))[0].detach()
        assert float((together[i, : i + 1] - alone).abs().max()) < 1e-12


def test_the_line_is_where_training_drew_it_unless_told(pair: Any) -> None:
    ours = pair(threshold=0.62)
    assert (ours.bound().options.threshold, ours.bound(threshold=0.3).options.threshold) == (0.62, 0.3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("batch", [1, 3])
def test_refusing_all_is_lossless(pair: Any, temperature: float, batch: int) -> None:
    ours = pair()
    verifier = ours.bound(threshold=1.5, basis="coupled")
    for seed in range(1 if temperature == 0 else 2):
        asks = [evolve(ask, generation=evolve(ask.generation, temperature=temperature, seed=seed)) for ask in ASKS]
        plain = serve(assemble(ours.target), asks)
        found = serve(assemble(ours.target, {"draft": ours.drafter}, verifier=verifier), asks, batch)
        for ask in asks:
            assert found[ask.request_id].finished.tokens == plain[ask.request_id].finished.tokens


def test_target_and_draft_stay_as_they_are(pair: Any) -> None:
    ours = pair()
    drafted = serve(assemble(ours.target, {"draft": ours.drafter}), ASKS)
    plain = serve(assemble(ours.target), ASKS)
    serve(assemble(ours.target, {"draft": ours.drafter}, verifier=ours.bound()), ASKS, 3)
    again = serve(assemble(ours.target, {"draft": ours.drafter}), ASKS)
    for name in ("r0", "r1", "r2"):
        assert again[name].finished.tokens == plain[name].finished.tokens
        assert again[name].finished.metrics.accepted == drafted[name].finished.metrics.accepted


def test_a_head_without_features_reads_none(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(block: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(learned, "features", read)
    ours = pair(features=())
    assert serve(assemble(ours.target, {"draft": ours.drafter}, verifier=ours.bound()), ASKS)["r0"].result is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target_fingerprint": "0" * 64, "target": "another"}, "was trained for another"),
        ({"draft_fingerprint": "0" * 64}, "was trained for tiny draft"),
        ({"format": 2}, "format 2 is not 1"),
        ({"features": ["x"]}, "features must be"),
        ({"window": 0}, "window"),
        ({"threshold": -1}, "threshold"),
        ({"hidden_size": 7}, "head|7"),
        ({"more": 1}, "more"),
        ({"separator": 1_000_000}, "separator is id 1000000, and its model has"),
        ({"separator": 1.7}, "separator must be a whole number"),
        ({"window": float("inf")}, "window must be a whole number"),
        ({"hidden_size": 10**13}, "hidden_size must be a whole number"),
        ({"draft_layers": "2"}, "draft_layers must be a whole number"),
        ({"draft_layers": 9}, "a draft model of 9 layers"),
        ({"segment_only_lora": "no"}, "segment_only_lora must be true or false"),
        ({"threshold": "x"}, "threshold must be between 0 and 1"),
    ],
)
def test_arbiters_that_do_not_fit_are_refused(pair: Any, change: dict[str, Any], said: str) -> None:
    ours = pair()
    path = Path(ours.folder) / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(ModelError, match=said):
        ours.bound()


def test_damaged_files_are_named(pair: Any) -> None:
    ours = pair()
    path = Path(ours.folder) / HEAD
    tensors = load_file(path)
    save_file({name: tensor * float("nan") for name, tensor in tensors.items()}, path)
    with pytest.raises(ModelError, match="not finite"):
        ours.bound()
    path.unlink()
    with pytest.raises(ModelError, match=HEAD):
        ours.bound()
    (Path(ours.folder) / CONFIG).unlink()
    with pytest.raises(ModelError, match=CONFIG):
        ours.bound()


def test_a_drafter_without_a_model_is_refused(pair: Any) -> None:
    ours = pair()
    target = scripted(hash_law(1, 5), 5)
    for drafters in ({}, {"draft": object()}):
        with pytest.raises(PluginError, match="use: sps"):
            CospecArbiter(arbiter=ours.folder, draft="draft").bind(Resources(backend=target, drafters=drafters))


@pytest.mark.parametrize(("drafted", "verified", "before"), [(5, 1, 3), (1, 5, 3), (1, 2, 5)])
def test_blocks_with_tokens_that_the_draft_model_does_not_know_have_no_scores(
    pair: Any, monkeypatch: pytest.MonkeyPatch, drafted: int, verified: int, before: int
) -> None:
    ours = pair()
    verifier = ours.bound(threshold=0.0)
    monkeypatch.setattr(type(verifier.judge.reader.target), "vocab_size", property(lambda self: 5))
    assert learned.LearnedArbiter.scores(verifier.judge, []) == []
    blocks = [type("B", (), {"drafted": (drafted,), "verified": (verified,), "request": None})()]
    blocks[0].request = type("R", (), {"context": type("C", (), {"tokens": np.array([before])})()})()
    assert verifier.judge.scores(blocks) == [None]


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks transformers
@pytest.mark.parametrize(("segment_only", "adapted"), [(False, False), (True, False), (True, True)])
def test_what_learns_is_what_decides(
    pair: Any, monkeypatch: pytest.MonkeyPatch, segment_only: bool, adapted: bool
) -> None:
    """PEFT's layers, as they are trained, give the logits that the engine acted on; also on a draft model that has an
    adapter of its own, which is active everywhere."""
    pytest.importorskip("peft")
    ours, seen = pair("transformers"), watched(monkeypatch)
    if adapted:
        adapt(ours.drafter.reader.target.model, read_adapter(ours.folder), "it")
    ours.target.eos_ids = frozenset({7})
    recipe = ArbiterRecipe(rank=2, segment_only_lora=segment_only)
    made = studied(ours.target.model, "draft", ("", ""), ours.resources, recipe)
    made.network.double()
    with torch.no_grad():
        for parameter in made.network.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3)
    serve(assemble(ours.target, {"draft": ours.drafter}, verifier=made.arbitration()), ASKS, 3)
    assert len(seen) > 10
    agree(seen, made.network, made.about.separator)
    assert made.arbitration().eos_ids == {7}  # the target's, whose end is not overridden in training either


def test_schedulers_with_requests_of_one_name_disturb_no_text(pair: Any) -> None:
    """Two of them in turn over one pipeline, on the draft model's own rows; one ends first."""
    ours = pair(window=1 << 30, segment_only_lora=True)
    parts = assemble(ours.target, {"draft": ours.drafter}, verifier=ours.bound())
    alone = serve(parts, ASKS, 3)
    short = [evolve(ask, generation=evolve(ask.generation, max_new_tokens=5)) for ask in ASKS]
    first, second = (Scheduler(parts, None, lossless=False, max_batch=3) for _ in range(2))
    for scheduler, asks in ((first, ASKS), (second, short)):
        for ask in asks:
            scheduler.submit(ask.tokens, ask.generation, ask.request_id)
    found = {}
    streams = [first.run(), second.run()]
    while streams:
        for stream in list(streams):
            delta = next(stream, None)
            if delta is None:
                streams.remove(stream)
            elif delta.result is not None:
                found.setdefault(delta.request_id, []).append(delta.result.tokens)
    for ask in ASKS:
        assert max(found[ask.request_id], key=len) == alone[ask.request_id].finished.tokens
