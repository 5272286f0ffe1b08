"""From graph values to ``te`` tensors and back: what ``BlockBuilder.call_te`` is made of."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from tilewright import te
from tilewright.ir import Expr, FloatImm, GlobalVar, IntImm, Var, free_vars
from tilewright.relax.call_tir import call_tir
from tilewright.relax.expr import (
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    StringValue,
    Tuple,
)
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc, renew_definitions


class Graph(Protocol):
    """A graph under construction."""

    def emit(self, expr: RelaxExpr, name_hint: str = "") -> RelaxVar:
        """Bind an expression."""

    def add_func(self, func: PrimFunc, func_name: str) -> GlobalVar:
        """Add a tensor function, or return the one that is equal to it."""


class _NoKey(Exception):
    """An argument can't be distinguished from others like it."""


class TensorBridge:
    """Turns graph operands into ``te`` placeholders and a ``te`` result into a ``call_tir``."""

    def __init__(self, builder: Graph, merge_repeated: bool) -> None:
        self.builder = builder
        self.merge_repeated = merge_repeated
        self.operands: list[RelaxExpr] = []
        self.placeholders: list[te.Tensor] = []
        self.known: dict[RelaxExpr, te.Tensor] = {}

    def convert(self, value: object) -> Any:
        """Turn an argument, however nested, into what ``te`` takes."""
        if hasattr(value, "_expr") and isinstance(value._expr, RelaxExpr):
            value = value._expr
        if isinstance(value, ShapeExpr):
            return value.values
        if isinstance(value, PrimValue):
            return value.value
        if isinstance(value, StringValue):
            return value.value
        if isinstance(value, Tuple):
            return [self.convert(item) for item in value.fields]
        if isinstance(value, RelaxExpr):
            return self.tensor(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.convert(item) for item in value)
        return value

    def tensor(self, value: RelaxExpr) -> Any:
        """Return the placeholder of a tensor; a list of them for a tuple."""
        if self.merge_repeated and value in self.known:
            return self.known[value]
        info = value.struct_info
        if isinstance(info, TupleStructInfo):
            made = [
                self.tensor(self.builder.emit(value[index])) for index in range(len(info.fields))
            ]
            return made
        if not isinstance(info, TensorStructInfo) or not info.has_shape:
            raise VerifyError(
                f"call_te needs tensors of known shape, got {value!r}: {info!r}; use match_cast to "
                "state it"
            )
        name = value.name if isinstance(value, RelaxVar) else "const"
        placeholder = te.placeholder(info.shape, info.dtype, _identifier(name))
        self.operands.append(value)
        self.placeholders.append(placeholder)
        self.known[value] = placeholder
        return placeholder

    def key(self, positional: list[Any], named: dict[str, Any]) -> Hashable:
        """A key that distinguishes converted arguments; ``None`` if there is none.

        Symbolic extents have none: it matters which of them are the same.
        """
        try:
            return self._key_of(positional), self._key_of([*sorted(named.items())])
        except _NoKey:
            return None

    def _key_of(self, value: object) -> Hashable:
        if isinstance(value, te.Tensor) and value in self.placeholders:
            extents = tuple(map(self._key_of, value.shape))
            return "tensor", self.placeholders.index(value), extents, value.dtype
        if isinstance(value, (list, tuple)):
            return type(value), *map(self._key_of, value)
        if isinstance(value, (IntImm, FloatImm)):
            return value.dtype, repr(value.value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return type(value), repr(value)
        raise _NoKey

    def finish(
        self, outputs: list[Any], hint: str, several: bool, attrs: Mapping[str, Any]
    ) -> RelaxCall:
        """Return the call of the tensor function that computes ``outputs``."""
        for output in outputs:
            if not isinstance(output, te.Tensor):
                raise VerifyError(f"{hint} must return te tensors, got {type(output).__name__}")
        infos = [TensorStructInfo(output.shape, output.dtype) for output in outputs]
        # An output that is an input (a cast to the same dtype, …) needs a copy to be a result;
        # of an output given twice likewise.
        distinct: list[te.Tensor] = []
        for output in outputs:
            if output in self.placeholders or output in distinct:
                source = output
                output = te.compute(source.shape, lambda *i, source=source: source(*i), name="copy")
            distinct.append(output)
        # The graph asserts what the code needs of sizes: schedules and fusion see loops only.
        prim = te.create_prim_func([*self.placeholders, *distinct], sizes_checked=True)
        if attrs:
            prim = prim.with_attr(attrs)
        prim, scalars = close_over(prim)
        gvar = self.builder.add_func(prim, _identifier(hint))
        info = infos if several else infos[0]
        return call_tir(gvar, Tuple(tuple(self.operands)), info, scalars)


def close_over(func: PrimFunc) -> tuple[PrimFunc, list[Expr]]:
    """Give a tensor function its own variables; those that no buffer defines become parameters.

    Returns the function and the scalar arguments for the call.
    """
    defined = {*func.params, *func.symbolic_vars()}
    missing: dict[Var, None] = {}
    for buffer in func.buffers:
        for extent in buffer.shape:
            for var in free_vars(extent):
                missing.setdefault(var)
    for var in free_vars(func.body):
        missing.setdefault(var)
    scalars = [var for var in missing if var not in defined]
    if scalars:
        func = func.replace(params=(*func.params, *scalars))
    renewed: PrimFunc = renew_definitions(func)
    return renewed, list(scalars)


def _identifier(name: str) -> str:
    made = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    return made if made and not made[0].isdigit() else "t" + made
