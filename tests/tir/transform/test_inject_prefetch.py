"""Panels of the next iteration are asked for, in equal parts; where that can't be, nothing is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright import driver
from tilewright.arith import simplify
from tilewright.ir import Call, IRModule, as_int, collect, const, free_vars, substitute
from tilewright.script import parse
from tilewright.tir import PrimFunc, transform
from tilewright.tir.interpreter import run

TEXT = """
@T.prim_func
def main(A: T.Buffer(({size},), "float32"), B: T.Buffer((4, 3), "float32")):
    for p in T.serial(4, annotations={{"pragma_prefetch_next": 1}}):
        for i in range(3):
            B[p, i] = T.float32(0)
            for k in {loop}:
                B[p, i] = B[p, i] + A[{index}] * T.float32(i + 1)
"""


def program(index: str = "p * 2000 + k", loop: str = "range(2000)", size: int = 8000) -> PrimFunc:
    made: PrimFunc = parse(TEXT.format(index=index, loop=loop, size=size))
    return made


def injected(func: PrimFunc) -> IRModule:
    mod = transform.FlattenBuffer()(IRModule({"main": func}))
    made: IRModule = transform.InjectPrefetch()(mod)
    return made


def fetches(mod: IRModule) -> list[Call]:
    return [item for item in collect(mod["main"].body, Call) if item.op.name == "prefetch"]


def test_the_innermost_loop_asks_for_its_part_of_the_next_panel() -> None:
    mod = injected(program())
    (fetch,) = fetches(mod)
    # 2000 elements in 3 times 2000 steps: the second loop's part is 667, and each step's one.
    assert "A[((((p * 2000) + 2000) + (i * 667)) + k)]" in str(fetch)
    assert "pragma" not in mod["main"].script()


def test_steps_ask_for_several_lines_if_they_must() -> None:
    mod = injected(program("p * 2000 + k * 100", "range(20)"))
    assert len(fetches(mod)) == 3  # 34 elements: 136 bytes


@pytest.mark.parametrize(
    ("index", "loop"),
    [
        ("k", "range(2000)"),  # the same for all iterations
        ("p * p * 100 + k", "range(2000)"),  # no constant distance
        ("p * 100 + k", "range(2000)"),  # small panels
        ("p * 2000 + k", "T.vectorized(8)"),  # whole panels in a step
    ],
)
def test_nothing_is_fetched_where_it_would_not_help(index: str, loop: str) -> None:
    assert not fetches(injected(program(index, loop)))


def test_prefetches_change_no_result() -> None:
    func = program()
    rng = np.random.default_rng(0)
    a = rng.standard_normal(8000).astype("float32")
    expected, interpreted, compiled = (np.zeros((4, 3), "float32") for _ in range(3))
    run(func, a, expected)
    run(injected(func), a, interpreted)
    module = driver.compile(func)
    module(a, compiled)
    assert "llvm.prefetch" in module.get_source("ll")
    np.testing.assert_array_equal(interpreted, expected)
    np.testing.assert_allclose(compiled, expected, rtol=1e-4, atol=1e-4)


def test_of_several_loops_over_a_panel_the_last_asks_for_the_next_one() -> None:
    mod = injected(
        parse("""
@T.prim_func
def main(A: T.Buffer((4, 2000), "float32"), B: T.Buffer((4,), "float32")):
    for p in T.serial(4, annotations={"pragma_prefetch_next": 1}):
        B[p] = T.float32(0)
        for k in range(2000):
            B[p] = B[p] + A[p, k]
        for k in range(2000):
            B[p] = T.max(B[p], A[p, k])
""")
    )
    assert len(fetches(mod)) == 1
    text = mod["main"].script()
    assert text.index("prefetch") > text.index("+ A")


ROWS = """
@T.prim_func
def main(A: T.Buffer((64, {width}), "float32"), B: T.Buffer((64, {width}), "float32")):
    for b in T.serial(4, annotations={{"pragma_prefetch_next": 2}}):
        for j in range({steps}):
            for r in T.unroll(16):
                for lane in T.vectorized(16):
                    B[b * 16 + r, j * 16 + lane] = A[b * 16 + r, j * 16 + lane]
