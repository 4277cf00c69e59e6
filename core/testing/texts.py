"""A small real byte-level tokenizer, and token ids that cut a text wherever a text can be cut."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.random import Generator

END = "<end>"
LEARNT_FROM = ("the cat and the hat then the end ", "naïve café 🙂🙂 🙃 你好 你们好 ", "a the 🙂 the 你 the é the ")
MERGES = 44


@cache
def byte_tokenizer() -> Any:
    """Byte-level BPE over 256 bytes with a few merges, some of them halves of characters; `END` is special."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=257 + MERGES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[END],
        show_progress=False,
    )
    tokenizer.train_from_iterator(LEARNT_FROM, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, clean_up_tokenization_spaces=False)


def cut_up(text: str, rng: Generator) -> list[int]:
    """Ids of `text` whose tokens may be cut in two again and again, so that characters and words are split."""
    tokenizer = byte_tokenizer()
    vocabulary = tokenizer.get_vocab()

    def cut(token: str) -> list[str]:
        # A byte-level token is spelt with one letter a byte, and every byte is a token too.
        places = [at for at in range(1, len(token)) if token[:at] in vocabulary and token[at:] in vocabulary]
        if not places or rng.random() < 0.4:
            return [token]
        at = places[int(rng.integers(len(places)))]
        return cut(token[:at]) + cut(token[at:])

    return [vocabulary[piece] for token in tokenizer.tokenize(text) for piece in cut(token)]


@cache
def fallback_tokenizer() -> Any:
    """A few words, spelt with ▁ for spaces, and 256 bytes for all other text, as Llama 2 has them; `END` is special."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    words = [
        "<unk>",
        END,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "▁the",
        "▁cat",
        "▁▁▁▁",
        "a",
        "n",
        "é",
        "你",
    ]
    vocabulary = {word: token for token, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, clean_up_tokenization_spaces=False)
