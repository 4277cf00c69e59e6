"""Writes the generated blocks of the documentation from the code: options, hooks, protocols, commands.

A block stands between `<!-- generated: WHAT -->` and `<!-- /generated -->`; the rest of a page is written by hand.
`python docs/generate.py` rewrites the blocks in place; with `--check` it changes nothing and exits 1 if one is stale.
Knows how code is described in Markdown; nothing of what a page says around its blocks.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from draftmux import errors as _errors
from draftmux import hookspecs
from draftmux.cli.main import main as command_group
from draftmux.config.classes import option_fields
from draftmux.config.load import read_pipeline, shipped
from draftmux.config.spec import PipelineSpec
from draftmux.plugins import registry
from draftmux.types import UNLIMITED, Accepts, Budget, Emits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FOLDER = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- /generated -->)", re.DOTALL)
PACKAGE = "draftmux"  # only what this repository publishes is documented here


def render(text: str) -> str:
    """The page with all its blocks written anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2])}\n\n{found[3]}", text)


def _block(what: str) -> str:
    name, *arguments = what.split()
    return "\n".join(WRITERS[name](*arguments)).rstrip("\n")


def file_keys() -> Iterator[str]:
    """The top level of a pipeline file; what a missing key becomes depends on the others, so the page tells it."""
    keys = [attribute for attribute in attrs.fields(PipelineSpec) if attribute.name != "origin"]
    yield from table(("key", "type", "meaning"), [(_code(k.name), _code(_type(k)), k.metadata["help"]) for k in keys])


def options(target: str) -> Iterator[str]:
    """The options of one attrs class."""
    yield from table(("key", "type", "default", "meaning"), map(_option, option_fields(_find(target))))


def plugins(kind: str) -> Iterator[str]:
    """Every built-in plugin of a kind, with its options."""
    for entry in registry():
        if (entry.kind, entry.package) == (kind, PACKAGE):
            cls = entry.load()
            yield from (f"#### `{entry.name}`", "", _sentence(entry.help), "", _prose(cls), "", *_declares(cls))
            yield from options(entry.target) if option_fields(cls) else ["No options."]
            yield ""


def hooks() -> Iterator[str]:
    """Every hook specification."""
    for name, function in vars(hookspecs).items():
        if inspect.isfunction(function) and function.__module__ == hookspecs.__name__ and name.startswith("register_"):
            yield from (f"### `{name}`", "", f"`{_signature(name, function)}`", "", _prose(function), "")


def api(target: str) -> Iterator[str]:
    """A function, or a class with its fields and public members."""
    found = _find(target)
    name = target.partition(":")[2]
    if inspect.isfunction(found):
        yield from (f"`{_signature(name, found)}`", "", _prose(found))
        return
    yield from (_prose(found), "")
    fields = option_fields(found) if attrs.has(found) else []
    if fields:
        rows = [(_code(f.name), _code(str(f.type)), _default(f, repr)) for f in fields]
        yield from (*table(("field", "type", "default"), rows), "")
    yield from _members(found)


def errors() -> Iterator[str]:
    """Every exception class of draftmux."""
    rows = [(_code(name), _prose(found)) for name, found in vars(_errors).items() if inspect.isclass(found)]
    yield from table(("error", "meaning"), rows)


def pipelines() -> Iterator[str]:
    """Every shipped pipeline."""
    rows = [(_code(name), _code(read_pipeline(name).description).strip("`")) for name in shipped()]
    yield from table(("name", "is"), rows)


def commands() -> Iterator[str]:
    """Every command with its arguments and flags."""
    yield from _commands(command_group, click.Context(command_group, info_name="draftmux"))


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        usage = " ".join([inner.command_path, *command.collect_usage_pieces(inner)])
        yield from (f"### `{inner.command_path}`", "", f"`{usage}`", "", _paragraphs(command.help or ""), "")
        flags = [_flag(parameter, inner) for parameter in command.get_params(inner) if "--help" not in parameter.opts]
        if any(flags):
            yield from table(("flag", "value", "default", "meaning"), [flag for flag in flags if flag])
            yield ""
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


WRITERS: dict[str, Callable[..., Iterator[str]]] = {
    "file-keys": file_keys,
    "options": options,
    "plugins": plugins,
    "hooks": hooks,
    "api": api,
    "errors": errors,
    "pipelines": pipelines,
    "commands": commands,
}


def table(head: Sequence[str], rows: Any) -> Iterator[str]:
    """A Markdown table."""
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"


