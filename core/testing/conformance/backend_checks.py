"""Checks of a backend against its own plain decoding, one token at a time: trees, batches, caches, rows that come and
go. Knows nothing of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

from draftmux.backends.support import tolerance, tree_error
from draftmux.protocols import BoundBackend, Row, lacking
from draftmux.testing.conformance.backends import bound, tapped
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import said
from draftmux.testing.drafters import grow_tree
from draftmux.testing.properties import Fed
from draftmux.types import Budget, Draft

if TYPE_CHECKING:
    from numpy.random import Generator

    from draftmux.testing.conformance.subject import Subject

LENGTHS = (1, 2, 7, 13)
LONGEST = 600  # positions that are filled to the last one, at most
COSTS = (0, 1, 3, 7, 31)


@define(eq=False)
class Plain:
    """The backend's own decoding, one token at a time: logits `(V,)` after every prefix that was asked for."""

    target: Any
    known: dict[tuple[int, ...], Any] = field(factory=dict)

    def after(self, prefix: Sequence[int]) -> Any:
        """Logits after `prefix`; every shorter one becomes known on the way."""
        wanted = tuple(prefix)
        if wanted not in self.known:
            handle = self.target.open(wanted[:1]).sequence
            for count, token in enumerate(wanted, 1):
                [scores] = self.target.score([Row(handle, token, Draft.empty())])
                self.known[wanted[:count]] = scores.logits[0].clone()
                self.target.commit(handle, ())
            self.target.close(handle)
        return self.known[wanted]

    def check(self, scores: Any, tokens: Sequence[int], draft: Draft, where: str) -> None:
        """Row 0 is the law after `tokens`, row i+1 the law after the path to node i."""
        wanted = (len(draft) + 1, self.target.vocab_size)
        shape = tuple(scores.logits.shape)
        assert shape == wanted, f"{where}: logits have shape {shape}, and a draft of {len(draft)} nodes has {wanted}"
        for node in range(-1, len(draft)):
            path = draft.tokens[draft.path_to(node)].tolist()
            self._near(scores.logits[node + 1], [*tokens, *path], f"{where}: {'root' if node < 0 else f'node {node}'}")

    def _near(self, found: Any, prefix: Sequence[int], where: str) -> None:
        expected = self.after(prefix)
        error = tree_error(found[None], expected[None])
        assert error <= tolerance(expected.dtype), (
            f"{where}, after {said(prefix)}: logits are off by {error:.2g} (relative) from decoding one token at a "
            f"time; {tolerance(expected.dtype):.0e} is allowed in {expected.dtype}"
        )


@define(eq=False)
class Passes:
    """Random drafts through a backend, compared with its plain decoding after every pass."""

    target: Any
    plain: Plain
    rng: Generator
    open: list[Fed] = field(factory=list)

    @classmethod
    def new(cls, subject: Subject, seed: int) -> Passes:
        """On the subject's target; what plain decoding said is shared by all checks."""
        target = bound(subject)
        return cls(target, subject.once("plain", lambda: Plain(target)), np.random.default_rng(seed))

    def enter(self, length: int) -> Fed:
        """Open a sequence of that many random tokens."""
        tokens = self.rng.integers(0, self.target.vocab_size, length).tolist()
        fed = Fed(self.target.open(tokens).sequence, tokens)
        self.open.append(fed)
        return fed

    def leave(self, fed: Fed) -> None:
        """Close it."""
        self.open.remove(fed)
        self.target.close(fed.handle)

    def draft(self, nodes: int) -> Draft:
        """A random tree."""
        return grow_tree(self.rng, [], nodes, self.target.vocab_size, Budget())

    def step(self, taking: Sequence[Fed], nodes: int = 6) -> None:
        """Score a random tree for each, compare, and commit a random path of each."""
        drafts = [self.draft(int(self.rng.integers(nodes + 1))) for _ in taking]
        rows = [Row(fed.handle, fed.tokens[-1], draft) for fed, draft in zip(taking, drafts, strict=True)]
        scored = self.target.score(rows)
        assert len(scored) == len(rows), f"score gave {len(scored)} results for {len(rows)} rows"
        for number, (fed, draft, scores) in enumerate(zip(taking, drafts, scored, strict=True)):
            where = f"row {number} of {len(rows)}, draft tokens {said(draft.tokens)}, parents {said(draft.parents)}"
            self.plain.check(scores, fed.tokens, draft, where)
        for fed, draft in zip(taking, drafts, strict=True):
            self.commit(fed, draft)

    def commit(self, fed: Fed, draft: Draft) -> None:
        """Keep the path to a random node, and take a random token after it."""
        path = draft.path_to(int(self.rng.integers(-1, len(draft))))
        self.target.commit(fed.handle, path)
        fed.tokens.extend([*draft.tokens[path].tolist(), int(self.rng.integers(self.target.vocab_size))])

    def check_lengths(self) -> None:
        """The cache holds all committed tokens but the last."""
        for fed in self.open:
            rows, count = fed.handle.length, len(fed.tokens)
            assert rows == count - 1, f"the cache holds {rows} rows for {count} committed tokens; one fewer is right"

    def end(self) -> None:
        """Close all."""
        for fed in list(self.open):
            self.leave(fed)


