"""What an arbiter reads, by hand: rows, positions, who sees whom, padding, and the states that are judged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from draftmux.verifiers.cospec import layout
from draftmux.verifiers.cospec.network import Batch, Network, Sample

SEP = 39
LONG = Sample(np.array([5, 6, 7]), (11, 12), (21, 22), np.array([[0.1], [0.2]], dtype=np.float32))
SHORT = Sample(np.array([8]), (13,), (23,), np.array([[0.3]], dtype=np.float32))

# Two rows of context, the first separator, one drafted token, separator, the verified one, separator.
MASK = [
    "x......",
    "xx.....",
    "xxx....",  # the first separator is causal still: it sees nothing of what it opens
    "xxxxxxx",
    "xxxxxxx",
    "xxxxxxx",
    "xxxxxxx",
]


def drawn(mask: Any) -> list[str]:
    return ["".join("x" if seen else "." for seen in row) for row in mask]


def test_the_segment_holds_both_drafts_between_separators() -> None:
    assert layout.segment((11, 12), (21, 22), SEP).tolist() == [SEP, 11, 12, SEP, 21, 22, SEP]
    assert layout.size(2) == 7


def test_context_is_causal_and_the_segment_sees_all() -> None:
    assert drawn(layout.visible(2, 1)) == MASK


def test_states_are_read_at_the_drafted_tokens() -> None:
    """Neither at the verified ones nor one row off."""
    rows = [*LONG.context.tolist(), *layout.segment(LONG.drafted, LONG.verified, SEP).tolist()]
    assert rows[layout.drafted_rows(3, 2)] == [11, 12]


def test_a_batch_is_padded_on_the_left() -> None:
    batch = Batch.of([LONG, SHORT], 64, SEP)
    assert batch.ids.tolist() == [
        [5, 6, 7, SEP, 11, 12, SEP, 21, 22, SEP],
        [SEP, SEP, SEP, SEP, 8, SEP, 13, SEP, 23, SEP],
    ]
    assert batch.positions.tolist() == [list(range(10)), [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]]
    assert batch.rows.tolist() == [[4, 5], [6, 0]]
    assert batch.features[:, :, 0].tolist() == np.array([[0.1, 0.2], [0.3, 0]], dtype=np.float32).tolist()
    assert drawn(batch.mask[1, 0]) == [
        "x.........",
        ".x........",
        "..x.......",
        "...x......",  # padding sees itself alone, and no row sees it
        "....x.....",
        "....xx....",
        "....xxxxxx",
        "....xxxxxx",
        "....xxxxxx",
        "....xxxxxx",
    ]


def test_a_context_beyond_the_window_loses_its_beginning() -> None:
    context = np.arange(layout.size(1) + 400)
    batch = Batch.of([Sample(context, (13,), (23,), SHORT.features)], 4, SEP)
    assert batch.ids.tolist() == [[*context[-4:].tolist(), SEP, 13, SEP, 23, SEP]]
    assert batch.positions.tolist() == [list(range(9))]


class Echo(torch.nn.Module):
    """A backbone whose state at a row is the row's id; it keeps what it was given."""

    dtype = torch.float32

    def forward(self, input_ids: torch.Tensor, **given: Any) -> Any:
        self.given = given
        return SimpleNamespace(logits=input_ids[..., None].float())


def test_the_network_judges_the_drafted_rows_and_hides_what_is_not_visible() -> None:
    echo = Echo()
    batch = Batch.of([LONG, SHORT], 64, SEP)
    states = Network(echo, torch.nn.Identity()).states(batch)  # type: ignore[arg-type]
    assert states[0, :, 0].tolist() == [11, 12] and float(states[1, 0, 0]) == 13
    assert torch.equal(echo.given["position_ids"], batch.positions)
    blind = echo.given["attention_mask"]
    assert torch.equal(blind == 0, batch.mask) and float(blind.min()) == torch.finfo(torch.float32).min
