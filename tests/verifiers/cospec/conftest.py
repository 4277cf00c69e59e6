"""A learned arbiter on a tiny draft model, with random weights."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from safetensors.torch import save_file

from draftmux.backends.beside import Reader
from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.costs import CostCurve
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.sps.bound import BoundSps
from draftmux.drafters.sps.drafter import Sps
from draftmux.models.fingerprint import fingerprint
from draftmux.protocols import Resources
from draftmux.testing.targets import tiny_model
from draftmux.verifiers.cospec.checkpoint import About, save
from draftmux.verifiers.cospec.features import NAMES
from draftmux.verifiers.cospec.head import Head
from draftmux.verifiers.cospec.verifier import CospecArbiter

SEPARATOR = 39
PATHS = ("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj", "model.layers.1.mlp.down_proj")
KINDS: Any = {"static": StaticBackend, "transformers": TransformersBackend}
Setup = Callable[..., "Pair"]


@frozen(eq=False)
class Pair:
    """A target, a draft model that is almost it, and the resources that a verifier is bound with."""

    target: Any
    drafter: BoundSps
    folder: str

    @property
    def resources(self) -> Resources:
        return Resources(backend=self.target, drafters={"draft": self.drafter})

    def bound(self, **options: Any) -> Any:
        verifier = CospecArbiter(**{"arbiter": self.folder, "draft": "draft", **options}).bind(self.resources)
        verifier.judge.head.double()
        return verifier


def about(target: Any, draft: Any, **changes: Any) -> About:
    values = {
        "separator": SEPARATOR,
        "window": 64,
        "hidden_size": draft.config.hidden_size,
        "features": NAMES,
        "threshold": 0.5,
        "target": "tiny",
        "target_fingerprint": fingerprint(target),
        "draft": "tiny draft",
        "draft_fingerprint": fingerprint(draft),
    }
    return About(**{**values, **changes})


def write_lora(folder: Path, model: Any, paths: tuple[str, ...] = PATHS) -> None:
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for path in paths:
        layer = model.get_submodule(path)
        for name, shape in (("lora_A", (3, layer.in_features)), ("lora_B", (layer.out_features, 3))):
            tensors[f"base_model.model.{path}.{name}.weight"] = torch.randn(shape, generator=generator) / 4
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, folder / "adapter_model.safetensors")


def random_head(size: int, features: int) -> Head:
    torch.manual_seed(2)
    head = Head(size, features)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return head


@pytest.fixture
def pair(tmp_path: Path) -> Setup:
    def make(backend: str = "static", **changes: Any) -> Pair:
        model = copy.deepcopy(tiny_model("llama")).double()
        twin = copy.deepcopy(tiny_model("llama")).double()
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.03)
        folder = tmp_path / "arbiter"
        write_lora(folder, twin)
        own = about(model, twin, **changes)
        save(folder, random_head(own.hidden_size, len(own.features)), own)
        target = KINDS[backend](self_check=False).over(model)
        target._curve = CostCurve((1,), (1.0,))
        reader = Reader(target.beside(twin, self_check=False))
        sps = BoundSps(Sps(model="draft", self_test=False, depth=5), target, reader, Vocabulary(target.vocab_size))
        return Pair(target, sps, str(folder))

    return make
