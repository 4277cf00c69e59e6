"""Trains an EAGLE-3 head on the target's own answers by training-time test.

The loss of a step is the cross entropy between the target's law, restricted to the draft vocabulary, and the head's;
step s counts decay^s. What is reported of held-out prompts is what a chain would have had accepted from every place.
"""

from __future__ import annotations

import hashlib
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from draftmux.drafters.eagle3.checkpoint import read
from draftmux.drafters.eagle3.data import collate, draft_vocabulary
from draftmux.drafters.eagle3.export import export
from draftmux.drafters.eagle3.new_head import new_head
from draftmux.drafters.eagle3.start import begin_from
from draftmux.drafters.eagle3.unroll import Batch, unroll
from draftmux.models.load import load_model
from draftmux.training.batches import batches, learnable, usable
from draftmux.training.card import Origin
from draftmux.training.loop import Course, fit
from draftmux.training.teacher import Teacher
from draftmux.types import Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.drafters.eagle3.model import Eagle3Head
    from draftmux.drafters.eagle3.recipe import HeadRecipe
    from draftmux.training.answers import Sample
    from draftmux.training.job import Job


class Objective(nn.Module):
    """A head and what it learns from. `ids (K,)` are the draft vocabulary; the last tap is the target's last layer."""

    def __init__(self, head: Eagle3Head, model: Any, ids: Tensor, recipe: HeadRecipe) -> None:
        super().__init__()
        self.head, self.recipe = head, recipe
        self.ids: Tensor
        self.covered: Tensor
        self.register_buffer("ids", ids, persistent=False)
        covered = torch.zeros(model.config.get_text_config(decoder=True).vocab_size)
        covered[ids] = 1
        self.register_buffer("covered", covered, persistent=False)
        self.teacher = Teacher(model, ids)

    def forward(self, batch: Batch, done: float = 1.0) -> tuple[Tensor, Tensor]:
        """The loss, and whether the head's tokens are the answer's: `(steps, B, M)`, -1 where none is predicted."""
        width = self.head.shape.target_hidden_size
        taps, last = batch.states[..., :-width], batch.states[..., -width:]
        wanted = batch.answers[:, 1:]  # positions whose next token is of the answer
        with torch.no_grad():
            laws = self.teacher(last[wanted]).softmax(-1)
            numbers = (wanted.flatten().cumsum(0) - 1).view(wanted.shape)
        seen = Batch(batch.ids, taps, batch.rows, batch.answers)
        total = batch.states.new_zeros(())
        hits = torch.full((self.recipe.unroll, *batch.rows.shape), -1, dtype=torch.int8, device=batch.rows.device)
        for step, states in enumerate(unroll(self.head, seen, self.recipe.unrolled(done))):
            valid = batch.valid(step)
            if not valid.any():
                break
            logits = self.head.lm_head(self.head.norm(states[valid])).float()
            law = laws[numbers.gather(1, batch.at(1 + step).clamp(max=numbers.shape[1] - 1))[valid]]
            # Restricted to the draft vocabulary, a law whose token is not in it says little.
            weight = self.covered[batch.tokens(2 + step)[valid]]
            loss = -(law * logits.log_softmax(-1)).sum(-1) * weight
            total = total + self.recipe.decay**step * loss.sum() / weight.sum().clamp(min=1)
            found = self.ids[logits.detach().argmax(-1)] == batch.tokens(2 + step)[valid]
            hits[step][valid] = found.to(torch.int8)
        return total, hits


def chain_lengths(hits: Tensor, depth: int) -> Tensor:
    """Tokens that a chain of `depth` would have had accepted, for every row that predicts one. `hits (steps, B, M)`."""
    known = hits[:depth, hits[0] >= 0]  # (depth, rows)
    return (known == 1).cumprod(0).sum(0)


def train(
    objective: Objective,
    samples: tuple[Sequence[Sample], Sequence[Sample]],
    job: Job,
    taps: Sequence[Tap],
    every: int = 100,
) -> dict[str, Any]:
    """Train on the first samples; report figures of the second, held-out, ones and of as many that were learned."""
    recipe = objective.recipe
    sizes = recipe.unrolled_sizes
    learn, held = learnable(samples[0], sizes, recipe.learn), usable(samples[1], sizes)

    known = usable(samples[0], sizes)
    known = random.Random(recipe.seed).sample(known, min(len(held), len(known)))

    def figures(module: nn.Module, device: torch.device) -> dict[str, Any]:
        found = evaluate(module, held, recipe, device)
        seen = evaluate(module, known, recipe, device)  # much better than held out: it lacks answers, not steps
        return {**found, "chain_of_4_learned": seen["chain_of_4"]} if found and seen else found

    vocabulary = hashlib.sha256(objective.ids.cpu().numpy().tobytes()).hexdigest()
    about = {**job.about(taps), "recipe": recipe.kept, "vocabulary": vocabulary}
    epoch, collated = partial(batches, learn, sizes, recipe.seed), partial(collate, sizes=sizes)
    return fit(objective, recipe.schedule, Course(epoch, collated, figures, job.report, every), job.work, about)


def evaluate(module: nn.Module, samples: Sequence[Sample], recipe: HeadRecipe, device: torch.device) -> dict[str, Any]:
    """Of held-out samples: accuracy by step of the unrolling, and tokens a pass of chains of 4."""
    sizes = recipe.unrolled_sizes
    right, tried = torch.zeros(recipe.unroll), torch.zeros(recipe.unroll)
    lengths: list[Tensor] = []
    for group in batches(samples, sizes, recipe.seed, 0) if samples else ():
        hits = module(collate(group, sizes).to(device))[1].cpu()
        right += (hits == 1).sum((1, 2))
        tried += (hits >= 0).sum((1, 2))
        lengths.append(chain_lengths(hits, 4))
    if not lengths:
        return {}
    accuracy = (right / tried.clamp(min=1)).tolist()
    return {"accuracy": accuracy, "chain_of_4": 1 + float(torch.cat(lengths).float().mean())}


LAST = Tap(-1, "resid_post")  # what the target's own law is made of


def train_head(job: Job, recipe: HeadRecipe, taps: tuple[Tap, ...]) -> None:
    """Collect answers with their states, train, and write the head."""
    if recipe.start:
        read(recipe.start)  # what cannot be read is better known before the target answers for hours
    samples = job.collect((*taps, LAST))
    model = load_model(job.spec).model
    ids = draft_vocabulary(samples[0], recipe.vocabulary, model.config.get_text_config(decoder=True).vocab_size)
    head = new_head(model, ids, len(taps), recipe)
    if recipe.start:
        begin_from(head, ids, taps, recipe.start, model)
    objective = Objective(head, model, ids, recipe)
    figures = train(objective, samples, job, taps)
    if job.writes:
        export(job.folder, objective.head, ids, taps, Origin.of(job, model, recipe, figures))
