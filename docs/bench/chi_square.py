"""200,000 sampled tokens through the real engine for every lossless verifier: is their law the target's?

    python docs/bench/chi_square.py --tokens 200000

A chi-square test of every token after the two before it, and of the first token of every round, on a law over three
tokens with a draft law far from it. The last line plants a bias of 0.02 in total variation, which must be seen. Exits
with 1 if a p-value of a right verifier is below 1e-4, or that of the planted one is not.
"""

from __future__ import annotations

import sys

import click
import torch

from draftmux.testing.frequencies import CHAIN, TOKENS, TREE, Colder, first_of_rounds, p_value, pairs, play
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

LEAST = 1e-4
CASES = {
    "exact-match, chain": (ExactMatch(), CHAIN),
    "rejection, chain": (Rejection(), CHAIN),
    "block, chain": (Block(), CHAIN),
    "traversal, chain": (Traversal(), CHAIN),
    "exact-match, tree": (ExactMatch(), TREE),
    "rejection, tree": (Rejection(), TREE),
    "traversal, tree": (Traversal(), TREE),
}


@click.command()
@click.option("--tokens", type=int, default=200_000)
def main(tokens: int) -> None:
    """Print the p-values of every case."""
    torch.set_num_threads(1)
    requests = -(-tokens // TOKENS)
    wrong = False
    for name, (verifier, drafter) in CASES.items():
        played = play(verifier, drafter, requests=requests)
        every, first = p_value(pairs(played)), p_value(first_of_rounds(played))
        accepted = sum(len(step.acceptance.path) for _, step in played.steps) / len(played.steps)
        print(
            f"{name}: {requests * TOKENS:,} tokens in {len(played.steps):,} steps, {accepted:.3f} accepted a step, "
            f"p = {every:.3f} (every token), {first:.3f} (first of a round)",
            flush=True,
        )
        wrong |= min(every, first) < LEAST
    planted = p_value(first_of_rounds(play(Rejection(), Colder(), requests=requests)))
    print(f"rejection, draft a little colder than its q: p = {planted:.2g} (first of a round)")
    sys.exit(wrong or planted >= LEAST)


if __name__ == "__main__":
    main()
