"""One other program, loaded once and asked prompt by prompt: the far side of `peers.py`, run by that program's python.

Speaks JSON, a line a message. Reads a setup (kind, options, threads, dtype, and a folder or a GGUF file), answers with
versions; then answers each request (prompt, max_new_tokens, eos) with tokens and seconds, prefill included. In between
it sleeps in a read. Knows nothing of draftmux, which it cannot import, and imports a peer only when asked for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import IO, Any

Request = dict[str, Any]
Generate = Callable[[Request], list[int]]
Versions = dict[str, str]

ALIGNMENT = 64  # bytes; a CPU multiplies unaligned weights several times slower, and peers must not pay for that


def transformers(setup: Request) -> Generate:
    """transformers' own `generate`, by itself; option `lookup` is its prompt_lookup_num_tokens."""
    import torch
    from transformers import GenerationConfig

    model = _model(setup)
    model.generation_config = GenerationConfig()  # `generate` would mix the model's own settings into what it is given
    lookup = setup["options"].get("lookup")

    def generate(request: Request) -> list[int]:
        ids = torch.tensor([request["prompt"]])
        config = GenerationConfig(
            max_new_tokens=request["max_new_tokens"],
            do_sample=False,
            eos_token_id=request["eos"],
            pad_token_id=request["eos"][0],
            prompt_lookup_num_tokens=lookup,
        )
        output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        return list(output[0, ids.shape[1] :].tolist())

    return generate


def flashspec(setup: Request) -> Generate:
    """flashspec's engine with its NgramDrafter alone; options `gamma` (draft tokens a step) and NgramDrafter's own."""
    import torch
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
    from flashspec.engine import NgramDrafter, TargetModel

    options = dict(setup["options"])
    sampling = {"gamma": options.pop("gamma")} if "gamma" in options else {}
    model = _model(setup)
    target = TargetModel(setup["folder"], model.device, model.dtype, model=model)
    config = FlashSpecConfig(
        device="cpu",
        dtype=setup["dtype"],
        drafter_strategy="bandit",  # its name for one arm a drafter; with one arm there is nothing to choose
        bandit=BanditConfig(n_arms=1),
        sampling=SamplingConfig(temperature=0.0, **sampling),
    )
    engine = SpeculativeEngine(config, [NgramDrafter(**options)], target)

    def generate(request: Request) -> list[int]:
        ids = torch.tensor([request["prompt"]])
        result = engine.generate(ids, max_new_tokens=request["max_new_tokens"], eos_token_ids=request["eos"])
        return list(result.output_ids[0, : result.n_tokens_generated].tolist())

    return generate


def economize(setup: Request) -> Generate:
    """economize's `decode` with its lookup; options `cycle` (tokens a cycle) and those of LookupConfig."""
    import economize as library
    import torch
    from economize.techniques.lookup import LookupConfig

    options = dict(setup["options"])
    decoding = library.DecodeConfig(**({"cycle_length": options.pop("cycle")} if "cycle" in options else {}))
    model = library.apply(_model(setup), LookupConfig(**options), decoding=decoding)

    def generate(request: Request) -> list[int]:
        result = model.decode(torch.tensor(request["prompt"]), request["max_new_tokens"], stop=request["eos"])
        return list(result.tokens.tolist())

    return generate


def llama_cpp(setup: Request) -> Generate:
    """llama.cpp by way of llama-cpp-python; options `lookup` and `ngram` for its lookup, and Llama's own."""
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    options = {key: value for key, value in setup["options"].items() if key != "weights"}
    lookup, ngram = options.pop("lookup", 0), options.pop("ngram", 2)
    llama = Llama(
        setup["gguf"],
        n_ctx=setup["context"],
        n_threads=setup["threads"],
        n_threads_batch=setup["threads"],
        draft_model=LlamaPromptLookupDecoding(max_ngram_size=ngram, num_pred_tokens=lookup) if lookup else None,
        verbose=False,
        **options,
    )

    def generate(request: Request) -> list[int]:
        llama.reset()  # it would keep the last prompt's cache and skip the beginning that chat prompts share
        drawn = llama.generate(request["prompt"], temp=0.0, repeat_penalty=1.0)
        return _until(drawn, request["eos"], request["max_new_tokens"])

    return generate


KINDS: dict[str, tuple[Callable[[Request], Generate], tuple[str, ...]]] = {
    "transformers": (transformers, ("transformers", "torch")),
    "flashspec": (flashspec, ("flashspec", "transformers", "torch")),
    "economize": (economize, ("economize", "transformers", "torch")),
    "llama.cpp": (llama_cpp, ("llama-cpp-python",)),
}


def _until(tokens: Iterable[int], ends: list[int], limit: int) -> list[int]:
    """The first `limit` tokens, or those up to an end, which counts as the others' do."""
    taken: list[int] = []
    for token in tokens:
        taken.append(int(token))
        if token in ends or len(taken) == limit:
            break
    return taken


def _model(setup: Request) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(setup["threads"])
    model = AutoModelForCausalLM.from_pretrained(setup["folder"], dtype=getattr(torch, setup["dtype"]))
    for weight in model.parameters():
        if weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()
    return model.eval().requires_grad_(False)


def serve(lines: Iterable[str], answer: Callable[[Any], None]) -> None:
    """Set up, then generate, until there are no more lines. A failure is an answer; one in the setup is the last."""
    generate: Generate | None = None
    for line in lines:
        message = json.loads(line)
        try:
            if generate is None:
                make, packages = KINDS[message["kind"]]
                generate = make(message)
                answer({"versions": {package: version(package) for package in packages}})
                continue
            started = time.perf_counter()
            tokens = generate(message)
            answer({"tokens": tokens, "seconds": time.perf_counter() - started})
        except Exception as error:  # a stranger's code: whatever it raises is its result
            answer({"error": f"{type(error).__name__}: {error}"})
            if generate is None:
                return


def _private_stdout() -> IO[str]:
    """What is answered on. Peers may print, so what they take for standard output becomes standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Serve standard input."""
    answers = _private_stdout()
    serve(sys.stdin, lambda message: print(json.dumps(message), file=answers, flush=True))


if __name__ == "__main__":
    main()
