"""`draftmux train probe`: from prompts of several kinds to a probe that routes, its report, and faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--max-new-tokens", "24", "--samples", "1", "--label-size", "2", "--min-match", "2", "--examples", "2000")
SHARES = ("--validation", "0.3", "--test", "0.3", "--dtype", "float64")
PIPELINE = """models:
  target: {{source: {model}, dtype: float64}}
drafters:
  copy: {{use: context-copy, min_match: 1}}
router: {{use: linear-probe, probe: "{probe}", copy: copy, min_match: 1{more}}}
generation: {{max_new_tokens: 24}}
"""


pytestmark = pytest.mark.slow  # trains on every layer and state


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": f"Tell me {number} and {number % 7}", "family": "ab"[number % 2]} for number in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return path


def test_a_probe_is_trained_reported_and_routes(model: Path, prompts: Path, tmp_path: Path, command: Any) -> None:
    out = tmp_path / "probe"
    flags = ("--target", str(model), "--prompts", str(prompts), "--out", str(out), *FLAGS, *SHARES)
    command("train", "probe", *flags)
    about = json.loads((out / "probe.json").read_text("utf-8"))
    report = json.loads((out / "report.json").read_text("utf-8"))
    assert {row["tap"] for row in report["validation"]} == {
        f"{layer}.{kind}" for layer in range(2) for kind in ("attn_out", "resid_mid", "mlp_out", "resid_post")
    }
    assert about["tap"] in {row["tap"] for row in report["validation"]}
    assert {"all", "family a", "family b", "copies"} <= about["metrics"].keys()
    assert "family a" in (out / "README.md").read_text("utf-8") and "<svg" not in (out / "report.html").read_text(
        "utf-8"
    )
    assert (out / "heat-map.png").read_bytes()[:4] == b"\x89PNG"
    before = (out / "probe.safetensors").read_bytes()
    command("train", "probe", *flags)
    assert (out / "probe.safetensors").read_bytes() == before
    shares = []
    for more in ("", ", threshold: 0.0", ", threshold: 1.0", ", decides: ngram"):
        pipeline = tmp_path / "pipeline.yaml"
        pipeline.write_text(PIPELINE.format(model=model, probe=out, more=more), "utf-8")
        ran = json.loads(command("run", str(pipeline), "--prompt", "Tell me 3", "--json").stdout)
        shares.append((ran["tokens"], ran["metrics"]["drafted"]))
    assert len({tuple(tokens) for tokens, _ in shares}) == 1
    assert shares[1][1] == shares[3][1] > 0 == shares[2][1] and shares[0][1] <= shares[1][1]


def test_a_probe_of_copies_learns_where_copies_are_offered(
    model: Path, prompts: Path, tmp_path: Path, command: Any
) -> None:
    out = tmp_path / "probe"
    flags = ("--target", str(model), "--prompts", str(prompts), "--out", str(out), *FLAGS, *SHARES)
    command("train", "probe", *flags, "--labels", "copies", "--follows", "1", "--kinds", "attn_out", "--min-match", "1")
    about = json.loads((out / "probe.json").read_text("utf-8"))
    assert (about["labels"], about["follows"], about["shift"]) == ("copies", 1, 2)
    assert not (out / "work" / "states").exists()
    assert "does the text follow it for 1 tokens or more?" in (out / "README.md").read_text("utf-8")
