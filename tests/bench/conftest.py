from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from draftmux.backends.scripted import ScriptedTarget
from draftmux.bench.contenders import Contender, LineUp, Output, PipelineContender
from draftmux.bench.conversation import Prompt
from draftmux.bench.report import make_report
from draftmux.bench.run import Measured, Plan, Trial, Unit, measure
from draftmux.bench.suites import Row, Suite
from draftmux.config.spec import PipelineSpec, PluginSpec
from draftmux.engine.step import Parts
from draftmux.generation import Generation
from draftmux.pipeline import Pipeline
from draftmux.routers.fixed import Fixed
from draftmux.testing.drafters import Empty, Oracle
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from draftmux.bench.summary import Report

VOCAB = 40  # of the tiny models, and of the tokenizer that goes with them: token i is the word wi

MakePipeline = Callable[..., PipelineContender]
MakeLineUp = Callable[..., LineUp]


@define(eq=False)
class Fake:
    """A contender that answers by a function of the prompt, and notes who was asked what in which order."""

    name: str
    log: list[tuple[str, tuple[tuple[int, ...], ...]]]
    answer: Callable[[tuple[int, ...]], Sequence[int]] = lambda prompt: prompt
    lossless: bool = True
    pathwise: bool = True
    limits: list[int] = field(factory=list)

    def generate(self, prompts: Sequence[tuple[int, ...]], generation: Generation) -> list[Output]:
        self.log.append((self.name, tuple(prompts)))
        self.limits.append(generation.max_new_tokens)
        answers = [tuple(self.answer(prompt)) for prompt in prompts]
        return [Output(tokens, " ".join(f"w{token}" for token in tokens), 0.001) for tokens in answers]


@pytest.fixture(scope="session")
def fake() -> type[Fake]:
    return Fake


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    # transformers finds out how a tokenizer joins words by encoding "abcdef".
    vocabulary = {f"w{i}": i for i in range(VOCAB) if i != 37} | {"abcdef": 37}
    words = Tokenizer(WordLevel(vocabulary, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words)


@pytest.fixture(scope="session")
def chat_tokenizer(tokenizer: Any) -> Any:
    """The same with a chat template: w38 before what the user says, w39 before answers."""
    import copy

    templated = copy.deepcopy(tokenizer)
    templated.chat_template = (
        "{% for m in messages %}{{ 'w38 ' if m.role == 'user' else 'w39 ' }}{{ m.content }} {% endfor %}w39"
    )
    return templated


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., PipelineSpec]:
    """A specification by hand; `backend` is the plugin that binds the target."""

    def make(backend: Any = None, drafter: Any = None, verifier: Any = None, **changes: Any) -> PipelineSpec:
        router = Fixed(drafter="d" if drafter is not None else None)
        parts = {
            "origin": "hand.yaml",
            "models": {},
            "drafters": {} if drafter is None else {"d": PluginSpec("d", "test", drafter, {})},
            "router": PluginSpec("router", "fixed", router, {}),
            "verifier": PluginSpec("verifier", "test", verifier or ExactMatch(), {}),
            "backend": PluginSpec("backend", "test", backend, {}),
        }
        return PipelineSpec(**{**parts, **changes})

    return make


@pytest.fixture(scope="session")
def make_pipeline(make_spec: Callable[..., PipelineSpec]) -> MakePipeline:
    """A pipeline over a bound target."""

    def make(name: str, target: Any, drafter: Any = None, verifier: Any = None) -> PipelineContender:
        spec = make_spec(drafter=drafter, verifier=verifier)
        drafters = {} if drafter is None else {"d": drafter}
        parts = Parts(target, drafters, spec.router.plugin, verifier or ExactMatch())
        return PipelineContender(name, Pipeline(spec, parts, target.tokenizer))

    return make


@pytest.fixture(scope="session")
def make_line_up() -> MakeLineUp:
    def make(contenders: Sequence[Contender], target: Any, **generation: Any) -> LineUp:
        return LineUp(tuple(contenders), target, Generation(**{"max_new_tokens": 16, **generation}))

    return make


@pytest.fixture
def dummy_target(tokenizer: Any) -> ScriptedTarget:
    """A target that always writes token 1, well ahead of token 2 by 3 and of the others by 4."""
    return ScriptedTarget(lambda prefix: [0.0, 4.0, 1.0] + [0.0] * (VOCAB - 3), VOCAB, tokenizer=tokenizer)


@pytest.fixture
def by_hand(make_line_up: MakeLineUp, dummy_target: ScriptedTarget) -> Callable[..., Report]:
    """A report of made-up trials: for each contender and prompt, its tokens and seconds."""

    def make(
        answers: dict[str, Sequence[tuple[Sequence[int], float]]],
        lossy: Sequence[str] = (),
        temperature: float = 0,
        by_law: Sequence[str] = (),
        **measured: Any,
    ) -> Report:
        fakes = [Fake(name, [], lossless=name not in lossy, pathwise=name not in by_law) for name in answers]
        units = []
        for i in range(len(answers["plain"])):
            made = {name: [Trial((Output(tuple(r[i][0]), "", r[i][1]),), r[i][1])] for name, r in answers.items()}
            units.append(Unit((Prompt(f"p{i}", "ab"[i % 2], (3,)),), made))
        line_up = make_line_up(fakes, dummy_target, temperature=temperature)
        return make_report(line_up, Measured(units, **measured), "suite", {"seed": 0}, "draftmux bench x.yaml")

    return make


@pytest.fixture
def real(make_line_up: MakeLineUp, make_pipeline: MakePipeline, dummy_target: ScriptedTarget) -> Report:
    """A measured report: the oracle is right for one prompt of two, and one drafter never has a draft."""
    contenders = [
        make_pipeline("plain", dummy_target),
        make_pipeline("oracle", dummy_target, Oracle([[3, *[1] * 40]], k=3)),
        make_pipeline("idle", dummy_target, Empty()),
    ]
    line_up = make_line_up(contenders, dummy_target)
    suite = Suite("suite", (Row("a", "x", ("w3",)), Row("b", "y", ("w4",))))
    return make_report(line_up, measure(line_up, suite, Plan()), "suite", {"seed": 0}, "draftmux bench oracle.yaml")
