"""The outputs of earlier requests, in one trie for all sequences of a pipeline. Knows nothing of drafts.

The protocol has no call at a sequence's end, but state dies with its sequence: an output is taken in when the next
sequence begins and the state of its own is gone. So what a running sequence has written is only in its own trie.
"""

from __future__ import annotations

from array import array
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from draftmux_suffix.trie import SuffixTrie

if TYPE_CHECKING:
    from draftmux_suffix.trie import Text


class SharedOutputs:
    """The last `max_requests` outputs. Whoever reads `trie` holds `lock`."""

    def __init__(self, depth: int, max_requests: int) -> None:
        self.trie = SuffixTrie(depth)
        self.lock = Lock()
        self._max_requests = max_requests
        self._kept: deque[Text] = deque()
        self._running: list[tuple[ref[Any], array[int]]] = []

    def __len__(self) -> int:
        """Outputs in the trie."""
        return len(self._kept)

    def enter(self, state: Any, output: array[int]) -> None:
        """A sequence begins: its state, and the array that will hold its output. Takes in those that have ended."""
        with self.lock:
            running = []
            for entry in self._running:
                if entry[0]() is not None:
                    running.append(entry)
                else:
                    self._keep(entry[1])
            self._running = [*running, (ref(state), output)]

    def _keep(self, tokens: array[int]) -> None:
        if not tokens:
            return
        text = self.trie.open()
        self.trie.append(text, tokens)
        self._kept.append(text)
        if len(self._kept) > self._max_requests:
            self.trie.remove(self._kept.popleft())
