"""What an arbiter reads: `[context] [SEP] [drafted] [SEP] [verified] [SEP]`, and who may see whom.

Context and first separator are causal, so their keys and values do not depend on what follows and are kept from block
to block. All rows behind see everything, in both directions. Training and decoding both take it from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def segment(drafted: Sequence[int], verified: Sequence[int], separator: int) -> NDArray[np.int64]:
    """The rows behind the context, `(2K+3,)`: separator, K drafted tokens, separator, K verified ones, separator."""
    return np.array([separator, *drafted, separator, *verified, separator], dtype=np.int64)


def size(drafted: int) -> int:
    """Rows of a segment with so many drafted tokens."""
    return 2 * drafted + 3


def drafted_rows(context: int, drafted: int) -> slice:
    """Where the drafted tokens stand behind so many rows of context; their states are what is judged."""
    return slice(context + 1, context + 1 + drafted)


def visible(context: int, drafted: int) -> NDArray[np.bool_]:
    """`(n, n)`, n rows of context and segment, True where row r may see column c."""
    total = context + size(drafted)
    mask = np.tri(total, dtype=np.bool_)
    mask[context + 1 :] = True
    return mask
