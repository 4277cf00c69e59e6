"""The verifiers that come with draftmux; published through the same hook as a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_verifiers(register: Register) -> None:
    """Publish the built-in verifiers."""
    register(
        "exact-match", "draftmux.verifiers.exact_match:ExactMatch", "accept what the target itself picks; lossless"
    )
    register(
        "rejection", "draftmux.verifiers.rejection:Rejection", "accept with probability p/q, chains and trees; lossless"
    )
    register("block", "draftmux.verifiers.block:Block", "judge a sampled chain at once; lossless")
    register("traversal", "draftmux.verifiers.traversal:Traversal", "judge a sampled tree leaf to root; lossless")
    register(
        "typical", "draftmux.verifiers.lossy.typical:Typical", "accept what is likely enough for the entropy; lossy"
    )
    register("fly", "draftmux.verifiers.lossy.fly:Fly", "let a mismatch pass that the next tokens confirm; lossy")
    register("aasd", "draftmux.verifiers.lossy.aasd:Aasd", "accept above a threshold that entropy lowers; lossy")
    register(
        "cospec-arbiter",
        "draftmux.verifiers.cospec.verifier:CospecArbiter",
        "a learned arbiter decides at each mismatch; lossy",
    )
    register("random-arbiter", "draftmux.verifiers.cospec.random:RandomArbiter", "keep mismatches by chance; lossy")
    register(
        "threshold-arbiter",
        "draftmux.verifiers.cospec.threshold:ThresholdArbiter",
        "keep mismatches that the target finds likely enough; lossy",
    )
    register(
        "divergence-arbiter",
        "draftmux.verifiers.cospec.divergence:DivergenceArbiter",
        "keep mismatches where draft and target have similar laws; lossy",
    )
