"""Functions as values in the dialect ``T``: index maps, reducers, and free axes.

Annotations, function attributes and ``T.attr`` hold these. They print as calls with a lambda::

    T.index_map(lambda i, j: [i // 16, T.AXIS_SEPARATOR, j, i % 16])
    T.comm_reducer(lambda x, y: [T.max(x, y)], [T.min_value("float32")])
    T.iter_var(v, (0, 16), "opaque")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.ir import INDEX, Expr, Range, Var, as_expr
from tilewright.script.operators import to_value
from tilewright.script.printer import Printer, quote, register
from tilewright.support.errors import VerifyError
from tilewright.tir.index_map import AXIS_SEPARATOR, IndexMap
from tilewright.tir.reducer import CommReducer
from tilewright.tir.script.print_expr import bounds
from tilewright.tir.script.scalars import as_dtype, index_range
from tilewright.tir.script.threads import EnvThread
from tilewright.tir.stmt import ITER_KINDS, OPAQUE, REDUCE, SPATIAL, IterVar, check_thread


def _variables(function: Callable[..., object], dtypes: Iterable[str]) -> tuple[Var, ...]:
    return tuple(Var(name, d) for name, d in zip(inspect.signature(function).parameters, dtypes))


def index_map(
    mapping: Callable[..., Any],
    *,
    inverse_index_map: IndexMap | None = None,
    index_dtype: str = INDEX,
) -> IndexMap:
    """A map of indices: ``T.index_map(lambda i, j: [j, i])``; see ``tir.IndexMap``."""
    count = len(inspect.signature(mapping).parameters)
    variables = _variables(mapping, [as_dtype(index_dtype)] * count)
    final: list[Expr] = []
    separators: list[int] = []
    for item in mapping(*variables):
        if isinstance(item, str) and item == AXIS_SEPARATOR:
            separators.append(len(final))
        else:
            final.append(as_expr(to_value(item)))
    return IndexMap(variables, tuple(final), inverse_index_map, tuple(separators))


def comm_reducer(combiner: Callable[..., Any], identity: Sequence[object]) -> CommReducer:
    """A reducer: ``T.comm_reducer(lambda x, y: x + y, [T.float32(0)])``.

    The function takes the elements of both tuples, the left one's first; the dtypes are those of
    the identity.
    """
    neutral = tuple(as_expr(to_value(item)) for item in identity)
    count = len(inspect.signature(combiner).parameters)
    if count != 2 * len(neutral):
        raise VerifyError(
            f"a reducer of {len(neutral)} values takes {2 * len(neutral)} parameters, not {count}"
        )
    variables = _variables(combiner, [item.dtype for item in (*neutral, *neutral)])
    made = combiner(*variables)
    given = made if isinstance(made, (tuple, list)) else (made,)
    if len(given) != len(neutral):
        raise VerifyError(f"the reducer gives {len(given)} values for {len(neutral)}")
    result = tuple(as_expr(to_value(item)) for item in given)
    return CommReducer(variables[: len(neutral)], variables[len(neutral) :], result, neutral)


_TVM_KINDS = {"DataPar": SPATIAL, "CommReduce": REDUCE, "Opaque": OPAQUE, "Ordered": OPAQUE}
_THREADS = ("ThreadIndex", "VirtualThread")


def iter_var(
    v: Var | EnvThread | str, dom: Any, iter_type: str, thread_tag: str = ""
) -> IterVar | EnvThread:
    """An axis that stands outside of a block: variable, ``(start, stop)`` and kind.

    Of the kind ``ThreadIndex`` it is the number of a thread: see ``T.env_thread``.
    """
    made = v.var if isinstance(v, EnvThread) else Var(v) if isinstance(v, str) else v
    if iter_type in _THREADS:
        check_thread(thread_tag)
        return EnvThread(thread_tag, made)
    if thread_tag:
        raise VerifyError(f"an axis with a thread tag is of kind ThreadIndex, not {iter_type!r}")
    kind = _TVM_KINDS.get(iter_type, iter_type)
    kinds = sorted(ITER_KINDS.values())
    if kind not in kinds:
        raise VerifyError(f"an axis is one of {', '.join(kinds)}, not {kind!r}")
    return IterVar(dom if isinstance(dom, Range) else index_range(*dom), made, kind)


def _lambda(p: Printer, variables: Sequence[Var], body: Callable[[], list[str]]) -> str:
    token = p.enter()
    names = ", ".join([p.define(var) for var in variables])
    text = f"lambda {names}: [{', '.join(body())}]"
    p.leave(token)
    return text if names else text.replace("lambda :", "lambda:")


@register(IndexMap)
def _index_map(p: Printer, node: IndexMap, precedence: int = 0) -> str:
    p.use("tir")

    def body() -> list[str]:
        parts = [p.expr(index) for index in node.final_indices]
        for position in reversed(node.axis_separators):
            parts.insert(position, "T.AXIS_SEPARATOR")
        return parts

    text = _lambda(p, node.initial_indices, body)
    found = {var.dtype for var in node.initial_indices} or {INDEX}
    if len(found) > 1:
        raise VerifyError("an index map with indices of several dtypes has no script form")
    if node.inverse_map is not None:
        text += f", inverse_index_map={_index_map(p, node.inverse_map)}"
    if found != {INDEX}:
        text += f', index_dtype="{found.pop()}"'
    return f"T.index_map({text})"


@register(CommReducer)
def _comm_reducer(p: Printer, node: CommReducer, precedence: int = 0) -> str:
    p.use("tir")
    text = _lambda(p, (*node.lhs, *node.rhs), lambda: [p.expr(item) for item in node.result])
    return f"T.comm_reducer({text}, [{', '.join([p.expr(item) for item in node.identity])}])"


@register(IterVar)
def _iter_var(p: Printer, node: IterVar, precedence: int = 0) -> str:
    p.use("tir")
    start, stop = bounds(p, node.dom.min, node.dom.extent)
    return f"T.iter_var({p.expr(node.var)}, ({start}, {stop}), {quote(node.kind)})"
