"""Distrust of plugins: every call is caught, every draft and decision is checked against the rules.

A plugin that raises or returns rubbish costs speed, never a wrong token. The user's choice `on_plugin_error` says
whether that ends the request (`raise`) or the step goes on without the plugin (`skip`); either way it is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from attrs import astuple, frozen

from draftmux.errors import DraftError, PluginError, from_outside, said
from draftmux.tree import ROOT, is_chain
from draftmux.types import Acceptance, Accepts, Budget, Choice, Draft, Emits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from draftmux.engine.session import Session
    from draftmux.sampling import Sampler

T = TypeVar("T")


@frozen
class Guard:
    """What happens when a plugin misbehaves."""

    policy: Literal["raise", "skip"] = "raise"

    def call(self, plugin: str, sessions: Iterable[Session], work: Callable[[], T], fallback: T) -> T:
        """`work()`; when it fails, count the fault for `sessions`, fail them if the policy says so, return `fallback`.

        The step always goes on, so that a fault of one sequence's plugin loses nothing of the others.
        """
        try:
            return work()
        except BaseException as error:  # SystemExit and panics of native extensions too
            if from_outside(error):
                raise
            for session in sessions:
                self._blame(plugin, session, error)
        return fallback

    def _blame(self, plugin: str, session: Session, error: BaseException) -> None:
        """Count a fault by plugin and type, under the message that came first: messages may differ at every step."""
        kind, faults = f"{plugin}: {type(error).__name__}: ", session.metrics.faults
        fault = next((known for known in faults if known.startswith(kind)), kind + said(error))
        faults[fault] += 1
        if self.policy == "raise" and session.error is None:
            session.error = PluginError(f"{fault} (`on_plugin_error: skip` goes on without the plugin)")
            session.error.__cause__ = error


def checked_choice(choice: Any, drafters: Mapping[str, Any]) -> Choice:
    """The router's choice, if it is one and names drafters that exist."""
    if not isinstance(choice, Choice):
        raise DraftError(f"a router must return a Choice, not {type(choice).__name__}")
    if not isinstance(choice.otherwise, tuple) or not isinstance(choice.beside, Mapping):
        raise DraftError(f"a Choice holds a tuple of names and a mapping from names to Budgets, not {choice!r}")
    budget, *others = map(_anew, (choice.budget, *choice.beside.values()))
    fallback = None if choice.otherwise_budget is None else _anew(choice.otherwise_budget)
    # Whatever a subclass makes of its names.
    beside = dict(zip(choice.beside, others, strict=True))
    checked = Choice(choice.drafter, budget, choice.otherwise, beside, fallback)
    for name in (*checked.candidates, *checked.beside):
        if name not in drafters:
            raise DraftError(
                f"the router chose drafter '{name}'; it may choose {', '.join(sorted(drafters)) or 'none'}"
            )
    return checked


def _anew(budget: Any) -> Budget:
    """Validators can be passed by."""
    if not isinstance(budget, Budget):
        raise DraftError(f"a Choice holds Budgets, not {budget!r}")
    return Budget(*(index(size) for size in astuple(budget)))


def checked_drafts(drafts: Any, count: int) -> list[Any]:
    """A drafter's answer to a batch, if it has one draft a request."""
    if not isinstance(drafts, (list, tuple)):
        raise DraftError(f"propose must return a list of one draft a request, not {type(drafts).__name__}")
    found = list(drafts)  # a subclass may lie about its length
    if len(found) != count:
        raise DraftError(f"propose must return one draft a request: {count} requests, got {len(found)} drafts")
    return found


@frozen
class Terms:
    """What a draft must keep: its budget, the target's ids, what its drafter declared, what the verifier takes."""

    budget: Budget
    vocab_size: int
    emits: Emits
    accepts: Accepts


def checked_draft(draft: Any, terms: Terms) -> Draft:
    """The engine's own copy of a draft, if it is a tree of valid ids that keeps its terms."""
    if not isinstance(draft, Draft):
        raise DraftError(f"a draft must be a draftmux Draft, not {type(draft).__name__}")
    if not len(draft):
        return Draft.empty()
    return _checked_copy(Draft(draft.tokens, draft.parents, draft.q, draft.sources, draft.confidence), terms)


def _checked_copy(draft: Draft, terms: Terms) -> Draft:
    _check_ids(draft, terms.vocab_size)
    _check_budget(draft, terms.budget)
    if draft.sources is not None and not all(isinstance(source, str) for source in draft.sources):
        raise DraftError("sources must be names of drafters")
    if not (terms.emits.tree and terms.accepts.tree) and not is_chain(draft.parents):
        why = "the verifier takes only chains" if terms.emits.tree else "it declares emits.tree False"
        raise DraftError(f"the drafter gave a tree, and {why}")
    if draft.q is not None:
        _check_q(draft, terms.vocab_size)
    elif terms.emits.q or terms.accepts.needs_q:
        why = "it declares emits.q" if terms.emits.q else "the verifier needs it"
        raise DraftError(f"the drafter gave a draft without q, and {why}")
    elif len(draft.children) != len(draft):
        raise DraftError("two siblings have the same token; merge them (Draft.from_candidates does)")
    return draft


