from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from attrs import define, evolve, field, frozen

from draftmux.bench.contenders import PipelineContender, TransformersContender, line_up
from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.drafting import SequenceDrafter
from draftmux.errors import PipelineError, PluginError, RequestError
from draftmux.generation import Generation
from draftmux.pipeline import plain_spec
from draftmux.testing.targets import tiny_target
from draftmux.types import Acceptance, Accepts, Draft, Needs, Tap

Make = Callable[..., Any]
PROMPT = (1, 2, 3, 1, 2, 3, 1, 2)
OTHER = (9, 30, 9)


@pytest.fixture(scope="module")
def target(tokenizer: Any) -> Any:
    bound = tiny_target("llama", positions=96)
    bound.tokenizer = tokenizer
    return bound


@pytest.fixture(scope="module")
def everybody(target: Any, make_pipeline: Make) -> list[Any]:
    return [
        make_pipeline("plain", target),
        make_pipeline("pld", target, PromptLookup(max_n=2, length=6)),
        TransformersContender("transformers", target),
        TransformersContender("transformers-prompt-lookup", target, 10),
    ]


def texts(contenders: Sequence[Any], generation: Generation, prompt: tuple[int, ...] = PROMPT) -> list[tuple[int, ...]]:
    return [contender.generate([prompt], generation)[0].tokens for contender in contenders]


def settings_that_change_texts(target: Any) -> list[dict[str, Any]]:
    run = TransformersContender("", target).generate([PROMPT], Generation(max_new_tokens=24))[0].tokens
    return [
        {"stop_ids": [run[11]]},
        {"stop": [f"w{run[5]} w{run[6]}"]},
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 1},
        {"bad_word_ids": [[run[0]], [run[3], run[4]]]},
        {"logit_bias": {run[0]: -50.0, 7: 2.0}},
        {"stop_ids": [run[2]], "min_new_tokens": 12},
        {"temperature": 0.9, "top_k": 1},
    ]


@pytest.mark.parametrize("case", range(9))
def test_all_agree_token_for_token_whatever_the_settings(target: Any, everybody: list[Any], case: int) -> None:
    """transformers is an outside oracle; each setting must bite, or the case would prove nothing."""
    bare = texts(everybody[:1], Generation(max_new_tokens=24))[0]
    changes = [{}, *settings_that_change_texts(target)][case]
    found = texts(everybody, Generation(max_new_tokens=24, **changes))
    assert found == [found[0]] * 4
    assert (found[0] != bare) == (bool(changes) and "temperature" not in changes)


def test_an_end_token_of_the_model_ends_all_of_them_with_it(everybody: list[Any], target: Any) -> None:
    run = texts(everybody[:1], Generation(max_new_tokens=24))[0]
    ending = evolve_target(target, frozenset({run[7], 39 if run[7] != 39 else 38}))
    cut = run[: run.index(run[7]) + 1]
    for contender in (*everybody,):
        moved = rebind(contender, ending)
        assert moved.generate([PROMPT], Generation(max_new_tokens=24))[0].tokens[: len(cut)] == cut
        assert moved.generate([PROMPT], Generation(max_new_tokens=24, ignore_eos=True))[0].tokens == run


def evolve_target(target: Any, eos_ids: frozenset[int]) -> Any:
    other = copy.copy(target)
    other.eos_ids = eos_ids
    return other


def rebind(contender: Any, target: Any) -> Any:
    if isinstance(contender, PipelineContender):
        return evolve(
            contender, pipeline=evolve(contender.pipeline, parts=evolve(contender.pipeline.parts, backend=target))
        )
    return evolve(contender, backend=target)


def test_the_context_limit_ends_all_of_them_at_one_place(everybody: list[Any]) -> None:
    found = texts(everybody, Generation(max_new_tokens=500))
    assert found == [found[0]] * 4
    assert len(found[0]) == 96 - len(PROMPT)


def test_the_model_s_own_generation_settings_are_hidden_and_come_back(everybody: list[Any], target: Any) -> None:
    own = target.model.generation_config
    wild = copy.deepcopy(own)
    wild.update(repetition_penalty=9.0, do_sample=True, temperature=5.0, max_length=9, eos_token_id=1, num_beams=2)
    expected = texts(everybody, Generation(max_new_tokens=24))
    target.model.generation_config = wild
    try:
        assert texts(everybody, Generation(max_new_tokens=24)) == expected
        with pytest.raises(RequestError, match="bad_word_ids names token 40"):
            everybody[2].generate([PROMPT], Generation(bad_word_ids=[[40]]))
        assert target.model.generation_config is wild
    finally:
        target.model.generation_config = own


