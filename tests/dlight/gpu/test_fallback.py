"""Any function becomes kernels, whatever it computes: simulated, with races reported."""

from __future__ import annotations

import logging

import pytest
from gpu_rules import CUDA, agree, function, kernels, lowered, scheduled, tensor, widest

from tilewright import dlight, te, topi
from tilewright.dlight.gpu import Fallback
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc

n, m = te.var("n"), te.var("m")
FLAT = [(), (1,), (7,), (8, 64), (5, 33), (1, 1, 3), (4, 1, 6)]


@pytest.mark.parametrize("shape", FLAT)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_elementwise(shape: tuple[int, ...], dtype: str) -> None:
    func = function(topi.nn.relu, tensor(*shape, dtype=dtype))
    mod = agree(func, Fallback())
    assert len(kernels(mod)) == 1


def test_vectors_of_sixteen_bytes() -> None:
    for dtype, lanes in (("float32", 4), ("float16", 8), ("int8", 16)):
        mod = agree(function(topi.nn.relu, tensor(3, 32, dtype=dtype)), Fallback())
        assert widest(mod) == lanes


def test_vectors_where_only_all_elements_together_are_enough() -> None:
    assert widest(agree(function(topi.nn.relu, tensor(4, 3)), Fallback())) == 4


@pytest.mark.parametrize("sizes", [(3, 45), (1, 1), (0, 5), (5, 0)])
def test_symbolic_sizes(sizes: tuple[int, int]) -> None:
    agree(function(topi.nn.relu, tensor(n, m)), Fallback(), n=sizes[0], m=sizes[1])
    agree(function(lambda x: topi.sum(x, 1), tensor(n, m)), Fallback(), n=sizes[0], m=sizes[1])


def test_nothing_to_do() -> None:
    func = function(topi.nn.relu, tensor(0, 3))
    assert not kernels(lowered(scheduled(func)))


OTHERS = {
    "running sum": (topi.cumsum, [(5, 33)], {}),
    "running sum of all": (lambda x: topi.cumsum(x, None), [(5, 9)], {}),
    "running sum, symbolic": (topi.cumsum, [(n, m)], {"n": 3, "m": 11}),
    "sort": (topi.sort, [(3, 17)], {}),
    "sort of a long row": (topi.sort, [(1, 520)], {}),
    "sort, symbolic": (topi.sort, [(n, m)], {"n": 2, "m": 13}),
    "transpose": (topi.transpose, [(13, 20)], {}),
    "softmax": (topi.nn.softmax, [(3, 20)], {}),
    "matmul": (topi.matmul, [(5, 7), (7, 9)], {}),
    "padding": (lambda x: topi.nn.pad(x, (1, 2), (0, 3)), [(4, 8)], {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_operators(name: str) -> None:
    build, shapes, sizes = OTHERS[name]
    inputs = [tensor(*shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    agree(function(build, *inputs), Fallback(), **sizes)


def test_long_scratch_memory_is_allocated_by_the_host() -> None:
    mod = lowered(scheduled(function(topi.sort, tensor(2, 600)), Fallback()))
    assert "order = T.allocate((1200,)" in mod["main"].script()


def scripted(body: str, params: str = 'A: T.Buffer((8, 16), "float32")') -> PrimFunc:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    made: PrimFunc = parse(f"@T.prim_func\ndef main({params}):\n{lines}\n")
    return made


LOOP_CARRIED = """
for i, j in T.grid(7, 16):
    with T.block("A"):
        vi, vj = T.axis.remap("SS", [i, j])
        A[vi + 1, vj] = A[vi + 1, vj] + A[vi, vj]
"""
ORDERED = """
for k in range(16):
    with T.block("A"):
        vk = T.axis.opaque(16, k)
        A[0, 0] = A[0, 0] * T.float32(0.5) + A[1, vk]
"""
OUTSIDE = """
for i in range(8):
    with T.block("A"):
        vi = T.axis.spatial(8, i)
        A[vi, 0] = A[vi, 1] + T.float32(1)
A[0, 0] = A[0, 0] + T.float32(1)
"""
BRANCH_ON_MEMORY = """
if A[0, 0] > T.float32(0):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi, 1] = T.float32(2)
"""
BOUND_IN_MEMORY = """
for i in range(T.Cast("int64", T.abs(A[0, 0]))):
    with T.block("A"):
        vi = T.axis.opaque(3, i)
        A[vi, 1] = T.float32(2)
"""
REST = {
    "loop-carried": LOOP_CARRIED,
    "ordered": ORDERED,
    "outside": OUTSIDE,
    "branch": BRANCH_ON_MEMORY,
    "bound": BOUND_IN_MEMORY,
}


@pytest.mark.parametrize("name", REST)
def test_what_has_no_form_of_its_own(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tilewright.scheduling"):
        mod = agree(scripted(REST[name]), Fallback())
    assert kernels(mod)
    assert "on one thread" in caplog.text


FOR_A_CPU = """
for i in T.parallel(8):
    for j in T.vectorized(16):
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] + T.float32(1)
for i in T.serial(8, annotations={"pragma_unroll": 1}):
    with T.block("B"):
        vi = T.axis.spatial(8, i)
        A[vi, 0] = A[vi, 1] + T.float32(1)
"""


def test_loops_of_a_schedule_for_cpus_are_bound_too() -> None:
    mod = dlight.ApplyDefaultSchedule(target=CUDA)(IRModule({"main": scripted(FOR_A_CPU)}))
    assert mod["main"].attrs["tir.is_scheduled"]
    made = lowered(mod)
    assert len(kernels(made)) == 2
    for text in kernels(made).values():
        assert 'thread="threadIdx.x"' in text


def test_rows_of_a_scan_run_at_once() -> None:
    func = function(lambda x: topi.cumsum(x, 0), tensor(6, 40))
    (text,) = kernels(agree(func, Fallback())).values()
    assert 'T.thread_binding(32, thread="threadIdx.x")' in text


def test_rules_are_chosen_by_the_kind_of_target() -> None:
    mod = IRModule({"main": function(topi.nn.relu, tensor(8, 64))})
    assert "thread_binding" in dlight.default_schedule(CUDA)(mod).script()
    assert "thread_binding" not in dlight.default_schedule(Target("llvm"))(mod).script()
    with CUDA:
        assert "thread_binding" in dlight.ApplyDefaultSchedule()(mod).script()


def test_all_rules_are_listed_the_fallback_last() -> None:
    names = [rule.name for rule in dlight.gpu.rules()]
    assert set(names) | {"rules"} == set(dlight.gpu.__all__) and names[-1] == "Fallback"


def test_stages_of_fourier_transforms_are_kernels() -> None:
    for build, inputs in (
        (lambda x, y: topi.dft(x, y, True), (tensor(2, 20), tensor(2, 20, name="y"))),
        (
            lambda x, w: topi.stft(x, 8, 4, 6, w, False, True, [1, 5, 9, 2]),
            (tensor(1, 40), tensor(6, name="w")),
        ),
    ):
        assert len(kernels(agree(function(build, *inputs)))) > 1
