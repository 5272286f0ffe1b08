"""Helpers of custom rules, and rules as TVM's users write them."""

from __future__ import annotations

import pytest

from tilewright import dlight as dl
from tilewright import s_tir, te, tir
from tilewright.dlight import analysis, base
from tilewright.ir import IRModule
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc

LLVM = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
H100 = Target("nvidia/nvidia-h100")


def product(vector: bool = False) -> PrimFunc:
    """``r = (2 * x) w + 1``, or only the product."""
    x = te.placeholder((64,) if vector else (4, 64), name="x")
    w = te.placeholder((32, 64), name="w")
    k = te.reduce_axis((0, 64), name="k")
    if vector:
        z = te.compute((32,), lambda j: te.sum(x[k] * w[j, k], axis=k), name="z")
        return te.create_prim_func([x, w, z])
    y = te.compute((4, 64), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((4, 32), lambda i, j: te.sum(y[i, k] * w[j, k], axis=k), name="z")
    r = te.compute((4, 32), lambda i, j: z[i, j] + 1.0, name="r")
    return te.create_prim_func([x, w, r])


def elementwise(*shape: object) -> tuple[s_tir.Schedule, list[tir.For]]:
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *i: x(*i) + 1.0, name="y")
    sch = s_tir.Schedule(te.create_prim_func([x, y]))
    return sch, [sch.get(loop) for loop in sch.get_loops("y")]


def test_blocks_are_described() -> None:
    sch = s_tir.Schedule(product())
    infos = dl.normalize_prim_func(sch)
    assert infos is not None
    assert [repr(info) for info in infos] == [
        'SBlockInfo("y", "SS", [4, 64])',
        'SBlockInfo("z", "SSR", [4, 32, 64])',
        'SBlockInfo("r", "SS", [4, 32])',
    ]
    first, total, _ = infos
    assert (first.is_injective(), total.is_injective()) == (True, False)
    assert (first.is_reduction(), total.is_reduction()) == (False, True)
    assert first.is_elementwise(sch) and not total.is_elementwise(sch)
    assert list(map(sch.get, total.get_loops())) == list(
        map(sch.get, sch.get_loops(total.block_rv))
    )
    assert sch.get(analysis.get_root_block(sch)).name == "root"
    block = sch.get(total.block_rv)
    m, n, k = (item.var for item in block.iter_vars)
    x_read = next(read for read in block.reads if read.buffer.name == "y")
    assert analysis.collect_block_iter_vars_used_in_access_region(block, x_read.region) == {m, k}
    assert analysis.collect_vars_used_in_prim_expr(m * 2 + n) == {m, n}
    assert str(analysis.detect_dominant_read(block)) in (
        f"(({m} * 64) + {k})",
        f"(({n} * 64) + {k})",
    )


def test_functions_whose_loops_are_bound_stay_as_they_are() -> None:
    sch, _ = elementwise(8)
    sch.bind(sch.get_loops("y")[0], "threadIdx.x")
    before = sch.mod
    assert dl.normalize_prim_func(sch) is None and sch.mod is before
    fused, _ = elementwise(4, 8)
    fused.fuse(*fused.get_loops("y"))
    with pytest.raises(ScheduleError, match="1 loops for 2 iterations"):
        analysis.get_sblock_info(fused, fused.get_block("y"))


def test_spatial_blocks_are_inlined() -> None:
    sch = s_tir.Schedule(product())
    infos = dl.normalize_prim_func(sch)
    assert infos is not None
    assert [info.name for info in dl.try_inline(sch, infos)] == ["z", "r"]
    sch = s_tir.Schedule(product())
    infos = dl.normalize_prim_func(sch)
    assert infos is not None
    assert [info.name for info in dl.try_inline_contiguous_spatial(sch, infos)] == ["z", "r"]


def test_vectors_pads_and_transposes_are_told() -> None:
    sch = s_tir.Schedule(product(vector=True))
    (info,) = dl.normalize_prim_func(sch) or []
    assert [buffer.name for buffer in analysis.is_gemv(sch, info) or []] == ["x"]
    sch = s_tir.Schedule(product())
    infos = dl.normalize_prim_func(sch) or []
    assert [analysis.is_gemv(sch, info) for info in infos] == [None, None, None]
    assert not analysis.is_broadcast_epilogue(sch, sch.get_block("z"), sch.get_block("r"))
    a = te.placeholder((16,), name="a")
    b = te.placeholder((8, 16), name="b")
    pad = te.compute((18,), lambda i: te.if_then_else(i < 16, a[i], 0.0), name="pad")
    turned = te.compute((16, 8), lambda i, j: b[j, i], name="turned")
    for tensors, told in (([a, pad], (True, False)), ([b, turned], (False, True))):
        sch = s_tir.Schedule(te.create_prim_func(tensors))
        (info,) = dl.normalize_prim_func(sch) or []
        assert (info.is_data_pad(sch), info.is_layout_transform(sch)) == told
        assert info.is_injective()