def protocol(subject: Subject) -> None:
    """It has every member of its protocol, and once bound a vocabulary, a longest sequence and end tokens that fit."""
    if not hasattr(subject.plugin, "score"):
        missing = lacking(subject.plugin, subject.protocol)
        assert not missing, f"it lacks {', '.join(missing)}"
    target = bound(subject)
    missing = lacking(target, BoundBackend)
    assert not missing, f"`bind` returned a {type(target).__name__}, which lacks {', '.join(missing)}"
    size, longest = target.vocab_size, target.max_length
    assert isinstance(size, int) and size > 0, f"vocab_size is {size!r}"
    assert longest is None or (isinstance(longest, int) and longest > 0), f"max_length is {longest!r}"
    wrong = [token for token in target.eos_ids if not 0 <= token < size]
    assert not wrong, f"end token {wrong[0]} is no id of the target (0 to {size - 1})"


def prefill(subject: Subject) -> None:
    """A prompt that is prefilled leaves what decoding it one token at a time leaves."""
    passes = Passes.new(subject, 1)
    for length in LENGTHS:
        fed = passes.enter(length)
        assert fed.handle.length == length - 1, f"{fed.handle.length} rows after a prefill of {length} tokens"
        passes.step([fed], nodes=0)
    passes.end()


def tree_logits(subject: Subject) -> None:
    """The logits of every node of a random tree are those after its own path."""
    passes = Passes.new(subject, 2)
    for length in LENGTHS:
        fed = passes.enter(length)
        draft = passes.draft(10)
        [scores] = passes.target.score([Row(fed.handle, fed.tokens[-1], draft)])
        where = f"prompt {said(fed.tokens)}, draft tokens {said(draft.tokens)}, parents {said(draft.parents)}"
        passes.plain.check(scores, fed.tokens, draft, where)
    passes.end()


def accepted_paths(subject: Subject) -> None:
    """After a random path of a tree was committed, everything goes on as if its tokens had been decoded plainly."""
    passes = Passes.new(subject, 3)
    fed = passes.enter(5)
    for _ in range(5):
        passes.step([fed], nodes=8)
    passes.end()


def cache_length(subject: Subject) -> None:
    """The cache holds all committed tokens but the last, after a prefill and after every commit."""
    passes = Passes.new(subject, 4)
    for length in LENGTHS:
        passes.enter(length)
    passes.check_lengths()
    for _ in range(3):
        drafts = [passes.draft(5) for _ in passes.open]
        passes.target.score([Row(f.handle, f.tokens[-1], d) for f, d in zip(passes.open, drafts, strict=True)])
        for fed, draft in zip(passes.open, drafts, strict=True):
            passes.commit(fed, draft)
        passes.check_lengths()
    passes.end()


