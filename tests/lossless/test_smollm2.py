"""The embedded model in float32: what draftmux writes is what transformers writes, alone and in a batch."""

from __future__ import annotations

from typing import Any

import pytest

import draftmux
from draftmux.bench.agreement import TIE, Margins, first_difference
from draftmux.bench.suites import SUITES
from draftmux.pipeline import Pipeline, plain_spec
from draftmux.prompts import encode

pytestmark = pytest.mark.smollm2

TOKENS = 48
PROMPTS = [row.turns[0] for row in SUITES["humaneval"]().first(4).rows]


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return draftmux.load("merge", ["models.target.dtype=float32", f"generation.max_new_tokens={TOKENS}"])


def transformers_text(pipeline: Pipeline, prompt: str) -> tuple[int, ...]:
    import torch

    backend: Any = pipeline.parts.backend
    ids = torch.tensor([encode(prompt, pipeline.tokenizer, pipeline.spec.generation)])
    mask = torch.ones_like(ids)
    text = backend.model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=TOKENS, pad_token_id=2)
    return tuple(text[0, ids.shape[1] :].tolist())


def check_equal(pipeline: Pipeline, prompt: str, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    """Equal token for token, or apart where the two best logits are nearly tied."""
    if ours != theirs:
        generation = pipeline.spec.generation
        at = first_difference(ours, theirs)
        ids = encode(prompt, pipeline.tokenizer, generation)
        margin = Margins(pipeline.parts.backend, generation).at(ids, theirs[:at])
        assert margin is not None
        assert margin < TIE, f"token {at} differs, and the best logits are {margin} apart"


def test_every_pipeline_writes_what_transformers_writes(pipeline: Pipeline) -> None:
    pipelines = [Pipeline.build(plain_spec(pipeline.spec), share=pipeline), pipeline]
    for prompt in PROMPTS[:2]:
        theirs = transformers_text(pipeline, prompt)
        for each in pipelines:
            check_equal(pipeline, prompt, each.generate(prompt).tokens, theirs)


def test_four_prompts_at_once_give_what_each_gives_alone(pipeline: Pipeline) -> None:
    together = pipeline.generate(PROMPTS)
    assert len({result.tokens for result in together}) == len(PROMPTS)
    for prompt, result in zip(PROMPTS, together, strict=True):
        check_equal(pipeline, prompt, result.tokens, pipeline.generate(prompt).tokens)
        assert result.metrics.mean_acceptance_length > 1.2


@pytest.mark.parametrize("seed", [0, 1])
def test_sampled_text_is_that_of_plain_decoding(pipeline: Pipeline, seed: int) -> None:
    plain = Pipeline.build(plain_spec(pipeline.spec), share=pipeline)
    settings = {"temperature": 0.7, "top_p": 0.9, "seed": seed, "max_new_tokens": 32}
    assert pipeline.generate(PROMPTS[0], **settings).tokens == plain.generate(PROMPTS[0], **settings).tokens
