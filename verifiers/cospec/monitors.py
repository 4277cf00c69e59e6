"""What stage 2 looks like while it learns: figures of a step's rollouts, of held-out problems, and their curves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.verifiers.cospec.reward import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.verifiers.cospec.grpo import Group, Scored

CURVES = (  # title, and the figures in it
    ("Rollouts: right, kept, span", ("right", "kept", "span")),
    ("Rollouts: tokens a target pass", ("tokens_per_pass", "accepted")),
    ("Rollouts: reward, risk", ("reward", "risk")),
    ("Groups: all alike, mixed, drawn anew", ("groups_alike", "groups_mixed", "groups_anew")),
    ("Policy: divergence from the warm-up, entropy", ("kl", "entropy")),
    ("Held out: right, and the target alone", ("held_right", "target_right")),
    ("Held out: flips", ("to_right", "to_wrong")),
    ("Held out: calibration error of labels", ("calibration_error",)),
    ("Kept where draft or target ends", ("kept_end", "overridden_end")),
)
SMOOTH = 10  # steps that a curve of rollouts is averaged over


def of_rollouts(rollouts: Sequence[Scored], group: Group, ends: frozenset[int]) -> dict[str, float]:
    """What a step's rollouts look like. `ends`: ids with which an answer ends."""
    size = group.size
    decisions = sum(scored.course.decisions for scored in rollouts)
    refused = sum(scored.course.refused for scored in rollouts)
    groups = [rollouts[at : at + size] for at in range(0, len(rollouts), size)]
    kept = [pair for scored in rollouts for pair in scored.course.kept_pairs]
    reaches = [reach for scored in rollouts for reach in scored.course.blocks]
    return {
        "right": _mean([scored.right for scored in rollouts]),
        "reward": _mean([scored.reward for scored in rollouts]),
        "kept": 1 - refused / decisions if decisions else 0.0,
        "span": _mean([span(scored.course.blocks) for scored in rollouts]),
        "accepted": _mean([reach.accepted for reach in reaches]),
        "risk": _mean([group.reward.risk_of(scored.course.kept_logprobs) for scored in rollouts]),
        "kept_end": _mean([drafted in ends for drafted, _ in kept]),
        "overridden_end": _mean([verified in ends for _, verified in kept]),
        "groups_alike": _mean([not any(scored.advantage for scored in each) for each in groups]),
        "groups_mixed": _mean([len({scored.right for scored in each}) == 2 for each in groups]),
        "tokens_per_pass": sum(scored.tokens for scored in rollouts) / max(1, sum(s.passes for s in rollouts)),
    }


def of_answers(found: Sequence[bool], plain: Sequence[bool]) -> dict[str, float]:
    """Of held-out problems: which were right with the arbiter, and which with the target alone."""
    pairs = list(zip(found, plain, strict=True))
    return {
        "held_right": _mean(found),
        "target_right": _mean(plain),
        "to_right": _mean([ours and not theirs for ours, theirs in pairs]),
        "to_wrong": _mean([theirs and not ours for ours, theirs in pairs]),
    }


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def curves(steps: Sequence[dict[str, Any]], looks: Sequence[dict[str, Any]]) -> bytes:
    """A PNG of all monitors: those of rollouts smoothed over steps, those of held-out problems as they were."""
    from draftmux.bench.plot import LIGHT, png

    charts = [
        partial(_chart, title=title, names=names, steps=steps, looks=looks, theme=LIGHT) for title, names in CURVES
    ]
    return png(charts, LIGHT, columns=3)


def _chart(axes: Any, title: str, names: Sequence[str], steps: Any, looks: Any, theme: Any) -> None:
    from draftmux.bench.plot import dress

    for name in names:
        source = looks if any(name in look for look in looks) and not any(name in step for step in steps) else steps
        points = [(row["step"], row[name]) for row in source if name in row]
        if not points:
            continue
        at, values = (np.array(part, dtype=float) for part in zip(*points, strict=True))
        width = min(SMOOTH, len(values)) if source is steps else 1
        even = np.convolve(values, np.ones(width) / width, mode="valid")
        axes.plot(at[width - 1 :], even, label=name)
    axes.set_xlabel("step", color=theme.ink)
    if axes.lines:
        axes.legend(facecolor=theme.paper, edgecolor="none", labelcolor=theme.ink, fontsize=9)
    dress(axes, title, theme)