def batch_is_alone(subject: Subject) -> None:
    """Rows of different length, each with its own tree, in any order and with some sitting out, give what each alone
    gives."""
    passes = Passes.new(subject, 5)
    for length in (9, 1, 4, 6):
        passes.enter(length)
    for _ in range(4):
        order = passes.rng.permutation(len(passes.open))[: int(passes.rng.integers(2, len(passes.open) + 1))]
        passes.step([passes.open[i] for i in order], nodes=5)
    passes.step(passes.open, nodes=5)
    passes.end()


def rows_come_and_go(subject: Subject) -> None:
    """A sequence that is closed, closed once more, or opened in between disturbs no other."""
    passes = Passes.new(subject, 6)
    first, second, third = (passes.enter(length) for length in (7, 3, 5))
    passes.step([first, second, third])
    passes.leave(second)
    passes.step([third, first])
    passes.target.close(second.handle)
    fourth = passes.enter(4)
    passes.target.close(second.handle)
    passes.step([first, fourth, third])
    passes.leave(first)
    passes.step([fourth, third])
    passes.end()


def scores_again(subject: Subject) -> None:
    """A draft that was scored and not committed leaves nothing behind; neither does scoring it twice."""
    passes = Passes.new(subject, 7)
    fed = passes.enter(6)
    for _ in range(2):
        passes.target.score([Row(fed.handle, fed.tokens[-1], passes.draft(6))])
    passes.step([fed])
    passes.step([fed])
    passes.end()


def taps(subject: Subject) -> None:
    """Tapped states have one row for every prompt position but the root, and one for every row of logits."""
    target, wanted = tapped(subject)
    tokens = np.random.default_rng(8).integers(0, target.vocab_size, 7).tolist()
    opened, whole = target.open(tokens[:4]), target.open(tokens)
    draft = Draft.chain(tokens[4:6])
    [scores] = target.score([Row(opened.sequence, tokens[3], draft)])
    for tap in wanted:
        assert set(opened.taps) == set(wanted) == set(scores.taps), f"taps {set(opened.taps)} should be {set(wanted)}"
        prompt, rows, fresh = opened.taps[tap], scores.taps[tap], whole.taps[tap]
        assert len(prompt) == 3, f"{tap}: {len(prompt)} states after a prefill of 4 tokens; all but the root are 3"
        assert len(rows) == 3, f"{tap}: {len(rows)} states of a root and 2 nodes"
        assert prompt.shape[1] == rows.shape[1], f"{tap}: widths {prompt.shape[1]} and {rows.shape[1]}"
        for name, found, right in (("prefill", prompt, fresh[:3]), ("draft", rows, fresh[3:6])):
            error = tree_error(found, right)
            assert error <= tolerance(right.dtype), f"{tap}: states of a {name} are off by {error:.2g} (relative)"
    target.close(opened.sequence)
    target.close(whole.sequence)


def max_length(subject: Subject) -> None:
    """The last position that `max_length` allows can be used."""
    target = bound(subject)
    if target.max_length is None or target.max_length > LONGEST:
        raise NotApplicableError(f"max_length is {target.max_length}; up to {LONGEST} positions are filled here")
    tokens = np.random.default_rng(9).integers(0, target.vocab_size, target.max_length).tolist()
    handle = target.open(tokens[:-1]).sequence
    draft = Draft.chain(tokens[-1:])
    [scores] = target.score([Row(handle, tokens[-2], draft)])
    assert scores.logits.isfinite().all(), f"logits at position {target.max_length - 1} are not finite"
    target.commit(handle, [0])
    target.close(handle)


def cost(subject: Subject) -> None:
    """A pass costs a finite time above 0, whatever its size."""
    target = bound(subject)
    for nodes in COSTS:
        seconds = target.cost(nodes)
        assert math.isfinite(seconds) and seconds > 0, f"cost({nodes}) is {seconds!r}"
