"""The JSON Schema agrees with the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import draftmux.plugins
from draftmux.config.faults import Faults
from draftmux.config.load import parse_pipeline, read_pipeline, shipped
from draftmux.config.nodes import plain
from draftmux.config.reader import read
from draftmux.config.schema import json_schema
from draftmux.errors import PipelineError

MODELS = "models: {target: {source: m}}\n"
GOOD = [
    MODELS,
    "backend: {use: scripted}\n",
    MODELS + "drafters: {d: {use: guess}}\n",
    MODELS
    + "drafters: {d: {use: guess}, e: {use: pair, low: 1, high: 2}}\nrouter: {use: switch, first: d, second: e}\n",
    MODELS
    + "drafters: {d: {use: guess, size: 9, share: 1, eager: true, label: x, mode: slow, level: 2, limit: null}}\n",
    MODELS + "drafters: {d: {use: guess, mixed: [a], pairs: [[1]], depths: [2], weights: {a: 1}, bias: {-5: 1.5}}}\n",
    MODELS
    + "drafters: {d: {use: guess, budget: {max_depth: 3}, spare: null, tap: 1.mlp_out, folder: a, extra: [1]}}\n",
    MODELS + "generation: {max_new_tokens: 1, temperature: 0.5, stop: [a], prompt_format: raw}\ndescription: x\n",
    MODELS + "verifier: {use: lossy}\nlossless: false\non_plugin_error: skip\n",
]
BAD = [
    "[]",
    "lossless: true",
    "models: {draft: {source: m}}",
    "backend: {use: transformers}",
    "models: {target: {dtype: auto}}",
    "models: {target: {source: m, dtype: bf16}}",
    MODELS + "rooter: {use: any}",
    MODELS + "drafters: [d]",
    MODELS + "drafters: {d: {use: guess}, e: {use: guess}}",
    MODELS + "drafters: {d: {}}",
    MODELS + "drafters: {d: {use: gess}}",
    MODELS + "drafters: {d: {use: pair, low: 1}}",
    MODELS + "drafters: {d: {use: guess, sise: 3}}",
    MODELS + "drafters: {d: {use: guess, size: '3'}}",
    MODELS + "drafters: {d: {use: guess, size: 10}}",
    MODELS + "drafters: {d: {use: guess, size: true}}",
    MODELS + "drafters: {d: {use: guess, mode: slo}}",
    MODELS + "drafters: {d: {use: guess, level: 3}}",
    MODELS + "drafters: {d: {use: guess, limit: x}}",
    MODELS + "drafters: {d: {use: guess, mixed: [1]}}",
    MODELS + "drafters: {d: {use: guess, pairs: [1]}}",
    MODELS + "drafters: {d: {use: guess, bias: {a: 1}}}",
    MODELS + "drafters: {d: {use: guess, budget: {max_dept: 1}}}",
    MODELS + "drafters: {d: {use: guess, loaded: 1}}",
    MODELS + "router: {use: guess}",
    MODELS + "generation: {top_p: 2}",
    MODELS + "lossless: off",
    MODELS + "on_plugin_error: ignore",
]


@pytest.fixture(scope="module")
def validator(fakes: object) -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(json.loads(json.dumps(schema, allow_nan=False)))


def as_json(text: str) -> Any:
    """The file as an editor would hand it to a validator: keys are text."""
    node = read(text, "p", Faults())
    assert node is not None
    return json.loads(json.dumps(plain(node)))


@pytest.mark.parametrize("text", GOOD)
def test_good_files_pass_both(text: str, validator: Draft202012Validator) -> None:
    parse_pipeline(text, "p")
    validator.validate(as_json(text))


@pytest.mark.parametrize("text", BAD)
def test_bad_files_pass_neither(text: str, validator: Draft202012Validator) -> None:
    with pytest.raises(PipelineError):
        parse_pipeline(text, "p")
    assert not validator.is_valid(as_json(text))


def test_what_an_editor_shows(validator: Draft202012Validator) -> None:
    definitions = validator.schema["$defs"]
    guess = definitions["drafter.guess"]["properties"]
    assert guess["use"] == {"const": "guess", "description": "the guess drafter"}
    assert guess["size"] == {
        "type": "integer",
        "description": "a bounded integer",
        "minimum": 1,
        "maximum": 9,
        "default": 3,
    }
    assert guess["level"]["enum"] == [1, 2, 4]
    assert guess["tap"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert "_loaded" not in guess and "counter" not in guess
    assert validator.schema["properties"]["verifier"]["description"]


def test_plugins_that_cannot_be_imported_are_left_out(validator: Draft202012Validator) -> None:
    drafter = validator.schema["$defs"]["drafter"]
    left_out = ["absent", "complex", "not-attrs", "unfinished", "unreadable"]
    assert drafter["$comment"] == f"left out, since they could not be loaded: {', '.join(left_out)}"
    assert not set(left_out) & set(drafter["properties"]["use"]["enum"])


SAMPLE = """\
description: copy when the match is long, otherwise guess again
models:
  target: {source: smollm2, dtype: bfloat16}
drafters:
  copy: {use: context-copy, min_match: 5, max_branches: 3, max_depth: 10}
  pld:  {use: pld, min_n: 2}
router:   {use: match-length, min_match: 5, copy: copy, otherwise: pld}
verifier: {use: exact-match}
backend:  {use: transformers}
generation: {max_new_tokens: 128, temperature: 0}
lossless: true
on_plugin_error: raise
"""


def test_installed_plugins_and_shipped_pipelines() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draftmux.plugins, "registry", _installed)
        schema = json_schema()
        validator = Draft202012Validator(schema)
        validator.validate(as_json(SAMPLE))
        spec = parse_pipeline(SAMPLE, "sample.yaml")
        assert spec.router.plugin.uses() == ("copy", "pld")
        builtin = {entry.name for entry in _installed() if entry.package == "draftmux" and entry.kind == "drafter"}
        assert builtin <= set(schema["$defs"]["drafter"]["properties"]["use"]["enum"])
        for name in shipped():
            read_pipeline(name)


_installed = draftmux.plugins.registry
