"""The drafter as a whole: drafts against a scan, budgets, speed, and the target's own text through the engine."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from attrs import NOTHING, fields
from hypothesis import given
from hypothesis import strategies as st

from draftmux.config.load import parse_pipeline
from draftmux.engine.guard import Terms, checked_draft
from draftmux.errors import PluginError
from draftmux.generation import Generation
from draftmux.plugins import registry
from draftmux.protocols import Drafter, Resources
from draftmux.testing import strategies as some
from draftmux.testing.harness import Trial, Truths
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.reference import Ask
from draftmux.testing.targets import script_law, scripted
from draftmux.testing.texts import byte_tokenizer
from draftmux.types import Accepts, Budget, Context, Draft

INSTALL = "install it: pip install -e plugins/draftmux-rest"
build = pytest.importorskip("draftmux_rest.build", reason=INSTALL)
datastore = pytest.importorskip("draftmux_rest.datastore", reason=INSTALL)
drafter = pytest.importorskip("draftmux_rest.drafter", reason=INSTALL)
search = pytest.importorskip("draftmux_rest.search", reason=INSTALL)
trie = pytest.importorskip("draftmux_rest.trie", reason=INSTALL)

MakeContext = Callable[[Sequence[int]], Context]
MakeStore = Callable[[Sequence[Sequence[int]]], Any]
Path_ = tuple[int, ...]
DOCUMENTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), max_size=6)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=12)
SIZES = st.integers(0, 8)


def bound(store: Any, **options: Any) -> Any:
    return drafter.Retrieval(drafter.Rest(datastore="in memory", **options), store)


def paths(draft: Draft) -> list[Path_]:
    return [tuple(draft.tokens[draft.path_to(node)].tolist()) for node in range(len(draft))]


def by_scanning(documents: Sequence[Sequence[int]], text: Sequence[int], options: Any, budget: Budget) -> list[Path_]:
    """The method by the book: longest end first, every hit's continuation counted, the most frequent prefixes."""
    length = min(options.length, budget.max_depth)
    for span in range(min(options.max_span, len(text)), options.min_span - 1, -1):
        counts: Counter[Path_] = Counter()
        for document in documents:
            for at in range(span, len(document)):
                if list(document[at - span : at]) == list(text[-span:]):
                    counts.update(tuple(document[at : at + n]) for n in range(1, min(length, len(document) - at) + 1))
        if counts:
            ranked = sorted(counts, key=lambda path: (-counts[path], len(path), path))
            return ranked[: min(options.max_nodes, budget.max_nodes)]
    return []


@given(
    documents=DOCUMENTS,
    text=TEXTS,
    options=st.tuples(st.integers(1, 3), st.integers(3, 8), st.integers(1, 5), st.integers(1, 12)),
    sizes=st.tuples(SIZES, SIZES, SIZES),
)
def test_drafts_are_those_of_a_scan(
    make_context: MakeContext, make_store: MakeStore, documents: Any, text: list[int], options: Any, sizes: Any
) -> None:
    names = ("min_span", "max_span", "length", "max_nodes")
    rest = bound(make_store(documents), **dict(zip(names, options, strict=True)))
    nodes, depth, branches = sizes
    wide, narrow = Budget(nodes, depth), Budget(nodes, depth, branches)
    expected = by_scanning(documents, text, rest.options, wide) if nodes and depth else []
    assert paths(rest.propose_one(make_context(text), None, wide)) == expected
    draft = rest.propose_one(make_context(text), None, narrow)
    assert len(checked_draft(draft, Terms(narrow, 3, rest.emits, Accepts()))) == len(draft)
    assert bool(len(draft)) == bool(expected and branches)


def test_a_query_is_the_end_of_the_text_and_no_more(make_context: MakeContext, make_store: MakeStore) -> None:
    rest = bound(make_store([[1, 2, 3, 4], [9, 2, 3, 5], [9, 2, 3, 5]]), max_span=3)
    assert paths(rest.propose_one(make_context([7, 1, 2, 3]), None, Budget())) == [(4,)]
    assert paths(rest.propose_one(make_context([7, 7, 2, 3]), None, Budget())) == [(5,), (4,)]
    assert len(rest.propose_one(make_context([3]), None, Budget())) == 0
    assert len(rest.propose_one(make_context([7, 3]), None, Budget())) == 0


