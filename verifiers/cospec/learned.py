"""A learned arbiter at work: the draft model with an adapter reads the blocks of a step in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve, frozen

from draftmux.backends.beside import Reader, host_of
from draftmux.errors import ModelError, PluginError
from draftmux.models.adapters import adapt, own_copy, read_adapter
from draftmux.models.fingerprint import refuse_other
from draftmux.verifiers.cospec.arbitration import Arbiter
from draftmux.verifiers.cospec.checkpoint import About, read_about, read_head
from draftmux.verifiers.cospec.draft_rows import DraftRows
from draftmux.verifiers.cospec.features import features
from draftmux.verifiers.cospec.layout import drafted_rows, segment, size
from draftmux.verifiers.cospec.window import CHUNK, Ask, WindowReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from draftmux.protocols import Resources
    from draftmux.types import Context
    from draftmux.verifiers.cospec.head import Head
    from draftmux.verifiers.cospec.verifier import CospecArbiter
    from draftmux.verifiers.cospec.walk import Block

BLOCK = 16  # drafted tokens of a block for which passes are prepared; longer ones work as well


def load_arbiter(options: CospecArbiter, resources: Resources) -> LearnedArbiter:
    """The arbiter on the draft model of a drafter; ModelError when it was trained for other models."""
    source = options.arbiter
    about = read_about(source, options.revision)
    draft = draft_model(options.draft, resources)
    backend: Any = resources.backend
    refuse_other(
        f"arbiter '{source}'", {"target": about.target, "target_fingerprint": about.target_fingerprint}, backend.model
    )
    refuse_other(f"arbiter '{source}'", {"target": about.draft, "target_fingerprint": about.draft_fingerprint}, draft)
    if about.draft_layers not in (0, depth(draft)):
        raise ModelError(
            f"arbiter '{source}' was trained on a draft model of {about.draft_layers} layers ({about.draft}), and "
            f"drafter '{options.draft}' has {depth(draft)}; name the drafter that it was trained with"
        )
    model = own_copy(draft)
    adapt(model, read_adapter(source, options.revision), f"the model of drafter '{options.draft}'")
    head = read_head(source, about, options.revision)
    found = over(headless(model), head, about, resources, resources.drafters[options.draft])
    return evolve(found, threshold=about.threshold)


def draft_model(name: str, resources: Resources) -> Any:
    """The transformers model of a drafter; PluginError when it has none."""
    drafter: Any = resources.drafters.get(name)
    model = getattr(getattr(getattr(drafter, "reader", None), "target", None), "model", None)
    if model is None or not hasattr(model, "get_output_embeddings"):
        known = ", ".join(sorted(resources.drafters)) or "none"
        raise PluginError(
            f"the arbiter adapts the model of drafter '{name}', which is no drafter with a language model of its own "
            f"that the router can choose (there are: {known}); name one with `use: sps`"
        )
    return model


def depth(draft: Any) -> int:
    """Layers of a model."""
    return int(draft.config.get_text_config(decoder=True).num_hidden_layers)


def headless(model: Any) -> Any:
    """`model`, which is a copy of its own, without output layer: it gives the states after its last norm."""
    model.set_output_embeddings(torch.nn.Identity())
    return model


def over(model: Any, head: nn.Module, about: About, resources: Resources, drafter: Any) -> LearnedArbiter:
    """At work on the target's backend, beside the drafter whose model it adapts."""
    target = host_of(resources.backend, "cospec-arbiter")(model, self_check=False)
    if target.hidden_size != about.hidden_size:
        raise ModelError(
            f"the arbiter's head reads {about.hidden_size} numbers a state; its model gives {target.hidden_size}"
        )
    rows = size(BLOCK)
    if about.separator >= target.vocab_size:
        raise ModelError(
            f"the arbiter's separator is id {about.separator}, and its model has {target.vocab_size} ids; its "
            f"arbiter.json is not the one that it was trained with"
        )
    reader = (
        DraftRows.over(target, drafter, rows)
        if about.segment_only_lora
        else WindowReader(Reader.over(target, CHUNK + rows), about.window)
    )
    return LearnedArbiter(reader, head.to(target.device), about.separator, bool(about.features))


@frozen(eq=False)
class LearnedArbiter(Arbiter):
    """Backbone and head."""

    reader: WindowReader | DraftRows
    head: Head | Any
    separator: int
    reads_features: bool
    temperature: float = 1.0
    threshold: float = 0.5

    def begin(self, context: Context) -> Any:
        """The reader's."""
        return self.reader.begin(context)

    def scores(self, blocks: Sequence[Block]) -> list[list[float] | None]:
        """`sigmoid(logit / temperature)`. A block with an id that the model has no embedding for, or beyond its
        positions, cannot be read."""
        readable = [self._readable(block) for block in blocks]
        judged = iter(self.logits([block for block, able in zip(blocks, readable, strict=True) if able]))
        return [(next(judged) / self.temperature).sigmoid().tolist() if able else None for able in readable]

    def _readable(self, block: Block) -> bool:
        tokens = block.request.context.tokens
        known = max(*block.drafted, *block.verified, tokens.max()) < self.reader.target.vocab_size
        return known and self.reader.fits(len(tokens), size(len(block.verified)))

    @torch.inference_mode()
    def logits(self, blocks: Sequence[Block]) -> list[Tensor]:
        """`(K,)` of each block, in one pass."""
        if not blocks:
            return []
        asks = [
            Ask(b.state, b.request.context.tokens, segment(b.drafted, b.verified, self.separator), two_way=True)
            for b in blocks
        ]
        found = []
        for block, rows in zip(blocks, self.reader.read(asks), strict=True):
            drafted = len(block.verified)
            states = rows[-size(drafted) :][drafted_rows(0, drafted)]
            logits = self.head(states, features(block) if self.reads_features else None)
            if not bool(logits.isfinite().all()):
                raise PluginError("the arbiter gave a logit that is no number; its weights overflow, or are damaged")
            found.append(logits)
        return found
