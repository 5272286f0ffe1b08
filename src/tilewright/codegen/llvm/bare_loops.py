"""Loops of one kind of work alone: what a CPU can do is measured with these.

Multiply-adds on registers, reading, copying or filling memory, and chains of operations that wait
for each other. Each is the function ``main`` of a module and takes two addresses, a count (steps of
a chain, or bytes), how often to repeat that, and on how many threads, whose parts of the memory lie
``stride`` bytes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.llvm.builder import (
    Function,
    exported,
    external,
    function,
    module_text,
)
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg
from tilewright.codegen.llvm.package import Machine, build_module
from tilewright.codegen.llvm.streaming import NONTEMPORAL
from tilewright.codegen.llvm.values import (
    FLOAT,
    I8,
    I32,
    I64,
    PTR,
    U64,
    Place,
    Struct,
    Type,
    Value,
    vector,
)
from tilewright.runtime import Module
from tilewright.target import Target

#: Bytes of the parts of the memory that chains use, for each thread.
CHAIN_BYTES = 4096
_LAUNCH = external(I32, "tw_parallel_launch", PTR, PTR, I64, I32)
_JOB = Struct("tw.job_type", x=PTR, y=PTR, count=I64, repeats=I64)
_BFLOAT = Type("bfloat", 2, is_float=True)


@dataclass(frozen=True)
class Step:
    """A multiply-add ``instruction(accumulator, x, x)``, and its operations per call.

    ``last`` tells instructions that take the accumulator last.
    """

    accumulator: Type
    operand: Type
    instruction: str
    flops: int
    last: bool = False

    def call(self, f: Function, total: Value, x: Value) -> Value:
        """Add a product to a total."""
        kinds = [self.operand, self.operand]
        kinds.insert(2 if self.last else 0, self.accumulator)
        callee = external(self.accumulator, self.instruction, *kinds)
        return f.call(callee, *((x, x, total) if self.last else (total, x, x)))


def steps(target: Target) -> dict[str, Step]:
    """Return the multiply-adds that the target has, by kind."""
    lanes = target.vector_bits // 32
    floats = vector(lanes, FLOAT)
    found = {"float32": Step(floats, floats, f"llvm.fma.v{lanes}f32", 2 * lanes, last=True)}
    if target.has("avx512bf16") and target.vector_bits == 512:
        pairs = vector(32, _BFLOAT)
        found["bfloat16"] = Step(floats, pairs, "llvm.x86.avx512bf16.dpbf16ps.512", 64)
    if target.has("avx512vnni") and target.vector_bits == 512:
        octets, ints = vector(64, I8), vector(16, I32)
        found["int8"] = Step(ints, octets, "llvm.x86.avx512.vpdpbusd.512", 128)
    return found


def chained(target: Target, step: Step, chains: int | None = None) -> tuple[Module, int]:
    """Return a loop of independent chains of multiply-adds, and their number.

    There are as many as keep the units busy, unless told.
    """
    number = chains or min(24, target.vector_registers - 4)

    def body(f: Function, job: _Job) -> None:
        x = job.x.at(step.operand).get(align=1)
        start = job.x.at(step.accumulator).get(align=1)
        totals = [f.variable(step.accumulator, start) for _ in range(number)]
        with f.for_(job.count):
            for total in totals:
                total.set(step.call(f, total.get(), x))
        for at, total in enumerate(totals):
            job.y.at(step.accumulator, at).set(total, align=1)

    return _module(target, body, CHAIN_BYTES), number


#: Cycles of a step of ``shifting``: three shifts, and three exclusive ors of what they give.
SHIFTING_CYCLES = 6


def shifting(target: Target) -> Module:
    """Return a chain of shifts and exclusive ors, each a cycle on any CPU: it tells the clock.

    (A random number generator of G. Marsaglia, "Xorshift RNGs", 2003: no compiler shortens it.)
    """

    def body(f: Function, job: _Job) -> None:
        word = f.variable(U64, job.x.at(U64).get())
        with f.for_(job.count):
            word.set(word ^ (word << 13))
            word.set(word ^ (word >> 7))
            word.set(word ^ (word << 17))
        job.y.at(U64).set(word)

    return _module(target, body, CHAIN_BYTES)


def reading(target: Target, stride: int) -> Module:
    """Return a loop that reads eight vectors a step."""
    kind = _widest(target)

    def body(f: Function, job: _Job) -> None:
        totals = [f.variable(kind, f.constant(kind, 0)) for _ in range(8)]
        with _passing(f, job.count, 8 * kind.bytes) as n:
            for at, total in enumerate(totals):
                part = job.x.at(I8, n + at * kind.bytes).seen_as(kind)
                total.set(total | part.get(align=kind.bytes))
        union = totals[0].get()
        for total in totals[1:]:
            union = union | total
        job.y.at(kind).set(union, align=1)

    return _module(target, body, stride)


def copying(target: Target, stride: int, streaming: bool) -> Module:
    """Return a loop that copies four vectors a step, past the caches if ``streaming``."""
    return _storing(target, stride, streaming, copies=True)


def filling(target: Target, stride: int, streaming: bool) -> Module:
    """Return a loop that writes four vectors a step, past the caches if ``streaming``."""
    return _storing(target, stride, streaming, copies=False)


def _storing(target: Target, stride: int, streaming: bool, copies: bool) -> Module:
    kind = _widest(target)
    mark = f", !nontemporal {NONTEMPORAL}" if streaming else ""

    def body(f: Function, job: _Job) -> None:
        with _passing(f, job.count, 4 * kind.bytes) as n:
            for at in range(4):
                x, y = (item.at(I8, n + at * kind.bytes).seen_as(kind) for item in (job.x, job.y))
                y.set(x.get(align=kind.bytes) if copies else 0, align=kind.bytes, mark=mark)

    return _module(target, body, stride)


def waking(target: Target) -> Module:
    """Return a launch of nothing on each thread."""
    return _module(target, lambda f, job: job.y.at(I64).set(job.count), CHAIN_BYTES)


@contextmanager
def _passing(f: Function, count: Value, step: int) -> Iterator[Value]:
    """Count bytes in steps, which are read upwards: downwards, memory is a third as fast."""
    n = f.variable(I64, 0)
    with f.while_(lambda: n < count):
        yield n.get()
        n += step


def _widest(target: Target) -> Type:
    return vector(target.vector_bits // 64, I64)


@dataclass(frozen=True)
class _Job:
    """What a thread gets: its parts of the memory, and the count."""

    x: Value
    y: Value
    count: Value


def _module(target: Target, body: Callable[[Function, _Job], None], stride: int) -> Module:
    @function(I32, context=PTR, begin=I64, end=I64)
    def work(f: Function, context: Value, begin: Value, end: Value) -> None:
        job = context.at(_JOB)
        with f.for_(end, begin) as part:  # several where the pool has fewer threads
            x, y = (job[name].get().at(I8, part * stride).address for name in ("x", "y"))
            mine = _Job(x, y, job["count"].get())
            with f.for_(job["repeats"].get()):
                body(f, mine)
        f.ret(0)

    @exported("main_kernel", I32, x=PTR, y=PTR, count=I64, repeats=I64, threads=I64)
    def main(f: Function, x: Value, y: Value, count: Value, repeats: Value, threads: Value) -> None:
        job: Place = f.local(_JOB)
        for name, value in (("x", x), ("y", y), ("count", count), ("repeats", repeats)):
            job[name].set(value)
        f.ret(f.call(_LAUNCH, f.address_of(work), job.address, threads, 0))

    args: tuple[TensorArg | ScalarArg, ...] = (
        TensorArg("x", "uint8", (None,)),
        TensorArg("y", "uint8", (None,)),
        *(ScalarArg(name, "int64") for name in ("count", "repeats", "threads")),
    )
    return build_module(
        f"{module_text([main])}\n{NONTEMPORAL} = !{{i32 1}}\n",
        [FunctionSpec("main", args, "main_kernel")],
        machine=Machine(cpu=target.mcpu or None, features=target.feature_string),
    )


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Return so many bytes that begin a page."""
    raw = np.ones(nbytes + 4096, np.uint8)  # not zeros: those would share one page of memory
    start = -raw.ctypes.data % 4096
    return raw[start : start + nbytes]
