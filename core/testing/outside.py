"""transformers' own `generate` on the tiny models: an oracle that shares only the processors' code with draftmux.

It tells whether settings mean what they mean there: which processors, in which order, on which prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.sampling import RuleContext, SamplingRule
from draftmux.testing.drafters import TreeOracle
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import MODEL_VOCAB, model_law, tiny_model, tiny_target
from draftmux.tree import ROOT
from draftmux.types import Context, Draft, Scores

if TYPE_CHECKING:
    from draftmux.generation import Generation

SINGLE = 1e-5  # generate rounds logits to float32


def generate(name: str, prompt: tuple[int, ...], g: Generation, eos_ids: frozenset[int] = frozenset()) -> Any:
    """What transformers generates with the same settings, with the processed `scores` of every step."""
    import torch

    ids = torch.tensor([prompt])
    warpers: dict[str, Any] = {"temperature": g.temperature, "top_p": g.top_p, "typical_p": g.typical_p}
    warpers |= {"top_k": g.top_k or None, "min_p": g.min_p or None}
    return tiny_model(name).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=g.max_new_tokens,
        min_new_tokens=g.min_new_tokens or None,
        repetition_penalty=g.repetition_penalty,
        no_repeat_ngram_size=g.no_repeat_ngram_size,
        bad_words_ids=g.bad_word_ids or None,
        sequence_bias=[[[token], bias] for token, bias in g.logit_bias.items()] or None,
        eos_token_id=sorted(eos_ids | set(g.stop_ids)) or None,
        pad_token_id=0,
        do_sample=not g.greedy,
        return_dict_in_generate=True,
        output_scores=True,
        **({} if g.greedy else warpers),
    )


def check_text(name: str, prompt: tuple[int, ...], generation: Generation, eos_ids: frozenset[int]) -> None:
    """Greedy speculation writes the text that transformers writes."""
    text = generate(name, prompt, generation, eos_ids).sequences[0].tolist()
    parts = assemble(tiny_target(name, eos_ids=eos_ids), {"tree": TreeOracle([text], MODEL_VOCAB, k=4)})
    found = serve(parts, [Ask(prompt, generation)])["request"].finished
    assert [*prompt, *found.tokens] == text, f"{found.tokens} should end {text}"


def check_laws(name: str, prompt: tuple[int, ...], generation: Generation) -> None:
    """Along a text that transformers sampled, our processors and warpers make the same law of the logits."""
    import torch

    sampled = generate(name, prompt, generation)
    text, law = sampled.sequences[0].tolist(), model_law(name)
    rule = SamplingRule.build(generation, RuleContext(MODEL_VOCAB, len(prompt), frozenset(), "cpu"))
    for step, scores in enumerate(sampled.scores):
        tokens = np.array(text[: len(prompt) + step])
        context = Context("request", tokens, len(prompt), 1, {}, [], generation)
        logits = torch.tensor([law(tuple(tokens.tolist()))], dtype=torch.float64)
        found = rule.at(context, Draft.empty(), Scores(logits)).logits(ROOT)
        error = float((found.softmax(-1) - scores[0].double().softmax(-1)).abs().max())
        assert error < SINGLE, f"the law after {tokens} is off by {error}"
