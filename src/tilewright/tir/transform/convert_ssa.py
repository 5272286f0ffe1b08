"""Give every definition a variable of its own.

Code that was copied, or put together by hand, may define one variable (or buffer) in two places,
or in two functions. Passes rely on static single assignment: what follows from a definition must
not be said of another. ``verify`` refuses such programs; this pass repairs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.ir import IRModule, Mutator, Node, Var, definition_fields
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import Block, DeclBuffer
from tilewright.tir.transform.base import FunctionTransform


class ConvertSSA(FunctionTransform):
    """Rename what is defined more than once, in a function or in several of a module.

    The first definition keeps its variable.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rewrite the functions of a module, one after the other."""
        seen: set[object] = set()
        return mod.map_functions(lambda _, func: _converted(func, seen), PrimFunc)

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return _converted(func, set())


def _converted(func: PrimFunc, seen: set[object]) -> PrimFunc:
    symbols = {*func.params, *func.buffer_map.values(), *func.symbolic_vars()}
    symbols |= {buffer.data for buffer in func.buffer_map.values()}
    if not seen.isdisjoint(symbols):
        func = renew_definitions(func)
        symbols = {*func.params, *func.buffer_map.values(), *func.symbolic_vars()}
        symbols |= {buffer.data for buffer in func.buffer_map.values()}
    seen |= symbols
    body = _Converter(seen).visit(func.body)
    return func if body is func.body else func.replace(body=body)


class _Converter(Mutator):
    def __init__(self, seen: set[object]) -> None:
        self.seen = seen

    def generic_visit(self, node: Node) -> Any:
        defined = set(_definitions(node))
        if defined and not self.seen.isdisjoint(defined):
            node = renew_definitions(node)
            defined = set(_definitions(node))
        self.seen |= defined
        return node.map_children(self.visit)


def _definitions(node: Node) -> Iterator[Var | Buffer]:
    """What a node itself defines."""
    for name, single in definition_fields(type(node)):
        value = getattr(node, name)
        for symbol in (value,) if single else value:
            yield symbol
            if isinstance(symbol, Buffer) and type(node) is not DeclBuffer:
                yield symbol.data
    if type(node) is Block:
        for buffer in node.alloc_buffers:
            yield buffer
            yield buffer.data
        for axis in node.iter_vars:
            yield axis.var