def _find(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _option(attribute: attrs.Attribute[Any]) -> tuple[str, str, str, str]:
    note = attribute.metadata
    low, high = note.get("minimum"), note.get("maximum")
    bounds = "".join(f", {sign} {bound:g}" for sign, bound in (("≥", low), ("≤", high)) if bound is not None)
    return _code(attribute.name), _code(_type(attribute)) + bounds, _default(attribute), note.get("help", "")


def _type(attribute: attrs.Attribute[Any]) -> str:
    """The annotation; choices instead of `Literal[…]`, and in files a plugin is a mapping with `use`."""
    written = attribute.type if isinstance(attribute.type, str) else getattr(attribute.type, "__name__", "Any")
    written = re.sub(r"Literal\[([^]]*)\]", lambda found: " | ".join(re.findall(r"\w+", found[1])), written)
    written = re.sub(r"\b(PluginSpec|Router|Constraint)\b", "{use: NAME, …}", written)
    return " | ".join((written, *attribute.metadata.get("words", ())))


def _default(attribute: attrs.Attribute[Any], write: Callable[[Any], str] | None = None) -> str:
    default: Any = attribute.default
    if default is attrs.NOTHING:
        return "required"
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = default.factory()
    if default in (UNLIMITED, Budget()):
        return "unlimited"
    return _code((write or partial(json.dumps, default=attrs.asdict))(default))


def _declares(cls: type) -> Iterator[str]:
    """What a plugin class says of itself, as far as it does not depend on options."""
    emits, accepts = getattr(cls, "emits", None), getattr(cls, "accepts", None)
    if isinstance(emits, Emits):
        yield f"Drafts {'trees' if emits.tree else 'chains'}, {'with' if emits.q else 'without'} q."
    if isinstance(accepts, Accepts):
        drafts = "trees and chains" if accepts.tree else "chains"
        law = "the q of every draft" if accepts.needs_q else "no q"
        yield f"Takes {drafts}; needs {law}. {_promise(cls)}."
    if isinstance(emits, Emits) or isinstance(accepts, Accepts):
        yield ""


def _promise(verifier: Any) -> str:
    if verifier.lossless is not True:
        return "Lossy"
    return "Lossless, the same text for a seed" if verifier.pathwise is True else "Lossless: sampled, the same law"


def _members(cls: type) -> Iterator[str]:
    """Public methods and properties, read from the source: attrs hides the cached properties of slotted classes."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            said = " ".join((ast.get_docstring(node) or "").split())
            yield f"- `{_written(node)}`" + (f": {said}" if said else "")


def _written(node: ast.FunctionDef) -> str:
    returned = ast.unparse(node.returns) if node.returns else "Any"
    if {ast.unparse(decorator) for decorator in node.decorator_list} & {"property", "cached_property"}:
        return f"{node.name}: {returned}"
    del node.args.args[:1]  # self or cls
    return f"{node.name}({ast.unparse(node.args)}) -> {returned}"


def _signature(name: str, function: Any) -> str:
    return name + str(inspect.signature(function)).replace("'", "")


def _flag(parameter: click.Parameter, context: click.Context) -> tuple[str, str, str, str] | None:
    if isinstance(parameter, click.Argument):
        return None  # the usage line has it, and the text below explains it
    assert isinstance(parameter, click.Option)
    value = "" if parameter.is_flag else _code(parameter.make_metavar(context).replace(" RANGE", ""))
    bounds = _bounds(parameter.type)
    shown = json.dumps(parameter.default) if parameter.show_default else ""
    many = "repeatable" if parameter.multiple else ""
    meaning = (parameter.help or "").strip()
    extra = ", ".join(part for part in (bounds, many if "epeatable" not in meaning else "") if part)
    return _code(", ".join(parameter.opts)), value + (f", {extra}" if extra else ""), _code(shown), meaning


def _bounds(type_: Any) -> str:
    low = getattr(type_, "min", None)
    return "" if low is None else f"≥ {low}"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _prose(documented: Any) -> str:
    return _paragraphs(documented.__doc__ or "")


def _paragraphs(docstring: str) -> str:
    """A docstring with one line a paragraph; paragraphs are parted by an empty line."""
    parts = inspect.cleandoc(docstring).split("\n\n")
    # Where a rule comes from is for readers of the code.
    return "\n\n".join(" ".join(part.split()) for part in parts if not part.startswith("Source:"))


def run(check: bool) -> int:
    """Rewrite or check every page; the exit status."""
    stale = []
    for page in sorted(FOLDER.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        fresh = render(text)
        if fresh != text:
            stale.append(page.relative_to(FOLDER).as_posix())
            if not check:
                page.write_text(fresh, encoding="utf-8")
    for name in stale:
        print(f"docs/{name} {'is stale; run: python docs/generate.py' if check else 'rewritten'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(run("--check" in sys.argv[1:]))
