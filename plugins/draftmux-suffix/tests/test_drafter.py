"""The drafter in a pipeline: what it shares, what it never shares, and that no text depends on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.config.load import parse_pipeline
from draftmux.errors import PipelineError
from draftmux.generation import Generation
from draftmux.plugins import registry
from draftmux.protocols import Drafter, DraftRequest, Resources
from draftmux.testing import strategies as some
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.properties import check_alone
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, random_table, script_law, scripted, table_law
from draftmux.types import Acceptance, Budget, Choice, Context, Draft, Emits, Step

suffix = pytest.importorskip("draftmux_suffix.drafter", reason="install it: pip install -e plugins/draftmux-suffix")

MakeContext = Callable[[Sequence[int]], Context]

TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=40))
DRAFTERS = [
    suffix.SuffixDecoding(),
    suffix.SuffixDecoding(draft="tree", min_prob=0.0, factor=2.0, offset=1.0),
    suffix.SuffixDecoding(shared=True, max_requests=2, depth=6),
    suffix.SuffixDecoding(shared=True, draft="tree"),
]
LINE = (3, 1, 4, 1, 5, 9, 2, 6)


def propose(drafter: Any, context: Context, state: Any, budget: Budget | None = None) -> Draft:
    [draft] = drafter.propose([DraftRequest(context, state, budget or Budget())])
    return draft


def committed(*tokens: int) -> Step:
    return Step(Choice(None), None, Draft.empty(), Acceptance((), tokens[-1]), tokens, {}, {})


def sharing(**options: Any) -> Any:
    return suffix.SuffixDecoding(shared=True, **options).bind(Resources())


def answer(drafter: Any, make_context: MakeContext, prompt: Sequence[int], *output: int) -> None:
    """A request from begin to end."""
    drafter.observe(drafter.begin(make_context(prompt)), committed(*output))


# What it is.


def test_the_name_is_published() -> None:
    entry = registry().find("drafter", "suffix")
    assert (entry.package, entry.version) == ("draftmux-suffix", "0.1.0")
    assert entry.load() is suffix.SuffixDecoding
    assert entry.help
    assert len({point.value for point in entry_points(group="draftmux", name="suffix")}) == 1


def test_the_readme_says_how_deep_the_trie_may_be() -> None:
    most = attrs.fields(suffix.SuffixDecoding).depth.metadata["maximum"]
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    assert f"tokens of a match and its continuation, together, at most; 2 to {most} |" in readme
    with pytest.raises(ValueError, match="depth"):
        suffix.SuffixDecoding(depth=most + 1)


@pytest.mark.parametrize("draft", ["path", "tree"])
def test_a_step_of_the_worst_kind_takes_less_than_10_milliseconds(draft: str, make_context: MakeContext) -> None:
    """A repetition, in which every suffix is a match and none ends early, at the largest depth."""
    most = attrs.fields(suffix.SuffixDecoding).depth.metadata["maximum"]
    drafter = suffix.SuffixDecoding(depth=most, min_prob=0.0, draft=draft).bind(Resources())
    state = drafter.begin(make_context([7] * 5000))
    seconds = []
    for new in range(9):
        started = time.process_time()
        assert len(propose(drafter, make_context([7] * (5001 + new)), state)) == drafter.max_spec
        seconds.append(time.process_time() - started)
    assert median(seconds) < 0.01


@pytest.mark.parametrize("drafter", DRAFTERS, ids=repr)
def test_it_follows_the_protocol(drafter: Any) -> None:
    assert isinstance(drafter, Drafter)
    assert drafter.emits == Emits(tree=drafter.draft == "tree")
    bound = drafter.bind(Resources())
    assert isinstance(bound, suffix.SuffixDecoding)
    assert (bound is drafter) == (not drafter.shared)


def test_importing_it_does_not_import_torch() -> None:
    code = "import sys, draftmux_suffix.drafter\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("min_prob: 1.5", "min_prob"),
        ("depth: 1", "depth"),
        ("draft: forest", "draft"),
        ("factor: -1", "factor"),
        ("max_requests: 0", "max_requests"),
        ("outputs: 1", "unknown key 'outputs'"),
        ("_outputs: 1", "unknown key '_outputs'"),
    ],
)
def test_wrong_options_are_told(line: str, fault: str) -> None:
    with pytest.raises(PipelineError, match=fault):
        parse_pipeline(f"models: {{target: {{source: x}}}}\ndrafters:\n  a: {{use: suffix, {line}}}\n", "file")


@pytest.mark.parametrize("drafter", DRAFTERS, ids=repr)
@given(text=TEXTS, cuts=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_a_drafter_that_sat_out_or_was_rejected_drafts_like_a_fresh_one(
    drafter: Any, make_context: MakeContext, text: list[int], cuts: list[int]
) -> None:
    cuts = sorted({min(cut, len(text)) for cut in cuts})
    state = drafter.begin(make_context(text[: cuts[0]]))
    for cut in [*cuts, len(text)]:  # most of these drafts are wrong about the text that follows
        context = make_context(text[:cut])
        late, fresh = propose(drafter, context, state), propose(drafter, context, drafter.begin(context))
        assert late.tokens.tolist() == fresh.tokens.tolist()
        assert late.parents.tolist() == fresh.parents.tolist()


def test_the_readme_tells_every_option_and_its_pipelines_are_right() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", readme, flags=re.MULTILINE)
    options = [option for option in attrs.fields(suffix.SuffixDecoding) if not option.name.startswith("_")]
    assert [(name, help.strip()) for name, _, help in rows] == [(o.name, o.metadata["help"]) for o in options]
    assert [default.strip().strip("`") for _, default, _ in rows] == [json.dumps(o.default).strip('"') for o in options]
    blocks = re.findall(r"^```yaml\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        parse_pipeline(block, "README.md")


# What it shares.


def test_nothing_is_shared_by_default(make_context: MakeContext) -> None:
    drafter = suffix.SuffixDecoding().bind(Resources())
    answer(drafter, make_context, [7], *LINE)
    context = make_context([0, *LINE[:3]])
    assert len(propose(drafter, context, drafter.begin(context))) == 0
    assert drafter.begin(context).shared is None


def test_shared_drafts_from_earlier_outputs_and_never_from_prompts(make_context: MakeContext) -> None:
    drafter = sharing()
    answer(drafter, make_context, [7, 8, 0, 8, 7], *LINE)
    context = make_context([0, 3])
    guess = drafter.begin(context).guess(context.tokens, Budget())
    assert (guess.tokens, guess.match, guess.score, guess.shared) == ([1], 1, 1.0, True)
    context = make_context([6, 7, 8])
    assert len(propose(drafter, context, drafter.begin(context))) == 0


def test_two_pipelines_share_nothing(make_context: MakeContext) -> None:
    options = suffix.SuffixDecoding(shared=True)
    one, other = options.bind(Resources()), options.bind(Resources())
    answer(one, make_context, [7], *LINE)
    context = make_context([0, *LINE[:3]])
    assert len(propose(one, context, one.begin(context)))
    assert not len(propose(other, context, other.begin(context)))


def test_own_text_counts_once(make_context: MakeContext) -> None:
    """A running sequence's output is in its own trie only, also once others have begun."""
    drafter = sharing()
    state = drafter.begin(make_context([0]))
    drafter.observe(state, committed(*LINE))
    other = drafter.begin(make_context([0, *LINE[:3]]))
    assert len(drafter._outputs) == 0
    assert not len(propose(drafter, make_context([0, *LINE[:3]]), other))
    guess = state.guess(make_context([0, *LINE, 3]).tokens, Budget())
    assert (guess.tokens, guess.score, guess.shared) == ([1], 0.5, False)