def test_sampling_is_handed_to_transformers_too(everybody: list[Any]) -> None:
    warm = Generation(max_new_tokens=24, temperature=1.5, top_k=3, seed=1)
    plain, drafted, sampled, looked_up = texts(everybody, warm)
    assert plain == drafted  # exact match is coupled to the same noise
    assert sampled == texts(everybody[2:3], warm)[0]
    assert sampled != texts(everybody[2:3], evolve(warm, seed=2))[0]
    assert len({plain, sampled, looked_up}) > 1


def test_outputs_carry_text_seconds_and_metrics_of_the_engine(everybody: list[Any]) -> None:
    outputs = {c.name: c.generate([PROMPT, OTHER], Generation(max_new_tokens=12)) for c in everybody}
    for name, (first, second) in outputs.items():
        assert len(first.tokens) == len(second.tokens) == 12
        assert first.text.split() == [f"w{token}" for token in first.tokens]
        assert first.seconds > 0
        assert (first.metrics is not None) == (name in ("plain", "pld"))
        assert second.tokens == outputs["plain"][1].tokens
    assert outputs["plain"][0].metrics.steps == 12
    assert outputs["pld"][0].metrics.drafted > 0


@frozen
class Broken(SequenceDrafter):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        raise ZeroDivisionError("planted")


def test_a_failing_request_raises_and_frees_its_sequences(target: Any, make_pipeline: Make) -> None:
    with pytest.raises(PluginError, match="planted"):
        make_pipeline("broken", target, Broken()).generate([PROMPT, OTHER], Generation(max_new_tokens=4))
    assert not target._open


@define(eq=False)
class Loader:
    """A backend plugin that counts how often it loads."""

    taps: list[tuple[Tap, ...]] = field(factory=list)

    def bind(self, target: Any, taps: tuple[Tap, ...]) -> Any:
        self.taps.append(taps)
        return tiny_target("llama", taps=taps)


@frozen
class Tapping(PromptLookup):
    needs: ClassVar[Needs] = Needs(taps=(Tap(1, "resid_post"),))


@frozen
class LossyStub:
    """Lossy by its own word."""

    lossless: ClassVar[bool] = False
    pathwise: ClassVar[bool] = False
    accepts: ClassVar[Accepts] = Accepts()

    def bind(self, resources: Any) -> LossyStub:
        return self

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), 5)


def test_one_loaded_target_for_all(make_spec: Make) -> None:
    loader = Loader()
    specs = {
        "pld": make_spec(loader, PromptLookup()),
        "tapping": make_spec(loader, Tapping()),
        "lossy": make_spec(loader, PromptLookup(), LossyStub(), lossless=False),
    }
    lined = line_up(specs, with_transformers=True)
    names = [contender.name for contender in lined.contenders]
    assert names == ["plain", "pld", "tapping", "lossy", "transformers", "transformers-prompt-lookup"]
    assert [contender.lossless for contender in lined.contenders] == [True, True, True, False, True, True]
    assert loader.taps == [(Tap(1, "resid_post"),)]  # whoever needs taps loads it, the others borrow it
    assert lined.copies == 1
    backends = {id(getattr(c, "backend", None) or c.pipeline.parts.backend) for c in lined.contenders}  # type: ignore[attr-defined]
    assert backends == {id(lined.backend)}


def test_plain_is_the_target_s_own_text_even_next_to_a_lossy_pipeline(make_spec: Make) -> None:
    loader = Loader()
    lined = line_up({"lossy": make_spec(loader, PromptLookup(), LossyStub(), lossless=False)}, with_transformers=True)
    plain, lossy, outside, _ = texts(lined.contenders, Generation(max_new_tokens=10))
    assert plain == outside
    assert lossy == (5,) * 10


def test_plain_spec_has_nothing_left_to_draft(make_spec: Make) -> None:
    spec = plain_spec(make_spec(Loader(), Tapping(), LossyStub(), lossless=False, on_plugin_error="skip"))
    assert spec.drafters == {}
    assert spec.router.plugin.uses() == ()
    assert spec.verifier.plugin.lossless
    assert spec.lossless


def test_a_backend_without_a_transformers_model_has_no_such_baseline(make_spec: Make) -> None:
    from draftmux.backends.scripted import ScriptedBackend

    spec = make_spec(ScriptedBackend(table={0: [0.0, 1.0], 1: [1.0, 0.0]}), PromptLookup())
    assert [contender.name for contender in line_up({"pld": spec}).contenders] == ["plain", "pld"]
    with pytest.raises(PipelineError, match=r"hand\.yaml: backend 'test' holds no transformers model"):
        line_up({"pld": spec}, with_transformers=True)
