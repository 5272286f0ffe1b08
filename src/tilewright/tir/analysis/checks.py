"""Questions about whole functions under TVM's names: is it well formed, does a GPU take it?

``verify`` says what is wrong, where; these answer yes or no, or raise if asked to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import (
    Expr,
    IRModule,
    Node,
    Pass,
    Var,
    as_int,
    defined_symbols,
    definition_fields,
    dtypes,
    free_vars,
    pre_order,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis.bounds import check_out_of_bounds
from tilewright.tir.analysis.flops import estimate_flops
from tilewright.tir.analysis.purity import check_purity
from tilewright.tir.analysis.verify import verify
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    THREAD_BINDING,
    VECTORIZED,
    Allocate,
    Block,
    BufferStore,
    For,
    Stmt,
)


def verify_well_formed(obj: PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """Whether a function or module is well formed; with ``assert_mode`` raise if it isn't."""
    try:
        verify(obj)
    except VerifyError:
        if assert_mode:
            raise
        return False
    return True


def verify_ssa(func: PrimFunc) -> bool:
    """Whether no variable and no buffer of a function is defined twice."""
    seen: set[int] = set()
    for item in pre_order(func):
        if not _defines(item) or getattr(type(item), "own_scope", False):
            continue
        for symbol in defined_symbols(item):
            if id(symbol) in seen:
                return False
            seen.add(id(symbol))
    return True


def _defines(node: Node) -> bool:
    """Whether a node brings symbols into scope; uses of a buffer don't bring its pointer there."""
    return bool(definition_fields(type(node))) and not isinstance(node, Buffer)


def undefined_vars(node: Stmt | Expr, defs: Sequence[Var] | None = None) -> list[Var]:
    """The variables that a statement or expression uses and doesn't define, in order.

    Pointers of buffers that something else declares are among them, and sizes of these; ``defs``
    are variables that are defined around it.
    """
    known: set[Any] = set(defs or ())
    used: dict[Var, None] = {}
    buffers: dict[Buffer, None] = {}
    for item in pre_order(node):
        if _defines(item):
            for symbol in defined_symbols(item):
                known.add(symbol)
                if isinstance(symbol, Buffer):
                    known.add(symbol.data)
        if type(item) is Var:
            used.setdefault(item)
        elif isinstance(item, Buffer) and item not in buffers:
            buffers[item] = None
            used.setdefault(item.data)
            for number in (*item.shape, *item.strides, item.elem_offset):
                for var in () if number is None else free_vars(number):
                    used.setdefault(var)
    return [var for var in used if var not in known]


def verify_memory(func: PrimFunc) -> bool:
    """Whether a function for a GPU accesses memory in its threads only; others always do right.

    The target is the function's attribute ``target``.
    """
    target = func.attrs.get("target")
    if target is None or target.kind.name not in ("cuda", "rocm", "hip", "metal", "opencl"):
        return True

    def in_threads(node: Node) -> bool:
        return isinstance(node, For) and node.kind == THREAD_BINDING

    outside = pre_order(func.body, lambda node: not in_threads(node))
    return not any(
        isinstance(item, (BufferLoad, BufferStore)) and item.buffer.scope == "global"
        for item in outside
    )


def assert_pure_function(func: PrimFunc) -> bool:
    """Return true for a function without side effects; raise ``VerifyError`` for others."""
    found = check_purity(func)
    if found:
        raise VerifyError(f"{func!r} is not pure: {'; '.join(reason for _, reason in found)}")
    return True


def estimate_tir_flops(stmt_or_mod: Stmt | PrimFunc | IRModule) -> float:
    """The arithmetic operations of a statement, or of all functions of a module."""
    if isinstance(stmt_or_mod, Stmt):
        stmt_or_mod = PrimFunc((), stmt_or_mod)
    return float(estimate_flops(stmt_or_mod))


def find_anchor_sblock(mod: IRModule | PrimFunc) -> Block | None:
    """The block that a module is about: its reduction with the most operations, if it has one."""
    funcs = [mod] if isinstance(mod, PrimFunc) else mod.functions.values()
    best: tuple[float, Block | None] = (-1.0, None)
    for func in funcs:
        if not isinstance(func, PrimFunc):
            continue
        for count, block in _reductions(func.body, 1):
            if count > best[0]:
                best = count, block
    return best[1]


