"""A constraint along the branches of one draft: which nodes it allows, and what it lets follow each of them.

A state never changes, so siblings share their parent's, and nothing has to be rolled back when a branch is rejected.
Knows drafts and the constraint protocol; nothing of grammars or of sampling.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from attrs import define, field

from draftmux.errors import PluginError, RequestError, from_outside, said
from draftmux.protocols import ConstraintState, Vocabulary, lacking
from draftmux.pruning import only
from draftmux.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from draftmux.generation import Generation
    from draftmux.processors import RuleContext
    from draftmux.types import Draft

T = TypeVar("T")


@define(eq=False)
class Constrained:
    """The states of a constraint after the nodes of a draft. `root`: after the committed tokens."""

    root: ConstraintState
    draft: Draft
    _states: dict[int, ConstraintState | None] = field(factory=dict, init=False)
    _masks: dict[int, NDArray[np.bool_]] = field(factory=dict, init=False)

    def allowed(self, node: int, vocab_size: int) -> NDArray[np.bool_]:
        """`(V,)`, True where a token may follow `node`; nowhere behind a node that is not allowed itself.

        RequestError when the constraint cannot go on, PluginError when it breaks its protocol.
        """
        if node not in self._masks:
            state = self._after(node)
            empty = np.zeros(vocab_size, dtype=np.bool_)
            self._masks[node] = empty if state is None else _asked(lambda: _mask(state.allowed(), vocab_size))
        return self._masks[node]

    def legal(self) -> Draft:
        """The draft without the nodes that the constraint rules out. Only lawful where all nodes are point masses."""
        draft = self.draft
        kept: dict[int, None] = {ROOT: None}
        for node, parent in enumerate(draft.parents.tolist()):
            if parent in kept and self._after(node) is not None:
                kept[node] = None
        del kept[ROOT]
        return only(draft, list(kept))

    def _after(self, node: int) -> ConstraintState | None:
        if node == ROOT:
            return self.root
        if node not in self._states:
            above = self._after(int(self.draft.parents[node]))
            token = int(self.draft.tokens[node])
            self._states[node] = None if above is None else _asked(partial(_ahead, above, token))
        return self._states[node]


def begun(generation: Generation, context: RuleContext) -> ConstraintState:
    """The state of the request's constraint before its first token; RequestError when it does not fit the target."""
    vocabulary = Vocabulary(context.vocab_size, generation.end_ids(context.eos_ids), context.tokenizer)
    constraint = generation.constraint
    assert constraint is not None
    state: ConstraintState | None = _asked(lambda: _state(constraint.begin(vocabulary)))
    if state is None:
        raise PluginError("a constraint's `begin` must give its first state, not None")
    return state


def advanced(state: ConstraintState, tokens: Iterable[int]) -> ConstraintState:
    """The state after some committed tokens; PluginError when the constraint takes back what it allowed."""
    for token in tokens:
        ahead: ConstraintState | None = _asked(partial(_ahead, state, token))
        if ahead is None:
            raise PluginError(f"a constraint refuses token {token}, which it allowed before")
        state = ahead
    return state


def _ahead(state: ConstraintState, token: int) -> ConstraintState | None:
    return _state(state.advance(token))


def _state(answer: Any) -> ConstraintState | None:
    """The answer, if it is a state or None."""
    if answer is not None and (missing := lacking(answer, ConstraintState)):
        raise PluginError(f"a constraint gave a {type(answer).__name__} for a state: it lacks {', '.join(missing)}")
    return cast("ConstraintState | None", answer)


def _mask(answer: Any, vocab_size: int) -> NDArray[np.bool_]:
    """The engine's own copy of the answer, if it is a boolean array of the right shape."""
    mask = np.array(answer, copy=True)
    if mask.shape != (vocab_size,) or mask.dtype != np.bool_:
        form = f"shape {mask.shape} of {mask.dtype}"
        raise PluginError(f"a constraint's `allowed` must give a boolean array of shape ({vocab_size},), not {form}")
    return mask


def _asked(work: Callable[[], T]) -> T:
    """What a constraint answers; its own failure becomes a PluginError."""
    try:
        return work()
    except (RequestError, PluginError):
        raise
    except BaseException as error:  # plugins are not trusted
        if from_outside(error):
            raise
        raise PluginError(f"a constraint failed: {type(error).__name__}: {said(error)}") from error
