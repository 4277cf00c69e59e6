"""The reference lists everything that there is and nothing that there is not; links lead somewhere."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner

from draftmux import errors, hookspecs, protocols
from draftmux.bench.table import COLUMNS
from draftmux.cli.main import COMMANDS, main
from draftmux.config.describe import Row
from draftmux.config.grammar import PROTOCOLS
from draftmux.config.load import shipped
from draftmux.config.schema import json_schema
from draftmux.plugins import registry
from draftmux.registry import BrokenPlugin, SkippedPlugin

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
READMES = sorted((ROOT / "plugins").glob("*/README.md"))
HOSTS = {"arxiv.org", "github.com", "huggingface.co", "keepachangelog.com", "semver.org"}
HOST = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:org|com|io|net|dev|ai|co)\b")

Blocks = Callable[[Path], list[Any]]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


def generated(text: str, what: str) -> str:
    """The block of that name."""
    found = re.search(rf"<!-- generated: {re.escape(what)} -->(.*?)<!-- /generated -->", text, re.DOTALL)
    assert found is not None, f"the page has no block '{what}'"
    return found[1]


def first_cells(text: str) -> set[str]:
    """Code in the first cells of all tables."""
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))


def sections(text: str, level: int) -> dict[str, str]:
    """Text below each heading of a level whose title is code."""
    parts = re.split(rf"^{'#' * level} `([^`]+)`$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_generated_blocks_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.run(check=True) == 0, capsys.readouterr().out
    assert generate.render("<!-- generated: errors -->\nstale\n<!-- /generated -->").count("DraftmuxError") == 1


def test_every_key_of_a_pipeline_file_is_documented() -> None:
    page, schema = reference("pipeline"), json_schema()
    top = schema["properties"]
    budget = schema["$defs"]["router.fixed"]["properties"]["budget"]
    documented = {
        "file-keys": top,
        "options draftmux.models.source:ModelSpec": top["models"]["additionalProperties"]["properties"],
        "options draftmux.generation:Generation": top["generation"]["properties"],
        "options draftmux.types:Budget": budget["properties"],
    }
    for block, keys in documented.items():
        assert first_cells(generated(page, block)) == set(keys), block
    assert first_cells(generated(page, "pipelines")) == set(shipped())


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_every_option_of_every_built_in_plugin_is_documented(kind: str) -> None:
    definitions = json_schema()["$defs"]
    own = [entry.name for entry in registry() if (entry.kind, entry.package) == (kind, "draftmux")]
    found = sections(generated(reference("pipeline"), f"plugins {kind}"), 4)
    assert list(found) == own
    for name, text in found.items():
        assert first_cells(text) == set(definitions[f"{kind}.{name}"]["properties"]) - {"use"}, name


def test_every_hook_is_documented() -> None:
    hooks = [name for name, member in vars(hookspecs).items() if hasattr(member, "draftmux_spec")]
    assert len(hooks) == 7
    assert list(sections(generated(reference("hooks"), "hooks"), 3)) == hooks


def test_every_member_of_every_protocol_is_explained() -> None:
    page = reference("protocols")
    for name in ("Drafter", "Router", "Verifier"):
        protocol = getattr(protocols, name)
        members = {member for member in vars(protocol) if not member.startswith("_")}
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        explained = re.search(r"\| member \| is \|\n((?:\|.*\n)+)", section)
        assert explained is not None and first_cells(explained[1]) == members, name
    for name in protocols.__all__:
        assert f"<!-- generated: api draftmux.protocols:{name} -->" in page


def test_every_command_and_flag_is_documented() -> None:
    found = sections(generated(reference("commands"), "commands"), 3)
    commands = dict(every(main, click.Context(main, info_name="draftmux")))
    assert list(found) == list(commands)
    assert {f"draftmux {name}" for name in COMMANDS} <= commands.keys()
    for path, command in commands.items():
        flags = {flag for p in command.params if isinstance(p, click.Option) for flag in p.opts}
        assert first_cells(found[path]) == flags, path


def every(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Commands with their full names, those of groups behind the group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        yield inner.command_path, command
        if isinstance(command, click.Group):
            yield from every(command, inner)


def test_every_error_is_documented() -> None:
    assert first_cells(generated(reference("python"), "errors")) == {
        name for name, member in vars(errors).items() if inspect.isclass(member)
    }


def layout(name: str) -> set[str]:
    """The keys of a JSON object as the reference lists them."""
    found = re.search(rf"<!-- json: {name} -->\n((?:\|.*\n)+)", reference("commands"))
    assert found is not None
    return first_cells(found[1])


def test_json_of_run_plugins_and_check(workplace: Path) -> None:
    def output(*arguments: str) -> Any:
        return json.loads(CliRunner(catch_exceptions=False).invoke(main, arguments).stdout)

    result = output("run", "pld", "--json", "--prompt", "a", "--set", "generation.max_new_tokens=3")
    assert set(result) == layout("run") and set(result["metrics"]) == layout("metrics")
    listed = output("plugins", "--json")
    assert set(listed) == {"plugins", "loaded", "broken", "disabled", "warnings"}
    assert set(listed["plugins"][0]) == layout("plugins") and set(listed["loaded"][0]) == layout("loaded")
    resolved = output("check", "pld", "--json")
    assert set(resolved) == {"ok", "resolved"} and {len(row) for row in resolved["resolved"]} == {len(Row._fields)}
    assert re.findall(r"^\| \d \| `(\w+)` \|", reference("commands"), re.MULTILINE) == list(Row._fields)
    assert layout("broken") == {field.name for field in attrs.fields(BrokenPlugin)}
    assert layout("disabled") == {field.name for field in attrs.fields(SkippedPlugin)}


def test_json_of_bench(workplace: Path) -> None:
    (workplace / "p.jsonl").write_text('{"prompt": "ab ab ab"}\n{"prompt": "la la la"}\n')
    arguments = ["bench", "pld", "--prompts", "p.jsonl", "--max-new-tokens", "4", "--warmup", "0", "--json", "out.json"]
    result = CliRunner(catch_exceptions=False).invoke(main, [*arguments, "--baseline", "transformers"])
    assert result.exit_code == 0, result.output
    report = json.loads((workplace / "out.json").read_text())
    assert set(report) == layout("bench")
    runs = {run["pipeline"]: set(run) for run in report["runs"]}
    assert runs["pld"] == layout("bench-run") | layout("bench-engine") | layout("metrics")
    assert runs["transformers"] == layout("bench-run")


def test_the_columns_of_bench_are_explained() -> None:
    page = (DOCS / "how-to" / "benchmark.md").read_text(encoding="utf-8")
    explained = re.findall(
        r"^\| `([^`]+)` \|", page.partition("<!-- columns -->")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert ["".join(name.split()) for name in explained] == ["".join(name.split()) for name in COLUMNS]


def without_code(page: Path, blocks: Blocks) -> str:
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    return text


def anchors(page: Path, blocks: Blocks) -> set[str]:
    """As the usual renderers make them of headings."""
    titles = re.findall(r"^#+ (.*)$", without_code(page, blocks), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=named)
def test_every_relative_link_resolves(page: Path, blocks: Blocks) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page, blocks)):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{link}: there is no {target}"
            assert not anchor or anchor in anchors(target, blocks), f"{link}: {sorted(anchors(target, blocks))}"


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=named)
def test_no_host_but_the_known_ones_is_named(page: Path) -> None:
    assert set(HOST.findall(page.read_text(encoding="utf-8").lower())) <= HOSTS


def test_the_tree_in_the_readme_is_the_tree(blocks: Blocks) -> None:
    [tree] = [block for block in blocks(ROOT / "README.md") if "tree" in block.words]
    folder, shown = ROOT, set()
    for line in tree.text.splitlines():
        name = line.split()[0]
        path = (folder if line.startswith(" ") else ROOT) / name
        assert path.exists(), f"the tree shows {path.relative_to(ROOT)}"
        shown.add(path)
        folder = folder if line.startswith(" ") else path
    modules = {path for path in (ROOT / "core").glob("*.py") if path.name != "__init__.py"}
    folders = {path.parent for path in (ROOT / "core").glob("*/__init__.py")}
    plugins = {path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml")}
    assert modules | folders | plugins <= shown, sorted(modules | folders | plugins - shown)


def test_the_readme_keeps_a_place_for_results() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- results -->\n(.+?)\n<!-- /results -->", readme, re.DOTALL)
    assert found is not None and ("docs/benchmarks.md" in found[1] or "|" in found[1])


def test_what_the_readme_says_works_is_installed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    kinds = "drafters|routers|verifiers|backends|constraints|tasks"
    rows = re.findall(rf"^\| ({kinds}) \| (.*?) \| (.*?) \|$", readme, re.MULTILINE)
    assert len(rows) == 6
    for kind, works, _ in rows:
        own = {entry.name for entry in registry() if f"{entry.kind}s" == kind and entry.package == "draftmux"}
        assert set(re.findall(r"`([\w-]+)`", works)) == own, kind
