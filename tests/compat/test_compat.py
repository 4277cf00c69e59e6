"""A package that was written for an earlier plugin API still does all it did, without having been touched."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from draftmux import plugins
from draftmux.config.describe import describe
from draftmux.config.load import parse_pipeline
from draftmux.hookspecs import OLDEST_PLUGIN_API, PLUGIN_API
from draftmux.models.source import ModelSpec
from draftmux.pipeline import Pipeline, plain_spec
from draftmux.plugins import GROUP, discover

HERE = Path(__file__).parent
NAMES = {
    *(("drafter", "compat-copy"), ("drafter", "compat-memory"), ("drafter", "compat-drawn")),
    *(("router", "compat-turns"), ("verifier", "compat-walk"), ("model", "compat-model")),
}
PIPELINE = """\
plugins: [compat-api-{api}]
drafters:
  copy: {{use: compat-copy, length: 4}}
  memory: {{use: compat-memory}}
  drawn: {{use: compat-drawn, first: 2, second: 3}}
router: {{use: compat-turns, order: [copy, memory, drawn], nodes: 5}}
verifier: {{use: compat-walk}}
backend: {{use: scripted, table: {table}}}
generation: {{max_new_tokens: 60}}
"""
# By the last token. One of the logits leads clearly, so that sampled text has habits too.
TABLE = [[0, 3, 1, 0], [1, 0, 3, 0], [0, 0, 1, 3], [3, 0, 2, 1]]
PROMPTS = [[0, 1, 2], [3], [2, 2, 0, 1]]


@pytest.fixture(params=range(OLDEST_PLUGIN_API, PLUGIN_API + 1))
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Each plugin API that draftmux says it supports; its recorded package is installed beside draftmux's own."""
    folder = HERE / f"api_{request.param}"
    monkeypatch.syspath_prepend(folder)
    own = [point for package in distributions(path=[str(folder)]) for point in package.entry_points]
    found = discover([*own, *distributions_of_draftmux()])
    monkeypatch.setattr(plugins, "registry", lambda *packages: found)
    return int(request.param)


def distributions_of_draftmux() -> list[Any]:
    return list(next(iter(distributions(name="draftmux"))).entry_points.select(group=GROUP))


def pipeline(api: int, *overrides: str) -> Pipeline:
    table = "{" + ", ".join(f"{token}: {logits}" for token, logits in enumerate(TABLE)) + "}"
    return Pipeline.build(parse_pipeline(PIPELINE.format(api=api, table=table), "compat.yaml", overrides))


def test_it_is_discovered_whole(api: int) -> None:
    registry = plugins.registry()
    assert registry.broken == []
    package = f"compat-api-{api}"
    assert {(entry.kind, entry.name) for entry in registry if entry.package == package} == NAMES
    [loaded] = [point for point in registry.loaded if point.package == package]
    assert (loaded.api, loaded.version) == (api, "1.0")
    assert isinstance(registry.find("model", "compat-model").load(), ModelSpec)
    spec = pipeline(api).spec
    published = {row.package for row in describe(spec) if row.part in ("drafter", "router", "verifier")}
    assert published == {f"{package} 1.0"}
    assert spec.drafters["copy"].plugin.length == 4


@pytest.mark.parametrize("generation", [{}, {"temperature": 1, "seed": 5}, {"temperature": 0.7, "top_k": 3}], ids=str)
def test_its_plugins_work_together_and_the_text_is_the_target_s_own(api: int, generation: dict[str, Any]) -> None:
    drafting = pipeline(api, *(f"generation.{name}={value}" for name, value in generation.items()))
    results = drafting.generate(PROMPTS)
    plain = Pipeline.build(plain_spec(drafting.spec)).generate(PROMPTS)
    assert drafting.lossless and all(result.lossless for result in results)
    assert [result.tokens for result in results] == [result.tokens for result in plain]
    asked, accepted = Counter[str](), Counter[str]()
    for result in results:
        assert not result.metrics.faults, result.metrics.faults
        assert len(result.tokens) == 60
        asked.update(result.metrics.steps_by_drafter)
        accepted.update(result.metrics.accepted_by_drafter)
    assert min(asked[name] for name in ("copy", "memory", "drawn")) >= 5
    assert min(accepted[name] for name in ("copy", "memory", "drawn")) >= 5
    assert sum(result.metrics.steps for result in results) < 0.7 * 180


def test_each_of_its_drafters_works_alone_and_in_a_batch(api: int) -> None:
    for name in ("copy", "memory", "drawn"):
        alone = pipeline(api, f"router.order=[{name}]")
        together = [result.tokens for result in alone.generate(PROMPTS)]
        assert together == [alone.generate(prompt).tokens for prompt in PROMPTS]
