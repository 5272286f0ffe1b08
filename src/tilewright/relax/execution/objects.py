"""Values that are no tensors, in compiled graphs: ``Object``, such as a cache of keys and values.

A compiled graph has tensors only. ``LowerObjects`` makes each object a number, a tensor without
axes, and calls of global functions that take or give objects (or shapes) calls of
``relax.with_objects``, which knows the objects by their numbers. They live as long as one call of
the graph: ``with_objects`` gives those that are passed in numbers, and returns those that are
results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.ir import IRModule
from tilewright.relax.branches import If
from tilewright.relax.call_packed import (
    CALL_DPS_PACKED,
    CALL_INPLACE_PACKED,
    CALL_PACKED,
    CALL_PURE_PACKED,
    CALL_WITH_OBJECTS,
)
from tilewright.relax.expr import (
    ExternFunc,
    Function,
    FunctionRef,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    StringValue,
    Tuple,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import (
    ObjectStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    has_objects,
)
from tilewright.relax.values import const
from tilewright.runtime import from_dlpack, get_global_func, register_global_func
from tilewright.support.errors import LowerError, RunError

HANDLE = TensorStructInfo((), "int64")
"""What stands for an object in a compiled graph."""


def object_places(infos: Sequence[StructInfo]) -> tuple[int, ...]:
    """Positions of objects among the leaves of values; a shape has as many leaves as extents."""
    places: list[int] = []
    count = 0

    def visit(info: StructInfo) -> None:
        nonlocal count
        if isinstance(info, TupleStructInfo):
            for field in info.fields:
                visit(field)
            return
        if isinstance(info, ObjectStructInfo):
            places.append(count)
        count += max(info.ndim, 0) if isinstance(info, ShapeStructInfo) else 1

    for info in infos:
        visit(info)
    return tuple(places)


# ---- the pass --------------------------------------------------------------------------------


class LowerObjects(GraphPass):
    """Make objects numbers, and calls of global functions with them ``relax.with_objects``."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Lowerer(mod)


_PACKED = (CALL_PACKED, CALL_PURE_PACKED, CALL_DPS_PACKED, CALL_INPLACE_PACKED)


class _Lowerer(FunctionRewriter):
    def rewrite_params(self, function: Function) -> Sequence[RelaxVar]:
        return [self.renew(param, _lowered(param.struct_info)) for param in function.params]

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if is_call_to(value, "null_value"):
            return const(0, "int64")
        if not isinstance(value, RelaxCall):
            return value
        if value.op in _PACKED:
            return self.packed(value)
        if has_objects(value.struct_info):
            if not value.sinfo_args:
                raise LowerError(f"{value.op_name} gives an object: it can't be compiled")
            return value.replace(sinfo_args=tuple(map(_lowered, value.sinfo_args)))
        return value

    def rewrite_if(self, binding: Any, value: If) -> None:
        if has_objects(value.struct_info):
            raise LowerError(f"{binding.var.name}: branches can't give objects")
        super().rewrite_if(binding, value)

    def packed(self, call: RelaxCall) -> RelaxExpr:
        """A call of a global function as one of ``relax.with_objects``, if it needs that."""
        reference, *rest = call.args
        assert isinstance(reference, FunctionRef)
        dps = call.op is CALL_DPS_PACKED
        args = rest[0].fields if dps and isinstance(rest[0], Tuple) else rest
        inplace = call.op is CALL_INPLACE_PACKED
        forms = [self.form(arg) for arg in args]
        if set(forms) <= {"t"} and not inplace and not has_objects(call.struct_info):
            return call
        flat: list[RelaxExpr] = []
        for arg, form in zip(args, forms):
            flat.extend(map(PrimValue, arg.shape) if form[0] == "s" else (arg,))
        infos = (
            call.struct_info.fields
            if isinstance(call.struct_info, TupleStructInfo)
            else (call.struct_info,)
        )
        places = call.attrs.get("inplace_indices", (-1,) * len(infos))
        results = [
            f"{'o' if isinstance(info, ObjectStructInfo) else 't'}{place}"
            for info, place in zip(infos, places)
        ]
        text = " ".join(forms) + ";" + ("" if dps else " ".join(results))
        operands = (StringValue(reference.name), StringValue(text), *flat)
        if dps:
            through = FunctionRef(ExternFunc("relax.with_objects"))
            return call.replace(args=(through, Tuple(operands)))
        return RelaxCall(CALL_WITH_OBJECTS, operands, {}, (_lowered(call.struct_info),))

    def form(self, arg: RelaxExpr) -> str:
        """How ``with_objects`` gets an argument."""
        if isinstance(arg.struct_info, ShapeStructInfo):
            return f"s{len(arg.shape)}"
        is_object = isinstance(arg.struct_info, ObjectStructInfo)
        is_handle = isinstance(arg, RelaxVar) and (is_object or arg in self.handles)
        return "o" if is_handle else "t"

    def rewrite(self, function: Function) -> Function:
        self.handles: set[RelaxVar] = set()
        return super().rewrite(function)

    def renew(self, var: RelaxVar, info: StructInfo) -> RelaxVar:
        made = super().renew(var, info)
        if isinstance(var.struct_info, ObjectStructInfo):
            self.handles.add(made)
        return made


