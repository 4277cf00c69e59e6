"""Drafters with a model of their own change nothing: chains and trees, however drawn, skipped at random."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from draftmux.backends.beside import Reader
from draftmux.drafters.eagle3.drafter import Eagle3
from draftmux.drafters.merge import Merge
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.drafters.sps.bound import BoundSps
from draftmux.drafters.sps.drafter import Sps
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routers.cascade import Cascade
from draftmux.testing import check_drafter
from draftmux.testing import strategies as some
from draftmux.testing.conformance.subject import Setting
from draftmux.testing.harness import Trial, assemble, check_outcome, serve
from draftmux.testing.reference import Ask
from draftmux.testing.routers import Watching
from draftmux.testing.targets import BACKENDS, MODEL_VOCAB, model_law, tiny_model, tiny_target
from draftmux.types import Tap
from draftmux.verifiers.block import Block
from draftmux.verifiers.rejection import Rejection

TAPS = (Tap(0, "resid_post"), Tap(1, "resid_post"))
CHAINS: dict[str, dict[str, Any]] = {
    "coupled chain": {"depth": 4, "top_k": 1},
    "greedy chain": {"depth": 3, "top_k": 1, "draw": "greedy"},
    "sampled chain": {"depth": 3, "top_k": 1, "draw": "sampled"},
    "unsure chain": {"depth": 4, "top_k": 1, "draw": "sampled", "min_confidence": 0.3},
}
TREES: dict[str, dict[str, Any]] = {
    "coupled tree": {"depth": 3, "top_k": 4, "max_nodes": 20},
    "greedy tree": {"depth": 2, "top_k": 6, "max_nodes": 12, "draw": "greedy", "min_confidence": 0.1},
}
SHAPES = CHAINS | TREES
KINDS = ("sps", "layers", "eagle3")
DRAWN = 200


@cache
def near(positions: int) -> Any:
    """A draft model that is often right: the target with noise on its weights."""
    model = copy.deepcopy(tiny_model("llama", positions))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An untrained EAGLE-3 head for the tiny llama, in the layout of speculators, with 24 of its 40 ids."""
    folder: Path = tmp_path_factory.mktemp("head")
    generator = torch.Generator().manual_seed(2)
    ids = torch.randperm(MODEL_VOCAB, generator=generator)[:24].sort().values
    shapes = {
        "fc": (32, 64),
        "lm_head": (24, 32),
        "layers.0.self_attn.q_proj": (32, 64),
        "layers.0.self_attn.k_proj": (16, 64),
        "layers.0.self_attn.v_proj": (16, 64),
        "layers.0.self_attn.o_proj": (32, 32),
        "layers.0.mlp.gate_proj": (48, 32),
        "layers.0.mlp.up_proj": (48, 32),
        "layers.0.mlp.down_proj": (32, 48),
    }
    norms = ("norm", *(f"layers.0.{name}" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")))
    tensors = {f"{name}.weight": 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    tensors |= {f"{name}.weight": torch.ones(32) for name in norms}
    mask = torch.zeros(MODEL_VOCAB, dtype=torch.bool)
    mask[ids] = True
    save_file({**tensors, "d2t": ids - torch.arange(24), "t2d": mask}, folder / "model.safetensors")
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 24,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": [1, 2],
        "transformer_layer_config": {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def drafter_of(kind: str, target: Any, head: str, shape: dict[str, Any], positions: int = 256) -> Any:
    """Bound to a target with `TAPS`."""
    own = {**shape, "self_test": False}
    if kind == "eagle3":
        return Eagle3(head=head, **own).bind(Resources(backend=target))
    if kind == "layers":
        return Sps(layers=1, **own).bind(Resources(backend=target))
    twin = copy.deepcopy(near(positions))  # the static backend packs what it is given
    return BoundSps(Sps(model="draft", **own), target, Reader(target.beside(twin)), Vocabulary(MODEL_VOCAB))


def target_of(backend: str, **options: Any) -> Any:
    return tiny_target("llama", backend=backend, taps=TAPS, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(data=st.data(), count=st.integers(1, 4), max_batch=st.integers(1, 3))
def test_requests_end_as_plain_decoding_ends_them(
    head: str, backend: str, kind: str, data: Any, count: int, max_batch: int
) -> None:
    """Any settings, penalties and stop conditions; alone, or beside a copying drafter that is asked first."""
    positions, short = data.draw(st.sampled_from(((256, 256), (16, 16), (256, 12))))
    eos_ids = data.draw(st.frozensets(st.integers(0, 39), max_size=2))
    target = target_of(backend, positions=positions, eos_ids=eos_ids)
    trial = Trial.prepare(target, data.draw(some.asks(target, count, max_new_tokens=12)), model_law("llama", positions))
    drafters = {"neural": drafter_of(kind, target, head, data.draw(st.sampled_from(list(SHAPES.values()))), short)}
    router = data.draw(some.routers())
    if data.draw(st.booleans()):
        drafters["copy"] = PromptLookup(length=3)
        cascade = Cascade(order=["copy", "neural"])
        router = data.draw(st.sampled_from((cascade, router)))
        if data.draw(st.booleans()):
            merged = Merge(of=["copy", "neural"]).bind(Resources(drafters=drafters))
            drafters = {"merged": merged, **drafters}
    trial.check(lambda _: drafters, router, max_batch)


@pytest.mark.parametrize(("kind", "backend"), [("sps", "static"), ("layers", "static"), ("eagle3", "transformers")])
def test_they_are_accepted_now_and_then(head: str, backend: str, kind: str) -> None:
    """Else the tests here would show nothing; merged with a copy, both draft."""
    target = target_of(backend)
    asks = [Ask((3, 1, 4) * 3, Generation(max_new_tokens=24, temperature=t, seed=8), str(t)) for t in (0.0, 0.7, 1.0)]
    trial = Trial.prepare(target, asks, model_law("llama"))
    for shape in ("sampled chain", "coupled tree"):
        neural = drafter_of(kind, target, head, SHAPES[shape])
        outcomes = trial.check(lambda _, neural=neural: {"neural": neural}, max_batch=3).values()
        accepted = sum(outcome.finished.metrics.accepted for outcome in outcomes)
        assert accepted >= {"sps": 12, "layers": 1, "eagle3": 1 if "chain" in shape else 3}[kind], shape
    named = {"copy": PromptLookup(length=3), "neural": neural}
    merged = Merge(of=["copy", "neural"]).bind(Resources(drafters=named))
    watch = Watching()
    trial.check(lambda _: {"merged": merged}, watch, max_batch=3)
    assert {name for step in watch.steps for name in step.draft.sources or ()} == {"copy", "neural"}


@pytest.mark.parametrize("verifier", [Rejection(), Block()], ids=["rejection", "block"])
@pytest.mark.parametrize("kind", ["sps", "eagle3"])
@settings(max_examples=4)
@given(data=st.data(), count=st.integers(1, 3))
def test_greedy_text_is_plain_under_verifiers_that_weigh(
    head: str, kind: str, verifier: Any, data: Any, count: int
) -> None:
    target = target_of(data.draw(st.sampled_from(BACKENDS)))
    chosen = some.generations(MODEL_VOCAB, 12, temperature=0.0)
    asks = [Ask(data.draw(some.prompts(MODEL_VOCAB)), data.draw(chosen), str(number)) for number in range(count)]
    trial = Trial.prepare(target, asks, model_law("llama"))
    drafter = drafter_of(kind, target, head, data.draw(st.sampled_from(list(CHAINS.values()))))
    parts = assemble(target, {"neural": drafter}, data.draw(some.routers()), verifier=verifier)
    for name, outcome in serve(parts, asks, max_batch=2).items():
        check_outcome(outcome, trial.expected[name])


@pytest.mark.parametrize(("kind", "verifier"), [("sps", Rejection()), ("sps", Block()), ("eagle3", Rejection())])
def test_sampled_text_has_the_target_s_law(head: str, kind: str, verifier: Any) -> None:
    """The first two tokens of many seeds against their enumerated law; `neural/test_laws.py` enumerates the draws."""
    target, law, prompt = target_of("static"), model_law("llama"), (3, 1, 4)
    drafter = drafter_of(kind, target, head, {"depth": 2, "top_k": 1, "draw": "sampled"})
    asks = [Ask(prompt, Generation(max_new_tokens=2, temperature=0.7, top_k=4, seed=n), str(n)) for n in range(DRAWN)]
    outcomes = serve(assemble(target, {"neural": drafter}, verifier=verifier), asks, max_batch=64).values()
    counts = Counter(outcome.finished.tokens for outcome in outcomes)

    def shares(prefix: tuple[int, ...]) -> dict[int, float]:
        values, tokens = torch.tensor(law(prefix), dtype=torch.float64).topk(4)
        return dict(zip(tokens.tolist(), (values / 0.7).softmax(-1).tolist(), strict=True))

    chances = {(a, b): p * q for a, p in shares(prompt).items() for b, q in shares((*prompt, a)).items()}
    assert counts.keys() <= chances.keys()
    statistic = sum((counts[pair] - DRAWN * p) ** 2 / (DRAWN * p) for pair, p in chances.items() if DRAWN * p > 4)
    assert statistic < 15 + 5 * math.sqrt(30)
    assert sum(outcome.finished.metrics.accepted for outcome in outcomes) > (60 if kind == "sps" else 5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [("eagle3", "coupled tree"), ("sps", "sampled chain")])
def test_they_conform(head: str, name: str, shape: str) -> None:
    """The whole kit, as a stranger's drafter has to pass it."""
    own = {"head": head} if name == "eagle3" else {"layers": 1}
    setting = Setting(target=lambda taps: tiny_target("llama", taps=taps))
    report = check_drafter(name, setting=setting, self_test=False, **own, **SHAPES[shape])
    assert report.doubtful == []
