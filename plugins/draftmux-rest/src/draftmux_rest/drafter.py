"""The drafter: what followed the last tokens in the datastore, as one tree. Knows nothing of how it was built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from draftmux.drafting import SequenceDrafter
from draftmux.errors import PluginError
from draftmux.options import option
from draftmux.types import Budget, Context, Draft, Emits
from draftmux_rest.datastore import Datastore, load, vocabulary_hash
from draftmux_rest.search import continuations, longest_match
from draftmux_rest.trie import count_nodes, most_frequent

if TYPE_CHECKING:
    from draftmux.protocols import Drafter, Resources


@frozen
class Rest(SequenceDrafter):
    """Retrieves drafts for the longest end of the text that stands in the datastore (REST, arXiv 2311.08252)."""

    emits: ClassVar[Emits] = Emits(tree=True)

    datastore: str = option("folder that `draftmux-rest build` wrote; a relative path starts at the working folder")
    max_span: int = option("longest end of the text that is looked up", default=16, minimum=1)
    min_span: int = option("shortest end of the text that is looked up", default=2, minimum=1)
    max_hits: int = option(
        "hits to continue, at most; of more, some at even distances are taken", default=5000, minimum=1
    )
    length: int = option("tokens of one continuation at most", default=10, minimum=1)
    max_nodes: int = option("drafted nodes at most; the most frequent are kept", default=64, minimum=1)

    def __attrs_post_init__(self) -> None:
        if self.min_span > self.max_span:
            raise ValueError(f"'min_span' must not be above 'max_span': {self.min_span} > {self.max_span}")

    def bind(self, resources: Resources) -> Drafter:
        """Open the datastore; PluginError when it is damaged, or was built with another tokenizer."""
        store = load(Path(self.datastore).expanduser())
        _check_tokenizer(store, self.datastore, resources)
        return Retrieval(self, store)

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """Never: the datastore is opened by `bind`."""
        raise PluginError("rest has no datastore yet; call `bind` and use what it returns")


@frozen(eq=False)
class Retrieval(SequenceDrafter):
    """A bound `Rest`. It keeps nothing of a sequence: the datastore never changes."""

    emits: ClassVar[Emits] = Emits(tree=True)

    options: Rest
    store: Datastore

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """The most frequent continuations of the longest match; empty without a match."""
        limit = budget.within(Budget(max_nodes=self.options.max_nodes, max_depth=self.options.length))
        if min(limit.max_nodes, limit.max_depth, limit.max_branches) == 0:
            return Draft.empty()
        query = context.tokens[-self.options.max_span :].tolist()
        hits = longest_match(self.store, query, self.options.min_span)
        if hits is None:
            return Draft.empty()
        rows = continuations(self.store, hits, limit.max_depth, self.options.max_hits)
        return most_frequent(count_nodes(rows), limit)


def _check_tokenizer(store: Datastore, folder: str, resources: Resources) -> None:
    """Ids of another tokenizer would name other texts; every draft would be rubbish, and nothing would say so."""
    made = store.manifest
    if resources.tokenizer is None:
        raise PluginError(
            f"rest: datastore {folder} needs the target's tokenizer, and this backend has none; "
            "use a backend with a tokenizer"
        )
    if vocabulary_hash(resources.tokenizer) != made.vocabulary:
        raise PluginError(
            f"rest: datastore {folder} was built with the tokenizer of '{made.tokenizer}' ({made.vocab_size} ids), "
            f"whose vocabulary is not the target's ({len(resources.tokenizer)} ids); build one for this target with "
            "draftmux-rest build … --target SOURCE, where SOURCE is the pipeline's models.target.source"
        )
    if resources.backend is not None and int(store.tokens.max()) >= resources.backend.vocab_size:
        raise PluginError(
            f"rest: datastore {folder} holds token id {store.tokens.max()}, and the target has logits for ids "
            f"0 to {resources.backend.vocab_size - 1} only; build it from texts without that token"
        )
