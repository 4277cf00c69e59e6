"""One character is one token, and both models learn solutions alone."""

from __future__ import annotations

from pathlib import Path

import torch
from attrs import evolve
from draftmux_arbiter_lab.problems import problems
from draftmux_arbiter_lab.train_pair import PLANS, batch, tokenizer, train

import draftmux


def test_a_problem_survives_the_tokenizer() -> None:
    made = tokenizer()
    for problem in problems(60, 5):
        ids = made(problem.solution)["input_ids"]
        assert len(ids) == len(problem.solution) and 0 not in ids
        assert made.decode(ids) == problem.solution
        chat = made.apply_chat_template([{"role": "user", "content": problem.question}], tokenize=False)
        assert chat == problem.question + "\n"


def test_labels_are_solutions_and_their_end() -> None:
    made = tokenizer()
    plan = PLANS["draft"]
    ids, labels = batch(plan, 3, 8, made.get_vocab())
    for row, kept, problem in zip(ids, labels, problems(8, plan.seed * 10**5 + 3, plan.weights), strict=True):
        assert made.decode(kept[kept != -100]) == problem.solution + "<end>"
        assert torch.equal(row[kept != -100], kept[kept != -100])


def test_what_was_trained_is_a_model_of_a_pipeline(tmp_path: Path) -> None:
    train("draft", evolve(PLANS["draft"], steps=1, layers=1, width=16, heads=2), tmp_path / "draft", 4, 1e-3)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"models: {{target: {{source: '{tmp_path}/draft', dtype: float32}}}}\ngeneration: {{max_new_tokens: 4}}"
    )
    assert len(draftmux.load(path).generate("12345 rev").tokens) > 0
