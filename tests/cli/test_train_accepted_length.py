"""`draftmux train accepted-length`: from prompts to a regressor that routes; too little to learn from is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from draftmux.models.fingerprint import fingerprint
from draftmux.routers.accepted_length import train
from draftmux.routers.accepted_length.features import NAMES, SCORE
from draftmux.routers.linear_probe.artefact import About, save

FLAGS = ("--max-new-tokens", "40", "--min-match", "1", "--max-depth", "6", "--test", "0.4", "--dtype", "float64")
PIPELINE = """models:
  target: {{source: {model}, dtype: float64}}
drafters:
  copy: {{use: context-copy, min_match: 1, max_depth: 6}}
router: {{use: accepted-length, regressor: {regressor}, copy: copy, least: {least}}}
generation: {{max_new_tokens: 24}}
"""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"Tell me {number}"}) for number in range(16)), "utf-8")
    return path


def test_a_regressor_is_trained_and_routes(
    model: Path, prompts: Path, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "regressor"
    flags = ("train", "accepted-length", "--target", str(model), "--prompts", str(prompts), "--out", str(out), *FLAGS)
    monkeypatch.setattr(train, "FEWEST", 10**6)
    assert "copies to learn from" in command(*flags, code=1).output
    monkeypatch.setattr(train, "FEWEST", 2)
    assert "copies of test prompts" in command(*flags).output
    kept = json.loads((out / "accepted-length.json").read_text("utf-8"))
    assert set(kept["weights"]) == set(NAMES) and kept["metrics"]["copies"]["test"] > 1
    drafted, texts = [], set()
    for least in ("0.0", "1e9"):
        pipeline = tmp_path / "pipeline.yaml"
        pipeline.write_text(PIPELINE.format(model=model, regressor=out, least=least), "utf-8")
        ran = json.loads(command("run", str(pipeline), "--prompt", "Tell me 3", "--json").stdout)
        drafted.append(ran["metrics"]["drafted"])
        texts.add(tuple(ran["tokens"]))
    assert drafted[0] > 0 == drafted[1] and len(texts) == 1


@pytest.fixture
def probe(model: Path, tmp_path: Path) -> Path:
    """Any weights will do."""
    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    size = target.config.hidden_size
    save(
        tmp_path / "probe",
        torch.linspace(-1, 1, size),
        About("1.attn_out", 1, 0.5, 1, size, str(model), fingerprint(target), 5, 1e-3),
    )
    return tmp_path / "probe"


def test_a_regressor_beside_a_probe_takes_its_score(
    model: Path, prompts: Path, probe: Path, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "regressor"
    monkeypatch.setattr(train, "FEWEST", 2)
    flags = ("--target", str(model), "--prompts", str(prompts), "--out", str(out), "--probe", str(probe), *FLAGS)
    command("train", "accepted-length", *flags)
    weights = json.loads((out / "accepted-length.json").read_text("utf-8"))["weights"]
    assert set(weights) == {*NAMES, SCORE} and weights[SCORE] != 0
    pipeline, text = tmp_path / "pipeline.yaml", PIPELINE.format(model=model, regressor=out, least=0)
    pipeline.write_text(text, "utf-8")
    refused = command("run", str(pipeline), "--prompt", "Tell me 3", code=1)
    assert "name it in 'probe'" in refused.output
    pipeline.write_text(text.replace("copy: copy,", f'copy: copy, probe: "{probe}",'), "utf-8")
    assert json.loads(command("run", str(pipeline), "--prompt", "Tell me 3", "--json").stdout)["metrics"]["drafted"] > 0
    weights = load_file(probe / "probe.safetensors")
    save_file({name: 2 * tensor for name, tensor in weights.items()}, probe / "probe.safetensors")
    refused = command("run", str(pipeline), "--prompt", "Tell me 3", code=1)
    assert "another probe" in refused.output
