"""The whole plugin protocol. A plugin class is an attrs class whose fields are its options in the pipeline file.

Life of a plugin: options are read from YAML into the class; `bind` gives it what it needs (and may return another
object, with weights loaded); `begin` opens state for one sequence; then the loop of `engine/step.py` calls the rest.
State belongs to one sequence and dies with it. Nothing here knows about stopping, the cache or logits processing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from draftmux.models.source import ModelSpec
    from draftmux.sampling import Sampler
    from draftmux.types import (
        Acceptance,
        Accepts,
        Budget,
        Choice,
        Context,
        Draft,
        Emits,
        Needs,
        Scores,
        Step,
        Tap,
    )


@frozen(eq=False)
class Resources:
    """What a plugin may ask for when it is bound."""

    tokenizer: Any = None  # a transformers tokenizer, or None behind a backend without text
    backend: BoundBackend | None = None
    models: Mapping[str, ModelSpec] = field(factory=dict)
    drafters: Mapping[str, Drafter] = field(factory=dict)


@frozen(eq=False)
class DraftRequest:
    """One sequence that wants a draft: its view, the drafter's own state for it, and the budget the draft must keep."""

    context: Context
    state: Any
    budget: Budget


@frozen(eq=False)
class VerifyRequest:
    """One sequence whose draft was scored: its view, the draft, the target's scores, its law, the verifier's state."""

    context: Context
    draft: Draft
    scores: Scores
    sampler: Sampler
    state: Any = None


@runtime_checkable
class Drafter(Protocol):
    """Guesses the next tokens. `uses` names other drafters it is made of."""

    @property
    def needs(self) -> Needs: ...
    @property
    def emits(self) -> Emits: ...

    def uses(self) -> tuple[str, ...]: ...
    def bind(self, resources: Resources) -> Drafter: ...
    def begin(self, context: Context) -> Any: ...
    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[Draft]: ...
    def observe(self, state: Any, step: Step) -> None: ...

    # Optional: `fetch()`, called before the target is loaded, to download what `needs` has to know.


@runtime_checkable
class Router(Protocol):
    """Decides at every step which drafter drafts, and how much. `uses` names the drafters it may choose; None: any.

    A router that wants to has `trim(state, context, name, draft)`: given a draft for the target, it returns the nodes
    to score, each with its parent, or None for all. Drafts with q stay whole: what was drawn must not be dropped by its
    value. One that has `report(state)` gives numbers by name at a request's end, which sum up over requests.
    """

    @property
    def needs(self) -> Needs: ...

    def uses(self) -> tuple[str, ...] | None: ...
    def bind(self, resources: Resources) -> Router: ...
    def begin(self, context: Context) -> Any: ...
    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice: ...
    def observe(self, state: Any, step: Step) -> None: ...


@runtime_checkable
class Verifier(Protocol):
    """Decides which drafted tokens stand, and the token after them.

    `lossless`: greedy, the output is plain decoding's, token for token; sampled, it has the target's law. `pathwise`:
    sampled, it even is plain decoding's own text for the same seed. `accept` decides for one sequence alone.

    Optional: `needs` and `fetch()`, as drafters have them; tapped states are in the scores. `begin(context)`, the state
    for one sequence. `accept_all(requests)`, called in place of `accept` with all sequences of a step at once, one
    VerifyRequest each, for one Acceptance each; should it fail, it is called again for each sequence alone.
    `report(state)` gives numbers by name at a request's end, as a router's does.
    """

    @property
    def lossless(self) -> bool: ...
    @property
    def pathwise(self) -> bool: ...
    @property
    def accepts(self) -> Accepts: ...

    def bind(self, resources: Resources) -> Verifier: ...
    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance: ...


@frozen(eq=False)
class Vocabulary:
    """What a constraint may know of a request: `size` token ids, those that end the text, and the tokenizer if any."""

    size: int
    end_ids: frozenset[int]
    tokenizer: Any = None


class ConstraintState(Protocol):
    """What may follow the tokens generated so far. It never changes: branches of a draft share it."""

    def allowed(self) -> NDArray[np.bool_]:
        """`(V,)`, True where a token may come next; at an end token only where the text may end."""
        ...

    def advance(self, token: int) -> ConstraintState | None:
        """The state after one more token; None if it is not allowed."""
        ...


@runtime_checkable
class Constraint(Protocol):
    """Restricts which tokens may follow: a grammar, for one. Named under `generation.constraint`."""

    def begin(self, vocabulary: Vocabulary) -> ConstraintState: ...


@runtime_checkable
class Task(Protocol):
    """Says whether an answer solves a problem, for training and measuring what may change the text. Made without
    arguments from the command line. It may have `formed(answer: str) -> bool` too: whether an answer, right or wrong,
    has the form that is asked for."""

    def solved(self, answer: str, reference: str) -> bool:
        """`answer` is the generated text, without the prompt; `reference` is the problem's own."""
        ...


class CacheHandle(Protocol):
    """A backend's handle of one sequence. `length` rows are in its KV cache: all committed tokens but the root."""

    @property
    def length(self) -> int: ...


@frozen(eq=False)
class Opened:
    """Result of a prefill: the handle, and per tap the states `(T-1, d)` of all prompt positions but the root."""

    sequence: Any  # a CacheHandle of the backend's own type
    taps: Mapping[Tap, Any]


@frozen(eq=False)
class Row:
    """One sequence of a batch to score: its root token and the draft under it."""

    sequence: Any
    root: int
    draft: Draft


@runtime_checkable
class Backend(Protocol):
    """Options of a backend; `bind` loads the target and returns what runs it.

    `takes_model`: whether the pipeline must name `models.target`; a backend that brings its own target says False.
    """

    @property
    def takes_model(self) -> bool: ...

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> BoundBackend: ...


class BoundBackend(Protocol):
    """The target model with its KV cache. Batched: rows have different lengths, and join and leave between steps."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_length(self) -> int | None:
        """Positions the target can attend to; None when it has no limit."""

    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def device(self) -> Any:
        """Where logits and tapped states live: a torch device or its name."""

    @property
    def tokenizer(self) -> Any:
        """A transformers tokenizer, or None for a backend without text."""

    def open(self, tokens: Sequence[int]) -> Opened:
        """Prefill all of `tokens` but the last, which becomes the root."""
        ...

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """One target pass over the root and the draft of every row. The next pass may overwrite what it returns."""
        ...

    def commit(self, sequence: Any, path: Sequence[int]) -> None:
        """Keep the rows of the last scored root and of `path` (node indices, in order), and drop the others."""
        ...

    def close(self, sequence: Any) -> None:
        """Free the sequence; closing twice is harmless."""
        ...

    def cost(self, nodes: int) -> float:
        """Measured seconds of one pass over the root and `nodes` drafted nodes of one sequence."""
        ...

    # Optional: `warm_up(nodes)`, called when a pipeline is loaded whose drafts have up to `nodes` nodes.


def lacking(plugin: Any, protocol: type) -> list[str]:
    """Members of `protocol` that a plugin does not have. A property is there even when it fails for these options."""
    names = [name for name in (*protocol.__annotations__, *vars(protocol)) if not name.startswith("_")]
    own = getattr(plugin, "__dict__", ())
    return [name for name in names if not hasattr(type(plugin), name) and name not in own]


__all__ = [
    "Backend",
    "BoundBackend",
    "DraftRequest",
    "Drafter",
    "Opened",
    "Resources",
    "Router",
    "Row",
    "Task",
    "Verifier",
    "VerifyRequest",
    "Vocabulary",
    "lacking",
]
