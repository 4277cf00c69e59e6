"""The pages, cut into blocks, and a place where their blocks run: a tiny saved model stands in for `smollm2`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from draftmux.plugins import registry
from draftmux.registry import Entry

FENCE = re.compile(r"^(`{3,})([^`\n]*)\n((?:.*\n)*?)\1\s*$", re.MULTILINE)
CHAT = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}<|assistant|>"
MODEL = """\
from draftmux.models.source import ModelSpec

SMOLLM2 = ModelSpec(source={folder!r}, dtype="float64", device="cpu")
"""


@frozen
class Block:
    """A fenced block. `language` and `words` are of its info string; `file` is where a reader would save it."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def file(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


Blocks = Callable[[Path], list[Block]]


@pytest.fixture(scope="session")
def blocks() -> Blocks:
    """All fenced blocks of a page; a fence of four backticks may hold others."""

    def cut(page: Path) -> list[Block]:
        text = page.read_text(encoding="utf-8")
        found = []
        for fence in FENCE.finditer(text):
            language, *words = fence[2].split() or [""]
            found.append(Block(language, tuple(words), fence[3], text.count("\n", 0, fence.start(3)) + 1))
        return found

    return cut


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random two-layer model in float64, a token a byte, and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from draftmux.models.checkpoint import quietly

    folder = tmp_path_factory.mktemp("model")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<|system|>", "<|user|>", "<|assistant|>"])
    sizes = {"vocab_size": 260, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 1024}
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(3)
        config = LlamaConfig(**sizes, **heads, bos_token_id=None, eos_token_id=256)
        LlamaForCausalLM(config).double().save_pretrained(folder)
        wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", chat_template=CHAT)
        wrapped.save_pretrained(folder)
    return folder


@pytest.fixture
def workplace(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory that is on the import path, where `smollm2` is the tiny model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tiny_smollm2.py").write_text(MODEL.format(folder=str(tiny_model)))
    entry = Entry("model", "smollm2", "tiny_smollm2:SMOLLM2", "", "draftmux-smollm2", "0.1.0", "smollm2")
    monkeypatch.setitem(registry().entries, ("model", "smollm2"), [entry])
    before = dict(sys.modules)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    sys.modules.update(before)