def _lowered(info: StructInfo) -> StructInfo:
    if isinstance(info, TupleStructInfo):
        if not has_objects(info):
            return info
        return TupleStructInfo(tuple(map(_lowered, info.fields)))
    return HANDLE if isinstance(info, ObjectStructInfo) else info


def lower_objects(mod: IRModule) -> IRModule:
    """Apply ``LowerObjects`` if the module needs it."""
    if not any(
        isinstance(function, Function) and _needs_lowering(function)
        for function in mod.functions.values()
    ):
        return mod
    return LowerObjects()(mod)


def _needs_lowering(function: Function) -> bool:
    if any(has_objects(param.struct_info) for param in function.params):
        return True
    return any(_is_lowered(binding.value) for binding in function.bindings)


def _is_lowered(value: RelaxExpr) -> bool:
    if isinstance(value, If):
        return any(
            _is_lowered(binding.value)
            for branch in value.branches
            for block in branch.blocks
            for binding in block.bindings
        )
    if not isinstance(value, RelaxCall):
        return False
    if is_call_to(value, "null_value") or value.op is CALL_INPLACE_PACKED:
        return True
    if value.op not in _PACKED:
        return False
    args = [
        leaf for arg in value.args for leaf in (arg.fields if isinstance(arg, Tuple) else (arg,))
    ]
    shapes = any(isinstance(arg.struct_info, ShapeStructInfo) for arg in args)
    taken = any(isinstance(a, RelaxVar) and has_objects(a.struct_info) for a in args)
    return shapes or taken or has_objects(value.struct_info)


# ---- running ---------------------------------------------------------------------------------

_state = threading.local()


class _Known:
    """The objects of one call of a graph by number; 0 is no object."""

    def __init__(self) -> None:
        self.objects: list[object] = [None]

    def number(self, value: object) -> int:
        if value is None:
            return 0
        self.objects.append(value)
        return len(self.objects) - 1


@contextmanager
def known_objects() -> Iterator[_Known]:
    """Know objects until the end of one call of a graph."""
    before = getattr(_state, "known", None)
    known = _state.known = _Known()
    try:
        yield known
    finally:
        _state.known = before


def call_with_objects(
    call: Callable[[list[Any]], Any],
    inputs: Sequence[Any],
    taken: Sequence[int],
    given: Sequence[int],
    as_handle: Callable[[int], Any],
) -> Any:
    """Call a compiled graph whose flat inputs and results have objects at these places."""
    with known_objects() as known:
        flat = list(inputs)
        for place in taken:
            flat[place] = as_handle(known.number(flat[place]))
        return _with_objects(call(flat), set(given), known)


def numbered(info: StructInfo, value: Any, known: _Known) -> Any:
    """A value with numbers for its objects."""
    if isinstance(info, TupleStructInfo):
        return tuple(numbered(field, item, known) for field, item in zip(info.fields, value))
    if isinstance(info, ObjectStructInfo):
        return np.array(known.number(value), "int64")
    return value


def named(info: StructInfo, value: Any, known: _Known) -> Any:
    """A value with its objects for their numbers."""
    if isinstance(info, TupleStructInfo):
        return tuple(named(field, item, known) for field, item in zip(info.fields, value))
    return known.objects[int(value)] if isinstance(info, ObjectStructInfo) else value


def _with_objects(result: object, given: set[int], known: _Known) -> Any:
    count = -1

    def visit(value: object) -> Any:
        nonlocal count
        if isinstance(value, tuple):
            return tuple(map(visit, value))
        count += 1
        return known.objects[int(_array(value))] if count in given else value

    return visit(result)


def _array(value: object) -> Any:
    return value if isinstance(value, (np.ndarray, np.generic, int)) else from_dlpack(value).numpy()


def with_objects(name: str, form: str, *args: Any) -> Any:
    """Call a global function with objects for their numbers, and shapes for their extents.

    ``form`` says of each argument and result whether it is an object (``o``), a shape (``s`` and
    its length) or another value (``t``), and of each result which argument it takes the place of.
    """
    known: _Known | None = getattr(_state, "known", None)
    if known is None:
        if "o" in form:
            raise RunError(f"{name} takes or gives objects: call the graph as a function")
        known = _Known()
    taken, _, given = form.partition(";")
    rest = iter(args)
    made: list[Any] = []
    for item in taken.split():
        if item == "o":
            made.append(known.objects[int(_array(next(rest)))])
        elif item[0] == "s":
            made.append(tuple(int(next(rest)) for _ in range(int(item[1:]))))
        else:
            made.append(next(rest))
    made.extend(rest)  # outputs to write
    results = [(item[0], int(item[1:])) for item in given.split()]
    changed = [place for kind, place in results if kind == "t" and place >= 0]
    copies = {place: np.array(_array(made[place])) for place in changed}
    for place, array in copies.items():
        made[place] = from_dlpack(array)
    result = get_global_func(name)(*made)
    items = result if len(results) > 1 else (result,) if results else ()
    if not isinstance(items, (tuple, list)) or len(items) != len(results):
        raise RunError(f"{name} must return {len(results)} values, got {type(result).__name__}")
    found = [
        np.array(known.number(item), "int64") if kind == "o" else copies.get(place, item)
        for (kind, place), item in zip(results, items)
    ]
    return found[0] if len(found) == 1 else tuple(found)


register_global_func("relax.with_objects", with_objects, override=True)
