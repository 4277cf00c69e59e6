"""Valid files come back as written; whatever is broken in one is named with its line; nothing else is ever raised."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from draftmux.config.load import parse_pipeline
from draftmux.errors import PipelineError

if TYPE_CHECKING:
    from draftmux.config.spec import PipelineSpec

pytestmark = pytest.mark.usefixtures("fakes")

names = st.text("abcdefgh", min_size=1, max_size=4)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)
whole = st.integers(0, 99)
budgets = st.fixed_dictionaries({}, optional=dict.fromkeys(("max_nodes", "max_depth", "max_branches"), whole))
guess_options = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(1, 9),
        "share": st.floats(0, 1),
        "eager": st.booleans(),
        "label": texts,
        "mode": st.sampled_from(["fast", "slow"]),
        "level": st.sampled_from([1, 2, 4]),
        "limit": st.none() | whole,
        "mixed": whole | st.lists(texts, max_size=2),
        "names": st.lists(texts, max_size=3),
        "pairs": st.lists(st.lists(whole, max_size=2), max_size=2),
        "weights": st.dictionaries(names, whole, max_size=2),
        "bias": st.dictionaries(whole, st.floats(-9, 9), max_size=2),
        "budget": budgets,
        "spare": st.none() | budgets,
    },
)
generations = st.fixed_dictionaries(
    {},
    optional={
        "max_new_tokens": st.integers(1, 999),
        "temperature": st.just(0) | st.floats(0.1, 2),
        "top_k": whole,
        "stop": st.lists(texts, max_size=2),
        "ignore_eos": st.booleans(),
    },
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """A valid file, as data."""
    drafters = draw(st.dictionaries(names, guess_options.map(lambda options: {"use": "guess", **options}), max_size=3))
    data: dict[str, Any] = {
        "models": {"target": {"source": "m"}} | draw(st.dictionaries(names, st.just({"source": "x"}), max_size=2)),
        "drafters": drafters,
        "generation": draw(generations),
        "verifier": {"use": draw(st.sampled_from(["exact-match", "lossy"]))},
        "lossless": False,
        "on_plugin_error": draw(st.sampled_from(["raise", "skip"])),
    }
    data["router"] = {"use": "fixed", "drafter": draw(st.sampled_from([None, *drafters]))}
    return data


def flow(value: Any) -> str:
    """Data in flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(found)}" for key, found in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)


