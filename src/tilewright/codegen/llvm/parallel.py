"""Parallel loops: the body becomes a function of its own, launched on the thread pool.

For each parallel loop two functions are made. ``NAME.parallelK.body(begin, end, captures...)``
holds a serial loop over a chunk; pointers of distinct buffers are ``noalias`` parameters, so LLVM
knows as much as it did in the enclosing function. ``NAME.parallelK(ctx, begin, end)`` has the
pool's signature; it unpacks the captured values and calls the body.

A loop gets at most as many threads as its work is worth (``tir.parallel_work``): known when the
code is generated, or computed before the loop where extents are symbolic. One that is worth a
single thread is a serial loop.
"""

from __future__ import annotations

from typing import Any

from tilewright.codegen.llvm.builder import Callee, Function, function_text
from tilewright.codegen.llvm.emit_stmt import FunctionEmitter
from tilewright.codegen.llvm.types import register_type
from tilewright.codegen.llvm.values import I32, I64, Place, Struct, Type, Value
from tilewright.codegen.llvm.writer import Scope
from tilewright.ir import (
    INDEX,
    Expr,
    Var,
    as_int,
    call,
    cast,
    const,
    dtypes,
    maximum,
    minimum,
    uses_var,
)
from tilewright.support.errors import CodegenError
from tilewright.tir import SERIAL, Allocate, For, Stmt
from tilewright.tir.parallel_work import (
    WORK_PER_TAKE,
    WORK_PER_THREAD,
    ParallelOptions,
    iteration_work,
    parallel_options,
)


class OutlinedEmitter(FunctionEmitter):
    """Emits a parallel body; values of the enclosing function are captured when first used."""

    parallel_depth = 1

    def __init__(self, module: object, name: str, parent: FunctionEmitter) -> None:
        super().__init__(module, name)
        self.parent = parent
        self.captures: dict[Var, str] = {}
        self.effects = parent.effects

    def lookup(self, symbol: Any) -> str | None:
        """Capture a variable of the enclosing function; constants are taken as they are."""
        if symbol not in self.parent.values:
            return None
        outer = self.parent.values[symbol]
        if not outer.startswith("%"):
            return outer
        if isinstance(symbol, Var) and dtypes.is_scalable(symbol.dtype):
            raise CodegenError(
                f"{symbol.name!r} is a scalable vector, which threads can't be given; compute it "
                "inside of the parallel loop"
            )
        name = self.fresh("captured")
        self.captures[symbol] = name
        self.values[symbol] = name
        self.levels[name] = 0
        return name


def emit_parallel(module: Any, parent: FunctionEmitter, loop: For) -> None:
    """Outline ``loop`` and write its launch into ``parent``; or emit a serial loop."""
    options = parallel_options(loop.annotations)
    threads = worthwhile_threads(loop, options, module.target.num_cores)
    if as_int(threads) == 1:
        parent.visit(loop.replace(kind=SERIAL))
        return
    name = module.unique_name(f"{parent.name}.parallel")
    inner = OutlinedEmitter(module, name, parent)
    inner.noalias = parent.noalias
    inner.scopes[0] = Scope("function")
    begin, end = "%begin", "%end"
    inner.levels[begin] = inner.levels[end] = 0
    # The pool counts from zero, in 64 bits. Memory that every iteration needs is made once a chunk.
    kind, minimum = register_type(loop.loop_var.dtype), inner.visit(loop.min)
    low, high = begin, end
    if kind != "i64":
        low, high = (inner.pure(f"trunc i64 {place} to {kind}", place) for place in (begin, end))
    if minimum != "0":
        low, high = (
            inner.pure(f"add nsw {kind} {place}, {minimum}", place, minimum)
            for place in (low, high)
        )
    allocations, body = hoistable_allocations(loop)
    serial = loop.replace(kind=SERIAL, body=body)

    def chunk(left: list[Allocate]) -> None:
        if left:
            inner.with_memory(left[0].buffer, lambda: chunk(left[1:]))
        else:
            inner.loop(serial.loop_var, low, high, serial, sure=True)

    chunk(allocations)
    inner.finish_streaming()
    inner.effect("ret i32 0")
    captures = [
        (symbol, operand, register_type(symbol.dtype)) for symbol, operand in inner.captures.items()
    ]
    _write_functions(module, inner, name, captures)
    _write_launch(module, parent, loop, name, captures, options, threads)


