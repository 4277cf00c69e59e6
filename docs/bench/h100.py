"""What the h100 backend does on a GPU: its kernel's bandwidth, graphs against eager passes, step times and throughput.

    python docs/bench/h100.py --out h100.json

Run through `h100.sh`, which tests the kernel first. Weights are random: a model's shape decides its speed, not what it
says. Throughput replays acceptances recorded on real text (`traces.json` beside this file, by `record_traces.py`): in
each step the draft has the recorded size, and as many of its tokens as then are accepted.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from draftmux.backends.h100.backend import BUCKETS, H100Backend, require_device
from draftmux.backends.h100.tree_attention import ancestor_bits, tree_attention
from draftmux.backends.static.backend import StaticBackend
from draftmux.protocols import Row
from draftmux.types import Draft

TRACES = Path(__file__).with_name("traces.json")
ROWS = (1, 8, 16, 32, 64)
HEADS, KV_HEADS, WIDTH = 32, 8, 128  # Llama-3.1-8B's attention


def milliseconds(run: Callable[[], Any], repeats: int = 20) -> float:
    """Median time of a call, on the GPU's clock."""
    times = []
    for _ in range(repeats + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[3:])


def kernel(report: list[dict[str, Any]]) -> None:
    """The kernel against SDPA under a dense mask, and the share of the memory's bandwidth that it reaches."""
    for rows in (1, 16, 64):
        for context in (1024, 8192, 32768):
            capacity = context + 256
            shape = {"device": "cuda", "dtype": torch.bfloat16}
            query = torch.randn(1, HEADS, rows, WIDTH, **shape)
            keys, values = (torch.randn(1, KV_HEADS, capacity, WIDTH, **shape) for _ in range(2))
            starts = torch.tensor([context], dtype=torch.int32, device="cuda")
            depths = torch.arange(rows, dtype=torch.int32, device="cuda")[None]
            chain = np.tri(rows, dtype=bool)[None]
            bits = torch.from_numpy(ancestor_bits(chain)).cuda()
            mask = torch.ones(rows, context + rows, dtype=torch.bool, device="cuda")
            mask[:, context:] = torch.from_numpy(chain[0]).cuda()

            def ours(operands: Any = (query, keys, values, starts, depths, bits)) -> Any:
                return tree_attention(*operands, scale=WIDTH**-0.5)

            def sdpa(operands: Any = (query, keys, values, mask)) -> Any:
                query, keys, values, mask = operands
                seen = mask.shape[1]
                return torch.nn.functional.scaled_dot_product_attention(
                    query, keys[:, :, :seen], values[:, :, :seen], attn_mask=mask, enable_gqa=True
                )

            error = (ours().double() - sdpa().double()).abs().max().item()
            taken, theirs = milliseconds(ours), milliseconds(sdpa)
            read = 2 * context * KV_HEADS * WIDTH * 2
            report.append(
                {
                    "what": f"attention, {rows} rows, {context} slots",
                    "ms": taken,
                    "sdpa_ms": theirs,
                    "GB/s": read / taken / 1e6,
                    "error": error,
                }
            )