def block(data: dict[str, Any], indent: str = "") -> list[str]:
    """Data in block style down to the options of plugins: one key a line."""
    lines = []
    for key, value in data.items():
        if isinstance(value, dict) and value and len(indent) < 4:
            lines += [f"{indent}{key}:", *block(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {flow(value)}")
    return lines


def written(spec: PipelineSpec, data: dict[str, Any]) -> dict[str, Any]:
    """The specification as the data of a file; of what is not a plugin, only the keys that `data` has."""
    plugins = {"router": spec.router, "verifier": spec.verifier}
    return {
        "models": {name: {"source": model.source} for name, model in spec.models.items()},
        "drafters": {name: {"use": drafter.use, **drafter.options} for name, drafter in spec.drafters.items()},
        "generation": {key: getattr(spec.generation, key) for key in data["generation"]},
        "lossless": spec.lossless,
        "on_plugin_error": spec.on_plugin_error,
        **{key: {"use": plugin.use, **plugin.options} for key, plugin in plugins.items()},
    }


@given(files())
def test_valid_files_round_trip(data: dict[str, Any]) -> None:
    spec = parse_pipeline("\n".join(block(data)), "p")
    assert written(spec, data) == data
    for name, drafter in spec.drafters.items():
        assert list(spec.drafters) == list(data["drafters"]) and drafter.name == name
        for key in ("size", "share", "eager", "label", "mode", "level", "limit", "names", "pairs", "weights", "bias"):
            if key in drafter.options:
                assert getattr(drafter.plugin, key) == drafter.options[key]


@frozen
class Fault:
    """A way to break one line, and what its message must hold."""

    pattern: str
    replacement: str
    message: str


FAULTS = [
    Fault(r"^    use: '(guess)'", r"    use: gues", "unknown drafter 'gues'; did you mean 'guess'?"),
    Fault(r"^    source: 'm'", r"    sorce: m", "unknown key 'sorce' in models.target; did you mean 'source'?"),
    Fault(r"^    source: 'm'", r"    source: 5", "models.target.source must be text, not 5"),
    Fault(r"^    source: 'm'", r"    source: !x m", "YAML tag '!x' is refused"),
    Fault(r"^lossless: false", r"lossless: no", "lossless must be true or false, not the text 'no'"),
    Fault(r"^lossless: false", r"losless: false", "unknown key 'losless'; did you mean 'lossless'?"),
    Fault(r"^    size: .*", r"    size: 10", "'size' must be <= 9: 10"),
    Fault(r"^    size: .*", r"    size: 2.5", "size must be an integer, not 2.5"),
    Fault(r"^    share: .*", r"    share: .nan", "share must be a finite number, not nan"),
    Fault(r"^    mode: .*", r"    mode: slowly", "mode cannot be the text 'slowly'; did you mean 'slow'?"),
    Fault(r"^    budget: .*", r"    budget: {max_depht: 1}", "budget; did you mean 'max_depth'?"),
    Fault(r"^    names: .*", r"    names: [a, 1]", "names[1] must be text, not 1"),
    Fault(r"^on_plugin_error: .*", r"on_plugin_error: rise", "on_plugin_error cannot be the text 'rise'; did you mean"),
    Fault(r"^  top_k: .*", r"  top_k: -2", "'top_k' must be >= 0: -2"),
    Fault(r"^  drafter: .*", r"  drafter: nobody", "router names drafter 'nobody', which is not in drafters"),
    Fault(r"^  use: 'exact-match'", r"  use: exact", "unknown verifier 'exact'; did you mean 'exact-match'?"),
]


@given(files(), st.data())
def test_every_injected_fault_is_named_with_its_line(data: dict[str, Any], choices: st.DataObject) -> None:
    lines = block(data)
    expected = []
    for fault in choices.draw(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=6)):
        open_lines = [
            at
            for at, line in enumerate(lines)
            if re.match(fault.pattern, line) and at not in (used for used, _ in expected)
        ]
        if open_lines:
            at = choices.draw(st.sampled_from(open_lines))
            lines[at] = re.sub(fault.pattern, fault.replacement, lines[at])
            expected.append((at, fault.message))
    if not expected:
        return
    with pytest.raises(PipelineError) as error:
        parse_pipeline("\n".join(lines), "p")
    found = error.value.faults
    # an unknown drafter's other options cannot be judged, so faults there may stay untold until it is right
    judged = [(at, message) for at, message in expected if not _below_unknown_drafter(lines, at)]
    for at, message in judged:
        assert any(fault.startswith(f"p:{at + 1}: ") and message in fault for fault in found), (message, found)
    told = [int(fault.split(":")[1]) for fault in found]
    assert told == sorted(told)


def _below_unknown_drafter(lines: list[str], at: int) -> bool:
    start = max((i for i in range(at + 1) if re.match(r"  \S+:$", lines[i])), default=None)
    return start is not None and lines[start + 1] == "    use: gues" and at != start + 1


SNIPPETS = [
    *"{}[]:,&*!|>%@`\"'#-? \n\t~<0",
    "&a ",
    "*a",
    "<<: ",
    "null",
    '"\\u',
    "- ",
    "? ",
    "---\n",
    "1e400",
    "\x07",
    "é",
]


@given(files(), st.data())
def test_broken_files_raise_nothing_else(data: dict[str, Any], choices: st.DataObject) -> None:
    text = "\n".join(block(data))
    for _ in range(choices.draw(st.integers(1, 5))):
        start = choices.draw(st.integers(0, len(text)))
        end = start + choices.draw(st.sampled_from([0, 0, 1, 4, 30]))
        text = text[:start] + choices.draw(st.sampled_from(SNIPPETS)) + text[end:]
    try:
        parse_pipeline(text, "p")
    except PipelineError as error:
        assert error.faults
        assert all(re.match(r"p(:\d+)?: \S", fault) for fault in error.faults)