def test_a_row_that_is_used_in_all_columns_is_broadcast() -> None:
    x = te.placeholder((4, 8), name="x")
    k = te.reduce_axis((0, 8), name="k")
    z = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="z")
    w = te.compute((4, 8), lambda i, j: z[i] * x[i, j], name="w")
    sch = s_tir.Schedule(te.create_prim_func([x, w]))
    assert analysis.is_broadcast_epilogue(sch, sch.get_block("z"), sch.get_block("w"))


# What TVM 0.27 suggests for a GPU with 1024 threads per block.
THREADS = {
    (4, 32, 64): [4, 32, 8],
    (3, 100, 7): [2, 64, 4],
    (2000,): [1024],
    (1, 1): [1, 1],
    ("n",): [1024],
    ("n", 64): [16, 64],
    ("n", 3, "n"): [32, 2, 16],
}


@pytest.mark.parametrize("shape", THREADS, ids=str)
def test_threads_are_suggested(shape: tuple[object, ...]) -> None:
    n = te.var("n")
    _, loops = elementwise(*(n if extent == "n" else extent for extent in shape))
    assert base.suggest_threads_per_block(H100, loops) == THREADS[shape]


VECTORS = {3: [3], 4: [4], 8: [2, 4], 10: [3, 4], "n": ["n"]}


@pytest.mark.parametrize("extent", VECTORS, ids=str)
def test_loops_are_vectorized_where_their_extent_is_known(extent: object) -> None:
    sch, _ = elementwise(te.var("n") if extent == "n" else extent)
    base.auto_vectorize(sch, sch.get_loops("y")[-1], 4)
    loops = sch.get_loops("y")
    assert [str(base.get_extent(sch, loop)) for loop in loops] == [str(n) for n in VECTORS[extent]]
    assert (sch.get(loops[-1]).kind == tir.VECTORIZED) == (extent != "n")


def test_facts_of_targets_and_dtypes() -> None:
    assert (base.max_threads_per_block(H100), base.max_threads_per_block(LLVM)) == (1024, 256)
    assert analysis.get_max_shared_memory_per_block(H100) == H100.max_shared_memory
    assert [base.get_bytes(d) for d in ("float16", "int4", "bool", "float32x4")] == [2, 1, 1, 16]


