"""The model card of a trained part: what it is, of which target, from what, by which command, and how good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from draftmux.models.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from draftmux.training.job import Job
    from draftmux.training.recipe import Recipe


@frozen(eq=False)
class Origin:
    """How a part came to be. `model` is the target, `figures` are those of held-out prompts."""

    target: str
    model: Any
    prompts: str
    command: str
    recipe: Recipe
    figures: Mapping[str, Any]
    fingerprint: str = field(init=False)

    @fingerprint.default
    def _of_weights(self) -> str:
        return fingerprint(self.model)

    @classmethod
    def of(cls, job: Job, model: Any, recipe: Recipe, figures: Mapping[str, Any]) -> Origin:
        """Of a job that is through."""
        return cls(job.spec.source, model, job.prompts, job.command, recipe, figures)

    @property
    def kept(self) -> dict[str, Any]:
        """For a config: what it is made for, and how."""
        return {
            "target": self.target,
            "target_fingerprint": self.fingerprint,
            "recipe": {**self.recipe.kept, "steps": self.recipe.steps},
            "figures": dict(self.figures),
        }


def write_card(folder: Path, head: str, origin: Origin, facts: Sequence[str] = ()) -> None:
    """`README.md`: `head` (title, what it is, how to draft with it), `facts`, where it is from, and its figures."""
    lines = [
        f"- target: `{origin.target}`, fingerprint `{origin.fingerprint[:16]}`",
        *(f"- {fact}" for fact in facts),
        f"- prompts: {origin.prompts}",
        f"- command: `{origin.command}`",
        "",
        f"Held-out prompts, {origin.recipe.steps} optimizer steps, seed {origin.recipe.seed}:",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name.replace('_', ' ')} | {text_of(value)} |" for name, value in origin.figures.items()),
    ]
    (folder / "README.md").write_text("\n".join([head, *lines]) + "\n", "utf-8")


def text_of(value: Any) -> str:
    """A figure, or a list of them, for people."""
    return ", ".join(f"{each:.3f}" for each in value) if isinstance(value, list) else f"{value:.3f}"