def test_it_is_published_and_checked_like_every_drafter() -> None:
    entry = registry().find("drafter", "rest")
    assert entry.load() is drafter.Rest and entry.package == "draftmux-rest" and entry.help
    assert isinstance(drafter.Rest(datastore="x"), Drafter)
    with pytest.raises(ValueError, match="'min_span' must not be above 'max_span': 5 > 4"):
        drafter.Rest(datastore="x", min_span=5, max_span=4)
    with pytest.raises(PluginError, match="call `bind`"):
        drafter.Rest(datastore="x").propose_one(None, None, Budget())


def test_importing_it_costs_no_torch_and_no_sorter() -> None:
    code = "import sys, draftmux_rest.drafter, draftmux_rest.cli; print({'torch', 'pydivsufsort'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_the_pipelines_of_the_readme_parse_and_its_options_are_all() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    pipelines = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    assert len(pipelines) == 2
    for text in pipelines:
        assert isinstance(parse_pipeline(text, "README.md").drafters["rest"].plugin, drafter.Rest)
    table = readme.partition("| option |")[2].partition("\n\n")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE))
    defaults = {
        field.name: "required" if field.default is NOTHING else str(field.default) for field in fields(drafter.Rest)
    }
    assert listed == defaults


def noisy(truths: Truths, size: int, seed: int) -> list[list[int]]:
    """Documents that hold pieces of the truths, some with wrong tokens, so that drafts are right, wrong and both."""
    rng = np.random.default_rng(seed)
    copies = [np.array(truth) for truth in truths for _ in range(3)]
    for copy in copies:
        wrong = rng.random(len(copy)) < 0.15
        copy[wrong] = rng.integers(0, size, int(wrong.sum()))
    return [copy.tolist() for copy in copies] + [rng.integers(0, size, 30).tolist()]


@given(target=some.hash_targets(), router=some.routers(), seed=some.SEEDS, data=st.data())
def test_the_text_is_the_target_s_own(make_store: MakeStore, target: Any, router: Any, seed: int, data: Any) -> None:
    trial = Trial.prepare(target, data.draw(some.asks(target, count=2)))
    options = {"min_span": data.draw(st.integers(1, 3)), "max_hits": data.draw(st.sampled_from((2, 5000)))}

    def drafters(truths: Truths) -> dict[str, Drafter]:
        return {"rest": bound(make_store(noisy(truths, target.vocab_size, seed)), **options)}

    trial.check(drafters, router, max_batch=data.draw(st.integers(1, 2)))


