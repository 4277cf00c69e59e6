"""Trains the two models on their own mixtures of problems:  python -m draftmux_arbiter_lab.train_pair --out DIR

Characters are tokens. Both learn solutions alone, of problems made on the way; neither sees a problem twice on purpose,
nor one of the seeds from 10**6 on, which are for learning and testing arbiters.
"""

from __future__ import annotations

import json
import math
import string
import time
from pathlib import Path
from typing import Any

import click
import torch
from attrs import frozen
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from draftmux_arbiter_lab.problems import DRAFT, EVEN, TARGET, Problem, problems

CHARACTERS = string.digits + string.ascii_lowercase + "+*=#, \n"
PAD, END = "<pad>", "<end>"
TEMPLATE = "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}\n{% endif %}{% endfor %}"
POSITIONS = 256
SIZE = 32  # problems of a batch
TRIED = 10**6 - 1  # seed of problems that show how far training is


@frozen
class Plan:
    """Of one model: its mixture, its size, and how long it learns."""

    weights: Any
    layers: int
    width: int
    heads: int
    steps: int
    seed: int


PLANS = {"target": Plan(TARGET, 4, 192, 6, 3200, 1), "draft": Plan(DRAFT, 2, 128, 4, 3200, 2)}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    words = {word: number for number, word in enumerate((PAD, END, *CHARACTERS))}
    made = Tokenizer(models.WordLevel(words, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    found = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, eos_token=END, chat_template=TEMPLATE)
    found.clean_up_tokenization_spaces = False
    return found


def model(plan: Plan) -> LlamaForCausalLM:
    """New weights."""
    torch.manual_seed(plan.seed)
    config = LlamaConfig(
        vocab_size=2 + len(CHARACTERS),
        hidden_size=plan.width,
        intermediate_size=plan.width * 8 // 3,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.heads,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def of_step(plan: Plan, step: int, size: int) -> list[Problem]:
    """The problems of one step."""
    return problems(size, plan.seed * 10**5 + step, plan.weights)


def learned_from(size: int = SIZE) -> set[str]:
    """All questions that the pair met in training."""
    return {
        each.question for plan in PLANS.values() for step in range(plan.steps) for each in of_step(plan, step, size)
    }


def batch(plan: Plan, step: int, size: int, ids: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids `(B, L)` and labels, which are -100 outside of solutions."""
    rows, labels = [], []
    for each in of_step(plan, step, size):
        question = [ids[character] for character in each.question + "\n"]
        solution = [*(ids[character] for character in each.solution), ids[END]]
        rows.append(question + solution)
        labels.append([-100] * len(question) + solution)
    width = max(map(len, rows))
    padded = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return padded, torch.tensor([row + [-100] * (width - len(row)) for row in labels])


@torch.no_grad()
def known(learned: LlamaForCausalLM, ids: dict[str, int], count: int = 150) -> dict[str, float]:
    """Share of steps done right, by operation, and of whole problems, by family; after right steps, of new problems."""
    found: dict[str, list[bool]] = {}
    for each in problems(count, TRIED, EVEN):
        question = [ids[character] for character in each.question + "\n"]
        wanted = [ids[character] for character in each.solution]
        said = learned(input_ids=torch.tensor([question + wanted])).logits[0, len(question) - 1 : -1].argmax(-1)
        right, at = [a == b for a, b in zip(said.tolist(), wanted, strict=True)], 0
        for operation, line in zip(each.operations, each.solution.split("\n"), strict=False):
            found.setdefault(f"{each.family} {operation}", []).append(all(right[at : at + len(line)]))
            at += len(line) + 1
        found.setdefault(each.family, []).append(all(right))
    return {name: round(sum(each) / len(each), 3) for name, each in sorted(found.items())}


def train(name: str, plan: Plan, folder: Path, size: int, rate: float) -> None:
    """One model, written to its folder."""
    characters = tokenizer()
    ids = characters.get_vocab()
    learned = model(plan)
    optimizer = torch.optim.AdamW(learned.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    started, running = time.perf_counter(), 0.0
    for step in range(plan.steps):
        share = min((step + 1) / 100, 0.5 * (1 + math.cos(math.pi * step / plan.steps)) + 0.02)
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        rows, labels = batch(plan, step, size, ids)
        loss = learned(input_ids=rows, attention_mask=rows != 0, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned.parameters(), 1.0)
        optimizer.step()
        running += float(loss.detach())
        if (step + 1) % 200 == 0:
            seconds = time.perf_counter() - started
            figures = {"loss": running / 200, "seconds": seconds, **known(learned, ids)}
            click.echo(json.dumps({"model": name, "step": step + 1, **figures}))
            running = 0.0
    learned.to(torch.bfloat16).save_pretrained(folder)
    characters.save_pretrained(folder)


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--only", type=click.Choice(sorted(PLANS)))
@click.option("--size", type=int, default=SIZE, show_default=True, help="Problems of a batch.")
@click.option("--rate", type=float, default=2e-3, show_default=True)
@click.option("--threads", type=int, default=2, show_default=True)
def main(out: Path, only: str | None, size: int, rate: float, threads: int) -> None:
    """Both models, or one."""
    torch.set_num_threads(threads)
    for name, plan in PLANS.items():
        if only in (None, name):
            train(name, plan, out / name, size, rate)


if __name__ == "__main__":
    main()
