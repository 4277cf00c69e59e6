"""A head that goes on from another: all its weights, its rows of tokens that both draft, and nothing that misfits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from attrs import evolve

from draftmux.drafters.eagle3.export import export
from draftmux.drafters.eagle3.format import CONFIG, DEFAULT_TAPS
from draftmux.drafters.eagle3.new_head import new_head
from draftmux.drafters.eagle3.recipe import HeadRecipe
from draftmux.drafters.eagle3.start import begin_from
from draftmux.errors import ModelError, RequestError
from draftmux.training.card import Origin

if TYPE_CHECKING:
    from draftmux.drafters.eagle3.model import Eagle3Head

RECIPE = HeadRecipe(intermediate=24)
KNOWN = torch.tensor([1, 4, 5, 9, 30])


@pytest.fixture
def kept(model: Any, tmp_path: Path) -> tuple[str, Eagle3Head]:
    """A head on disk, and itself, in bfloat16 as it is written."""
    head = new_head(model, KNOWN, 3, RECIPE)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape).bfloat16())
    export(tmp_path / "kept", head, KNOWN, DEFAULT_TAPS, Origin("org/tiny", model, "", "", RECIPE, {}))
    return str(tmp_path / "kept"), head


def test_weights_are_the_others_and_rows_go_by_token(model: Any, kept: tuple[str, Eagle3Head]) -> None:
    source, other = kept
    ids = torch.tensor([4, 9, 2, 30])  # one is new, and two of the old ones are gone
    head, before = (new_head(model, ids, 3, RECIPE) for _ in range(2))
    begin_from(head, ids, DEFAULT_TAPS, source, model)
    for name, tensor in head.state_dict().items():
        if name == "embed_tokens.weight":
            assert torch.equal(tensor, before.state_dict()[name])
        elif name != "lm_head.weight":
            assert torch.equal(tensor, other.state_dict()[name].to(tensor.dtype)), name
    rows = {int(token): row for token, row in zip(KNOWN, other.lm_head.weight, strict=True)}
    rows[2] = before.lm_head.weight[2]
    for token, row in zip(ids.tolist(), head.lm_head.weight, strict=True):
        assert torch.equal(row, rows[token].to(row.dtype)), token


def _other_taps(folder: Path) -> None:
    _edit(folder, {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]})


def _other_norms(folder: Path) -> None:
    _edit(folder, {"norm_before_residual": True})


def _taps_of_a_deeper_target(folder: Path) -> None:
    _edit(folder, {"eagle_aux_hidden_state_layer_ids": [2, 30, 57]})


def _other_rope(folder: Path) -> None:
    layer = json.loads((folder / CONFIG).read_text("utf-8"))["transformer_layer_config"]
    layer["rope_parameters"]["rope_theta"] *= 2
    _edit(folder, {"transformer_layer_config": layer})


def _other_heads(folder: Path) -> None:
    layer = json.loads((folder / CONFIG).read_text("utf-8"))["transformer_layer_config"]
    twice = {name: 2 * layer[name] for name in ("num_attention_heads", "num_key_value_heads")}
    _edit(folder, {"transformer_layer_config": {**layer, **twice, "head_dim": layer["head_dim"] // 2}})


def _other_target(folder: Path) -> None:
    _edit(folder, {"draftmux": {"target": "org/other", "target_fingerprint": "0" * 64}})


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _edit(folder: Path, changes: dict[str, Any]) -> None:
    config = json.loads((folder / CONFIG).read_text("utf-8"))
    (folder / CONFIG).write_text(json.dumps({**config, **changes}), "utf-8")


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (_other_taps, RequestError, "are to be read; give its own with --tap"),
        (_taps_of_a_deeper_target, RequestError, r"it reads 1\.resid_post, 29\.resid_post, 56\.resid_post, and "),
        (_other_norms, RequestError, "norm_before_residual is True, and False here"),
        (_other_rope, RequestError, "rope_parameters is .*, and .* here"),
        (_other_heads, RequestError, "num_attention_heads is 8, and 4 here"),
        (_other_target, ModelError, "was trained for org/other"),
        (_no_weights, ModelError, "has neither"),
    ],
)
def test_what_misfits_is_refused(
    model: Any, kept: tuple[str, Any], spoil: Callable[[Path], None], error: type[Exception], said: str
) -> None:
    spoil(Path(kept[0]))
    with pytest.raises(error, match=said):
        begin_from(new_head(model, KNOWN, 3, RECIPE), KNOWN, DEFAULT_TAPS, kept[0], model)


def test_a_head_of_another_width_is_refused(model: Any, kept: tuple[str, Any]) -> None:
    wider = new_head(model, KNOWN, 3, evolve(RECIPE, intermediate=32))
    with pytest.raises(RequestError, match="intermediate_size is 24, and 32 here"):
        begin_from(wider, KNOWN, DEFAULT_TAPS, kept[0], model)