def test_a_text_that_stands_in_the_datastore_takes_few_steps(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    text = "the cat and the hat then the end naïve café 你好 the 🙂 the 🙃 and then the café"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = build.Corpus(tokenizer)
    corpus.add(tmp_path / "a.txt")
    with build.appearing(tmp_path / "store") as folder:
        build.write(folder, corpus, "bytes", "none")
    script = tokenizer(text)["input_ids"]
    end = tokenizer.eos_token_id
    target = scripted(script_law(script, len(tokenizer), end), len(tokenizer), eos_ids=[end], tokenizer=tokenizer)
    trial = Trial.prepare(target, [Ask(tuple(script[:4]), Generation(max_new_tokens=200))])
    rest = drafter.Rest(datastore=str(tmp_path / "store")).bind(Resources(tokenizer, target))
    metrics = trial.check(lambda _: {"rest": rest})["request"].finished.metrics
    assert metrics.accepted_by_drafter["rest"] > 0.8 * (len(script) - 4)
    assert metrics.steps < 0.2 * (len(script) - 4)


def test_a_query_of_two_million_tokens_takes_less_than_two_milliseconds(
    make_context: MakeContext, make_store: MakeStore
) -> None:
    rng = np.random.default_rng(0)
    documents = (rng.zipf(1.2, (200, 10_000)) % 50_000).tolist()
    rest = bound(make_store(documents))
    seconds, drafted = [], 0
    for number in range(300):
        document = documents[number % 200]
        end = 20 + 31 * number
        start = end - 2 - number % 9  # matches of all lengths, most of them short and with many hits
        context = make_context([50_001, *document[start:end]])
        begun = time.perf_counter()
        drafted += len(rest.propose_one(context, None, Budget())) > 0
        seconds.append(time.perf_counter() - begun)
    assert drafted > 250
    assert median(seconds) < 2e-3


FAULTS = Faults()


def retrieves() -> None:
    """Matches, continuations, counts, order and closure on one corpus, against the scan."""
    documents = [
        [5, 1, 2, 3, 4],
        [5, 1, 2, 3, 9],
        [1, 2, 8],
        [1, 2, 8],
        [1, 2],
        [2, 6],
        [7, 2, 6],
        [0, 2],
        [3, 0, 1],
        [6, 5],
        [8, 1],
        [8, 9],
        [8, 9],
    ]
    tokens = np.array([token for document in documents for token in (*document, -1)], dtype=np.int32)
    store = datastore.Datastore(None, tokens, build.suffix_array(tokens))
    for text in ([5, 1, 2], [1, 2], [7, 2], [9, 2], [7, 2, 6], [4, 5], [4, 3], [8]):
        for budget in (Budget(), Budget(max_nodes=3), Budget(max_depth=1)):
            context = Context("r", np.array(text), 1, 9, {}, (), Generation())
            rest = bound(store, min_span=1)
            found = paths(rest.propose_one(context, None, budget))
            assert found == by_scanning(documents, text, rest.options, budget), text


def samples() -> None:
    """Half of the hits are looked at, and the common continuation at the end is still seen."""
    documents = [*([1, 2] for _ in range(5)), *([1, 3] for _ in range(5))]
    tokens = np.array([token for document in documents for token in (*document, -1)], dtype=np.int32)
    rest = bound(datastore.Datastore(None, tokens, build.suffix_array(tokens)), min_span=1, max_hits=4)
    context = Context("r", np.array([1]), 1, 9, {}, (), Generation())
    assert paths(rest.propose_one(context, None, Budget())) == [(2,), (3,)]


@FAULTS.breaks(retrieves)
def matches_at_the_end_of_a_document_count(patch: Any) -> None:
    real = search._row
    patch.setattr(search, "_row", lambda store, key: real(store, key[:-1] if key[-1] == 0 else key))


@FAULTS.breaks(retrieves)
def the_last_hit_is_lost(patch: Any) -> None:
    real = search.longest_match

    def shorter(*arguments: Any) -> Any:
        hits = real(*arguments)
        return hits and search.Hits(hits.span, hits.first, max(hits.first + 1, hits.stop - 1))

    patch.setattr(drafter, "longest_match", shorter)


@FAULTS.breaks(retrieves)
def a_shorter_match_than_the_longest_is_used(patch: Any) -> None:
    real = search.longest_match
    patch.setattr(drafter, "longest_match", lambda store, query, shortest: real(store, query[-1:], shortest))


@FAULTS.breaks(retrieves)
def continuations_run_across_borders(patch: Any) -> None:
    patch.setattr(trie, "BORDER", -9)


@FAULTS.breaks(retrieves)
def continuations_start_one_token_late(patch: Any) -> None:
    real = search.continuations

    def late(store: Any, hits: Any, *rest: Any) -> Any:
        return real(store, search.Hits(hits.span + 1, hits.first, hits.stop), *rest)

    patch.setattr(drafter, "continuations", late)


def recount(patch: Any, counts: Callable[[Any], Any]) -> None:
    real = trie.most_frequent

    def wrong(found: Any, budget: Budget) -> Draft:
        return real(trie.Trie(found.tokens, found.parents, counts(found.counts)), budget)

    patch.setattr(drafter, "most_frequent", wrong)


@FAULTS.breaks(retrieves)
def rare_nodes_come_first(patch: Any) -> None:
    recount(patch, lambda counts: -counts)


@FAULTS.breaks(retrieves)
def every_node_counts_once(patch: Any) -> None:
    recount(patch, lambda counts: counts * 0 + 1)


@FAULTS.breaks(retrieves)
def suffixes_are_sorted_by_their_first_token_alone(patch: Any) -> None:
    patch.setattr(build, "suffix_array", lambda tokens: np.argsort(tokens, kind="stable").astype(np.int32))


@FAULTS.breaks(samples)
def the_first_hits_are_taken_instead_of_a_sample(patch: Any) -> None:
    real = search.continuations
    patch.setattr(drafter, "continuations", lambda store, hits, length, most: real(store, hits, length, 10**9)[:most])


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_planted_faults_are_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)