def llama(layers: int = 32) -> Any:
    """Llama-3.1-8B's shape with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def steps(target: Any, rows: Iterable[int], context: int) -> dict[int, tuple[float, float]]:
    """Milliseconds of a pass by its rows: until the result can be read, and until the host is free again."""
    tokens = np.random.default_rng(0).integers(10, 20_000, context + 1).tolist()
    handle = target.open(tokens).sequence
    found = {}
    for count in rows:
        row = Row(handle, tokens[-1], Draft.chain([7] * (count - 1)))
        whole, host = [], []
        for _ in range(23):
            torch.cuda.synchronize()
            started = time.perf_counter()
            logits = target.score([row])[0].logits
            host.append(time.perf_counter() - started)
            logits[0].argmax().item()
            whole.append(time.perf_counter() - started)
        found[count] = 1e3 * statistics.median(whole[3:]), 1e3 * statistics.median(host[3:])
    target.close(handle)
    return found


def answers(target: Any) -> list[torch.Tensor]:
    """Logits of drafts of every size, of two sequences together, and of one that outgrows the cache."""
    tokens = np.random.default_rng(1).integers(10, 20_000, 5000).tolist()
    found = []
    short, other = target.open(tokens[:100]).sequence, target.open(tokens[50:300]).sequence
    for rows in ROWS:
        draft = Draft.chain(tokens[: rows - 1])
        found.append(target.score([Row(short, tokens[99], draft)])[0].logits.float().cpu())
        both = target.score([Row(short, tokens[99], draft), Row(other, tokens[299], Draft.empty())])
        found += [scores.logits.float().cpu() for scores in both]
    long = target.open(tokens).sequence
    found.append(target.score([Row(long, tokens[-1], Draft.chain(tokens[:7]))])[0].logits.float().cpu())
    for handle in (short, other, long):
        target.close(handle)
    return found


def agreement(found: list[torch.Tensor], expected: list[torch.Tensor]) -> dict[str, float]:
    """The largest difference, and the share of rows whose likeliest token is the same."""
    same = torch.cat([a.argmax(-1) == b.argmax(-1) for a, b in zip(found, expected, strict=True)])
    worst = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    return {"largest difference": worst, "same token": float(same.double().mean())}


def throughput(target: Any, trace: list[list[int]], context: int) -> float:
    """Tokens per second when each step drafts and accepts what was recorded: `[drafted, accepted]` each."""
    tokens = np.random.default_rng(0).integers(10, 20_000, context + 1).tolist()
    handle = target.open(tokens).sequence
    torch.cuda.synchronize()
    started, made = time.perf_counter(), 0
    for drafted, accepted in trace:
        scores = target.score([Row(handle, 7, Draft.chain([7] * drafted))])[0]
        scores.logits.argmax(-1).tolist()
        target.commit(handle, range(accepted))
        made += accepted + 1
    seconds = time.perf_counter() - started
    target.close(handle)
    return made / seconds


def model(report: list[dict[str, Any]], name: str, loaded: Any) -> None:
    """Step times with graphs and without, and throughput on recorded acceptances."""
    eager = StaticBackend(pack=False, self_check=False).over(loaded)
    plain, expected = steps(eager, ROWS, 512), answers(eager)
    graphs = H100Backend(self_check=False).over(loaded)
    graphs.warm_up(BUCKETS[-1] - 1)
    captured = steps(graphs, ROWS, 512)
    report.append({"what": f"{name}, graphs against eager", **agreement(answers(graphs), expected)})
    bytes_read = sum(p.nbytes for p in loaded.parameters()) - loaded.get_input_embeddings().weight.nbytes
    for rows in ROWS:
        whole, host = captured[rows]
        line = {"what": f"{name}, step of {rows} rows", "ms": whole, "host_ms": host, "eager_ms": plain[rows][0]}
        report.append({**line, "GB/s": bytes_read / whole / 1e6})
    traces = json.loads(TRACES.read_text(encoding="utf-8"))
    base = throughput(graphs, [[0, 0]] * 128, 512)
    report.append({"what": f"{name}, plain", "tok/s": base})
    for trace in traces:
        rate = throughput(graphs, trace["steps"], 512)
        report.append({"what": f"{name}, {trace['name']} (replayed)", "tok/s": rate, "speedup": rate / base})


def show(report: list[dict[str, Any]]) -> None:
    """One line a finding."""
    for line in report:
        figures = (f"{key} {value:.4g}" for key, value in line.items() if key != "what")
        print(f"| {line['what']:42} | {' | '.join(figures)} |", flush=True)


@click.command()
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--layers", type=int, default=32, help="Decoder layers of the large model; fewer for a quick try.")
def main(out: Path | None, layers: int) -> None:
    """Measure, show, and write the figures after each part."""
    require_device("cuda")
    report: list[dict[str, Any]] = [{"what": torch.cuda.get_device_name(), "torch": float(torch.__version__[:4])}]
    parts: list[Callable[[], None]] = [
        lambda: kernel(report),
        lambda: model(report, "Llama-3.1-8B's shape", llama(layers)),
        lambda: smollm2(report),
    ]
    for part in parts:
        try:
            part()
        except Exception as error:  # the other parts still tell something
            report.append({"what": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"})
        if out is not None:
            out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    show(report)


def smollm2(report: list[dict[str, Any]]) -> None:
    """The embedded model, if its file is in the cache folder."""
    from draftmux.models.load import load_model
    from draftmux.models.source import ModelSpec

    model(report, "SmolLM2", load_model(ModelSpec(source="smollm2", dtype="bfloat16", device="cuda")).model)


if __name__ == "__main__":
    main()
