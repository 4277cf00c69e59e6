"""What one draft node costs a grammar: a copy that moves on by a token, and the mask of what may follow.

    python docs/bench/grammar_cost.py

Walks a JSON text along a schema with the embedded model's tokenizer, and prints medians and maxima in microseconds.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from draftmux.constraints.grammar import JsonSchema
from draftmux.models.load import load_tokenizer
from draftmux.models.source import ModelSpec
from draftmux.protocols import Vocabulary

PROPERTIES = {"name": {"type": "string"}, "age": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["name", "age"], "additionalProperties": False}
TEXT = '{"name": "Bob Smith", "age": 12}'


def main() -> None:
    """Print the costs."""
    tokenizer = load_tokenizer(ModelSpec(source="smollm2"))
    vocabulary = Vocabulary(len(tokenizer), frozenset({tokenizer.eos_token_id}), tokenizer)
    state: Any = JsonSchema(schema=SCHEMA).begin(vocabulary)
    moves, masks = [], []
    for token in tokenizer(TEXT, add_special_tokens=False)["input_ids"]:
        started = time.perf_counter()
        state.allowed()
        masked = time.perf_counter()
        state = state.advance(token)
        moves.append(1e6 * (time.perf_counter() - masked))
        masks.append(1e6 * (masked - started))
    print(f"{len(moves)} tokens, {vocabulary.size:,} ids")
    print(f"copy and move: median {median(moves):.0f} us, at most {max(moves):.0f} us")
    print(f"mask: median {median(masks):.0f} us, first {masks[0]:.0f} us, then at most {max(masks[1:]):.0f} us")


if __name__ == "__main__":
    main()