def _reductions(node: Node, times: float) -> list[tuple[float, Block]]:
    """Reduction blocks, each with its operations in all iterations."""
    found: list[tuple[float, Block]] = []
    stack = [(node, times)]
    while stack:
        item, count = stack.pop()
        if isinstance(item, For):
            count *= as_int(item.extent) or 1
        if isinstance(item, Block) and item.init is not None:
            found.append((count * estimate_tir_flops(item.body), item))
        stack += [(child, count) for child in reversed(item.child_nodes())]
    return found


class OOBChecker(Pass):
    """The pass that raises ``VerifyError`` for accesses that are outside of their buffers."""

    def transform(self, mod: IRModule) -> IRModule:
        """Check all functions; the module stays as it is."""
        for name, func in mod.functions.items():
            if isinstance(func, PrimFunc):
                found = check_out_of_bounds(func)
                if found:
                    raise VerifyError(f"{name} accesses memory outside of buffers: {found[0]!r}")
        return mod


_LIMITS = (
    "max_local_memory_per_block", "max_shared_memory_per_block", "max_threads_per_block",
    "max_thread_x", "max_thread_y", "max_thread_z", "max_vthread", "max_vector_bytes",
    "max_kernels",
)  # fmt: skip


def verify_gpu_code(func: PrimFunc, constraints: Mapping[str, int]) -> bool:
    """Whether a function keeps to the limits of a GPU.

    ``constraints`` are limits by name: bytes of memory that is local to a thread
    (``max_local_memory_per_block``, of all threads together) or shared, threads per block in all
    and by dimension, virtual threads, bytes of a vector, kernels.

    Raises ``VerifyError`` for an unknown name, and sizes that aren't constant.
    """
    unknown = set(constraints) - set(_LIMITS)
    if unknown:
        raise VerifyError(f"unknown limits {sorted(unknown)}; there are {', '.join(_LIMITS)}")
    found = _Demands()
    found.walk(func.body, {})
    return all(found.most.get(name, 0) <= int(limit) for name, limit in constraints.items())


class _Demands:
    """The greatest demand of any kernel, by the name of its limit."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}

    def note(self, name: str, value: int) -> None:
        self.most[name] = max(self.most.get(name, 0), value)

    def walk(self, root: Node, threads: dict[str, int]) -> None:
        """Look at what is below a node, inside of loops over threads."""
        stack: list[tuple[Node, dict[str, int]]] = [(root, threads)]
        while stack:
            item, around = stack.pop()
            if isinstance(item, For) and item.kind == THREAD_BINDING:
                if not around:
                    self.most["max_kernels"] = self.most.get("max_kernels", 0) + 1
                    self.memory(item)
                around = {**around, str(item.thread): _number(item.extent)}
                self.threads(around)
            elif isinstance(item, For) and item.kind == VECTORIZED:
                self.vectors(item)
            elif isinstance(item, BufferLoad):
                self.note("max_vector_bytes", dtypes.bytes_of(item.dtype))
            stack += [(child, around) for child in item.child_nodes()]

    def threads(self, tags: dict[str, int]) -> None:
        total = 1
        for tag, extent in tags.items():
            group, _, axis = tag.partition(".")
            if group == "threadIdx":
                total *= extent
                self.note(f"max_thread_{axis}", extent)
            elif group == "vthread":
                self.note("max_vthread", extent)
        self.note("max_threads_per_block", total)

    def vectors(self, loop: For) -> None:
        lanes = _number(loop.extent)
        for item in pre_order(loop.body):
            if isinstance(item, (BufferLoad, BufferStore)):
                self.note("max_vector_bytes", lanes * dtypes.bytes_of(item.buffer.dtype))

    def memory(self, kernel: Node) -> None:
        sizes = {"local": 0, "shared": 0}
        for item in pre_order(kernel):
            made = item.alloc_buffers if isinstance(item, Block) else ()
            for buffer in (item.buffer,) if isinstance(item, Allocate) else made:
                kind = buffer.scope.partition(".")[0]
                if kind in sizes:
                    count = 1
                    for extent in buffer.shape:
                        count *= _number(extent)
                    sizes[kind] += count * dtypes.bytes_of(buffer.dtype)
        for kind, size in sizes.items():
            self.note(f"max_{kind}_memory_per_block", size)


def _number(value: Expr) -> int:
    found = as_int(value)
    if found is None:
        raise VerifyError(f"limits of a GPU are checked for constant sizes, got {value!r}")
    return found