def test_buffers_of_blocks_are_described() -> None:
    x = te.placeholder((64, 12), name="x")
    z = te.placeholder((32, 8), name="z")
    y = te.compute((12, 4, 64), lambda i, j, k: x[k, i % 6] + z[k // 2, j * 2], name="y")
    sch = s_tir.Schedule(te.create_prim_func([x, z, y]))
    (info,) = dl.normalize_prim_func(sch) or []
    i, j, k = info.get_loops()
    first, second = info.read_bufs(sch)
    (written,) = info.write_bufs(sch)
    loop_i, loop_j, loop_k = map(sch.get, (i, j, k))
    assert first.assoc_lps_info == [loop_k, loop_i] and second.assoc_lps == [None, None]
    assert [sch.get(loop) for loop in written.assoc_lps if loop] == [loop_i, loop_j, loop_k]
    assert (written.shape[0], first.shape[0], first.get_scope()) == (12, 64, "global")
    assert (first.get_vecsize(), written.get_vecsize(), second.get_vecsize()) == (4, 4, None)
    assert written.get_vecsize(vbits=64) == 2
    assert repr(first).startswith("BufferInfo(x[")


def sum_of_products(form: str) -> PrimFunc:
    x, w = te.placeholder((64,), name="x"), te.placeholder((32, 64), name="w")
    k = te.reduce_axis((0, 64), name="k")
    if form == "rows":
        return te.create_prim_func(
            [x, w, te.compute((32,), lambda j: te.sum(x[k] * w[j, k], axis=k))]
        )
    if form == "columns":
        w = te.placeholder((64, 32), name="w")
        return te.create_prim_func(
            [x, w, te.compute((32,), lambda j: te.sum(x[k] * w[k, j], axis=k))]
        )
    if form == "groups":
        return te.create_prim_func(
            [x, w, te.compute((32,), lambda j: te.sum(x[k] * w[j, k // 4], axis=k))]
        )
    if form == "batches":
        x, w = te.placeholder((4, 64), name="x"), te.placeholder((4, 32, 64), name="w")
        out = te.compute((4, 32), lambda i, j: te.sum(x[i, k] * w[i, j, k], axis=k))
        return te.create_prim_func([x, w, out])
    if form == "sum":
        return te.create_prim_func([w, te.compute((32,), lambda j: te.sum(w[j, k], axis=k))])
    assert form == "matrices"
    x = te.placeholder((4, 64), name="x")
    out = te.compute((4, 32), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))
    return te.create_prim_func([x, w, out])


# What TVM 0.27 answers; it raises an AssertionError for a sum.
NORMAL = {
    "rows": (True, [1, 32, 64, 1]),
    "columns": (False, [1, 32, 64, 1]),
    "groups": (True, [1, 32, 16, 4]),
    "batches": (True, [4, 32, 64, 1]),
    "sum": (None, [32, 64]),
    "matrices": (None, [4, 32, 64]),
}


@pytest.mark.parametrize("form", NORMAL)
def test_products_with_vectors_get_four_loops(form: str) -> None:
    sch = s_tir.Schedule(sum_of_products(form))
    (info,) = dl.normalize_prim_func(sch) or []
    before = sch.mod
    answer = analysis.normalize(sch, info)
    extents = [base.get_extent(sch, loop) for loop in sch.get_loops(info.block_rv)]
    assert (answer, extents) == NORMAL[form]
    assert answer is not None or sch.mod is before


class OnlyWideRows(dl.gpu.Reduction):
    """A rule for fewer functions than the one it derives from."""

    def apply(self, func, target, tunable):  # type: ignore[no-untyped-def]
        if not func.params[0].name.startswith("x"):
            return None
        return super().apply(func, target, tunable)


def test_built_in_rules_are_called_as_tvms() -> None:
    rows = sum_of_products("sum")
    made = dl.gpu.Reduction().apply(rows, H100, False)
    assert isinstance(made, s_tir.Schedule) and made.trace is not None
    assert "threadIdx.x" in made.mod["main"].script()
    assert dl.gpu.Reduction().apply(rows, LLVM, True) is None
    assert dl.cpu.Reduction().apply(rows, H100, False) is None
    assert dl.gpu.Reduction().apply(made.mod["main"], H100, False) is None
    assert dl.gpu.Matmul().apply(func=rows, target=H100, tunable=False) is None
    assert isinstance(dl.cpu.GEMV().apply(product(vector=True), LLVM, False), s_tir.Schedule)
    assert dl.cpu.GEMV().apply(rows, LLVM, False) is None
    with H100:
        kept = dl.ApplyDefaultSchedule(OnlyWideRows())(IRModule({"main": rows}))
        assert not kept["main"].attrs.get("tir.is_scheduled")
        done = dl.ApplyDefaultSchedule(dl.gpu.Reduction())(IRModule({"main": rows}))
        assert done["main"].attrs["tir.is_scheduled"]


def test_super_of_a_rule_makes_the_schedule() -> None:
    x, k = te.placeholder((32, 64), name="x"), te.reduce_axis((0, 64), name="k")
    rows = te.create_prim_func([x, te.compute((32,), lambda j: te.sum(x[j, k], axis=k))])
    rule = OnlyWideRows()
    assert isinstance(rule.apply(rows, H100, False), s_tir.Schedule)
    with LLVM:
        left = dl.ApplyDefaultSchedule(rule)(IRModule({"main": rows}))
    assert not left["main"].attrs.get("tir.is_scheduled")


class Outer(dl.ScheduleRule):
    """A rule as TVM's users write it."""

    def apply(self, func, target, tunable):  # type: ignore[no-untyped-def, override]
        if not self.is_target_available(target):
            return None
        sch = s_tir.Schedule(func)
        infos = dl.normalize_prim_func(sch)
        if infos is None or tunable:
            return None
        infos = dl.try_inline(sch, infos)
        if len(infos) != 1:
            return None
        sch.parallel(infos[0].get_loops()[0])
        return [sch]


@dl.ScheduleRule.from_callable("AnyFunction")
def any_function(func, target, tunable):  # type: ignore[no-untyped-def]
    return s_tir.Schedule(func)


@dl.ScheduleRule.from_callable("Wrong")
def wrong(func, target, tunable):  # type: ignore[no-untyped-def]
    return func


@pytest.mark.parametrize("symbol", [None, "kernel"])
def test_rules_of_tvms_form_schedule(symbol: str | None) -> None:
    func = elementwise(4, 8)[0].mod["main"]
    func = func.without_attr("global_symbol")
    func = func if symbol is None else func.with_attr("global_symbol", symbol)
    mod = IRModule({"f": func, "g": product()})
    with LLVM:
        made = dl.ApplyDefaultSchedule(Outer(), any_function)(mod)
    assert made["f"].attrs.get("global_symbol") == symbol
    loops = [item for item in tir.walk.statements(made["f"]) if isinstance(item, tir.For)]
    assert [loop.kind for loop in loops] == [tir.PARALLEL, tir.SERIAL]
    assert all(made[name].attrs["tir.is_scheduled"] for name in "fg")
    assert any_function.name == "AnyFunction"
    with pytest.raises(VerifyError, match=r"rule Wrong: apply returns a Schedule.* not a PrimFunc"):
        dl.first_schedule(func, (wrong,), LLVM)


def test_rules_of_the_wrong_form_are_refused() -> None:
    with pytest.raises(VerifyError, match="a rule that begins with a schedule defines apply_to"):

        class _Older(dl.ScheduleRule):
            def apply(self, sch: object, target: object) -> None:  # type: ignore[override]
                """The form of earlier versions."""


def test_targets_are_named_by_texts() -> None:
    assert dl.cpu.GEMV().apply(product(vector=True), "llvm -num-cores=1") is not None
