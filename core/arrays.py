"""Arrays that cross the border to plugins: copied in, handed out read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.errors import DraftError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def int_vector(values: ArrayLike) -> NDArray[np.int64]:
    """A read-only copy `(n,)`; DraftError for what is no flat array of integers."""
    try:
        array = np.asarray(values)
    except Exception as error:  # ragged lists, tensors on a GPU
        raise DraftError(f"tokens and parents must be flat integer arrays: {error}") from error
    if array.size == 0:
        return frozen_view(np.zeros(0, dtype=np.int64))
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max:
        raise DraftError(f"tokens and parents must be flat integer arrays, got shape {array.shape} of {array.dtype}")
    return frozen_view(array.astype(np.int64))  # a copy: drafters may reuse their buffers


def probabilities(values: ArrayLike | None) -> NDArray[np.float64] | None:
    """A read-only copy `(n,)`; DraftError for what is no flat array of numbers from 0 to 1."""
    if values is None:
        return None
    try:
        array = np.array(values, dtype=np.float64)
    except Exception as error:
        raise DraftError(f"confidence must be a flat array of probabilities: {error}") from error
    if array.ndim != 1 or not ((array >= 0) & (array <= 1)).all():
        raise DraftError(f"confidence must be a flat array of probabilities, got {array!r}")
    array.flags.writeable = False
    return array


def own(q: Any) -> Any:
    """A copy: drafters may reuse their buffers."""
    return q.detach().clone() if hasattr(q, "detach") and hasattr(q, "clone") else q


def frozen_view(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """A view that plugins can read and cannot write."""
    view = array.view()
    view.flags.writeable = False
    return view
