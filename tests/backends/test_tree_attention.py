"""The tree-attention kernel against a float64 softmax over what each row's parents say that it sees.

Without a GPU the kernels run in Triton's interpreter, which has to be asked for before Triton is imported.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftmux import tree
from draftmux.backends import h100
from draftmux.backends.h100 import tree_attention as attention
from draftmux.backends.h100.tree_attention import Workspace, ancestor_bits, tree_attention, write_slots
from draftmux.errors import ModelError

os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"
pytest.importorskip("triton")
kernels = attention.require_triton()
DEVICE = "cpu" if kernels.INTERPRETED else "cuda"
# Far off, tanh overflows to 1, as it should; on a GPU that is silent.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp2:RuntimeWarning")
# Largest error allowed, in units of the largest value. Weights and outputs are rounded to the dtype, by half an eps
# each; the interpreter cuts bfloat16 off where a GPU rounds it, which costs up to a whole eps each.
BOUNDS = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7 if DEVICE == "cuda" else 2**-6}
# A failure names its plan; to shrink it in the interpreter would take minutes.
BRIEFLY = settings(max_examples=20, phases=(Phase.generate,))
DIMS = (16, 32, 64, 80, 96, 128, 256)


@pytest.fixture(autouse=True, scope="module")
def interpreter() -> Iterator[None]:
    """Triton's interpreter prepares the language anew at each call of a helper, which takes most of its time."""
    if DEVICE != "cpu":
        yield
        return
    from triton.language import sum as of_triton
    from triton.runtime import interpreter

    assert isinstance(of_triton, interpreter.InterpretedFunction), "set TRITON_INTERPRET=1 before Triton is imported"
    prepared = set()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fn.__module__ not in prepared:
            prepared.add(self.fn.__module__)
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "__call__", call)
        patch.setattr(attention, "RAKED", 64)  # fewer programs to interpret
        yield


@attrs.frozen
class Plan:
    """A case, in numbers. `trees` hold parents as a `Draft` does; rows behind a tree are padding."""

    trees: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    rows: int = 1
    heads: int = 1
    group: int = 1
    dims: tuple[int, int] = (16, 16)
    spare: int = 0
    first: int = 0
    split: int | None = None
    window: int | None = None
    softcap: float | None = None
    sharp: float = 1.0
    layout: int = 0
    garbage: float = 1e4
    seed: int = 0

    @property
    def scale(self) -> float:
        return self.sharp * self.dims[0] ** -0.5


@attrs.define
class Case:
    """The tensors of a plan."""

    query: Tensor
    keys: Tensor
    values: Tensor
    starts: Tensor
    depths: Tensor
    bits: Tensor
    options: dict[str, Any]

    def run(self, **options: Any) -> Tensor:
        operands = (self.query, self.keys, self.values, self.starts, self.depths, self.bits)
        return tree_attention(*operands, **{**self.options, **options})


def strided(shape: tuple[int, int, int, int], layout: int, plan: Plan) -> Tensor:
    """An empty tensor of a shape: contiguous, slots before heads, every second slot, or a slice of wider rows."""
    a, b, c, d = shape
    empty = lambda *sizes: torch.full(sizes, plan.garbage, dtype=plan.dtype, device=DEVICE)  # noqa: E731
    if layout == 1:
        return empty(a, c, b, d).transpose(1, 2)
    if layout == 2:
        return empty(b, a, 2 * c, d)[:, :, 1::2].transpose(0, 1)
    return empty(a, b, c, d + 5)[..., 3 : 3 + d] if layout == 3 else empty(a, b, c, d)


