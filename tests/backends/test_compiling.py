"""Compiled passes give what the model gives, for all numbers of rows, batches and taps; what cannot compile says so."""

from __future__ import annotations

import copy

import pytest
import torch

from draftmux import costs
from draftmux.backends.static import compiling
from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.static.compiling import Compiled
from draftmux.costs import CostCurve
from draftmux.errors import ModelError
from draftmux.protocols import Row
from draftmux.testing.targets import tiny_model
from draftmux.types import Draft, Tap

TAPS = (Tap(0, "resid_post"), Tap(1, "mlp_out"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch, by torch's compiler
def test_compiled_passes_are_the_models() -> None:
    model = copy.deepcopy(tiny_model("llama")).float()  # packed layers are part of it
    targets = [
        StaticBackend(compile=compile).over(copy.deepcopy(model), taps=TAPS)  # type: ignore[call-arg]
        for compile in (False, True)
    ]
    drafts = [Draft.empty(), Draft.chain([4, 5]), Draft.from_candidates([[1, 2], [3]]), Draft.chain([6] * 12)]
    for batch in (1, 2):
        opened = [[target.open([1, 2, 3]).sequence for _ in range(batch)] for target in targets]
        for draft in drafts:
            expected, found = (
                target.score([Row(handle, 3, draft) for handle in handles])[-1]
                for target, handles in zip(targets, opened, strict=True)
            )
            assert torch.allclose(found.logits, expected.logits, atol=1e-4)
            for tap in TAPS:
                assert torch.allclose(found.taps[tap], expected.taps[tap], atol=1e-4)


def no_compiler(model: object, dynamic: bool) -> object:
    def fail(**inputs: object) -> object:
        raise RuntimeError("InvalidCxxCompiler: no working C++ compiler found")

    return fail


def test_what_cannot_be_compiled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", no_compiler)
    target = StaticBackend(compile=True, self_check=False).over(copy.deepcopy(tiny_model("llama")))  # type: ignore[call-arg]
    with pytest.raises(ModelError, match=r"could not be compiled: InvalidCxxCompiler.*compile: false"):
        target.warm_up(3)
    assert compiling.LEAST_ROWS == 2


def curve(seconds: float) -> CostCurve:
    return CostCurve((1, 8), (seconds, seconds))


@pytest.mark.parametrize(("eager", "compiled"), [(2.0, 1.0), (1.0, 2.0)])
def test_auto_keeps_the_faster_form(monkeypatch: pytest.MonkeyPatch, eager: float, compiled: float) -> None:
    monkeypatch.setattr(torch, "compile", no_compiler)  # which fails when it is called, and not before
    target = StaticBackend(compile="auto").over(copy.deepcopy(tiny_model("llama")))  # type: ignore[call-arg]
    curves = {"eager": curve(eager), "compiled": curve(compiled)}
    asked = []

    def curve_of(form: str) -> CostCurve:
        asked.append((form, isinstance(target.runner.call, Compiled)))  # type: ignore[attr-defined]
        return curves[form]

    assert target.runner.choose(curve_of) == curve(min(eager, compiled))
    assert isinstance(target.runner.call, Compiled) == (compiled < eager)  # type: ignore[attr-defined]
    assert asked == [("eager", False), ("compiled", True)]
    assert target.runner.choose(curve_of) is None  # once is enough
    assert len(asked) == 2


def test_auto_without_a_compiler_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", no_compiler)
    monkeypatch.setattr(costs, "ROWS", (1, 2))
    target = StaticBackend(compile="auto").over(copy.deepcopy(tiny_model("llama")))  # type: ignore[call-arg]
    target.warm_up(3)
    assert target.score([Row(target.open([1, 2]).sequence, 2, Draft.empty())])
    assert target.cost(1) > 0
