"""YAML text to located nodes."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from draftmux.config.faults import Faults, Place
from draftmux.config.nodes import Mapping, Node, Scalar, Sequence, children, plain, tree
from draftmux.config.reader import MAX_ALIASED, MAX_BRACKETS, MAX_DEPTH, read, read_value, resolve


def faults_of(text: str) -> list[str]:
    faults = Faults()
    read(text, "f", faults)
    return faults.sentences()


def value_of(text: str) -> Any:
    faults = Faults()
    node = read(text, "f", faults)
    assert node is not None and not faults, faults.sentences()
    return plain(node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("FALSE", False),
        ("off", "off"),
        ("yes", "yes"),
        ("tRuE", "tRuE"),
        ("5", 5),
        ("-0", 0),
        ("+12", 12),
        ("017", 17),
        ("0o17", 15),
        ("0xfF", 255),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("2.", 2.0),
        (".5", 0.5),
        ("1e400", math.inf),
        ("-.inf", -math.inf),
        (".", "."),
        ("14.attn_out", "14.attn_out"),
        ("2026-01-01", "2026-01-01"),
        ("٣", "٣"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_unquoted_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    found = resolve(text)
    assert found == value and type(found) is type(value)


def test_nan() -> None:
    assert math.isnan(resolve(".NaN"))  # type: ignore[arg-type]


def test_quoted_scalars_are_text() -> None:
    assert value_of("a: '5'\nb: \"true\"\nc: |\n  1\n") == {"a": "5", "b": "true", "c": "1\n"}


def test_every_key_and_value_has_its_line() -> None:
    text = "a: 1\nb:\n  - x\n  -\n  - {c: 2,\n     d: 3}\n\n# comment\ne:\nf:\n  g: 4\n"
    root = read(text, "f", Faults())
    assert isinstance(root, Mapping)
    assert {key: entry.place.line for key, entry in root.entries.items()} == {"a": 1, "b": 2, "e": 9, "f": 10}
    assert _lines(root) == [(1, 1), ("x", 3), (None, 4), (2, 5), (3, 6), (None, 9), (4, 11)]


def _lines(node: Node) -> list[tuple[Any, int | None]]:
    if isinstance(node, Scalar):
        return [(node.value, node.place.line)]
    return [found for child in children(node) for found in _lines(child)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "f:1: the file holds no YAML documents; it must hold one mapping"),
        ("# only a comment\n", "f:1: the file holds no YAML documents; it must hold one mapping"),
        ("a: 1\n---\nb: 2\n", "f:1: the file holds 2 YAML documents; it must hold one mapping"),
        ("%YAML 1.1\n---\na: 1\n", "f:2: pipeline files are YAML 1.2, not 1.1"),
        ("a: 1\nb: [1", "f:2: not valid YAML at column 6: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\tb: 1", "f:2: not valid YAML at column 1: found character '\\t' that cannot start any token"),
        ("a: 1\nb: \x07", "f:2: not valid YAML: character 9 of the text: special characters are not allowed"),
        ("a: 1\nb: *x", "f:2: alias *x has no anchor &x before it"),
        ("a: &x [1, *x]", "f:1: alias *x stands inside its own anchor; a value cannot contain itself"),
        ("a: 1\na: 2", "f:2: key 'a' stands twice, first in line 1; remove one"),
        ("a: 1\nb: {c: 1,\n c: 2}", "f:3: key 'c' stands twice, first in line 2; remove one"),
        ("a: &x {b: 1}\nc:\n  <<: *x", "f:3: merge keys (<<) are not part of YAML 1.2; write the keys out"),
        ("? [a]\n: 1", "f:1: a key must be one word, not a list or mapping"),
        ('a: "\\ud800"', "f:1: text '\\ud800' holds half of a surrogate pair, which is no character"),
    ],
)
def test_faults(text: str, fault: str) -> None:
    assert faults_of(text) == [fault]


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!str", "!x", "!", "!<tag:x>"])
def test_tags_are_refused_wherever_they_stand(tag: str) -> None:
    for text in (f"a: {tag} 'x'", f"a: {tag} [x]", f"a: {tag} {{x: 1}}", f"{tag} a: 1"):
        [fault] = faults_of(text)
        assert fault.startswith("f:1: YAML tag '")
        assert fault.endswith("' is refused, since nothing executes from data; remove it")


def test_an_escape_that_is_no_character_is_a_syntax_fault() -> None:
    [fault] = faults_of('a: 1\nb: "\\UFFFFFFFF"')
    assert fault.startswith("f:2: not valid YAML: ")


def test_a_syntax_fault_is_told_alone() -> None:
    assert len(faults_of("a: 1\na: !x 2\nb: [")) == 1


def test_anchors_may_be_used_again() -> None:
    text = "a: &x {b: [1, 2]}\nc: *x\nd: [*x, &x 7, *x]"
    assert value_of(text) == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": [{"b": [1, 2]}, 7, 7]}


def test_exploding_aliases_are_refused_quickly() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    assert faults_of("\n".join(lines)) == [f"f:3: aliases repeat more than {MAX_ALIASED} values; write them out"]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_depth_is_limited(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return f"a: {opening * depth}1{closing * depth}\nb: 2"

    assert faults_of(nested(MAX_DEPTH - 1)) == []
    for depth in (MAX_DEPTH, MAX_BRACKETS):
        assert faults_of(nested(depth)) == [f"f:1: nested more than {MAX_DEPTH} deep"]
    for depth in (MAX_BRACKETS + 1, 100_000):  # so many would take the parser hours if it looked at them all
        column = 4 + len(opening) * MAX_BRACKETS
        assert faults_of(nested(depth)) == [
            f"f:1: not valid YAML at column {column}: more than {MAX_BRACKETS} open brackets; values may be nested "
            f"{MAX_DEPTH} deep"
        ]


def test_brackets_in_text_are_text() -> None:
    brackets = "[" * 500
    assert value_of(f"a: '{brackets}'\nb: |\n  {brackets}\nc: x{brackets}") == {
        "a": brackets,
        "b": f"{brackets}\n",
        "c": f"x{brackets}",
    }


def test_brackets_that_are_closed_again_do_not_count() -> None:
    assert value_of(f"[{', '.join(['[]'] * 200)}]") == [[]] * 200


def test_what_follows_a_refused_collection_is_still_read() -> None:
    root = read("a: " + "[" * 50 + "]" * 50 + "\nb: !x {c: [1]}\nd: 3", "f", faults := Faults())
    assert isinstance(root, Mapping) and plain(root.entries["d"].node) == 3
    assert [place.line for place, _ in faults.found] == [1, 2]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.7", 0.7), ("", None), ("null", None), ("'5'", "5"), ("[1, a]", [1, "a"]), ("{a: {b: 1}}", {"a": {"b": 1}})],
)
def test_override_values(text: str, value: Any) -> None:
    faults = Faults()
    assert plain(read_value(text, Place("--set k"), faults)) == value and not faults


@pytest.mark.parametrize("text", ["a: b", "- a", "[1", "!x 1", "1\n--- 2", "*a"])
def test_override_values_with_faults(text: str) -> None:
    faults = Faults()
    read_value(text, Place("--set k"), faults)
    assert len(faults) == 1 and faults.sentences()[0].startswith("--set k: ")


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner),
    max_leaves=12,
)


@given(data)
def test_reads_back_what_another_library_writes(value: Any) -> None:
    writer = YAML(typ="safe", pure=True)
    # the writer's aliases for shared lists and its line folding are not what is tested here
    writer.width = 100_000
    writer.representer.ignore_aliases = lambda _: True
    stream = io.StringIO()
    writer.dump({"root": value}, stream)
    assert value_of(stream.getvalue()) == {"root": value}


@given(data)
def test_tree_is_the_opposite_of_plain(value: Any) -> None:
    assert plain(tree(value, Place("f"))) == value


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(7), np.bool_(True), np.array([1, 2]), np.array(3)])
def test_numbers_and_arrays_of_numpy_are_what_they_hold(value: Any) -> None:
    for data, wanted in ((value, value.tolist()), ({"a": [value]}, {"a": [value.tolist()]})):
        found = plain(tree(data, Place("f")))
        assert found == wanted
        assert repr(found) == repr(wanted)
    assert [type(key) for key in plain(tree({np.int64(7): 1}, Place("f")))] == [int]


@given(st.text(st.sampled_from("ab:- \n[]{}&*!|>%@'\"#?,\\~<u0\t\ud800\x00")))
def test_any_text_gives_nodes_or_faults(text: str) -> None:
    faults = Faults()
    node = read(text, "f", faults)
    assert isinstance(node, (Scalar, Sequence, Mapping)) or len(faults) > 0
    assert all(place.line is not None and 1 <= place.line <= text.count("\n") + 2 for place, _ in faults.found)
