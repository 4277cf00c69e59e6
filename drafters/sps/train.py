"""Distils a draft model out of the target's first layers: a LoRA that is active while drafting only.

The loss is the forward divergence KL(p || q) at temperature 1 on the tokens of answers, all of p, which covers what the
target may say (2310.08461, section 3.2). p comes from the target's last states, which stand beside the answers on disk.
"""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from torch import nn

from draftmux.drafters.sps.layers import ORIGIN, first_layers
from draftmux.errors import RequestError
from draftmux.models.load import load_model
from draftmux.training.batches import batches, learnable, padded, some_usable
from draftmux.training.card import Origin, write_card
from draftmux.training.loop import Course, fit
from draftmux.training.teacher import Teacher
from draftmux.types import Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.drafters.sps.recipe import DraftRecipe
    from draftmux.training.answers import Sample
    from draftmux.training.job import Job


LAST = Tap(-1, "resid_post")  # what the target's own law is made of
CARD = """# Draft adapter for {target}

A PEFT LoRA on the first {layers} layers of the target, trained by draftmux by distillation. It is active while drafting
only; the target stays as it is.

```yaml
drafters:
  draft: {{use: sps, layers: {layers}, adapter: {folder}}}
```
"""


@frozen(eq=False)
class Batch:
    """`ids (B, L)`, the target's last states `(B, L-1, d)`, and `answers (B, L)`."""

    ids: Tensor
    states: Tensor
    answers: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(*(tensor.to(device) for tensor in (self.ids, self.states, self.answers)))


class Distillation(nn.Module):
    """A student and the law it learns: that of the target's last states through its norm and output layer."""

    def __init__(self, student: Any, model: Any) -> None:
        super().__init__()
        self.student, self.teacher = student, Teacher(model)
        self.base_name = str(model.base_model_prefix)

    def forward(self, batch: Batch, done: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The loss; per predicted token whether both find the same one likeliest, and 1 - TV, `(n,)` each."""
        wanted = batch.answers[:, 1:]
        inner = getattr(self.student, "base_model", self.student)
        inner = getattr(inner, "model", inner)
        states = getattr(inner, self.base_name)(input_ids=batch.ids[:, :-1], use_cache=False).last_hidden_state
        logits = self.teacher.output(states[wanted])  # what it shares with the target is not passed for all the prompt
        law = self.teacher(batch.states[wanted]).softmax(-1)
        loss = -(law * logits.log_softmax(-1)).sum(-1).mean()
        with torch.no_grad():
            same = logits.argmax(-1) == law.argmax(-1)
            shared = torch.minimum(logits.softmax(-1), law).sum(-1)
        return loss, same.float(), shared


def train_draft(job: Job, recipe: DraftRecipe) -> None:
    """Collect answers with their states, train, and write the adapter."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise RequestError(f"this needs the package peft: pip install 'draftmux[train]' ({error})") from error

    answers, kept = job.collect((LAST,))
    learn, held = learnable(answers, recipe.sizes, recipe.learn), some_usable(kept, recipe.sizes)
    model = load_model(job.spec).model.float()
    torch.manual_seed(recipe.seed)
    lora = LoraConfig(r=recipe.rank, lora_alpha=recipe.alpha, target_modules="all-linear", lora_dropout=0.0)
    student: Any = get_peft_model(first_layers(SimpleNamespace(model=model), recipe.layers), lora)

    epoch, collate = partial(batches, learn, recipe.sizes, recipe.seed), partial(_collated, recipe=recipe)

    def figures(module: nn.Module, device: torch.device) -> dict[str, Any]:
        groups = batches(held, recipe.sizes, recipe.seed, 0)
        found = [module(collate(group).to(device))[1:] for group in groups]
        same, shared = (torch.cat(parts) for parts in zip(*found, strict=True))
        return {"agreement": float(same.mean()), "sampled_acceptance": float(shared.mean())}

    course = Course(epoch, collate, figures, job.report)
    about = {**job.about((LAST,)), "recipe": recipe.kept}
    last = fit(Distillation(student, model), recipe.schedule, course, job.work, about)
    if job.writes:
        _export(job, student, Origin.of(job, model, recipe, last), recipe.layers)


def _collated(samples: Sequence[Sample], recipe: DraftRecipe) -> Batch:
    ids, states, answers = padded(samples, recipe.sizes)
    return Batch(ids, states, answers)


def _export(job: Job, student: Any, origin: Origin, layers: int) -> None:
    """PEFT's two files in bfloat16, whose they are, and a model card."""
    for config in student.peft_config.values():
        config.base_model_name_or_path, config.revision = job.spec.source, job.spec.revision
    student.to(torch.bfloat16).save_pretrained(job.folder)
    (job.folder / ORIGIN).write_text(json.dumps({**origin.kept, "layers": layers}, indent=2) + "\n", "utf-8")
    write_card(job.folder, CARD.format(target=origin.target, layers=layers, folder=job.folder.name), origin)
