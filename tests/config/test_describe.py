"""What `check` shows."""

from __future__ import annotations

import json

import pytest

from draftmux.config.load import describe, parse_pipeline
from draftmux.types import UNLIMITED

pytestmark = pytest.mark.usefixtures("fakes")


def test_everything_is_resolved() -> None:
    rows = describe(
        parse_pipeline(
            "models: {target: {source: m}}\ndrafters: {d: {use: guess, tap: 3.mlp_out, depths: [1]}}\n"
            "verifier: {use: lossy}\nlossless: false\ngeneration: {temperature: 1}\n",
            "p",
        )
    )
    assert [(row.part, row.name, row.value, row.package) for row in rows] == [
        ("model", "target", "m", ""),
        ("drafter", "d", "guess", "fakes 1.2"),
        ("router", "", "fixed", "fakes 1.2"),
        ("verifier", "", "lossy", "fakes 1.2"),
        ("backend", "", "static", "fakes 1.2"),
        ("generation", "", "sampled", ""),
        ("lossless", "", "no: the text may differ from the target's", ""),
        ("on_plugin_error", "", "raise", ""),
    ]
    drafter, router = rows[1].options, rows[2].options
    assert router == {"drafter": "d"}
    assert drafter is not None
    assert (drafter["size"], drafter["tap"], drafter["depths"], drafter["folder"]) == (3, "3.mlp_out", [1], ".")
    assert drafter["budget"] == dict.fromkeys(("max_nodes", "max_depth", "max_branches"), UNLIMITED)
    assert "_loaded" not in drafter
    json.dumps(rows)


def test_lossless_is_what_the_verifier_says() -> None:
    [row] = [
        row
        for row in describe(parse_pipeline("backend: {use: scripted}\nlossless: false\n", "p"))
        if row.part == "lossless"
    ]
    assert row.value == "yes"


def test_a_verifier_that_keeps_only_the_law_is_said_to() -> None:
    spec = parse_pipeline("models: {target: {source: a/b}}\nverifier: {use: lawful}\n", "p.yaml")
    [row] = [row for row in describe(spec) if row.part == "lossless"]
    assert row.value.startswith("yes; sampled, in law")
