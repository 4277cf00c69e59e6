"""What tests of EAGLE-3 heads share: random heads, the equations in plain numbers, and a drive through decoding."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import define, field, frozen
from safetensors.torch import save_file
from torch import Tensor
from torch.testing import assert_close
from transformers import LlamaConfig, LlamaForCausalLM

from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.drafters.eagle3.drafter import Eagle3
from draftmux.drafters.neural.growth import Sprout
from draftmux.drafting import SequenceDrafter
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routing import BaseRouter
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Budget, Choice, Context, Draft, Scores
from draftmux.verifying import BaseVerifier

WIDTH, VOCAB = 32, 40
PROMPTS = (tuple(range(3, 24)), (5, 1, 8), (30,))  # longer than what is read in one piece, short, without any pair
ROUNDS = (1, 0, 99, -2, 2)  # nodes accepted of a draft, at most; negative: of a copied text, the head being left out


@frozen(eq=False)
class Plain:
    """A head as numbers. `reads`: which of transformers' hidden states; `tensors` under the names of speculators."""

    tensors: dict[str, Tensor]
    reads: tuple[int, ...] = (2, 4, 5)
    heads: int = 4
    theta: float = 10000.0
    eps: float = 1e-6
    norm_before_residual: bool = False
    norm_output: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """Sizes, as every layout writes them."""
        widths = {"hidden_size": len(self.tensors["fc.weight"]), "intermediate_size": 24, "vocab_size": VOCAB}
        heads = {"num_attention_heads": self.heads, "num_key_value_heads": self.heads // 2}
        return {**widths, **heads, "rms_norm_eps": self.eps, "max_position_embeddings": 256}

    def linear(self, name: str, values: Tensor) -> Tensor:
        found = self.tensors[f"{name}.weight"] @ values
        return found + self.tensors[f"{name}.bias"] if f"{name}.bias" in self.tensors else found

    def norm(self, name: str, values: Tensor) -> Tensor:
        root = torch.sqrt((values * values).mean(-1, keepdim=True) + self.eps)
        return values / root * self.tensors[f"{name}.weight"]

    def fuse(self, states: Sequence[Tensor]) -> Tensor:
        if "fc_norm.0.weight" in self.tensors:
            states = [self.norm(f"fc_norm.{at}", state) for at, state in enumerate(states)]
        joined = torch.cat(list(states))
        if "input_norm.weight" in self.tensors:
            joined = self.norm("input_norm", joined)
        return self.linear("fc", joined)

    def rotate(self, heads: Tensor, position: int) -> Tensor:
        low, high = heads.chunk(2, -1)
        angles = position * self.theta ** (-torch.arange(low.shape[-1], dtype=torch.float64) / low.shape[-1])
        return torch.cat((low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()), -1)

    def attend(self, name: str, read: Tensor, position: int, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        width = len(self.tensors[f"{name}.q_proj.weight"]) // self.heads
        query, key, value = (self.linear(f"{name}.{part}_proj", read).view(-1, width) for part in "qkv")
        if f"{name}.q_norm.weight" in self.tensors:
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        cache.append((self.rotate(key, position), value))
        mixed = []
        for head, own in enumerate(self.rotate(query, position)):
            group = head * len(key) // self.heads
            scores = torch.stack([keys[group] @ own for keys, _ in cache]) / math.sqrt(width)
            weights = torch.exp(scores - scores.max())
            weights = weights / weights.sum()
            mixed.append(weights @ torch.stack([values[group] for _, values in cache]))
        return self.linear(f"{name}.o_proj", torch.cat(mixed))

    def pair(self, state: Tensor, embed: Tensor, position: int, caches: list[list[tuple[Tensor, Tensor]]]) -> Tensor:
        """One pair through all layers; `caches` grow by its keys and values. Before the last norm."""
        for layer, cache in enumerate(caches):
            name = f"layers.{layer}"
            residual, read = state, self.norm(f"{name}.input_layernorm", state if layer else embed)
            if layer == 0:
                normed = self.norm(f"{name}.hidden_norm", state)
                residual, read = normed if self.norm_before_residual else state, torch.cat((read, normed))
            state = residual + self.attend(f"{name}.self_attn", read, position, cache)
            read = self.norm(f"{name}.post_attention_layernorm", state)
            gate = self.linear(f"{name}.mlp.gate_proj", read)
            gated = gate / (1 + torch.exp(-gate)) * self.linear(f"{name}.mlp.up_proj", read)
            state = state + self.linear(f"{name}.mlp.down_proj", gated)
        return state


@define(eq=False)
class Book:
    """What a head must say of one text, from the equations alone."""

    plain: Plain
    model: Any
    tokens: tuple[int, ...]
    _known: dict[tuple[int, tuple[int, ...]], Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        with torch.no_grad():
            hidden = self.model(input_ids=torch.tensor([self.tokens]), output_hidden_states=True).hidden_states
        layers = {int(name.split(".")[1]) for name in self.plain.tensors if name.startswith("layers.")}
        caches: list[list[tuple[Tensor, Tensor]]] = [[] for _ in layers]
        for at in range(len(self.tokens) - 1):
            feature = self.plain.fuse([hidden[index][0, at] for index in self.plain.reads])
            state = self.plain.pair(feature, self.embed(self.tokens[at + 1]), at, caches)
            self._known[at + 2, ()] = state, [list(cache) for cache in caches]

    def embed(self, token: int) -> Tensor:
        own: Tensor = self.plain.tensors.get("embed_tokens.weight", self.model.get_input_embeddings().weight)
        return own[token].detach()

    def says(self, count: int, path: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """What is handed on, and logits, at the end of `path` after the first `count` tokens."""
        state = self._node(count, path)[0]
        last = self.plain.norm("norm", state)
        output = self.plain.tensors.get("lm_head.weight", self.model.get_output_embeddings().weight).detach()
        return last if self.plain.norm_output else state, output @ last

    def _node(self, count: int, path: tuple[int, ...]) -> Any:
        if (count, path) not in self._known:
            caches = [list(cache) for cache in self._node(count, path[:-1])[1]]
            state, position = self.says(count, path[:-1])[0], count - 2 + len(path)
            self._known[count, path] = self.plain.pair(state, self.embed(path[-1]), position, caches), caches
        return self._known[count, path]


@frozen(eq=False)
class Seen:
    """What the head under test said at one node: after `tokens` and the drafted tokens of `path`."""

    tokens: tuple[int, ...]
    path: tuple[int, ...]
    logits: Tensor
    handed: Tensor
    children: list[int]


def recorded(patch: pytest.MonkeyPatch) -> list[Seen]:
    """From now on filled at every node that gets children."""
    original, seen = Sprout.branch, list[Seen]()

    def branch(self: Sprout, nodes: Sequence[int], scores: Any, carry: Any) -> None:
        before, states = len(self.tokens), scores.taps[carry].clone()
        original(self, nodes, scores, carry)
        for row, node in enumerate(nodes):
            path = tuple(self.tokens[other] for other in self.path(node))
            children = [self.tokens[n] for n in range(before, len(self.tokens)) if self.parents[n] == node]
            tokens = tuple(self.request.context.tokens.tolist())
            seen.append(Seen(tokens, path, scores.logits[row].clone(), states[row], children))

    patch.setattr(Sprout, "branch", branch)
    return seen


class ByTurns(BaseRouter):
    def choose(self, state: Any, context: Context, drafters: Mapping[str, Any]) -> Choice:
        return Choice("copied" if ROUNDS[len(context.history) % len(ROUNDS)] < 0 else "eagle", Budget(99))


class Copied(SequenceDrafter):
    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        return Draft.chain([7, 3])


class LaidDown(BaseVerifier):
    """Accepts as `ROUNDS` says, of the last one of the longest paths, so that every case occurs."""

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Any) -> Acceptance:
        longest = np.flatnonzero(draft.depths == draft.depths.max(initial=0)).tolist()
        most = abs(ROUNDS[len(context.history) % len(ROUNDS)])
        path = draft.path_to(longest[-1])[:most] if longest else []
        return Acceptance(tuple(path), sampler.pick(path[-1] if path else ROOT))


def decode(target: Any, bound: Any, prompts: Sequence[tuple[int, ...]]) -> tuple[list[Seen], list[tuple[int, ...]]]:
    """Decode the prompts in one batch; what the head said on the way, and the texts."""
    parts = assemble(target, {"eagle": bound, "copied": Copied()}, ByTurns(), verifier=LaidDown())
    asks = [Ask(prompt, Generation(max_new_tokens=14), str(at)) for at, prompt in enumerate(prompts)]
    with pytest.MonkeyPatch.context() as patch:
        seen = recorded(patch)
        outcomes = serve(parts, asks, max_batch=len(asks))
    return seen, [(*ask.tokens, *outcomes[ask.request_id].finished.tokens) for ask in asks]


@pytest.fixture(scope="session")
def model() -> Any:
    """A random target with enough layers for the usual taps to differ."""
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    found = LlamaForCausalLM(LlamaConfig(**sizes, **heads, eos_token_id=None)).double().eval()
    rng = torch.Generator().manual_seed(5)
    for parameter in found.parameters():
        parameter.data.normal_(parameter.ndim == 1, 0.3, generator=rng)
    return found.requires_grad_(False)


@pytest.fixture(scope="session")
def write() -> Callable[..., str]:
    """Write a head to a folder."""

    def write(folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor], pickled: bool = False) -> str:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        keep: Any = torch.save if pickled else save_file
        keep(tensors, folder / ("pytorch_model.bin" if pickled else "model.safetensors"))
        return str(folder)

    return write


@pytest.fixture(scope="session")
def bind(model: Any) -> Callable[..., tuple[Any, Any]]:
    """A fresh target, and a head bound to it."""

    def bind(head: str, backend: str = "static", **options: Any) -> tuple[Any, Any]:
        drafter = Eagle3(head=head, self_test=False, **options)
        kind: Any = {"static": StaticBackend, "transformers": TransformersBackend}[backend]
        target = kind(self_check=False).over(copy.deepcopy(model), taps=drafter.needs.taps)
        return target, drafter.bind(Resources(backend=target))

    return bind


@pytest.fixture(scope="session")
def random_plain() -> Callable[..., Plain]:
    """A random head: `more` tensors by name and shape, some left `out`, and settings of `Plain`."""

    def make(layers: int = 1, size: int = WIDTH, head_dim: int = 8, vocabulary: int = 16, **how: Any) -> Plain:
        fused = WIDTH * len(how.get("reads", range(3)))
        shapes: dict[str, Any] = {"fc": (size, fused), "norm": (size,), "lm_head": (vocabulary, size)}
        for at in range(layers):
            name, read = f"layers.{at}", size if at else 2 * size
            parts = {"q_proj": (4 * head_dim, read), "k_proj": (2 * head_dim, read), "v_proj": (2 * head_dim, read)}
            shapes |= {f"{name}.self_attn.{part}": shape for part, shape in parts.items()}
            shapes |= {f"{name}.self_attn.o_proj": (size, 4 * head_dim), f"{name}.mlp.down_proj": (size, 24)}
            shapes |= {f"{name}.mlp.{part}_proj": (24, size) for part in ("gate", "up")}
            shapes |= {f"{name}.{norm}": (size,) for norm in ("input_layernorm", "post_attention_layernorm")}
        shapes = {f"{name}.weight": shape for name, shape in {**shapes, "layers.0.hidden_norm": (size,)}.items()}
        rng = torch.Generator().manual_seed(7)
        tensors = {
            name: torch.randn(shape, generator=rng, dtype=torch.float64) * 0.3 + (len(shape) == 1)
            for name, shape in {**shapes, **how.pop("more", {})}.items()
        }
        for name in how.pop("out", ()):
            del tensors[name]
        if vocabulary < VOCAB:
            ids = torch.randperm(VOCAB, generator=rng)[:vocabulary].sort().values
            tensors |= {"t2d": torch.isin(torch.arange(VOCAB), ids), "d2t": ids - torch.arange(vocabulary)}
        return Plain(tensors, **how)

    return make


@pytest.fixture(scope="session")
def agree(bind: Callable[..., tuple[Any, Any]], model: Any) -> Callable[..., list[Seen]]:
    """Decode with a head on disk: all that it says is what the equations say, and its likeliest tokens are drafted."""

    def agree(head: str, plain: Plain, first: int = 0, **options: Any) -> list[Seen]:
        seen, texts = decode(*bind(head, **options), PROMPTS[first:])
        books = [Book(plain, model, text) for text in texts]
        ids = plain.tensors.get("d2t", torch.zeros(VOCAB, dtype=torch.int64))
        ids = ids + torch.arange(len(ids))
        for one in seen:
            book = next(book for book in books if book.tokens[: len(one.tokens)] == one.tokens)
            handed, logits = book.says(len(one.tokens), one.path)
            assert_close(one.handed, handed, rtol=0, atol=1e-9)
            assert_close(one.logits, logits, rtol=0, atol=1e-9)
            assert one.children == ids[logits.topk(len(one.children)).indices].tolist()
        return seen

    return agree


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """What heads say, as long as the test runs."""
    return recorded(monkeypatch)