def _check_ids(draft: Draft, vocab_size: int) -> None:
    wrong = (draft.tokens < 0) | (draft.tokens >= vocab_size)
    if wrong.any():
        node = int(wrong.argmax())
        raise DraftError(f"node {node} is token {draft.tokens[node]}; the target's ids are 0 to {vocab_size - 1}")


def _check_budget(draft: Draft, budget: Budget) -> None:
    if len(draft) > budget.max_nodes:
        raise DraftError(f"the draft has {len(draft)} nodes; its budget is max_nodes={budget.max_nodes}")
    depth = int(draft.depths.max())
    if depth > budget.max_depth:
        raise DraftError(f"the draft is {depth} deep; its budget is max_depth={budget.max_depth}")
    if budget.max_branches < len(draft):
        leaves = len(draft) - len(set(draft.parents.tolist()) - {ROOT})
        if leaves > budget.max_branches:
            raise DraftError(f"the draft has {leaves} branches; its budget is max_branches={budget.max_branches}")


def _check_q(draft: Draft, vocab_size: int) -> None:
    q: Any = draft.q
    if tuple(getattr(q, "shape", ())) != (len(draft), vocab_size):
        raise DraftError(f"q must have shape {(len(draft), vocab_size)}, got {tuple(getattr(q, 'shape', ()))}")
    if str(getattr(q, "dtype", None)) not in ("torch.float32", "torch.float64"):
        kind = getattr(q, "dtype", type(q).__name__)
        raise DraftError(
            f"q must be a torch tensor of float32 or float64, not {kind}: rounded, it is not the law drawn from"
        )
    if not bool(((q >= 0) & q.isfinite()).all()):
        raise DraftError("q has negative or non-finite entries; it must hold probabilities")
    if not bool(((q.double().sum(-1) - 1).abs() < 1e-4).all()):  # float32 softmax is off by 2e-5 over 256k ids
        raise DraftError("a row of q does not sum to 1; it must be the law its token was drawn from")
    impossible = (q[range(len(draft)), draft.tokens.tolist()] <= 0).tolist()
    if any(impossible):
        node = impossible.index(True)
        raise DraftError(
            f"node {node} is token {draft.tokens[node]}, which its row of q rules out; q must be the law that it was "
            "drawn from"
        )


def checked_nodes(nodes: Any, draft: Draft) -> list[int]:
    """Nodes of a draft that a router keeps, ascending, if the parent of each is among them."""
    kept = {index(node) for node in nodes}
    if kept and not 0 <= min(kept) <= max(kept) < len(draft):
        wrong = next(node for node in kept if not 0 <= node < len(draft))
        raise DraftError(f"the router keeps node {wrong} of a draft; it has nodes 0 to {len(draft) - 1}")
    if len(kept) < len(draft):
        parents = draft.parents.tolist()
        for node in kept:
            if parents[node] != ROOT and parents[node] not in kept:
                raise DraftError(f"the router keeps node {node} of a draft and not its parent {parents[node]}")
    return sorted(kept)


def checked_acceptances(found: Any, count: int) -> list[Any]:
    """A verifier's answer to a batch, if it has one decision a request."""
    if not isinstance(found, (list, tuple)):
        raise DraftError(f"accept_all must return a list of one Acceptance a request, not {type(found).__name__}")
    decisions = list(found)
    if len(decisions) != count:
        raise DraftError(f"accept_all must return one Acceptance a request: {count} requests, got {len(decisions)}")
    return decisions


def checked_acceptance(acceptance: Any, draft: Draft, vocab_size: int) -> Acceptance:
    """A verifier's decision in plain integers, if its path runs down the tree and its token exists."""
    if not isinstance(acceptance, Acceptance):
        raise DraftError(f"a verifier must return an Acceptance, not {type(acceptance).__name__}")
    path, token = tuple(index(node) for node in acceptance.path), index(acceptance.token)
    above = ROOT
    for node in path:
        if not 0 <= node < len(draft) or int(draft.parents[node]) != above:
            raise DraftError(f"accepted node {node} does not continue the path from node {above}")
        above = node
    if not 0 <= token < vocab_size:
        raise DraftError(f"the verifier's token {token} is not an id of the target (0 to {vocab_size - 1})")
    return Acceptance(path, token)


def allowed_acceptance(acceptance: Acceptance, sampler: Sampler) -> Acceptance:
    """The decision, if the request's constraint allows every token of it up to the first dead end, where it is cut."""
    tokens = [*sampler.draft.tokens[list(acceptance.path)].tolist(), acceptance.token]
    for node, token in zip((ROOT, *acceptance.path), tokens, strict=True):
        allowed = sampler.allows(node, token)
        if node in sampler.dead_ends:
            break
        if not allowed:
            raise DraftError(f"the verifier let token {token} stand, which the request's constraint rules out")
    return acceptance
