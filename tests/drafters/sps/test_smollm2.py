"""The embedded model as its own draft model, in float32: every token it drafts is its own, skipped steps or not."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

import draftmux
from draftmux.pipeline import Pipeline, plain_spec
from draftmux.testing.routers import RandomRouter

pytestmark = pytest.mark.smollm2

PROMPT = "Write a story about a lighthouse keeper who finds a letter."
PIPELINE = """models:
  target: {source: smollm2, dtype: float32}
  twin: {source: smollm2, dtype: float32}
drafters:
  sps: {use: sps, model: twin, depth: 4}
generation: {max_new_tokens: 200, ignore_eos: true}
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    path = tmp_path_factory.mktemp("twin") / "twin.yaml"
    path.write_text(PIPELINE, "utf-8")
    return draftmux.load(path)


@pytest.mark.parametrize("router", [None, RandomRouter(3)], ids=["always", "skipped"])
def test_every_drafted_token_is_accepted(pipeline: Pipeline, router: Any) -> None:
    parts = pipeline.parts if router is None else evolve(pipeline.parts, router=router)
    found = evolve(pipeline, parts=parts).generate(PROMPT)
    plain = Pipeline.build(plain_spec(pipeline.spec), share=pipeline).generate(PROMPT)
    assert found.tokens == plain.tokens and len(found.tokens) == 200
    assert found.metrics.accepted == found.metrics.drafted >= 40
    skipped = found.metrics.steps - found.metrics.steps_by_drafter["sps"]
    assert (skipped > 5) == (router is not None)