def build(plan: Plan) -> Case:
    generator = torch.Generator().manual_seed(plan.seed)
    draw = lambda *sizes: torch.randn(sizes, generator=generator).to(DEVICE, plan.dtype)  # noqa: E731
    batch, (key_dim, value_dim) = len(plan.starts), plan.dims
    cached = (plan.first + batch + 1, plan.heads, max(plan.starts) + plan.rows + plan.spare)
    keys = strided((*cached, key_dim), plan.layout, plan)
    values = strided((*cached, value_dim), (plan.layout + 1) % 4, plan)
    for row, start in enumerate(plan.starts, plan.first):
        keys[row, :, : start + plan.rows] = draw(plan.heads, start + plan.rows, key_dim)
        values[row, :, : start + plan.rows] = draw(plan.heads, start + plan.rows, value_dim)
    query = strided((batch, plan.heads * plan.group, plan.rows, key_dim), plan.layout, plan)
    query.copy_(draw(*query.shape))
    mask = np.broadcast_to(np.eye(plan.rows, dtype=np.bool_), (batch, plan.rows, plan.rows)).copy()
    depths = np.zeros((batch, plan.rows), dtype=np.int32)
    for row, parents in enumerate(map(np.array, plan.trees)):
        count = len(parents) + 1
        mask[row, :count, :count] = tree.ancestor_mask(parents)
        depths[row, :count] = tree.row_depths(parents)
    names = ("first", "scale", "split", "window", "softcap")
    place = (np.array(plan.starts, dtype=np.int32), depths, ancestor_bits(mask))
    tensors = (torch.from_numpy(array).to(DEVICE) for array in place)
    return Case(query, keys, values, *tensors, {name: getattr(plan, name) for name in names})


def sight(plan: Plan, sequence: int, row: int) -> list[int]:
    """Slots that a row sees, found by walking up from parent to parent."""
    parents, start = plan.trees[sequence], plan.starts[sequence]
    path = [row]
    while 0 < path[-1] <= len(parents):
        path.append(parents[path[-1] - 1] + 1)
    depth = {node: len(path) - 1 - at for at, node in enumerate(path)}
    held = {slot: slot for slot in range(start)} | {start + node: start + depth[node] for node in path}
    own = start + depth[row]
    return [slot for slot, position in held.items() if plan.window is None or own - position < plan.window]