def test_own_text_wins_ties(make_context: MakeContext) -> None:
    drafter = sharing()
    for follower in (5, 6):
        answer(drafter, make_context, [9], 1, follower)
    context = make_context([1, 2, 1])
    guess = drafter.begin(context).guess(context.tokens, Budget())
    assert (guess.tokens, guess.score, guess.shared) == ([2], 0.5, False)
    answer(drafter, make_context, [9], 1, 6)
    guess = drafter.begin(context).guess(context.tokens, Budget())
    assert (guess.tokens, guess.score, guess.shared) == ([6], 2 / 3, True)


@given(texts=st.lists(TEXTS, min_size=1, max_size=6), keep=st.integers(1, 3), tail=TEXTS)
def test_only_the_last_requests_are_remembered(
    make_context: MakeContext, texts: list[list[int]], keep: int, tail: list[int]
) -> None:
    many, few = sharing(max_requests=keep), sharing()
    for text in texts:
        answer(many, make_context, [9], *text)
    for text in texts[-keep:]:
        answer(few, make_context, [9], *text)
    for drafter in (many, few):
        drafter.begin(make_context(tail))
    assert len(many._outputs) == min(keep, len(texts))
    one, other = (drafter._outputs.trie for drafter in (many, few))
    assert [one.count(point) for point in one.matches(tail)] == [other.count(point) for point in other.matches(tail)]
    assert len(one.matches(tail)) == len(other.matches(tail))


