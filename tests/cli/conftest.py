"""A tiny random model with a byte tokenizer, saved as a user's own model folder would be, and pipelines over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from draftmux.cli.main import main

Command = Callable[..., Result]
Pipeline = Callable[..., str]

SPECIAL = ["<end>", "<|user|>", "<|assistant|>"]
CHAT = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}<|assistant|>"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder. float64, so that greedy text is the same in every shape of pass."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from draftmux.models.checkpoint import quietly

    folder = tmp_path_factory.mktemp("model")
    sizes = {"vocab_size": 259, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128}
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(5)
        config = LlamaConfig(**sizes, **heads, bos_token_id=None, eos_token_id=256, tie_word_embeddings=False)
        network = LlamaForCausalLM(config).double()
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(0, 0.4)
        network.lm_head.weight.data[128:] *= 0.01  # so that text is ASCII and does not end by itself
        network.save_pretrained(folder)
        _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> object:
    """One token a byte, and three special ones."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIAL[0], chat_template=CHAT)


@pytest.fixture
def pipeline(tmp_path: Path, model: Path) -> Pipeline:
    """Write a pipeline file over the tiny model; `lines` are added to it."""

    def write(lines: str = "drafters: {copy: {use: pld}}", name: str = "tiny.yaml") -> str:
        path = tmp_path / name
        short = "" if "generation:" in lines else "\ngeneration: {max_new_tokens: 12}"
        path.write_text(f"models: {{target: {{source: '{model}', dtype: float64}}}}\n{lines}{short}\n")
        return str(path)

    return write


@pytest.fixture
def command() -> Command:
    """Run `draftmux` with arguments, in this process; an exception that is no exit is raised again."""

    def run(*arguments: str, input: str | bytes | None = None, code: int = 0) -> Result:
        result = CliRunner(catch_exceptions=False).invoke(main, list(arguments), input=input)
        assert result.exit_code == code, result.output
        return result

    return run
