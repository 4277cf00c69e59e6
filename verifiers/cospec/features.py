"""Numbers that an arbiter may read beside its states: what the target's law and the drafter say of both tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from draftmux.sampling import upcast

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.verifiers.cospec.walk import Block

NAMES = ("log p(drafted)", "log p(verified)", "entropy of p", "log rank of drafted", "log q(drafted)")
LOWEST = -20.0  # log-probabilities below it say no more


def features(block: Block) -> Tensor:
    """`(K, len(NAMES))` in float32, of the target's unprocessed law at temperature 1. A drafter that does not say how
    sure it is counts as sure."""
    logits = upcast(block.request.scores.logits[: len(block.verified)])  # (K, V): row i comes before node i
    logp = logits.log_softmax(-1)
    drafted, verified = (torch.tensor(ids, device=logp.device)[:, None] for ids in (block.drafted, block.verified))
    ours, theirs = logp.gather(1, drafted), logp.gather(1, verified)  # (K, 1)
    rank = (logp > ours).sum(-1, keepdim=True).float().log1p()
    spread = -(logp.exp() * logp.clamp_min(LOWEST)).sum(-1, keepdim=True)
    sure = np.ones(len(drafted)) if block.request.draft.confidence is None else block.request.draft.confidence
    logq = torch.tensor(sure, device=logp.device).log()[:, None]
    return torch.cat([each.float().clamp_min(LOWEST) for each in (ours, theirs, spread, rank, logq)], -1)