# What it cannot change.


@settings(max_examples=80)
@given(data=st.data(), drafter=st.sampled_from(DRAFTERS), count=st.integers(1, 4), max_batch=st.integers(1, 3))
def test_requests_end_as_plain_decoding_ends_them(data: Any, drafter: Any, count: int, max_batch: int) -> None:
    target = data.draw(some.hash_targets())
    trial = Trial.prepare(target, data.draw(some.asks(target, count)))
    trial.check(lambda _: {"suffix": drafter.bind(Resources())}, data.draw(some.routers()), max_batch)


@settings(max_examples=25)
@given(data=st.data(), drafter=st.sampled_from(DRAFTERS), seed=st.integers(0, 50))
def test_texts_that_repeat_end_as_plain_decoding_ends_them(data: Any, drafter: Any, seed: int) -> None:
    target = scripted(
        table_law(random_table(seed, 5)), 5, eos_ids=data.draw(st.frozensets(st.integers(0, 4), max_size=1))
    )
    trial = Trial.prepare(target, data.draw(some.asks(target, 3, max_new_tokens=40)))
    trial.check(lambda _: {"suffix": drafter.bind(Resources())}, max_batch=2)


@settings(max_examples=25)
@given(data=st.data(), drafter=st.sampled_from(DRAFTERS[:2]), max_batch=st.integers(1, 3))
def test_unshared_every_request_takes_the_steps_it_takes_alone(data: Any, drafter: Any, max_batch: int) -> None:
    target = scripted(hash_law(data.draw(some.SEEDS), 5, 4), 5)
    trial = Trial.prepare(target, data.draw(some.asks(target, 3)))
    check_alone(trial, assemble(target, {"suffix": drafter.bind(Resources())}), max_batch)


@pytest.mark.parametrize("kind", ["path", "tree"])
def test_a_text_that_repeats_takes_few_steps(kind: Any) -> None:
    script = list(LINE) * 6
    target = scripted(script_law(script, 10, 0), 10)
    ask = Ask(LINE, Generation(max_new_tokens=len(script) - len(LINE)))
    drafter = suffix.SuffixDecoding(draft=kind)
    result = Trial.prepare(target, [ask]).check(lambda _: {"suffix": drafter})["request"].finished
    assert result.tokens == tuple(LINE) * 5
    assert result.metrics.steps <= 10


@pytest.mark.parametrize(("shared", "steps"), [(False, [20, 20]), (True, [20, 5])])
def test_an_answer_given_before_is_drafted_only_if_shared(shared: bool, steps: list[int]) -> None:
    """Through the engine: that the first request has ended is seen by the death of its state."""
    target = scripted(script_law(range(30), 30, 0), 30)
    drafter = suffix.SuffixDecoding(shared=shared).bind(Resources())
    parts = assemble(target, {"suffix": drafter})
    ask = Ask(tuple(range(10)), Generation(max_new_tokens=20))
    assert [serve(parts, [ask])["request"].finished.metrics.steps for _ in range(2)] == steps