def truth(plan: Plan, case: Case) -> Tensor:
    """Dense attention in float64, `(B, Hq, N, Dv)`."""
    out = torch.zeros(*case.query.shape[:3], plan.dims[1], dtype=torch.float64)
    query, keys, values = (tensor.cpu().double() for tensor in (case.query, case.keys, case.values))
    for sequence in range(len(plan.starts)):
        for row in range(plan.rows):
            seen = sight(plan, sequence, row)
            for head in range(query.shape[1]):
                at = (plan.first + sequence, head // plan.group)
                score = keys[at][seen] @ query[sequence, head, row] * plan.scale
                if plan.softcap is not None:
                    score = plan.softcap * torch.tanh(score / plan.softcap)
                out[sequence, head, row] = score.softmax(0) @ values[at][seen]
    return out


def error(plan: Plan, case: Case, out: Tensor) -> float:
    """Largest error in units of the largest value; infinite if anything is not a number."""
    used = [case.values[row, :, : start + plan.rows] for row, start in enumerate(plan.starts, plan.first)]
    largest = max(float(part.abs().max()) for part in used)
    wrong = float((out.cpu().double() - truth(plan, case)).abs().max()) / largest
    return float("inf") if math.isnan(wrong) else wrong


def grown(kind: str, nodes: int, seed: int) -> tuple[int, ...]:
    if kind == "chain":
        return tuple(range(-1, nodes - 1))
    rng = np.random.default_rng(seed)
    low = {"bush": -1, "vine": 3}[kind]  # a vine's nodes hang on one of the last few
    return tuple(int(rng.integers(max(-1, node - low) if kind == "vine" else -1, node)) for node in range(nodes))


@st.composite
def plans(draw: st.DrawFn, dtype: torch.dtype) -> Plan:
    """Small enough for the interpreter: at most 96 packed rows in all, a few splits of one or two blocks."""
    rows = draw(st.one_of(st.integers(1, 40), st.sampled_from((31, 32, 33))))
    fits = [(heads, group) for heads in (1, 2) for group in (1, 2, 3, 4, 8) if rows * heads * group <= 96]
    heads, group = draw(st.sampled_from(fits))
    batch = draw(st.integers(1, min(3, 96 // (rows * heads * group))))
    seeds = st.integers(0, 1 << 16)
    kinds = st.sampled_from(("bush", "vine", "chain"))
    trees = st.builds(grown, kinds, st.one_of(st.just(rows - 1), st.integers(0, rows - 1)), seeds)
    starts = st.one_of(st.integers(0, 150), st.sampled_from((0, 1, 63, 64, 65, 128)))
    return Plan(
        trees=tuple(draw(trees) for _ in range(batch)),
        starts=tuple(draw(starts) for _ in range(batch)),
        dtype=dtype,
        rows=rows,
        heads=heads,
        group=group,
        dims=(draw(st.sampled_from(DIMS)), draw(st.sampled_from(DIMS))),
        spare=draw(st.integers(0, 70)),
        first=draw(st.integers(0, 2)),
        split=draw(st.sampled_from((64, 128, None))),
        window=draw(st.sampled_from((None, None, 1, 2, 5, 30, 64, 1000))),
        softcap=draw(st.sampled_from((None, None, 1.0, 20.0, 50.0))),
        sharp=draw(st.sampled_from((1.0, 0.1, 4.0))),
        layout=draw(st.integers(0, 3)),
        garbage=draw(st.sampled_from((1e4, float("nan"), float("inf")))),
        seed=draw(seeds),
    )


@pytest.mark.parametrize("dtype", attention.DTYPES, ids=str)
def test_it_is_attention_over_what_parents_say(dtype: torch.dtype) -> None:
    """Run with `-s` for the figures."""
    errors = []

    @BRIEFLY
    @given(plans(dtype))
    def check(plan: Plan) -> None:
        case = build(plan)
        errors.append(error(plan, case, case.run()))
        assert errors[-1] <= BOUNDS[dtype], f"off by {errors[-1]} in {plan}"

    check()
    print(f"\n{dtype}: {len(errors)} cases, largest error {max(errors):.2e} of the largest value")


def chain(length: int) -> tuple[int, ...]:
    return tuple(range(-1, length - 1))


@st.composite
def divided(draw: st.DrawFn) -> tuple[Plan, int]:
    """A chain that crosses a border of splits or blocks, and which of its rows is to be decoded plainly."""
    rows = draw(st.integers(2, 20))
    k = draw(st.integers(1, rows - 1))
    position = draw(st.one_of(st.integers(k, 140), st.integers(0, 12).map(lambda over: max(k, 64 + over))))
    plan = Plan(
        trees=(chain(rows - 1), chain(draw(st.integers(0, rows - 1)))),
        starts=(position - k, draw(st.integers(0, 90))),
        dtype=draw(st.sampled_from(attention.DTYPES)),
        rows=rows,
        group=draw(st.sampled_from((1, 2, 4))),
        dims=(draw(st.sampled_from((32, 80))), 64),
        spare=draw(st.integers(rows, 90)),
        split=64,
        window=draw(st.sampled_from((None, None, 3, 40, 70))),
        softcap=draw(st.sampled_from((None, 30.0))),
        garbage=float("nan"),
        seed=draw(st.integers(0, 1 << 16)),
    )
    return plan, k


@BRIEFLY
@given(divided(), st.integers(0, 130))
def test_a_row_has_the_same_bits_in_a_chain_and_decoded_plainly(planned: tuple[Plan, int], more: int) -> None:
    """Other rows, another batch and, the split being fixed, another capacity make no difference either."""
    plan, k = planned
    case = build(plan)
    position = plan.starts[0] + k
    alone = build(attrs.evolve(plan, trees=((),), starts=(position,), spare=plan.spare + more, seed=plan.seed + 1))
    alone.query[0, :, 0] = case.query[0, :, k]
    for mine, theirs in ((alone.keys, case.keys), (alone.values, case.values)):
        mine[0, :, : position + 1] = theirs[0, :, : position + 1]
    assert torch.equal(alone.run()[0, :, 0], case.run()[0, :, k])


def test_the_order_of_sums_is_what_those_bits_hang_on() -> None:
    """Another split is another order, and shows: so the test above can fail."""
    plan = Plan(trees=(chain(7),), starts=(130,), rows=8, group=2, spare=60)
    case = build(plan)
    assert not torch.equal(case.run(split=64), case.run(split=128))


def test_more_splits_than_are_combined_at_once() -> None:
    plan = Plan(trees=((-1, -1),), starts=(64 * attention.CHUNK + 5,), rows=3, split=64, spare=64)
    case = build(plan)
    assert error(plan, case, case.run()) <= BOUNDS[plan.dtype]


def test_a_cache_may_hold_more_than_32_bits_count() -> None:
    plan = Plan(trees=((-1, 0),), starts=(70,), rows=3, group=2, dtype=torch.float16, split=64)
    case, far = build(plan), (1 << 31) // 60  # slot 60 begins behind element 2**31
    for name in ("keys", "values"):
        near = getattr(case, name)
        # Never written as a whole, so it takes hardly any memory.
        sparse = torch.empty(far * near.shape[2] + 16, dtype=plan.dtype, device=DEVICE)
        setattr(case, name, sparse.as_strided((1, 1, *near.shape[2:]), (0, 0, far, 1)).copy_(near[:1]))
    assert error(plan, case, case.run()) <= BOUNDS[plan.dtype]


BUSH = Plan(
    trees=((-1,) * 6 + chain(33)[1:], chain(39)),
    starts=(70, 61),
    dtype=torch.float16,
    rows=40,
    heads=2,
    group=2,
    dims=(32, 16),
    split=64,
    window=9,
    softcap=2.0,
    sharp=3.0,
)


def slots_as_positions(case: Case) -> Tensor:
    case.depths.copy_(torch.arange(case.depths.shape[1], dtype=torch.int32))
    return case.run()


def start_too_low(case: Case) -> Tensor:
    case.starts -= 1
    return case.run()


def start_too_high(case: Case) -> Tensor:
    case.starts += 1
    case.keys, case.values = (torch.nn.functional.pad(t, (0, 0, 0, 1)) for t in (case.keys, case.values))
    return case.run()


def sign_bit_dropped(case: Case) -> Tensor:
    case.bits &= 0x7FFFFFFF
    return case.run()


def sign_bit_smeared(case: Case) -> Tensor:
    case.bits[..., 1:] |= case.bits[..., :1] >> 31
    return case.run()


def own_bit_missing(case: Case) -> Tensor:
    case.bits.copy_(torch.from_numpy(ancestor_bits(unpacked(case.bits) & ~np.eye(case.bits.shape[1], dtype=np.bool_))))
    return case.run()


def ancestors_of_another(case: Case) -> Tensor:
    case.bits.copy_(case.bits.flip(0))
    return case.run()


def heads_interleaved(case: Case) -> Tensor:
    batch, _, rows, width = case.query.shape
    case.query = case.query.reshape(batch, BUSH.group, BUSH.heads, rows, width).transpose(1, 2).flatten(1, 2)
    out = case.run()
    return out.reshape(batch, BUSH.heads, BUSH.group, rows, -1).transpose(1, 2).flatten(1, 2)


def window_one_too_wide(case: Case) -> Tensor:
    return case.run(window=case.options["window"] + 1)


def softcap_left_out(case: Case) -> Tensor:
    return case.run(softcap=None)


def another_row_of_the_cache(case: Case) -> Tensor:
    return case.run(first=case.options["first"] + 1)


def unpacked(bits: Tensor) -> np.ndarray[Any, np.dtype[np.bool_]]:
    rows = bits.shape[1]
    return (
        np.array([[[words[u // 32] >> (u % 32) & 1 for u in range(rows)] for words in row] for row in bits.tolist()])
        > 0
    )


FAULTS = (
    slots_as_positions,
    start_too_low,
    start_too_high,
    sign_bit_dropped,
    sign_bit_smeared,
    own_bit_missing,
    ancestors_of_another,
    heads_interleaved,
    window_one_too_wide,
    softcap_left_out,
    another_row_of_the_cache,
)


def test_without_a_fault_the_planted_case_is_right() -> None:
    case = build(BUSH)
    assert error(BUSH, case, case.run()) <= BOUNDS[BUSH.dtype]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_faults_are_caught(fault: Callable[[Case], Tensor]) -> None:
    case = build(BUSH)
    assert error(BUSH, build(BUSH), fault(case)) > 4 * max(BOUNDS.values())


class Instead:
    """A kernel whose arguments are tampered with first."""

    def __init__(self, kernel: Any, tamper: Callable[..., None]) -> None:
        self.kernel, self.tamper = kernel, tamper

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **options: Any) -> None:
            self.tamper(*args)
            self.kernel[grid](*args, **options)

        return launch


def sums_ignored(partial: Any, *_: Any) -> None:
    sums = partial[1].base
    sums.copy_(torch.where(sums.isinf(), sums, 0.0))


def a_split_lost(partial: Any, *_: Any) -> None:
    partial[1].base[..., 1] = float("-inf")


@pytest.mark.parametrize("tamper", (sums_ignored, a_split_lost))
def test_planted_faults_of_combining_are_caught(tamper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = attrs.evolve(BUSH, window=None)
    case = build(plan)
    assert error(plan, case, case.run()) <= BOUNDS[plan.dtype]
    monkeypatch.setattr(kernels, "combine", Instead(kernels.combine, tamper))
    assert error(plan, case, case.run()) > 4 * max(BOUNDS.values())


def test_a_row_that_sees_nothing_is_zeros() -> None:
    for split in (None, 64):
        plan = Plan(trees=((-1, 0), ()), starts=(0, 0), rows=3, spare=200, garbage=float("nan"), split=split)
        case = build(plan)
        case.bits.zero_()
        assert torch.equal(case.run(), torch.zeros(2, 1, 3, 16, device=DEVICE))


def test_bits_beyond_the_last_row_mean_nothing() -> None:
    case = build(BUSH)
    right = case.run()
    case.bits[..., -1] |= ~0xFF  # 40 rows: eight bits of the second word
    assert torch.equal(case.run(), right)


@pytest.mark.parametrize("split", (64, None))
def test_a_workspace_is_used_again_and_again_whatever_it_held(split: int | None) -> None:
    space = Workspace.allocate((2, 4, 40, 32), 600, split, DEVICE)
    space.partials.fill_(float("nan"))
    space.sums.fill_(float("nan"))
    for plan in (
        attrs.evolve(BUSH, split=split, spare=450),
        Plan(trees=((),), starts=(500,), dims=(16, 32), spare=99, split=split),
        Plan(trees=(chain(4),), starts=(3,), rows=6, spare=500, window=2, split=split),
    ):
        case = build(plan)
        out = torch.empty(
            case.query.shape[0], case.query.shape[1], plan.rows, plan.dims[1], dtype=plan.dtype, device=DEVICE
        )
        assert case.run(workspace=space, out=out) is out
        assert error(plan, case, out) <= BOUNDS[plan.dtype]


def test_a_workspace_that_is_too_small_is_refused() -> None:
    space = Workspace.allocate((1, 4, 40, 16), 64, 64, DEVICE)
    with pytest.raises(ValueError, match="allocate it for the largest"):
        build(BUSH).run(workspace=space)


@given(st.integers(1, 64), st.integers(1, 32), st.integers(1, 8), st.integers(1, 208), st.integers(1, 1 << 17))
def test_a_workspace_by_default_is_large_enough(batch: int, heads: int, group: int, rows: int, capacity: int) -> None:
    query = torch.empty(batch, heads * group, rows, 128, dtype=torch.bfloat16, device="meta")
    cached = torch.empty(batch, heads, capacity, 128, dtype=torch.bfloat16, device="meta")
    tile, splits = attention._tile(query, cached, cached, {})
    assert splits == -(-capacity // tile.split)
    assert tile.split % tile.block == 0
    if splits > 1:
        Workspace.allocate((1, 1, 1, 128), 1, None, "meta").views((batch, heads * group, rows, 128), splits)


def test_sixteen_rows_over_a_long_context_fill_the_chip() -> None:
    query = torch.empty(1, 32, 16, 128, dtype=torch.bfloat16, device="meta")
    keys = torch.empty(1, 8, 32768, 128, dtype=torch.bfloat16, device="meta")
    tile, splits = attention._tile(query, keys, keys, {})
    assert (tile.m, splits * keys.shape[1]) == (64, 512)  # 132 SMs, several programs each


@given(st.integers(1, 70), st.integers(1, 3), st.integers(0, 1 << 16))
def test_bits_hold_the_mask(rows: int, batch: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((batch, rows, rows)) < 0.5
    bits = ancestor_bits(mask)
    assert bits.dtype == np.int32
    assert bits.shape == (batch, rows, -(-rows // 32))
    assert (unpacked(torch.from_numpy(bits)) == mask).all()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 5), st.integers(0, 2))
def test_keys_and_values_are_written_behind_what_is_committed(starts: list[int], rows: int, first: int) -> None:
    batch = len(starts)
    cached = [torch.zeros(batch + 3, 15, 2, dim, device=DEVICE).transpose(1, 2) for dim in (4, 6)]
    new = [torch.randn(batch, 2, rows, dim, device=DEVICE) for dim in (4, 6)]
    wanted = [buffer.clone() for buffer in cached]
    for buffer, states in zip(wanted, new, strict=True):
        for row, start in enumerate(starts):
            buffer[first + row, :, start : start + rows] = states[row]
    write_slots(*cached, *new, torch.tensor(starts, dtype=torch.int32, device=DEVICE), first)
    assert all(map(torch.equal, cached, wanted))


def test_shapes_that_do_not_fit_are_refused() -> None:
    case = build(BUSH)
    for broken, message in (
        (attrs.evolve(case, bits=case.bits[..., :1]), "need depths"),
        (attrs.evolve(case, depths=case.depths[:, 1:]), "need depths"),
        (attrs.evolve(case, query=case.query[:, :3]), "do not fit"),
        (attrs.evolve(case, values=case.values[..., 1:, :]), "do not fit"),
        (attrs.evolve(case, query=case.query.float()), "use one"),
        (attrs.evolve(case, **{name: getattr(case, name).double() for name in ("query", "keys", "values")}), "use one"),
    ):
        with pytest.raises(ValueError, match=message):
            broken.run()
    with pytest.raises(ValueError, match="multiple of 64"):
        case.run(split=96)


def test_a_missing_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(h100, "kernels")
    monkeypatch.delitem(sys.modules, "draftmux.backends.h100.kernels")
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ModelError, match="pip install triton"):
        attention.require_triton()


COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

class Absent:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(Absent())
run = JITFunction.run

def compiled(self, *args, grid, warmup, **options):
    kernel = run(self, *args, grid=grid, warmup=True, **options)
    print(self.__name__, kernel.metadata.shared, kernel.asm["ptx"].count("wgmma.mma_async"))

JITFunction.run = compiled
from draftmux.backends.h100.tree_attention import tree_attention

keys = torch.empty(1, 2, 1 << 14, 128, dtype=torch.bfloat16)
query, ints = torch.empty(1, 8, 16, 128, dtype=torch.bfloat16), torch.zeros(1, 16, 1, dtype=torch.int32)
tree_attention(query, keys, keys, ints[0, 0], ints[..., 0], ints, scale=0.1, window=512, softcap=50.0)
"""


@pytest.mark.slow
def test_both_kernels_compile_for_the_h100(tmp_path: Any) -> None:
    """What the interpreter takes, the compiler need not: it wants one type a variable, and shared memory ends."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    (first, shared, products), (second, *_) = (line.split() for line in done.stdout.splitlines())
    assert (first, second) == ("attend", "combine")
    assert int(shared) <= 113 * 1024  # two programs to an SM
    assert int(products) > 0  # tensor cores, by the instruction that is Hopper's own
