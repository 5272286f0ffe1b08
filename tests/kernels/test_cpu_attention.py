"""Fused attention against float64: shapes, masks, groups, layouts, special values, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attention_reference import attention

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, as_int, assert_structural_equal, collect
from tilewright.kernels.cpu.attention import AttentionKernel
from tilewright.kernels.cpu.attention.decode import DecodeTiles
from tilewright.kernels.cpu.attention.kernel import choose_tiles
from tilewright.kernels.cpu.attention.prefill import PrefillTiles
from tilewright.kernels.problems.attention import read_attention
from tilewright.scheduling import Choices, NotApplicable
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc
from tilewright.tir.analysis.verify import verify
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule, Trace

RNG = np.random.default_rng(0)
NATIVE = Target("native")
DOTS = Target("llvm -mcpu=znver4 -num-cores=1")
BFLOAT = np.dtype(ml_dtypes.bfloat16)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def function(shapes: Any, mask: Any = None, dtype: str = "float32", **options: Any) -> PrimFunc:
    """The definition; ``mask`` is a shape and a dtype."""
    tensors = [te.placeholder(shape, dtype, name) for shape, name in zip(shapes, "QKV")]
    if mask is not None:
        tensors.append(te.placeholder(*mask, "M"))
    out = topi.nn.scaled_dot_product_attention(*tensors, **options)
    return te.create_prim_func([*tensors, out])


def scheduled(func: PrimFunc, target: Target = NATIVE) -> IRModule:
    mod = dlight.ApplyDefaultSchedule(AttentionKernel(), target=target)(IRModule({"main": func}))
    assert mod["main"].attrs.get(IS_SCHEDULED), "the rule does not apply"
    verify(mod)
    return mod


def block_names(mod: IRModule) -> set[str]:
    return {item.name for item in collect(mod["main"].body, Block)}


def heads(b: int, hq: int, hkv: int, sq: int, sk: int, d: int, dv: int | None = None) -> list[Any]:
    return [normal(b, hq, sq, d), normal(b, hkv, sk, d), normal(b, hkv, sk, dv or d)]


def compute(
    arrays: list[Any], target: Target = NATIVE, symbolic: Any = None, **options: Any
) -> Any:
    """Compile and run; ``symbolic`` replaces the shapes."""
    shapes = symbolic or [a.shape for a in arrays]
    mask = (shapes[3], str(arrays[3].dtype)) if len(arrays) > 3 else None
    func = function(shapes[:3], mask, str(arrays[0].dtype), **options)
    expected = attention(*arrays, **options)
    out = np.full(expected.shape, 7, arrays[0].dtype)
    driver.compile(scheduled(func, target), target)["main"](*arrays, out)
    return out, expected


def check(arrays: list[Any], *args: Any, tolerance: float = 3e-6, **options: Any) -> np.ndarray:
    made, expected = compute(arrays, *args, **options)
    np.testing.assert_allclose(
        made.astype("float64"), expected, rtol=10 * tolerance, atol=tolerance
    )
    return made


# ---- shapes ---------------------------------------------------------------------------------


@few(
    ("shape", "causal"),
    [
        ((2, 3, 3, 64, 128, 64), None),  # whole tiles
        ((1, 4, 2, 70, 131, 33), None),  # nothing divides
        ((1, 2, 2, 130, 130, 40), "TopLeft"),
        ((1, 2, 1, 100, 300, 16), "BottomRight"),
        ((1, 1, 1, 90, 40, 8, 24), "BottomRight"),  # the first queries see nothing
        ((1, 2, 1, 20, 200, 32), "BottomRight"),  # a group makes one tile
        ((1, 1, 1, 17, 19, 256, 127), None),
        ((1, 1, 1, 9, 1, 1), None),
    ],
    every=3,
)
def test_prefill(shape: Any, causal: str | None) -> None:
    check(heads(*shape), causal_mask=causal)


@few(
    ("shape", "window", "causal", "target"),
    [
        ((1, 2, 2, 130, 130, 40), 50, "TopLeft", NATIVE),
        ((1, 2, 1, 100, 300, 16), 1, "BottomRight", NATIVE),
        ((1, 1, 1, 90, 40, 8), 7, "BottomRight", NATIVE),  # the first queries see nothing
        ((1, 2, 1, 20, 200, 32), 33, "BottomRight", NATIVE),  # a group makes one tile
        ((1, 2, 1, 40, 30, 16), 5, "TopLeft", NATIVE),  # the last queries see nothing
        ((1, 4, 2, 1, 5000, 16), 600, "BottomRight", NATIVE),  # a few queries
        ((1, 4, 2, 3, 5000, 16), 4100, "BottomRight", Target("native -num-cores=3")),
    ],
    every=3,
)
def test_windows(shape: Any, window: int, causal: str, target: Target) -> None:
    check(heads(*shape), target, causal_mask=causal, window_size=window)


def test_keys_in_pages_are_left_to_rules() -> None:
    shapes = [((1, 1, 2, 8), "float32"), ((4, 2, 2, 4, 8), "float32")]
    shapes += [((1, 3), "int32"), ((1,), "int32")]
    tensors = [te.placeholder(*shape) for shape in shapes]
    func = te.create_prim_func([*tensors, topi.nn.paged_attention(*tensors)])
    found = AttentionKernel().recognise(func)
    assert "lie in pages" in getattr(found, "reason", "")


def test_the_code_is_short() -> None:
    """Each tile stands there once: copies of it are what takes long to compile."""
    func = function([(1, 2, 128, 64)] * 3)
    loops = collect(driver.lower(scheduled(func, DOTS), DOTS)["main"].body, For)
    assert len([item for item in loops if as_int(item.extent) == 64]) <= 5


@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        ((1, 3, 3, 1, 600, 64), None),
        ((2, 4, 1, 2, 513, 33), "BottomRight"),
        ((1, 2, 2, 4, 7, 80, 200), "TopLeft"),
        ((1, 1, 1, 1, 1, 1), None),
    ],
)
def test_decode(shape: Any, causal: str | None) -> None:
    check(heads(*shape), causal_mask=causal)


@pytest.mark.parametrize("shape", [(1, 3, 3, 1, 1500, 64), (1, 6, 3, 2, 700, 24)])
def test_few_heads_split_the_keys(shape: Any) -> None:
    target = Target(f"llvm -mcpu={NATIVE.mcpu} -num-cores=2")
    arrays = heads(*shape)
    check(arrays, target, causal_mask="BottomRight")
    mod = scheduled(function([a.shape for a in arrays]), target)
    assert "join" in block_names(mod)
    whole = scheduled(function([(1, 4, 1, 64)] + [(1, 4, 1500, 64)] * 2), target)
    assert "join" not in block_names(whole), "four heads are enough for two threads"


@pytest.mark.parametrize(("queries", "keys"), [(1, 600), (5, 5), (100, 70)])
def test_symbolic_lengths(queries: int, keys: int) -> None:
    b, s, t = te.var("b"), te.var("s"), te.var("t")
    shapes = [(b, 4, s, 24), (b, 2, t, 24), (b, 2, t, 24)]
    check(heads(2, 4, 2, queries, keys, 24), NATIVE, shapes, causal_mask="BottomRight")


def test_symbolic_cache() -> None:
    t = te.var("t")
    shapes = [(1, 2, 1, 24), (1, 2, t, 24), (1, 2, t, 24), (1, 1, 1, t)]
    arrays = [*heads(1, 2, 2, 1, 77, 24), RNG.random((1, 1, 1, 77)) < 0.7]
    target = Target(f"llvm -mcpu={NATIVE.mcpu} -num-cores=3")
    check(arrays, target, shapes)


@pytest.mark.parametrize("layout", ["BSHD", ("BHSD", "BSHD", "BHSD", "BSHD")])
@pytest.mark.parametrize("queries", [2, 40])
def test_layouts(layout: Any, queries: int) -> None:
    each = [layout] * 4 if isinstance(layout, str) else layout
    arrays = [
        np.ascontiguousarray(x.swapaxes(1, 2)) if item == "BSHD" else x
        for x, item in zip(heads(2, 4, 2, queries, 50, 20), each)
    ]
    check(arrays, layout=layout)


def test_one_tensor_as_query_key_and_value() -> None:
    x = te.placeholder((1, 2, 30, 16), name="x")
    func = te.create_prim_func([x, topi.nn.scaled_dot_product_attention(x, x, x)])
    data = normal(1, 2, 30, 16)
    out = np.zeros_like(data)
    driver.compile(scheduled(func))["main"](data, out)
    np.testing.assert_allclose(out, attention(data, data, data), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("queries", [2, 30])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_narrow_floats(queries: int, dtype: Any, tolerance: float) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = [x.astype(kind) for x in heads(1, 4, 2, queries, 75, 24)]
    check(arrays, causal_mask="BottomRight", tolerance=tolerance)


@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        ((2, 4, 2, 70, 131, 40), "BottomRight"),  # nothing divides, an odd number of keys
        ((1, 2, 2, 128, 64, 96), None),
        ((1, 1, 1, 17, 1, 2, 127), None),
        ((1, 2, 1, 20, 45, 66, 16), "TopLeft"),  # a group makes one tile
        ((1, 1, 1, 30, 33, 33, 8), None),  # depths that dot instructions don't take
    ],
)
def test_prefill_in_bfloat16(shape: Any, causal: str | None) -> None:
    arrays = [x.astype(BFLOAT) for x in heads(*shape)]
    made = check(arrays, causal_mask=causal, tolerance=1e-2)
    # Rounding of powers averages out: most results are as if it were only the last rounding.
    error = np.abs(made.astype("float64") - attention(*arrays, causal_mask=causal))
    assert error.mean() < 2.0**-9


@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        ((1, 4, 1, 1, 600, 64), None),
        ((2, 4, 1, 2, 513, 80, 48), "BottomRight"),  # part of a vector of words; an odd end
        ((1, 2, 2, 4, 7, 6, 16), "TopLeft"),
        ((1, 1, 1, 1, 1, 2, 32), None),
        ((1, 2, 1, 1, 21, 32, 24), None),  # values that are no whole vectors
    ],
)
def test_decode_in_bfloat16(shape: Any, causal: str | None) -> None:
    arrays = [x.astype(BFLOAT) for x in heads(*shape)]
    check(arrays, causal_mask=causal, tolerance=1e-2)


def test_bfloat16_takes_dot_instructions_where_there_are_any() -> None:
    def chosen(target: Target, dtype: str, *sizes: int) -> Any:
        problem = read_attention(function([(1, 2, *sizes)] * 3, dtype=dtype))
        assert not isinstance(problem, NotApplicable)
        return choose_tiles(problem, target, Choices()).dots

    assert chosen(DOTS, "bfloat16", 64, 32)
    assert chosen(DOTS, "bfloat16", 2, 48)
    assert not chosen(DOTS, "bfloat16", 2, 40)
    assert not chosen(DOTS, "bfloat16", 64, 33)
    assert not chosen(DOTS, "float16", 64, 32)
    assert not chosen(Target("llvm -mcpu=haswell -num-cores=1"), "bfloat16", 64, 32)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_masks_in_bfloat16(dtype: str) -> None:
    mask = random_mask((2, 4, 70, 131), dtype)
    mask = mask.astype(BFLOAT) if dtype == "float32" else mask
    arrays = [*(x.astype(BFLOAT) for x in heads(2, 4, 2, 70, 131, 16)), mask]
    check(arrays, causal_mask="TopLeft", tolerance=1e-2)


@pytest.mark.parametrize("queries", [2, 30])
def test_special_values_in_bfloat16_stay_in_their_rows(queries: int) -> None:
    arrays = [x.astype(BFLOAT) for x in heads(1, 2, 2, queries, 41, 16)]
    arrays[0][0, 0, 0, 3] = np.nan
    arrays[0][0, 1, 1, 3] = np.inf
    arrays[2][0, 1, :, 5] = np.inf  # the last key, which has no other one beside it, too
    made, expected = compute(arrays)
    assert np.isinf(made[0, 1, 0, 5])
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    np.testing.assert_allclose(made.astype("float64"), expected, rtol=0.1, atol=1e-2)


@pytest.mark.parametrize("queries", [2, 30])
def test_a_query_without_keys_gives_zeros_in_bfloat16(queries: int) -> None:
    mask = RNG.random((queries, 199)) < 0.5
    mask[1] = False
    arrays = [x.astype(BFLOAT) for x in heads(1, 2, 2, queries, 199, 16)]
    made = check([*arrays, mask], tolerance=1e-2)
    np.testing.assert_array_equal(made[:, :, 1].astype("float32"), 0.0)


@pytest.mark.parametrize("queries", [1, 9, 30])
def test_symbolic_lengths_in_bfloat16(queries: int) -> None:
    b, t = te.var("b"), te.var("t")
    s = 1 if queries == 1 else te.var("s")
    shapes = [(b, 4, s, 32), (b, 2, t, 32), (b, 2, t, 32)]
    arrays = [x.astype(BFLOAT) for x in heads(2, 4, 2, queries, 37, 32)]
    check(arrays, NATIVE, shapes, causal_mask="BottomRight", tolerance=1e-2)


@few("mcpu", ["haswell", "nehalem"], every=2)
@pytest.mark.parametrize("queries", [1, 21])
def test_narrow_vectors(mcpu: str, queries: int) -> None:
    check(heads(1, 2, 2, queries, 37, 20), Target(f"llvm -mcpu={mcpu} -num-cores=1"))


# ---- masks and special values ---------------------------------------------------------------


def random_mask(shape: Any, dtype: str) -> np.ndarray:
    return RNG.random(shape) < 0.4 if dtype == "bool" else normal(*shape)


@pytest.mark.parametrize(
    ("mask", "dtype", "causal"),
    [
        ((70, 131), "float32", None),
        ((2, 4, 70, 131), "bool", None),
        ((2, 1, 1, 131), "bool", "BottomRight"),
        ((4, 70, 1), "float32", None),
        ((1, 1, 1, 1), "float32", "TopLeft"),
    ],
)
def test_masks(mask: Any, dtype: str, causal: str | None) -> None:
    check([*heads(2, 4, 2, 70, 131, 16), random_mask(mask, dtype)], causal_mask=causal)


@pytest.mark.parametrize("queries", [3, 20])  # decoding, and a group in one tile
@pytest.mark.parametrize(
    ("heads_of_mask", "rows", "dtype"),
    [(4, True, "bool"), (1, False, "float32"), (4, False, "bool")],
)
def test_masks_of_groups(queries: int, heads_of_mask: int, rows: bool, dtype: str) -> None:
    mask = random_mask((2, heads_of_mask, queries if rows else 1, 70), dtype)
    check([*heads(2, 4, 2, queries, 70, 16), mask], causal_mask="BottomRight")


@pytest.mark.parametrize("queries", [2, 30])
def test_a_query_without_keys_gives_zeros(queries: int) -> None:
    mask = RNG.random((queries, 200)) < 0.5
    mask[1] = False
    mask[0, :150] = False  # whole blocks of keys before the first that counts
    made = check([*heads(1, 2, 2, queries, 200, 16), mask])
    np.testing.assert_array_equal(made[:, :, 1], 0.0)


@pytest.mark.parametrize("queries", [2, 30])
def test_large_scores_do_not_overflow(queries: int) -> None:
    arrays = heads(1, 1, 1, queries, 300, 16)
    arrays[0] *= 1e4
    arrays[1] = np.sort(arrays[1], 2)  # maxima keep growing: everything is rescaled
    made, expected = compute(arrays)
    assert np.isfinite(made).all()
    # Scores of thousands, rounded to float32, are exact to some 1e-3.
    np.testing.assert_allclose(made, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("queries", [2, 30])
def test_infinite_and_nan_elements_stay_in_their_rows(queries: int) -> None:
    arrays = heads(1, 2, 2, queries, 40, 16)
    arrays[0][0, 0, 0, 3] = np.nan
    arrays[0][0, 1, 1, 3] = np.inf
    arrays[2][0, 1, :, 5] = np.inf
    made, expected = compute(arrays)
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=3e-6)


# ---- form -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("queries", "causal"), [(2, None), (5, "BottomRight")])
def test_interpreter_agrees(queries: int, causal: str | None) -> None:
    arrays = [*heads(1, 4, 2, queries, 11, 5, 3), normal(queries, 11)]
    func = function([a.shape for a in arrays[:3]], ((queries, 11), "float32"), causal_mask=causal)
    out = np.zeros((1, 4, queries, 3), "float32")
    with np.errstate(all="ignore"):
        run(scheduled(func, Target("llvm -mcpu=haswell -num-cores=2"))["main"], *arrays, out)
    np.testing.assert_allclose(out, attention(*arrays, causal_mask=causal), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("queries", "depth"), [(1, 16), (9, 17)])
def test_interpreter_agrees_on_dots(queries: int, depth: int) -> None:
    arrays = [x.astype(BFLOAT) for x in heads(1, 1, 1, queries, 5, 2, depth)]
    func = function([a.shape for a in arrays], dtype="bfloat16")
    out = np.zeros((1, 1, queries, depth), BFLOAT)
    with np.errstate(all="ignore"):
        run(scheduled(func, DOTS)["main"], *arrays, out)
    np.testing.assert_allclose(out.astype("float64"), attention(*arrays), rtol=0.1, atol=1e-2)


def test_heads_and_tiles_run_in_parallel() -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=4")
    for shape in ([(2, 8, 300, 64)] * 3, [(2, 8, 1, 64), *[(2, 8, 500, 64)] * 2]):
        loops = collect(scheduled(function(shape), target)["main"].body, For)
        assert [item.kind for item in loops].count("parallel") == 1
        assert loops[0].kind == "parallel"


def test_trace_replays() -> None:
    func = function([(1, 4, 40, 16)] * 3, causal_mask="TopLeft")
    target = Target("llvm -mcpu=znver4 -num-cores=2")
    sch = dlight.first_schedule(func, dlight.kernels_and_rules(), target, record=True)
    assert sch is not None and sch.trace is not None
    again = Schedule(func)
    Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    assert_structural_equal(again.mod, sch.mod)


def test_blocks_can_be_scheduled_further() -> None:
    arrays = heads(1, 1, 1, 64, 64, 32)
    sch = Schedule(scheduled(function([a.shape for a in arrays])))
    sch.unroll(sch.get_loops("write")[0])
    split = sch.split(sch.get_loops("value_update_0")[0], [None, 4])
    sch.unroll(split[1])
    out = np.zeros_like(arrays[0])
    driver.compile(sch.mod)["main"](*arrays, out)
    np.testing.assert_allclose(out, attention(*arrays), rtol=1e-5, atol=3e-6)


# ---- refusals -------------------------------------------------------------------------------


def test_refuses_what_is_not_attention() -> None:
    func = function([(1, 2, 8, 16)] * 3)
    wide = function([(1, 2, 8, 16)] * 3, dtype="float64")
    assert "dtype is not one of" in str(read_attention(wide))
    d = te.var("d")
    assert "depth of a head" in str(read_attention(function([(1, 2, 8, d)] * 3, scale=1.0)))
    empty = function([(1, 2, 8, 16), (1, 2, 0, 16), (1, 2, 0, 16)])
    assert "nothing to compute" in str(read_attention(empty))
    x = te.placeholder((4,), name="x")
    other = te.create_prim_func([x, topi.nn.relu(x)])
    assert "no block is annotated" in str(read_attention(other))
    sch = Schedule(func)
    sch.compute_inline("attention_exp")
    assert isinstance(read_attention(sch.mod["main"]), NotApplicable)


def test_refuses_attention_with_more_around_it() -> None:
    q, k, v = (te.placeholder((1, 2, 8, 16), name=name) for name in "QKV")
    out = topi.nn.relu(topi.nn.scaled_dot_product_attention(q, k, v))
    assert "more or less than attention" in str(read_attention(te.create_prim_func([q, k, v, out])))


def test_other_rules_take_what_is_refused() -> None:
    arrays = [x.astype("float64") for x in heads(1, 2, 2, 6, 9, 4)]
    func = function([a.shape for a in arrays], dtype="float64")
    mod = dlight.default_schedule(NATIVE)(IRModule({"main": func}))
    out = np.zeros_like(arrays[0])
    driver.compile(mod)["main"](*arrays, out)
    np.testing.assert_allclose(out, attention(*arrays), rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("attention_prefill", {"lanes": 16, "queries": 40}, "queries is a multiple of lanes"),
        ("attention_prefill", {"lanes": 16, "keys": 20}, "keys is a multiple of key_rows"),
        ("attention_prefill", {"lanes": 12}, "lanes a power of two"),
        ("attention_prefill", {"lanes": "16"}, "'lanes' takes an integer, got '16'"),
        ("attention_prefill", {"lanes": 16, "tile": 4}, "no option 'tile'; options are lanes, "),
        ("attention_decode", {}, "option 'lanes' is missing"),
        ("attention_prefill", {"lanes": 16, "stacked": True}, "more than a tile"),
        ("attention_prefill", {"lanes": 16, "dots": True}, "dot instructions take bfloat16"),
        ("attention_decode", {"lanes": 16, "dots": True}, "dot instructions take bfloat16"),
        ("attention_decode", {"lanes": 16, "keys": 20}, "keys is a multiple of lanes, a power"),
        ("attention_decode", {"lanes": 16, "splits": 0}, "sizes are positive"),
    ],
)
def test_kernels_refuse_sizes(kernel: str, options: dict[str, Any], message: str) -> None:
    sch = Schedule(function([(1, 2, 80, 16)] * 3))
    with pytest.raises(ScheduleError, match=message):
        sch.use_kernel("root", kernel, options)


def test_choice_follows_the_shape() -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=1")

    def chosen(*shapes: Any) -> Any:
        problem = read_attention(function(shapes))
        assert not isinstance(problem, NotApplicable)
        return choose_tiles(problem, target, Choices())

    keys = [(1, 2, 512, 64)] * 2
    assert isinstance(chosen((1, 8, 1, 64), *keys), DecodeTiles)
    assert isinstance(chosen((1, 8, 512, 64), *keys), PrefillTiles)
    group = chosen((1, 8, 12, 64), *keys)
    assert isinstance(group, PrefillTiles) and group.stacked
    assert chosen((1, 2, 12, 64), *keys).queries == 16, "a vector of queries is enough"
    assert [chosen((1, 2, n, 64), *keys).vectors for n in (100, 128, 66)] == [4, 4, 2]
