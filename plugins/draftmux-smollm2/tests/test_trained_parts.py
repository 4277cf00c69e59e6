"""The parts that are shipped: their size, what they are worth, and that mistakes in them show."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import draftmux_smollm2
import pytest
import torch
from safetensors.torch import load_file, save_file

import draftmux
from draftmux.bench.agreement import TIE, Margins, first_difference
from draftmux.errors import ModelError
from draftmux.pipeline import Pipeline, load, plain_spec
from draftmux.prompts import encode
from draftmux.routers.accepted_length.artefact import read_regressor
from draftmux.routers.linear_probe.artefact import read_about

PARTS = Path(draftmux_smollm2.__file__).parent
LIMIT = 40 * 10**6  # bytes, of all parts
PROMPTS = (
    "Give me three tips for a good night's sleep.",
    "A baker sells 12 rolls an hour for 7 hours. How many rolls are that?",
    "Write a Python function that counts the vowels of a text.",
)
TOKENS = 64


def test_all_parts_together_are_small() -> None:
    files = [path for path in PARTS.rglob("*") if path.suffix == ".safetensors"]
    assert {path.parent.name for path in files} == {"eagle3", "draft", "probe"}
    assert sum(path.stat().st_size for path in files) <= LIMIT


def test_cards_name_no_place_of_the_machine_they_were_trained_on() -> None:
    for path in PARTS.rglob("*"):
        if path.suffix in (".md", ".json"):
            assert not re.search(r"(?<![\w.)])/\w|file:", path.read_text("utf-8")), path


@pytest.fixture(scope="module")
def plain() -> Pipeline:
    spec = draftmux.load("eagle3", ["models.target.dtype=float32", "drafters.eagle.self_test=false"]).spec
    return Pipeline.build(plain_spec(spec))


@pytest.mark.smollm2
@pytest.mark.parametrize(
    ("name", "least"),
    [("eagle3", 2.0), ("eagle3-tree", 2.1), ("copy+eagle3", 2.0), ("copy+eagle3-merge", 2.0), ("sps", 1.3)],
)
def test_a_pipeline_writes_plain_decodings_text_in_fewer_passes(plain: Pipeline, name: str, least: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a self-test that complains, for one
        pipeline = draftmux.load(name, ["models.target.dtype=float32", f"generation.max_new_tokens={TOKENS}"])
    lengths = []
    for prompt in PROMPTS:
        found = pipeline.generate(prompt)
        reference = plain.generate(prompt, max_new_tokens=TOKENS).tokens
        if found.tokens != reference:  # allowed where the two best logits are nearly tied
            at = first_difference(reference, found.tokens)
            ids = encode(prompt, plain.tokenizer, plain.spec.generation)
            margin = Margins(plain.parts.backend, plain.spec.generation).at(ids, reference[:at])
            assert margin is not None and margin < TIE
        lengths.append(found.metrics.mean_acceptance_length)
    assert sum(lengths) / len(lengths) >= least


def swapped(folder: Path, config: dict[str, Any]) -> None:
    """Low and high state the wrong way round."""
    config["eagle_aux_hidden_state_layer_ids"].reverse()


def as_ids(folder: Path, config: dict[str, Any]) -> None:
    """Ids where offsets are expected."""
    tensors = load_file(folder / "model.safetensors")
    tensors["d2t"] += torch.arange(len(tensors["d2t"]))
    save_file(tensors, folder / "model.safetensors")


def without_norm(folder: Path, config: dict[str, Any]) -> None:
    """A tensor is missing."""
    tensors = load_file(folder / "model.safetensors")
    del tensors["layers.0.hidden_norm.weight"]
    save_file(tensors, folder / "model.safetensors")


def other_target(folder: Path, config: dict[str, Any]) -> None:
    """Trained for other weights."""
    config["draftmux"]["target_fingerprint"] = "0" * 64


def normed(folder: Path, config: dict[str, Any]) -> None:
    """Hands on what it should not norm."""
    config["norm_before_residual"] = True


@pytest.fixture
def altered(tmp_path: Path) -> Iterator[Callable[[Any], Path]]:
    def alter(mistake: Any) -> Path:
        folder = tmp_path / "head"
        shutil.copytree(PARTS / "eagle3", folder)
        config = json.loads((folder / "config.json").read_text("utf-8"))
        mistake(folder, config)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        return folder

    yield alter


@pytest.mark.smollm2
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (as_ids, "d2t must hold offsets, .*; they look like ids"),
        (without_norm, r"missing tensor layers\.0\.hidden_norm\.weight"),
        (other_target, "was trained for smollm2, whose weights are others"),
    ],
)
def test_the_loader_refuses(altered: Callable[[Any], Path], mistake: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        draftmux.load("eagle3", [f"drafters.eagle.head={altered(mistake)}"]).generate("Hello", max_new_tokens=2)


@pytest.mark.smollm2
@pytest.mark.parametrize("mistake", [swapped, normed])
def test_the_test_at_load_warns(altered: Callable[[Any], Path], mistake: Any) -> None:
    with pytest.warns(UserWarning, match="drafted tokens were the target's own"):
        draftmux.load("eagle3", [f"drafters.eagle.head={altered(mistake)}"]).generate("Hello", max_new_tokens=2)


@pytest.mark.smollm2
def test_the_draft_is_refused_with_other_layers_and_for_another_target(tmp_path: Path) -> None:
    """Before any of its weights are used."""
    with pytest.raises(ModelError, match="was trained for layers: 8, not 6"):
        draftmux.load("sps", ["drafters.draft.layers=6"])
    folder = tmp_path / "draft"
    shutil.copytree(PARTS / "draft", folder)
    kept = json.loads((folder / "draftmux.json").read_text("utf-8"))
    (folder / "draftmux.json").write_text(json.dumps(kept | {"target_fingerprint": "0" * 64}), "utf-8")
    with pytest.raises(ModelError, match="was trained for smollm2, whose weights are others"):
        draftmux.load("sps", [f"drafters.draft.adapter={folder}"])


@pytest.mark.smollm2
def test_a_draft_whose_terms_are_lost_warns_at_load(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    shutil.copytree(PARTS / "draft", folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    lost = {name: tensor * ("lora_A" in name) for name, tensor in tensors.items()}
    save_file(lost, folder / "adapter_model.safetensors")
    with pytest.warns(UserWarning, match="drafted tokens were the target's own"):
        draftmux.load("sps", [f"drafters.draft.adapter={folder}"])


def test_the_probe_and_the_regressor_are_what_was_trained() -> None:
    """Figures of test prompts stand in them, and are what docs/benchmarks.md quotes."""
    about, regressor = read_about(str(PARTS / "probe")), read_regressor(str(PARTS / "regressor"))
    assert about is not None and about.metrics["all"]["auc"] > 0.96 and about.metrics["hits"]["negatives"] > 200
    assert regressor.metrics["r2"] > 0.3 and regressor.metrics["copies"]["test"] > 1000
    report = json.loads((PARTS / "probe" / "report.json").read_text("utf-8"))
    assert len(report["validation"]) == 30 * 4 * 3 and len(report["test"]) == 3


@pytest.mark.smollm2
def test_the_probe_tells_copying_from_writing() -> None:
    """On the real model: its score is high inside a list that is asked for once more, and low in a new answer."""
    pipeline = load("switchsd", ["router.decides=probe", "router.threshold=0.5", "generation.max_new_tokens=64"])
    repeat = (
        "Repeat this list word for word: apples, pears, plums, grapes, cherries, melons, lemons, figs, dates, limes."
    )
    shares = []
    for prompt in (repeat, "Invent a name for a friendly dragon and say why it fits."):
        metrics = pipeline.generate(prompt).metrics
        shares.append(metrics.steps_by_drafter["copy"] / metrics.steps)
    assert shares[0] > 2 * shares[1], shares