"""


@pytest.mark.parametrize(("width", "steps"), [(128, 4), (128, 2), (112, 7), (48, 3)])
def test_rows_are_asked_for_row_by_row(width: int, steps: int) -> None:
    """Each line of the next panel once, though tiles go down the columns."""
    func: PrimFunc = parse(ROWS.format(width=width, steps=steps))
    mod = injected(func)
    places = []
    for fetch in fetches(mod):
        index = fetch.args[0].args[0].indices[0]
        variables = {var.name: var for var in free_vars(index)}
        for j, r in itertools.product(range(steps), range(16)):
            values = {"b": 1, "j": j, "r": r, "lane": 0}
            known = {var: const(values[name]) for name, var in variables.items()}
            places.append(as_int(simplify(substitute(index, known))))
    lines = {(32 + r) * width + line * 16 for r in range(16) for line in range(steps)}
    assert len(places) == len(set(places))
    assert set(places) == lines


def test_of_more_steps_than_lines_some_ask_for_the_same_one() -> None:
    """Nothing behind the rows is asked for, and loops inside that aren't needed ask for nothing."""
    func: PrimFunc = parse("""
@T.prim_func
def main(A: T.Buffer((32, 256), "float32"), B: T.Buffer((8, 256), "float32")):
    for p in T.serial(8, annotations={"pragma_prefetch_next": 2}):
        for f in range(4):
            for k in range(32):
                for r in T.unroll(2):
                    for lane in T.vectorized(32):
                        B[f * 2 + r, p * 32 + lane] = A[k, p * 32 + lane]
""")
    (fetch,) = fetches(injected(func))
    index = fetch.args[0].args[0].indices[0]
    variables = {var.name: var for var in free_vars(index)}
    assert set(variables) == {"p", "f", "k"}
    places = []
    for f, k in itertools.product(range(4), range(32)):
        values = {"p": 2, "f": f, "k": k}
        known = {var: const(values[name]) for name, var in variables.items()}
        places.append(as_int(simplify(substitute(index, known))))
    lines = [row * 256 + 3 * 32 + line * 16 for row in range(32) for line in range(2)]
    assert places == [line for line in lines for _ in range(2)]


def test_behind_the_last_block_of_a_row_comes_the_first_of_the_next_one() -> None:
    func: PrimFunc = parse("""
@T.prim_func
def main(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
    for a in range(2):
        for b in T.serial(4, annotations={"pragma_prefetch_next": 2}):
            for r in T.serial(16):
                for lane in T.vectorized(32):
                    B[b * 16 + r, a * 32 + lane] = A[b * 16 + r, a * 32 + lane]
""")
    places = set()
    for fetch in fetches(injected(func)):
        index = fetch.args[0].args[0].indices[0]
        variables = {var.name: var for var in free_vars(index)}
        for a, b, r in itertools.product(range(2), range(4), range(16)):
            values = {"a": a, "b": b, "r": r}
            known = {var: const(values[name]) for name, var in variables.items()}
            places.add((a, b, as_int(simplify(substitute(index, known)))))
    lines = {
        (a, b, ((b + 1) % 4 * 16 + r) * 64 + (a + (b + 1) // 4) * 32 + line * 16)
        for a, b, r, line in itertools.product(range(2), range(4), range(16), range(2))
    }
    assert places == lines


def test_the_next_panel_is_next_to_this_one_wherever_loops_around_are() -> None:
    mod = injected(
        parse("""
@T.prim_func
def main(A: T.Buffer((6, 4, 2000), "float32"), B: T.Buffer((6, 4), "float32")):
    for q in range(6):
        for p in T.serial(4, annotations={"pragma_prefetch_next": 1}):
            B[q, p] = T.float32(0)
            for k in range(2000):
                B[q, p] = B[q, p] + A[q, p, k]
""")
    )
    (fetch,) = fetches(mod)
    (place,) = fetch.args[0].args[0].indices
    q, p, k = sorted(free_vars(place), key=lambda var: "qpk".index(var.name))
    found = simplify(substitute(place, {q: const(3), p: const(1), k: const(7)}))
    assert as_int(found) == 3 * 8000 + 2 * 2000 + 7


def test_a_loop_outside_asks_for_whole_lines() -> None:
    mod = injected(
        parse("""
@T.prim_func
def main(A: T.Buffer((4, 64, 32), "float32"), B: T.Buffer((4,), "float32")):
    for p in T.serial(4, annotations={"pragma_prefetch_next": 1}):
        B[p] = T.float32(0)
        for c in range(64):
            for k in range(32):
                B[p] = B[p] + A[p, c, k]
""")
    )
    # A step of c is two lines, one of k a sixteenth of a line.
    assert len(fetches(mod)) == 2
    assert {var.name for fetch in fetches(mod) for var in free_vars(fetch)} >= {"p", "c"}
    assert "k" not in {var.name for fetch in fetches(mod) for var in free_vars(fetch)}


COPIED = """
@T.prim_func
def main(A: T.Buffer((8, 128), "float32"), B: T.Buffer((4, 128), "float32")):
    for p in T.serial(4, annotations={"pragma_prefetch_next": 4}):
        C = T.alloc_buffer((8, 32), "float32")
        for c in range(8):
            for i in T.vectorized(32):
                C[c, i] = A[c, p * 32 + i]
        for f in range(4):
            for i in T.vectorized(32):
                B[f, p * 32 + i] = T.float32(0)
            for c in range(8):
                for i in T.vectorized(32):
                    B[f, p * 32 + i] = B[f, p * 32 + i] + C[c, i]
"""


def test_what_is_computed_with_a_copy_asks_for_what_is_copied_next() -> None:
    mod = injected(parse(COPIED))
    wanted = {c * 128 + 32 + start for c in range(8) for start in (0, 16)}
    asked = [item.args[0].args[0].indices[0] for item in fetches(mod)]
    by_name = {var.name: var for index in asked for var in free_vars(index)}
    assert set(by_name) == {"p", "f"}
    places = [
        as_int(simplify(substitute(index, {by_name["p"]: const(0), by_name["f"]: const(f)})))
        for index in asked
        for f in range(4)
    ]
    assert sorted(places) == sorted(wanted)
