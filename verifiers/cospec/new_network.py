"""A new arbiter: the draft model with a LoRA, sharing the draft's weights, and a new head; and both at work."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from draftmux.errors import RequestError
from draftmux.models.fingerprint import fingerprint
from draftmux.verifiers.cospec.arbitration import BoundArbitration
from draftmux.verifiers.cospec.checkpoint import About
from draftmux.verifiers.cospec.features import NAMES
from draftmux.verifiers.cospec.head import Head
from draftmux.verifiers.cospec.learned import LearnedArbiter, depth, draft_model, headless, over
from draftmux.verifiers.cospec.network import Network
from draftmux.verifiers.cospec.verifier import CospecArbiter
from draftmux.verifiers.cospec.window import SLACK

if TYPE_CHECKING:
    from draftmux.protocols import Resources
    from draftmux.verifiers.cospec.recipe import ArbiterRecipe

ALL = 1 << 30  # tokens of a window that is never cut


@frozen(eq=False)
class Studied:
    """The arbiter that learns: its network, PEFT's model around its backbone, what it is for, itself at work, which
    sees every change of the weights, and the ids with which the target ends."""

    network: Network
    peft: Any
    about: About
    working: LearnedArbiter
    eos_ids: frozenset[int]

    def arbitration(self, threshold: float = 0.5, temperature: float = 1.0) -> BoundArbitration:
        """A verifier of it; its scores are tempered."""
        options = CospecArbiter(arbiter="", draft="", threshold=threshold)
        judge = LearnedArbiter(
            self.working.reader, self.working.head, self.working.separator, self.working.reads_features, temperature
        )
        return BoundArbitration(options, judge, self.eos_ids)


def shared_copy(model: Any) -> Any:
    """Modules of its own over the same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def refuse_sliding(draft: Any, window: int) -> None:
    """RequestError when a draft model has layers that see less than what the arbiter reads: it learns without them."""
    config = draft.config.get_text_config(decoder=True)
    seen = getattr(config, "sliding_window", None)
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()) and seen and window + SLACK > seen:
        raise RequestError(
            f"layers of the draft model see {seen} tokens, and the arbiter is to read {window} and up to {SLACK} more; "
            f"set --window to {seen - SLACK} or less, without --segment-only-lora"
        )


def new_network(draft: Any, recipe: ArbiterRecipe) -> tuple[Network, Any]:
    """Network and PEFT's model; RequestError without the package."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise RequestError(f"this needs the package peft: pip install 'draftmux[train]' ({error})") from error
    torch.manual_seed(recipe.seed)
    lora = LoraConfig(r=recipe.rank, lora_alpha=recipe.alpha, target_modules="all-linear", lora_dropout=0.0)
    backbone = headless(shared_copy(draft))
    adapted: Any = get_peft_model(backbone, lora)
    size = int(draft.config.get_text_config(decoder=True).hidden_size)
    head = Head(size, len(NAMES) if recipe.features else 0)
    down = [module for name, module in adapted.named_modules() if name.split(".")[-2:-1] == ["lora_A"]]
    return Network(adapted.base_model.model, head, down if recipe.segment_only_lora else ()), adapted


def studied(target: Any, drafter: str, names: tuple[str, str], resources: Resources, recipe: ArbiterRecipe) -> Studied:
    """A new arbiter for a target and a drafter's model (with their `names`) on the target's backend."""
    draft = draft_model(drafter, resources)
    refuse_sliding(draft, ALL if recipe.segment_only_lora else recipe.window)
    network, adapted = new_network(draft, recipe)
    ends = resources.backend.eos_ids if resources.backend else frozenset()
    about = About(
        separator=min(ends, default=0),
        window=ALL if recipe.segment_only_lora else recipe.window,
        hidden_size=network.head.norm.normalized_shape[0],
        features=NAMES if recipe.features else (),
        threshold=0.5,
        target=names[0],
        target_fingerprint=fingerprint(target),
        draft=names[1],
        draft_fingerprint=fingerprint(draft),
        draft_layers=depth(draft),
        segment_only_lora=recipe.segment_only_lora,
    )
    adapted.peft_config["default"].base_model_name_or_path = names[1]
    working = over(network.backbone, network.head, about, resources, resources.drafters[drafter])
    return Studied(network, adapted, about, working, ends)
