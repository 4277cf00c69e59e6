"""The files of a new plugin package, filled in. Knows no disk and no command line; `cli/new_plugin.py` has those."""

from __future__ import annotations

import re
from importlib.resources import files
from keyword import iskeyword

from attrs import frozen

from draftmux.hookspecs import PLUGIN_API

HELP = {
    "drafter": "guess that the last few tokens come again",
    "router": "stay with a drafter while its guesses are accepted, else try the next",
    "verifier": "accept what the target itself picks; lossless",
}
MAX_NAME = 40
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_VALUES = ("true", "false", "null")


def name_fault(name: str) -> str | None:
    """Why a plugin cannot be called `name`; None if it can."""
    if len(name) > MAX_NAME:
        return f"a name has at most {MAX_NAME} characters, not {len(name)}"
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f"; did you mean '{near}'?" if _NAME.fullmatch(near) else ""
        return (
            f"{name!r} is no plugin name: lower-case letters and digits, a letter first, single hyphens between{hint}"
        )
    if name.startswith("draftmux-"):
        return f"the package is called draftmux-NAME already; did you mean '{name.removeprefix('draftmux-')}'?"
    if name in _VALUES:
        return f"'{name}' is a value in YAML, so no pipeline could name the plugin; choose another name"
    return None


@frozen
class Package:
    """A package `draftmux-NAME` that publishes one plugin of a kind in `HELP` under a name without `name_fault`."""

    kind: str
    name: str

    @property
    def title(self) -> str:
        """Name of the distribution, and of its folder."""
        return f"draftmux-{self.name}"

    @property
    def module(self) -> str:
        """Name of the import package."""
        return self.title.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The name in capitals; `My` goes before one that Python, pytest or the template itself would misread."""
        name = "".join(part.capitalize() for part in self.name.split("-"))
        taken = re.search(rf"\b{name}\b", _template(f"{self.kind}.py"))
        return f"My{name}" if taken or iskeyword(name) or name.startswith("Test") else name

    def files(self) -> dict[str, str]:
        """Text of every file by its path in the package's folder."""
        identifier = self.name.replace("-", "_")
        places = {
            "pyproject.toml": "pyproject.toml",
            "README.md": "README.md",
            "example.yaml": "example.yaml",
            f"{self.module}/__init__.py": "init.py",
            f"{self.module}/{self.kind}.py": f"{self.kind}.py",
            f"{self.module}/py.typed": "py.typed",
            f"tests/test_{identifier}.py": "test.py",
        }
        values = {
            "kind": self.kind,
            "name": self.name,
            "package": self.title,
            "module": self.module,
            "class": self.class_name,
            "identifier": identifier,
            "help": HELP[self.kind],
            "api": PLUGIN_API,
        }
        values["example"] = _fill("example.yaml", values)
        return {path: _fill(template, values) for path, template in places.items()}


def _template(name: str) -> str:
    return (files("draftmux.scaffold") / "templates" / f"{name}.j2").read_text(encoding="utf-8")


def _fill(name: str, values: dict[str, object]) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_template(name)).render(values)
