"""What training an arbiter for a large pair costs, estimated from sizes and stated speeds; nothing here is measured.

    python docs/bench/cospec/gpu_hours.py

Decoding: 64 at once, drafts of 8 tokens, 4 tokens a target pass. A pass takes the longer of reading the weights and of
computing, and as much again as Python takes for its layers. Labels: each problem once, and half an answer for each of 4
mismatches. Rollouts: those of stage 2, looks at held-out problems, and the thresholds. Learning: the warm-up reads 64
blocks a step with their whole contexts, forward and backward through frozen weights; stage 2 every block with a
mismatch, forward twice (policy and reference) and backward.
"""

from __future__ import annotations

import click
from attrs import frozen

BATCH, DEPTH, TOKENS_A_PASS = 64, 8, 4.0
LAYER_SECONDS = 4e-4  # of host work for a layer of a pass, eager
MISMATCHED = 0.5  # of blocks
STEPS, ROLLOUTS = 400, 16 * 8
LOOKS, PROBE, THRESHOLDS, HELD_OUT = 16, 128, 5, 0.1
WARMUP_BLOCKS = 1000 * 64
TASKS = {  # problems to learn from, tokens of a prompt, of an answer
    "GSM8K": (7473, 150, 180),
    "MATH": (7500, 150, 450),
    "MBPP": (374, 150, 110),
}


@frozen
class Device:
    """Bytes a second, and operations a second in bfloat16 and in float8, of which a part is reached."""

    name: str
    memory: float
    bfloat16: float
    float8: float
    reached: float = 0.5


@frozen
class Model:
    """Parameters, layers, bytes a parameter."""

    size: float
    layers: int
    width: int

    def seconds(self, rows: int, device: Device) -> float:
        """Of one pass."""
        speed = device.float8 if self.width == 1 else device.bfloat16
        return (
            max(
                self.size * self.width / (device.memory * device.reached),
                2 * self.size * rows / (speed * device.reached),
            )
            + self.layers * LAYER_SECONDS
        )


H200 = Device("H200", 4.8e12, 9.9e14, 1.98e15)
H100 = Device("H100", 3.35e12, 9.9e14, 1.98e15)
PAIRS = {
    "Llama-3.3-70B / 8B": (Model(70.6e9, 80, 1), Model(8.0e9, 32, 2), H200),
    "Qwen3-32B / 4B": (Model(32.8e9, 64, 1), Model(4.0e9, 36, 2), H100),
}


def hours(pair: tuple[Model, Model, Device], task: tuple[int, int, int]) -> tuple[float, float, float]:
    """Of labels, of rollouts, of learning from them."""
    (target, draft, device), (problems, prompt, answer) = pair, task
    step = target.seconds(BATCH * (DEPTH + 1), device) + DEPTH * draft.seconds(BATCH, device)
    judged = step + draft.seconds(int(BATCH * MISMATCHED * (2 * DEPTH + 3 + TOKENS_A_PASS)), device)
    a_token, a_judged_token = (seconds / (BATCH * TOKENS_A_PASS) for seconds in (step, judged))
    labels = problems * (1 + 4 * 0.5) * answer * a_token
    held = problems * HELD_OUT
    answers = STEPS * ROLLOUTS + LOOKS * min(PROBE, held) + THRESHOLDS * held
    rollouts = answers * answer * a_judged_token
    blocks = STEPS * ROLLOUTS * answer / TOKENS_A_PASS * MISMATCHED
    rows = prompt + answer / 2 + 2 * DEPTH + 3
    passes = WARMUP_BLOCKS * (2 + 2) + blocks * (2 * 2 + 2)  # operations a parameter and row
    learning = passes * rows * draft.size / (device.bfloat16 * device.reached)
    return labels / 3600, rollouts / 3600, learning / 3600


@click.command()
def main() -> None:
    """Print a table."""
    for name, pair in PAIRS.items():
        for task, sizes in TASKS.items():
            labels, rollouts, learning = hours(pair, sizes)
            total = labels + rollouts + learning
            click.echo(
                f"| {name} | {task} | {pair[2].name} | {labels:.1f} | {rollouts:.1f} | {learning:.1f} | {total:.0f} |"
            )


if __name__ == "__main__":
    main()
