"""The law that parts learn from is the target's own, whatever its family does to logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    PhiConfig,
)

from draftmux.errors import ModelError
from draftmux.training.teacher import Teacher

SIZES: dict[str, Any] = {
    "vocab_size": 37,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "capped": Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=0.5),
    "multiplied": Cohere2Config(**SIZES, logit_scale=3.0, pad_token_id=0, eos_token_id=1, bos_token_id=2),
    "divided": GraniteConfig(**SIZES, logits_scaling=4.0),
}


def make(config: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("ids", [None, torch.tensor([3, 4, 30])])
def test_its_logits_are_the_models(name: str, ids: torch.Tensor | None) -> None:
    model, seen = make(CONFIGS[name]), []
    model.base_model.layers[-1].register_forward_hook(
        lambda _, __, out: seen.append(out if torch.is_tensor(out) else out[0])
    )
    with torch.no_grad():
        logits = model(input_ids=torch.arange(5)[None]).logits[0]
        found = Teacher(model, ids)(seen[0][0])
        again = model(input_ids=torch.arange(5)[None]).logits[0]
    assert torch.allclose(found, logits if ids is None else logits[:, ids], atol=1e-5)
    assert torch.equal(again, logits)  # the target is left as it was


def test_gradients_pass_the_output_layer_and_change_nothing_in_it() -> None:
    model = make(CONFIGS["multiplied"])
    teacher, states = Teacher(model), torch.randn(3, 16, requires_grad=True)
    teacher.output(states).sum().backward()
    assert states.grad is not None and states.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in (*model.parameters(), *teacher.parameters()))


def test_a_last_norm_of_another_name_is_an_error_that_says_so() -> None:
    model = make(PhiConfig(**SIZES))
    with pytest.raises(ModelError, match="PhiForCausalLM has no last norm under the name 'norm'"):
        Teacher(model)
