"""What of a program decides how closely its candidates are checked, and with which inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import (
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    Let,
    Node,
    Select,
    Var,
    as_int,
    const,
    const_value,
    dtypes,
    expr_equal,
    free_vars,
    pre_order,
    substitute,
)
from tilewright.meta_schedule.arg_info import ArgInfo, TensorInfo
from tilewright.meta_schedule.runner.inputs import limits
from tilewright.tir import (
    REDUCE,
    BlockRealize,
    BufferLoad,
    BufferStore,
    For,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    While,
)

# Largest difference allowed: so many roundings of the coarsest arithmetic for the program as such,
# and so many times the square root of the number of terms, by which roundings of either sign add
# up. Relative to the largest result, of which a wrong index or a lost term is a larger part.
_ROUNDINGS, _ROUNDINGS_PER_ROOT = 32.0, 4.0
_NARROW_ROUNDINGS, _NARROW_ROUNDINGS_PER_ROOT = 4.0, 1.0

# Numbers up to this one stand for minus infinity.
_MASKED = -1e4

# A length of a reduction that isn't known, and the longest that counts (loops that sort are no
# sums).
_SOME_LENGTH, _LONGEST = 4096, 1 << 24

# Operators of integers whose second operand may not be just anything.
_PARTIAL = frozenset({"truncdiv", "truncmod", "shift_left", "shift_right"})
# What passes values on without rounding them.
_EXACT = (BufferLoad, FloatImm, Var, Let, Select)


@dataclass(frozen=True)
class Traits:
    """How the candidates of a program are checked.

    ``reduction`` is the number of terms of its longest sum, ``epsilon`` the rounding error of its
    coarsest float arithmetic (0: it has none). The arguments at the positions ``fixed`` take part
    in addresses or numbers of iterations, or something is divided by them. A program that ``pads``
    has zeros in places, and sums that leave these out lose a NaN times zero. One that ``masks`` has
    minus infinity in places, which kernels may also add to what is masked: that has to be finite.
    """

    reduction: int = _SOME_LENGTH
    epsilon: float = 0.0
    fixed: frozenset[int] = frozenset()
    pads: bool = False
    masks: bool = False

    @property
    def tolerance(self) -> float:
        """Largest difference allowed, relative to the largest result.

        ``epsilon * (32 + 4 * sqrt(reduction))``; of types narrower than float32, whose roundings
        are few and large, ``epsilon * (4 + sqrt(reduction))``.
        """
        narrow = self.epsilon > limits("float32").eps
        base = _NARROW_ROUNDINGS if narrow else _ROUNDINGS
        root = _NARROW_ROUNDINGS_PER_ROOT if narrow else _ROUNDINGS_PER_ROOT
        return self.epsilon * (base + root * math.sqrt(self.reduction))


def traits_of_arguments(infos: Sequence[ArgInfo]) -> Traits:
    """The traits of a program of which only the arguments are known: only random ones are safe."""
    floats = (x.dtype for x in infos if isinstance(x, TensorInfo) and dtypes.is_float(x.dtype))
    epsilon = max((float(limits(dtype).eps) for dtype in floats), default=0.0)
    return Traits(epsilon=epsilon, fixed=frozenset(range(len(infos))))


def traits_of(func: PrimFunc, infos: Sequence[ArgInfo]) -> Traits:
    """Return the traits of a function at the sizes that its arguments have."""
    sizes: dict[Any, Expr] = {}
    for param, info in zip(func.params, infos):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            sizes[param] = const(getattr(info, "value", 1), param.dtype)
        elif isinstance(info, TensorInfo):
            found = zip(buffer.shape, info.shape)
            sizes.update((dim, const(size)) for dim, size in found if type(dim) is Var)
    reader = _Reader(sizes)
    reader.walk(func.body, ())
    tainted = reader.tainted()
    fixed = (
        position
        for position, param in enumerate(func.params)
        if param in func.buffer_map and func.buffer_map[param].data in tainted
    )
    return Traits(
        min(reader.reduction, _LONGEST), reader.epsilon, frozenset(fixed), reader.pads, reader.masks
    )


Axis = tuple[Var, Expr]


class _Reader:
    """Walks a function; ``sources`` are, of each memory and variable, those it was made of."""

    def __init__(self, sizes: dict[Any, Expr]) -> None:
        self.sizes = sizes
        self.reduction = 1
        self.epsilon = 0.0
        self.pads = self.masks = False
        self.sources: dict[Var, set[Var]] = {}
        self.decisive: set[Var] = set()

    def walk(self, node: Node, axes: tuple[Axis, ...]) -> None:
        """Take in a node; ``axes`` are the loops around it, or the block's axes."""
        todo = [(node, axes)]
        while todo:
            current, around = todo.pop()
            self._note(current, around)
            if isinstance(current, For):
                around = (*around, (current.loop_var, current.extent))
            elif isinstance(current, BlockRealize):
                block = current.block
                around = tuple((axis.var, axis.dom.extent) for axis in block.iter_vars)
                reduced = [axis.dom.extent for axis in block.iter_vars if axis.kind == REDUCE]
                self._sums(reduced)
            todo += [(item, around) for item in current.child_nodes()]

    def _note(self, node: Node, axes: tuple[Axis, ...]) -> None:
        if isinstance(node, BufferStore):
            self._made(node.buffer.data, [node.value])
            self._decides(node.indices)
            self._rounds(node.buffer.dtype)
            self._accumulates(node, axes)
        elif isinstance(node, BufferLoad):
            self._decides(node.indices)
        elif isinstance(node, (Let, LetStmt)):
            self._made(node.var, [node.value])
        elif isinstance(node, BlockRealize):
            for axis, value in zip(node.block.iter_vars, node.iter_values):
                self._made(axis.var, [value])
        elif isinstance(node, MatchBufferRegion):
            outer = node.source.buffer.data
            self.sources.setdefault(node.buffer.data, set()).add(outer)
            self.sources.setdefault(outer, set()).add(node.buffer.data)
        elif isinstance(node, For):
            self._decides([node.min, node.extent])
            self._made(node.loop_var, [node.min, node.extent])
        elif isinstance(node, While):
            self._decides([node.condition])
        elif isinstance(node, Call):
            if node.op.effect != "pure":
                self._decides(node.args)
            elif node.op.name in _PARTIAL:
                self._decides(node.args[1:])
            elif node.op.name == "if_then_else":
                self._fills(node.args[1:])
            self._rounds(node.dtype)
        elif isinstance(node, Select):
            self._fills([node.true_value, node.false_value])
        elif isinstance(node, (FloorDiv, FloorMod)):
            if dtypes.is_integer(node.dtype):
                self._decides([node.b])
            self._rounds(node.dtype)
        elif isinstance(node, Expr) and not isinstance(node, _EXACT) and not _widens(node):
            self._rounds(node.dtype)

    def _fills(self, choices: Iterable[Expr]) -> None:
        for value in map(const_value, choices):
            self.pads = self.pads or value == 0
            self.masks = self.masks or (value is not None and value <= _MASKED)

    def _rounds(self, dtype: str) -> None:
        if dtypes.is_float(dtype):
            self.epsilon = max(self.epsilon, float(limits(dtypes.element_of(dtype)).eps))

    def _made(self, target: Var, values: Iterable[Expr]) -> None:
        self.sources.setdefault(target, set()).update(_named(values))

    def _decides(self, values: Iterable[Expr]) -> None:
        self.decisive.update(_named(values))

    def _accumulates(self, store: BufferStore, axes: tuple[Axis, ...]) -> None:
        """Count the terms of a sum or a scan that is written out in loops."""
        memory = store.buffer.data
        own = [
            item
            for item in pre_order(store.value)
            if isinstance(item, BufferLoad) and item.buffer.data is memory
        ]
        if not own:
            return
        used = {var for index in store.indices for var in free_vars(index)}
        terms = [extent for var, extent in axes if var not in used]
        same = all(map(expr_equal, store.indices, own[0].indices))
        if not same:  # a scan
            terms += [max((extent for _, extent in axes), key=self._number, default=const(1))]
        self._sums(terms)

    def _sums(self, extents: Iterable[Expr]) -> None:
        self.reduction = max(self.reduction, math.prod(map(self._number, extents)))

    def _number(self, extent: Expr) -> int:
        found = as_int(extent)
        if found is None:
            found = as_int(simplify(substitute(extent, self.sizes)))
        return _SOME_LENGTH if found is None else max(1, found)

    def tainted(self) -> set[Var]:
        """All memory that what decides is made of."""
        found: set[Var] = set()
        todo = list(self.decisive)
        while todo:
            item = todo.pop()
            if item not in found:
                found.add(item)
                todo += self.sources.get(item, ())
        return found


def _named(values: Iterable[Expr]) -> Iterator[Var]:
    """The memory and the variables that expressions use."""
    for value in values:
        for item in pre_order(value):
            if isinstance(item, BufferLoad):
                yield item.buffer.data
            elif type(item) is Var:
                yield item


def _widens(node: Expr) -> bool:
    """Whether it is a conversion that loses nothing."""
    return (
        isinstance(node, Cast)
        and dtypes.is_float(node.value.dtype)
        and dtypes.bits_of(node.dtype) > dtypes.bits_of(node.value.dtype)
    )
