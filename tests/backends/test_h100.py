"""The h100 backend's passes without a GPU: its kernel in Triton's interpreter, its graphs as plain calls."""

from __future__ import annotations

import copy
import gc
import os
from typing import Any

import numpy as np
import pytest
import torch

os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"  # read when the kernels are defined
pytest.importorskip("triton")

from draftmux.backends.h100.backend import H100Backend
from draftmux.backends.h100.graphs import GraphRunner
from draftmux.errors import ModelError
from draftmux.protocols import Row
from draftmux.testing.properties import TreePasses
from draftmux.testing.targets import MODELS, tiny_model
from draftmux.types import Draft, Tap

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def target(name: str, *taps: Tap, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    model = copy.deepcopy(tiny_model(name, 600)).to(DEVICE, dtype)
    small = {"rows": (1, 2, 4, 8), "context": 64, "self_check": False}
    return H100Backend(**{**small, **options}).over(model, taps=taps)


@pytest.mark.parametrize("name", MODELS)
def test_tree_passes(name: str) -> None:
    TreePasses(target(name), np.random.default_rng(1), near=1e-4).check([9, 3], rounds=2)


@pytest.mark.slow
def test_the_cache_outgrows_its_graphs() -> None:
    found = target("llama")
    found.warm_up(1)
    graphs = found.runner._graphs.copy()
    TreePasses(found, np.random.default_rng(2), near=1e-4).check([254, 2], rounds=2)
    assert not set(map(id, graphs.values())) & set(map(id, found.runner._graphs.values()))


@pytest.mark.slow
def test_a_graph_is_made_once_for_each_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = GraphRunner._capture
    monkeypatch.setattr(
        GraphRunner,
        "_capture",
        lambda self, first, feeds: made.append(len(feeds[0].tokens)) or original(self, first, feeds),
    )
    found = target("llama")
    found.warm_up(2)  # nodes that the pipeline's budgets allow
    assert made == [1, 2, 4]
    for _ in range(2):  # the second request finds them all
        handle = found.open([1, 2, 3]).sequence
        for nodes in (0, 2, 5, 9):
            found.score([Row(handle, 3, Draft.chain([4] * nodes))])
        found.close(handle)
    assert made == [1, 2, 4, 8, 64]


@pytest.mark.parametrize("length", [3, pytest.param(254, marks=pytest.mark.slow)])
def test_exact_chains_have_the_bits_of_plain_decoding(length: int) -> None:
    found = target("llama", dtype=torch.bfloat16, numerics="exact", exact_rows=4, context=320)
    tokens = np.random.default_rng(3).integers(0, found.vocab_size, length + 5).tolist()
    handle, other = found.open(tokens[:length]).sequence, found.open([1, 2]).sequence
    chain = Draft.chain(tokens[length:])
    together = found.score([Row(handle, tokens[length - 1], chain), Row(other, 2, Draft.chain([3]))])[0].logits.clone()
    for i, token in enumerate(tokens[length - 1 : -1]):
        alone = found.score([Row(handle, token, Draft.empty())])[0].logits[0]
        assert torch.equal(alone, together[i])
        found.commit(handle, ())


def test_exact_trees_say_that_they_are_not() -> None:
    found = target("llama", numerics="exact", exact_rows=4)
    handle = found.open([1, 2]).sequence
    with pytest.warns(UserWarning, match="holds for chains"):
        found.score([Row(handle, 2, Draft.from_candidates([[3, 4], [5]]))])


def test_a_graph_keeps_what_it_computes_with() -> None:
    """Partial results lie outside of a graph's own memory; freed, replays would write into someone else's."""
    found = target("llama", context=1024)
    handle = found.open([1, 2, 3]).sequence
    found.score([Row(handle, 3, Draft.chain([4, 5]))])
    gc.collect()
    for graph in found.runner._graphs.values():
        assert graph.this.workspace, "no workspace is kept"


def test_growing_begins_with_new_graph_memory() -> None:
    found = target("llama")
    found.runner._memory = "of the graphs before"
    handle = found.open([1] * 300).sequence
    found.score([Row(handle, 1, Draft.empty())])
    assert found.runner._memory is None or DEVICE == "cuda"


def test_few_graphs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmux.backends.h100.graphs.MOST_GRAPHS", 2)
    found = target("llama")
    handle = found.open([1, 2, 3]).sequence
    for nodes in (0, 1, 3, 0):
        found.score([Row(handle, 3, Draft.chain([4] * nodes))])
    assert len(found.runner._graphs) == 2


@pytest.mark.parametrize("rows", [(), (0, 4), (4, 2), (2, 2), (1, 10**8)])
def test_rows_must_be_rows(rows: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="'rows' must rise from at least 1 to at most 1024"):
        H100Backend(rows=rows)  # type: ignore[call-arg]


def test_taps_come_with_their_rows() -> None:
    tap = Tap(0, "resid_post")
    found, handles = target("llama", tap), []
    handles = [found.open([1, 2, 3]).sequence, found.open([4]).sequence]
    both = found.score([Row(handles[0], 3, Draft.chain([5])), Row(handles[1], 4, Draft.empty())])
    first = both[0].taps[tap].clone()
    assert [len(scores.taps[tap]) for scores in both] == [2, 1]
    again = found.score([Row(handles[0], 3, Draft.chain([5]))])[0].taps[tap]
    assert torch.allclose(first, again, atol=1e-5)


@pytest.mark.slow
def test_the_self_check_passes() -> None:
    target("gemma3", self_check=True)


def test_other_machines_are_told_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from draftmux.models.source import ModelSpec

    spec = ModelSpec(source="anything")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="use: static"):
        H100Backend().bind(spec, ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA A100")
    with pytest.raises(ModelError, match=r"NVIDIA A100 has 8\.0; use `backend: \{use: static\}`"):
        H100Backend().bind(spec, ())
