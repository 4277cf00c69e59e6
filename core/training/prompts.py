"""Chat prompts for training, from JSON Lines or a `datasets` name, and which of them are held out.

A line holds `messages` (a list of {role, content}), `conversations` (ShareGPT's {from, value}), `turns` (texts of the
user), or `prompt`; and `family`, if prompts are of several kinds. What an assistant said is left out: the target
answers itself.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROLES = {"human": "user", "gpt": "assistant"}  # ShareGPT's words
BUCKETS = 10_000


@frozen
class Prompt:
    """A chat up to the user's first turn, or a system message and that. `key` is a hash of the content."""

    messages: tuple[Mapping[str, str], ...]
    family: str = field(default="", eq=False)  # what kind its writer says it is of

    @property
    def key(self) -> str:
        """Stands for the content."""
        return hashlib.sha256(json.dumps(self.messages, sort_keys=True).encode()).hexdigest()[:16]

    def held_out(self, share: float) -> bool:
        """Whether it is for evaluation. By its content: the same in every run, wherever it stands in a file."""
        return int(self.key, 16) % BUCKETS < share * BUCKETS


def write_held_out(path: Path, prompts: Iterable[Prompt], share: float) -> None:
    """The texts that are held out and no other prompt has, as `draftmux bench --prompts` reads them, in an order of
    chance. System messages are left out."""
    held: dict[str, str] = {}
    learned: set[str] = set()
    for prompt in sorted(prompts, key=lambda prompt: prompt.key):
        text = prompt.messages[-1]["content"]
        if prompt.held_out(share):
            held.setdefault(text, prompt.key)
        else:
            learned.add(text)
    rows = [{"id": key, "turns": [text]} for text, key in held.items() if text and text not in learned]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def read_prompts(source: str, split: str = "train", limit: int | None = None) -> list[Prompt]:
    """Prompts of a file, or of a set on the hub; equal ones once. RequestError naming the line that cannot be read."""
    lines = json_lines(Path(source)) if Path(source).is_file() else _dataset(source, split)
    found: dict[str, Prompt] = {}
    for number, line in lines:
        prompt = prompt_of(line, f"{source}:{number}")
        found.setdefault(prompt.key, prompt)
        if limit is not None and len(found) == limit:
            break
    if not found:
        raise RequestError(f"{source} holds no prompts")
    return list(found.values())


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """What each line that is not empty holds, with its number; RequestError naming one that is no JSON."""
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _json(line, f"{path}:{number}")
        except UnicodeDecodeError as error:
            raise RequestError(f"{path} is not UTF-8: {error}") from error


def _json(line: str, place: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{place} is no JSON: {error}") from error


def _dataset(name: str, split: str) -> Iterable[tuple[int, Any]]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise RequestError(
            f"'{name}' is no file, and sets on the hub need the package datasets: pip install 'draftmux[train]'"
        ) from error
    try:
        return enumerate(load_dataset(name, split=split), 1)
    except Exception as error:  # the network, the name, the split
        raise RequestError(f"'{name}' is no file, and no data set that can be loaded: {error}") from error


def prompt_of(line: Any, place: str) -> Prompt:
    """The prompt of one line; RequestError at `place` when it has none."""
    messages = list(_messages(line, place)) if isinstance(line, dict) else []
    ends = [number for number, message in enumerate(messages) if message["role"] == "user"]
    if not ends:
        raise RequestError(f"{place} has no user's turn; a line holds messages, conversations, turns or prompt")
    return Prompt(tuple(messages[: ends[0] + 1]), str(line.get("family") or ""))


def _messages(line: Mapping[str, Any], place: str) -> Iterator[Mapping[str, str]]:
    if isinstance(turns := line.get("messages") or line.get("conversations"), list):
        for turn in turns:
            fields = turn if isinstance(turn, dict) else {}
            role, text = (fields.get(a, fields.get(b)) for a, b in (("role", "from"), ("content", "value")))
            if not isinstance(role, str) or not isinstance(text, str):
                raise RequestError(f"{place}: a message must have a role and a text, got {str(turn)[:80]}")
            yield {"role": ROLES.get(role, role), "content": text}
    elif isinstance(turns := line.get("turns"), list) and turns and isinstance(turns[0], str):
        yield {"role": "user", "content": turns[0]}
    elif isinstance(text := line.get("prompt"), str):
        yield {"role": "user", "content": text}