def worthwhile_threads(loop: For, options: ParallelOptions, cores: int) -> Expr:
    """Return the number of threads that a loop is worth, at least one."""
    extent = cast(loop.extent, INDEX)
    if options.grain is not None:
        pieces, size = extent + (options.grain - 1), options.grain
    else:
        each = iteration_work(loop)
        if each is None:
            return const(cores)
        pieces, size = extent * each, WORK_PER_THREAD
    number = as_int(pieces)
    if number is not None:
        return const(min(max(number // size, 1), cores))
    return minimum(maximum(call("truncdiv", pieces, const(size)), 1), cores)


def _grain(loop: For, options: ParallelOptions) -> int:
    """Return how many iterations a thread takes at once from a dynamic loop."""
    if options.grain is not None:
        return options.grain
    each = iteration_work(loop)
    work = None if each is None else as_int(each)
    return 1 if work is None else max(1, WORK_PER_TAKE // max(1, work))


def hoistable_allocations(loop: For) -> tuple[list[Allocate], Stmt]:
    """Allocations at the top of a loop's body that may be made once for all iterations."""
    found: list[Allocate] = []
    body = loop.body
    while isinstance(body, Allocate) and not any(
        uses_var(extent, {loop.loop_var}) for extent in body.buffer.shape
    ):
        found.append(body)
        body = body.body
    return found, body


Captures = list[tuple[Var, str, str]]


def _write_functions(module: Any, inner: OutlinedEmitter, name: str, captures: Captures) -> None:
    params = ["i64 %begin", "i64 %end"]
    for symbol, operand, kind in captures:
        attributes = " noalias" if symbol in inner.noalias else ""
        params.append(f"{kind}{attributes} {operand}")
    module.functions.append(
        f'define internal i32 @"{name}.body"({", ".join(params)}) noinline {module.attributes} {{'
    )
    module.functions.append("entry:")
    module.functions.extend(inner.text_lines())
    module.functions.append("}")
    module.functions.append(function_text(_unpacker(name, captures)))


def _unpacker(name: str, captures: Captures) -> Callee:
    """The function that the pool calls: it passes what was captured on to the body."""
    fields = _struct(captures).fields
    parameters = {"begin": I64, "end": I64, **fields}
    inner = Callee(f"{name}.body", I32, parameters)

    def body(f: Function, context: Place, begin: Value, end: Value) -> None:
        f.ret(f.call(inner, begin, end, *(context[field].get() for field in fields)))

    parameters = {"ctx": _struct(captures), "begin": I64, "end": I64}
    return Callee(name, I32, parameters, "nounwind", "internal ", body=body)


def _struct(captures: Captures) -> Struct:
    """What the context of a launch holds."""
    return Struct("", **{f"c{index}": Type(kind) for index, (_, _, kind) in enumerate(captures)})


def _write_launch(
    module: Any,
    parent: FunctionEmitter,
    loop: For,
    name: str,
    captures: Captures,
    options: ParallelOptions,
    threads: Expr,
) -> None:
    context = "null"
    if captures:
        struct = _struct(captures)
        context = parent.fresh("context")
        parent.levels[context] = 0
        # LLVM knows the alignment: that of the widest vector.
        parent.entry.append(f"  {context} = alloca {struct}")
        for index, (symbol, _, kind) in enumerate(captures):
            field = parent.pure(
                f"getelementptr {struct}, ptr {context}, i32 0, i32 {index}", context
            )
            parent.effect(f"store {kind} {parent.values[symbol]}, ptr {field}")
    count = parent.visit(cast(loop.extent, INDEX))
    most = parent.visit(cast(threads, "int32"))
    args = f'(ptr @"{name}", ptr {context}, i64 {count}, i32 {most}'
    if options.dynamic:
        module.declare("declare i32 @tw_parallel_launch_dynamic(ptr, ptr, i64, i32, i64)")
        code = parent.here(
            f"call i32 @tw_parallel_launch_dynamic{args}, i64 {_grain(loop, options)})"
        )
    else:
        module.declare("declare i32 @tw_parallel_launch(ptr, ptr, i64, i32)")
        code = parent.here(f"call i32 @tw_parallel_launch{args})")
    parent.forget()
    parent.return_if_failed(code)
