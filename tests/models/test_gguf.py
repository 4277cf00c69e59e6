from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize

from draftmux.errors import ModelError
from draftmux.models import convert
from draftmux.models.checkpoint import Checkpoint, read_model, read_tokenizer
from draftmux.models.fetch import sha256_of
from draftmux.models.load import load_model, load_tokenizer
from draftmux.models.source import ModelSpec

Q8 = GGMLQuantizationType.Q8_0
WIDTH, INNER, HEADS, KEY_HEADS = 64, 96, 4, 2
SHAPES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH // HEADS * KEY_HEADS, WIDTH),
    "attn_v": (WIDTH // HEADS * KEY_HEADS, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
}
SPECIAL = ["<unk>", "<s>", "</s>"]
LETTERS = [chr(ord("a") + i) for i in range(26)]


def describe_tokenizer(writer: GGUFWriter, kind: str) -> int:
    """Write a vocabulary of letters and `ab`, as byte-pair merges (gpt2) or scores (llama); its size."""
    tokens = [*SPECIAL, *LETTERS, "ab"]
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    if kind == "gpt2":
        writer.add_token_merges(["a b"])
    else:
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    return len(tokens)


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Write a random Llama of one layer with Q8_0 weights."""

    def make(kind: str = "gpt2") -> Path:
        path, random = tmp_path / f"tiny-{kind}.gguf", np.random.default_rng(0)
        writer = GGUFWriter(path, "llama")
        size = describe_tokenizer(writer, kind)
        writer.add_vocab_size(size)
        writer.add_context_length(128)
        writer.add_embedding_length(WIDTH)
        writer.add_feed_forward_length(INNER)
        writer.add_block_count(1)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KEY_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        shapes = {"token_embd": (size, WIDTH)} | {f"blk.0.{name}": shape for name, shape in SHAPES.items()}
        for name, shape in shapes.items():
            weight = quantize(random.standard_normal(shape).astype(np.float32), Q8)
            writer.add_tensor(f"{name}.weight", weight, raw_dtype=Q8)
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
            writer.add_tensor(f"{name}.weight", random.standard_normal(WIDTH).astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


def same_model(one: Any, other: Any) -> bool:
    """Bit for bit: parameters, buffers, dtypes, and all of the configuration but what saving writes into it."""
    first, second = ({**dict(m.named_buffers()), **m.state_dict()} for m in (one, other))
    configs = [m.config.to_dict() | {"_name_or_path": "", "architectures": []} for m in (one, other)]
    return (
        first.keys() == second.keys()
        and all(t.dtype == second[name].dtype and torch.equal(t, second[name]) for name, t in first.items())
        and configs[0] == configs[1]
        and one.generation_config.to_dict() == other.generation_config.to_dict()
    )


def same_tokenizer(one: Any, other: Any) -> bool:
    return bool(
        one.backend_tokenizer.to_str() == other.backend_tokenizer.to_str()
        and one.special_tokens_map == other.special_tokens_map
        and one.chat_template == other.chat_template
        and type(one) is type(other)
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_converted_copy_is_the_same_bit_for_bit(make_gguf: Callable[..., Path], kind: str) -> None:
    path = make_gguf(kind)
    direct = Checkpoint(str(path.parent), "bfloat16", path.name)
    model, eos_ids = load_model(ModelSpec(source=str(path)))
    assert eos_ids == {2}
    assert same_model(model, read_model(direct, torch.device("cpu")))
    assert same_tokenizer(load_tokenizer(ModelSpec(source=str(path))), read_tokenizer(direct))


def test_the_weights_are_those_of_the_file(make_gguf: Callable[..., Path]) -> None:
    model = load_model(ModelSpec(source=str(make_gguf()), dtype="float64")).model
    random = np.random.default_rng(0)
    embedding = dequantize(quantize(random.standard_normal((30, WIDTH)).astype(np.float32), Q8), Q8)
    assert np.array_equal(model.get_input_embeddings().weight.numpy()[:30], embedding.astype(np.float64))


def test_weights_are_unpacked_into_linear_layers(make_gguf: Callable[..., Path]) -> None:
    model = load_model(ModelSpec(source=str(make_gguf()))).model
    layer = model.model.layers[0]
    for linear in (layer.self_attn.q_proj, layer.mlp.down_proj, model.lm_head):
        assert type(linear) is torch.nn.Linear
        assert linear.weight.dtype == torch.bfloat16


def test_converts_once_for_each_content_and_dtype(
    make_gguf: Callable[..., Path], cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make_gguf()
    capfd.readouterr()
    for dtype in ("auto", "bfloat16", "float32", "float32"):
        load_model(ModelSpec(source=str(path), dtype=dtype))
        load_tokenizer(ModelSpec(source=str(path), dtype=dtype))
    assert capfd.readouterr().err == "unpacking tiny-gpt2.gguf, once…\n" * 2
    path.write_bytes(path.read_bytes()[:-4] + b"\1\2\3\4")
    load_model(ModelSpec(source=str(path)))
    assert len(list((cache / "converted").iterdir())) == 3
    assert list(cache.iterdir()) == [cache / "converted"]


def test_two_convert_at_once(make_gguf: Callable[..., Path], cache: Path) -> None:
    spec = ModelSpec(source=str(make_gguf()))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: load_model(spec).model, range(2))
    assert same_model(first, second)
    assert list(cache.iterdir()) == [cache / "converted"]


def test_another_process_was_first(
    make_gguf: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, inodes = ModelSpec(source=str(make_gguf())), []

    def inode() -> int:
        (weights,) = cache.rglob("model.safetensors")
        return weights.stat().st_ino

    def meanwhile(checkpoint: Checkpoint) -> Any:
        monkeypatch.setattr(convert, "read_tokenizer", read_tokenizer)
        load_tokenizer(spec)
        inodes.append(inode())
        return read_tokenizer(checkpoint)

    monkeypatch.setattr(convert, "read_tokenizer", meanwhile)
    assert load_tokenizer(spec).encode("ab") == [29]
    assert inodes == [inode()]


def test_a_big_file_is_not_copied(
    make_gguf: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = ModelSpec(source=str(make_gguf()))
    copied, words = load_model(spec).model, load_tokenizer(spec)
    capfd.readouterr()
    monkeypatch.setattr(convert, "LARGEST", 100)
    monkeypatch.setenv("DRAFTMUX_CACHE", str(cache / "other"))
    assert same_model(load_model(spec).model, copied)
    assert same_tokenizer(load_tokenizer(spec), words)
    assert capfd.readouterr() == ("", "")
    assert not (cache / "other").exists()


def test_hash_of_a_local_file(make_gguf: Callable[..., Path]) -> None:
    path = make_gguf()
    assert load_tokenizer(ModelSpec(source=str(path), sha256=sha256_of(path))).encode("ab") == [29]
    for load in (load_model, load_tokenizer):
        with pytest.raises(ModelError, match=f"has sha256 {sha256_of(path)}, expected {'0' * 64}"):
            load(ModelSpec(source=str(path), sha256="0" * 64))
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"nonsense" * 100])
def test_a_file_that_is_not_gguf_inside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    for load in (load_model, load_tokenizer):
        with pytest.raises(ModelError, match="must be a complete GGUF file"):
            load(ModelSpec(source=str(path)))


def test_a_truncated_file(make_gguf: Callable[..., Path]) -> None:
    path = make_gguf()
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="must be a complete GGUF file"):
        load_model(ModelSpec(source=str(path)))


def test_a_cache_that_cannot_be_written(make_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_gguf()
    monkeypatch.setenv("DRAFTMUX_CACHE", str(path / "cache"))
    with pytest.raises(ModelError, match=r"cannot write to the cache folder .*DRAFTMUX_CACHE"):
        load_model(ModelSpec(source=str(path)))


def test_a_folder_with_only_a_gguf(make_gguf: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match="for GGUF name the file itself"):
        load_model(ModelSpec(source=str(make_gguf().parent)))
