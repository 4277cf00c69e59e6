"""What a probe is worth on texts that nothing was chosen by: how well it scores, and how far copies get with it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import asdict, frozen

from draftmux.routers.linear_probe.activations import Text, states_of
from draftmux.routers.linear_probe.fitting import Quality, quality
from draftmux.routers.linear_probe.labels import Labelling, hits
from draftmux.routers.replays import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.protocols import BoundBackend
    from draftmux.routers.linear_probe.recipe import ProbeRecipe
    from draftmux.types import Tap

FEWEST_HARD = 200  # hard negatives below which nothing is said about them


@frozen(eq=False)
class Candidate:
    """A probe on one tap for one shift, and how it does on validation prompts at the threshold that is best there."""

    tap: Tap
    shift: int
    penalty: float
    weight: Tensor
    threshold: float
    validation: Quality


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of a chat template: a stretch with one of them repeats nothing."""
    return frozenset(getattr(tokenizer, "all_special_ids", None) or ())


@frozen(eq=False)
class Findings:
    """What is reported: all taps on validation prompts, and the best probe of every shift on test prompts."""

    kept: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        told: Callable[[str], None],
        recipe: ProbeRecipe,
        backend: BoundBackend,
        best: Mapping[tuple[Tap, int], Candidate],
        by_shift: Sequence[Candidate],
        texts: Sequence[Text],
    ) -> Findings:
        """Read the test texts once more, whole."""
        never = special_ids(backend.tokenizer)
        trials = [Trial(candidate, recipe, recipe.labelling(never)) for candidate in by_shift]
        tests = [text for text in texts if text.role == "test"]
        for number, text in enumerate(tests, 1):
            states = states_of(backend, text)
            for trial in trials:
                trial.add(text, states[trial.candidate.tap])
            if number % 50 == 0:
                told(f"{number} of {len(tests)} test texts read")
        validation = [
            {"tap": str(tap), "shift": shift, "penalty": each.penalty, **asdict(each.validation)}
            for (tap, shift), each in best.items()
        ]
        counts = {role: sum(text.role == role for text in texts) for role in ("learn", "validation", "test")}
        return cls({"texts": counts, "validation": validation, "test": [trial.figures for trial in trials]})


class Trial:
    """One probe on test texts."""

    def __init__(self, candidate: Candidate, recipe: ProbeRecipe, labelling: Labelling) -> None:
        self.candidate, self.labelling = candidate, labelling
        self.copying = recipe.copying
        self.scores: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        self.labels: dict[str, list[NDArray[np.bool_]]] = defaultdict(list)
        self.copied: dict[str, list[int]] = {"on": [], "off": []}

    def add(self, text: Text, states: Tensor) -> None:
        """Note scores of the whole answer, of the places where a copy is offered, and copies with and without."""
        scores = (states.float() @ self.candidate.weight).sigmoid().double().cpu().numpy()
        columns = self.labelling.of(text.ids, text.prompt_length, text.ended)
        labels = columns[:, self.labelling.shifts.index(self.candidate.shift)]
        places = text.prompt_length + np.flatnonzero(labels[text.prompt_length :] >= 0)
        self._note("all", scores[places], labels[places] > 0)
        self._note(f"family {text.family}", scores[places], labels[places] > 0)
        met = hits(text.ids, self.copying, text.prompt_length, text.ended)
        roots = [hit.root - 1 for hit in met]  # the state that is there when the root is decided
        self._note("hits", scores[roots], np.array([hit.is_copy for hit in met], dtype=np.bool_))
        if text.greedy:
            for name, threshold in (("on", self.candidate.threshold), ("off", 0.0)):
                copied = steps(text.ids, text.prompt_length, self.copying, _open_from(scores, threshold))
                self.copied[name] += [accepted for _, draft, accepted, known in copied if known and len(draft)]

    def _note(self, what: str, scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> None:
        self.scores[what].append(scores)
        self.labels[what].append(labels)

    @property
    def figures(self) -> dict[str, Any]:
        """Of everything that was noted."""
        own = self.candidate
        found: dict[str, Any] = {"tap": str(own.tap), "shift": own.shift, "threshold": own.threshold}
        for what in self.scores:
            scores, labels = np.concatenate(self.scores[what]), np.concatenate(self.labels[what])
            judged = quality(scores, labels, own.threshold)
            if what == "hits" and judged is not None and judged.negatives < FEWEST_HARD:
                found["hits"] = {"positives": judged.positives, "negatives": judged.negatives}
            else:
                found[what] = None if judged is None else asdict(judged)
        found["copies"] = {name: _spread(lengths, self.copying.max_depth) for name, lengths in self.copied.items()}
        return found


def _open_from(scores: NDArray[np.float64], threshold: float) -> Callable[[int], bool]:
    """A gate by the score of the state that is there when the root is decided."""
    return lambda root: bool(scores[root - 1] >= threshold)


def _spread(lengths: Sequence[int], most: int) -> dict[str, Any]:
    """A histogram of accepted lengths, 0 to `most`."""
    counts = np.bincount(np.array(lengths, dtype=np.int64), minlength=most + 1).tolist()
    total = max(len(lengths), 1)
    return {
        "count": len(lengths),
        "mean": sum(lengths) / total,
        "none": counts[0] / total,
        "full": counts[most] / total,
        "lengths": counts,
    }
