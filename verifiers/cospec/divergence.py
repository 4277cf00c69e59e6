"""An arbiter without learning: how far apart the laws of target and draft model are where they disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.options import option
from draftmux.verifiers.cospec.arbitration import Arbiter, Arbitration

if TYPE_CHECKING:
    from draftmux.protocols import Resources

WINDOW = 1024  # tokens of context that are read


@frozen
class DivergenceArbiter(Arbitration):
    """A drafted token is kept where `1 - JS(p, q) / log 2 >= threshold`: JS is the divergence of Jensen and Shannon, p
    and q are the unprocessed laws of target and draft model at temperature 1. The draft model is run once more for it.
    """

    draft: str = option("name of the drafter `sps` whose model gives q")

    def judge(self, resources: Resources) -> Arbiter:
        """The draft model with rows of its own."""
        from draftmux.backends.beside import Reader, host_of
        from draftmux.models.adapters import own_copy
        from draftmux.verifiers.cospec.laws_apart import Divergence
        from draftmux.verifiers.cospec.learned import BLOCK, draft_model
        from draftmux.verifiers.cospec.window import CHUNK, WindowReader

        model = own_copy(draft_model(self.draft, resources))
        target = host_of(resources.backend, "divergence-arbiter")(model, self_check=False)
        return Divergence(WindowReader(Reader.over(target, CHUNK + BLOCK), WINDOW))
