"""Functions of LLVM IR that Python functions write: their control, memory, types and refusals."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.codegen.llvm import jit
from tilewright.codegen.llvm.builder import (
    Callee,
    Function,
    Global,
    exported,
    external,
    function,
    module_text,
)
from tilewright.codegen.llvm.values import (
    BOOL,
    DOUBLE,
    I32,
    I64,
    PTR,
    RELAXED,
    SEQUENTIAL,
    U8,
    U32,
    U64,
    VOID,
    Struct,
    Type,
    Value,
    array,
)
from tilewright.runtime import Library
from tilewright.support.errors import CodegenError

CELL = Struct("cell", kind=U8, value=I64)


def compiled(*callees: Callee) -> Callable[..., int]:
    """The first function, loaded; numbers go in and out as int64."""
    text = module_text(callees)
    code = Library([jit.compile_ll(text)], [callees[0].name])
    count = len(callees[0].parameters)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(
        code.addresses[callees[0].name]
    )
    call.code = code  # type: ignore[attr-defined]  # keeps the code as long as the function
    return call


def test_branches_and_loops() -> None:
    @exported("test_loops", I64, n=I64)
    def loops(f: Function, n: Value) -> None:
        total = f.variable(I64, 0)
        with f.for_(n) as i:
            with f.if_((i % 3).eq(0)):
                f.continue_()
            with f.if_(i > 100):
                f.break_()
            with f.if_((i & 1).eq(0)):
                total += i
            with f.else_():
                with f.if_(i.eq(5)):
                    total += 1000
                with f.else_():
                    total += 1
        with f.while_(lambda: total > 2000):
            total.set(total - 1500)
        f.ret(total)

    def expected(n: int) -> int:
        total = 0
        for i in range(n):
            if i % 3 == 0:
                continue
            if i > 100:
                break
            total += i if i % 2 == 0 else 1000 if i == 5 else 1
        while total > 2000:
            total -= 1500
        return total

    call = compiled(loops)
    for n in (-1, 0, 1, 2, 5, 6, 7, 50, 101, 102, 1000):
        assert call(n) == expected(n)


def test_ends_on_both_sides_need_no_end_after_them() -> None:
    @exported("test_sides", I64, n=I64)
    def sides(f: Function, n: Value) -> None:
        with f.if_(n < 0):
            f.ret(-1)
        with f.else_():
            f.ret(1)

    call = compiled(sides)
    assert (call(-7), call(7)) == (-1, 1)


@pytest.mark.parametrize("kind", [I64, U64])
def test_types_tell_which_operators_are_meant(kind: Type) -> None:
    @exported("test_operators", I64, a=I64, b=I64, which=I64)
    def operators(f: Function, a: Value, b: Value, which: Value) -> None:
        a, b = a.to(kind), b.to(kind)
        results = (
            a // b,
            a % b,
            a >> 1,
            (a < b).to(I64),
            (a >= b).to(I64),
            a.to((kind is I64 and I32) or U32).to(I64),
            10 - a,
            1 << (b & 31),
            ~a,
        )
        for index, result in enumerate(results):
            with f.if_(which.eq(index)):
                f.ret(result)
        f.ret(0)

    call = compiled(operators)
    signed = kind is I64

    def wrapped(value: int) -> int:
        return (value + 2**63) % 2**64 - 2**63

    for a, b in ((7, 2), (-7, 2), (-7, -2), (2**40, 3)):
        x, y = (a, b) if signed else (a % 2**64, b % 2**64)
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        low = x % 2**32
        narrow = low - 2**32 if signed and low >= 2**31 else low
        shift = 1 << (y & 31)
        for index, value in enumerate(
            (quotient, x - quotient * y, x >> 1, x < y, x >= y, narrow, 10 - x, shift, ~x)
        ):
            assert call(a, b, index) == wrapped(value), (a, b, index)


def test_structs_arrays_globals_and_texts() -> None:
    counters = Global("test.counters", array(4, I64), align=64)

    @function(VOID, cell=CELL, by=I64)
    def grow(f: Function, cell: Any, by: Value) -> None:
        value = cell["value"]
        value += by

    @exported("test_memory", I64, n=I64)
    def memory(f: Function, n: Value) -> None:
        cells = f.local(array(3, CELL))
        with f.for_(3) as i:
            cells[i]["kind"].set(7)
            cells[i]["value"].set(i * 10)
        f.call(grow, cells[1], n)
        counter = f.use(counters)[2]
        before = counter.fetch_add(5, SEQUENTIAL)
        taken = counter.compare_exchange(before + 5, 100, SEQUENTIAL)
        names = {0: "zero", 2: "two"}
        word = f.name_of("test.names", n, names, gap="gap", beyond="beyond")
        letter = word.at(U8, 1).get()
        total = cells[1]["value"] + cells[2]["kind"].to(I64) * 1000
        f.ret(total + counter.get(RELAXED) * taken.to(I64) * 10000 + letter.to(I64) * 10**8)

    call = compiled(memory)
    for n, name in ((0, "zero"), (1, "gap"), (2, "two"), (3, "beyond"), (2**40, "beyond")):
        assert call(n) == 10 + n + 7000 + 100 * 10000 + ord(name[1]) * 10**8


def test_only_what_is_used_is_in_a_module() -> None:
    unused = external(VOID, "nobody_calls_this", PTR)

    @exported("test_small", VOID)
    def small(f: Function) -> None:
        f.clear(f.local(array(4, I64)))

    text = module_text([small])
    assert unused.name not in text
    assert text.count("declare") == 1
    assert "llvm.memset" in text


def body_of(write: Callable[[Function], object], result: Type = VOID) -> str:
    return module_text([Callee("test_refused", result, {}, body=lambda f: write(f))])


def _late_else(f: Function) -> None:
    with f.if_(f.constant(BOOL, 1)):
        pass
    f.local(I64).set(1)
    with f.else_():
        pass


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda f: f.local(CELL)["size"], "%cell has no field 'size'; it has kind, value"),
        (lambda f: f.local(I64)["size"], "it is no struct"),
        (lambda f: f.local(I64)[1], "it is no array"),
        (lambda f: f.constant(I64, 1) + f.constant(I32, 1), "expected a value of type i64"),
        (lambda f: f.constant(DOUBLE, 1) & 1, "and isn't defined on values of type double"),
        (lambda f: f.constant(I64, 1) / 2, "fdiv isn't defined on values of type i64"),
        (lambda f: f.ret(1), "a function of type void returns 1"),
        (lambda f: f.call(external(VOID, "g", I64)), "g takes 1 arguments, but is called with 0"),
        (lambda f: f.clear(f.local(CELL)), "the bytes of %cell aren't known"),
        (_late_else, "an `else` stands just after its `if`"),
        (
            lambda f: (f.use(Global("g", I64, 8)), f.use(Global("g", I32, 4))),
            "two globals of a module have the name 'g'",
        ),
        (
            lambda f: (f.call(external(VOID, "g")), f.call(external(I64, "g"))),
            "two functions of a module have the name 'g'",
        ),
    ],
)
def test_refused(write: Callable[[Function], object], message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        body_of(write)


def test_a_result_must_be_returned() -> None:
    with pytest.raises(CodegenError, match="a function of type i64 returns None"):
        body_of(lambda f: None, I64)


def test_constants_of_structs_are_complete() -> None:
    assert CELL.constant(kind=1, value=2) == "%cell { i8 1, i64 2 }"
    with pytest.raises(CodegenError, match="must have the fields kind, value; got kind"):
        CELL.constant(kind=1)
