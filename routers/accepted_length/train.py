"""Trains the regressor: copies along the target's own greedy answers, and ridge regression on how long they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from draftmux.errors import RequestError
from draftmux.routers.accepted_length.artefact import Regressor
from draftmux.routers.accepted_length.features import NAMES, SCORE, Course, TokenClasses
from draftmux.routers.replays import Copying, steps
from draftmux.training.answers import read_samples, shards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from draftmux.models.source import ModelSpec
    from draftmux.routers.accepted_length.recipe import RegressorRecipe
    from draftmux.training.prompts import Prompt
    from draftmux.training.recipe import Answers

FEWEST = 50  # copies to learn from


@frozen(eq=False)
class RegressorJob:
    """`answer(folder, how)` writes the target's answers to `prompts` into a folder. `scores`, of a probe, are those of
    the states of all positions of a text but the last, `(T-1,)`, and `mark` is its mark; `unseen` is the share of
    prompts that it has not learned from, which alone are used then."""

    spec: ModelSpec
    prompts: Sequence[Prompt]
    folder: Path
    answers: Path
    answer: Callable[[Path, Answers], None]
    tokenizer: Any
    scores: Callable[[Sequence[int]], NDArray[np.float64]] | None = None
    mark: str = ""
    unseen: float = 1.0
    source: str = ""
    command: str = ""


def train_regressor(job: RegressorJob, recipe: RegressorRecipe) -> Regressor:
    """Train, report, and write the regressor."""
    job.answer(job.answers, recipe.answers)
    roles = {prompt.key: prompt.held_out(recipe.test) for prompt in job.prompts if prompt.held_out(job.unseen)}
    classes = TokenClasses(job.tokenizer)
    found: dict[bool, list[tuple[NDArray[np.float64], int]]] = {True: [], False: []}
    for sample in (sample for path in shards(job.answers) for sample in read_samples(path) if sample.key in roles):
        ids = sample.ids.tolist()
        scores = None if job.scores is None else job.scores(ids)
        found[roles[sample.key]] += _copies(ids, sample.prompt_length, recipe, classes, scores)
    learn, test = (_arrays(found[role]) for role in (False, True))
    if min(len(learn[1]), len(test[1])) < FEWEST:
        raise RequestError(
            f"answers hold {len(learn[1])} copies to learn from and {len(test[1])} to report on; both must be {FEWEST} "
            f"or more: give more prompts, with answers that repeat some of them"
        )
    weights, bias = ridge(*learn, recipe.penalty)
    names = NAMES if job.scores is None else (*NAMES, SCORE)
    regressor = Regressor(
        dict(zip(names, weights.tolist(), strict=True)),
        bias,
        recipe.min_match,
        recipe.max_branches,
        recipe.max_depth,
        job.spec.source,
        _metrics(weights, bias, learn, test, recipe.long),
        {"prompts": job.source, "command": job.command, "recipe": recipe.kept},
        job.mark,
    )
    regressor.save(job.folder)
    return regressor


def ridge(
    features: NDArray[np.float64], lengths: NDArray[np.float64], penalty: float
) -> tuple[NDArray[np.float64], float]:
    """Weights `(f,)` and bias for `log1p(lengths)`, penalised in units of each feature's spread."""
    middle, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    own, wanted = (features - middle) / spread, np.log1p(lengths)
    gram = own.T @ own / len(own) + penalty * np.eye(own.shape[1])
    weights = np.linalg.lstsq(gram, own.T @ (wanted - wanted.mean()) / len(own), rcond=None)[0] / spread
    return weights, float(wanted.mean() - middle @ weights)


def _copies(
    ids: list[int],
    prompt_length: int,
    recipe: RegressorRecipe,
    classes: TokenClasses,
    scores: NDArray[np.float64] | None,
) -> list[tuple[NDArray[np.float64], int]]:
    """Features and accepted length of every copy along a text."""
    tokens = np.array(ids, dtype=np.int64)
    course = Course.begin(tokens[:prompt_length], prompt_length, recipe.min_match)
    copying = Copying(recipe.min_match, recipe.max_branches, recipe.max_depth)
    found = []
    for at, draft, accepted, known in steps(ids, prompt_length, copying, lambda root: True):
        score = None if scores is None else float(scores[at - 2])  # of the state before the root
        features = course.features(tokens[:at], classes, score)
        if known and len(draft) and features is not None:
            found.append((features, accepted))
        course.note(accepted if len(draft) else None)
    return found


def _arrays(found: Sequence[tuple[NDArray[np.float64], int]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    features = np.array([each for each, _ in found])
    return features, np.array([float(length) for _, length in found])


def _metrics(weights: NDArray[np.float64], bias: float, learn: Any, test: Any, long: int) -> dict[str, Any]:
    from sklearn.metrics import r2_score, roc_auc_score

    predicted, actual = test[0] @ weights + bias, np.log1p(test[1])
    is_long = test[1] >= long
    both = 0 < int(is_long.sum()) < len(is_long)
    return {
        "copies": {"learn": len(learn[1]), "test": len(test[1])},
        "r2": float(r2_score(actual, predicted)),
        "auc_long": float(roc_auc_score(is_long, predicted)) if both else None,
        "long": long,
        "share_long": float(is_long.mean()),
    }
