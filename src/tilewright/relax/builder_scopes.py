"""Scopes of a ``BlockBuilder`` as objects, under TVM's names: what its own methods open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from tilewright.ir import Var
from tilewright.relax.expr import RelaxVar

Opened = AbstractContextManager[None]


class Builder(Protocol):
    """What opens scopes: a ``BlockBuilder``."""

    def function(
        self,
        name: str,
        params: Sequence[RelaxVar] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
    ) -> Opened:
        """Build a function."""

    def dataflow(self) -> Opened:
        """Build a dataflow block."""

    def testing_scope(self, def_vars: Sequence[Var]) -> Opened:
        """Emit without a function."""


class _Scope:
    """A scope that is open inside of ``with``."""

    def __init__(self, made: Opened) -> None:
        self._made = made

    def __enter__(self) -> None:
        self._made.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._made.__exit__(kind, error, trace)


class FunctionScope(_Scope):
    """``with FunctionScope(builder, "f", params, attrs, True)``: ``BlockBuilder.function``."""

    def __init__(
        self,
        block_builder: Builder,
        name: str,
        params: Sequence[RelaxVar] | None,
        attrs: Mapping[str, Any] | None,
        is_pure: bool,
    ) -> None:
        super().__init__(block_builder.function(name, params, attrs, is_pure))


class DataflowScope(_Scope):
    """``with DataflowScope(builder)``: ``BlockBuilder.dataflow``."""

    def __init__(self, block_builder: Builder) -> None:
        super().__init__(block_builder.dataflow())


class TestingScope(_Scope):
    """``with TestingScope(builder, extents)``: ``BlockBuilder.testing_scope``."""

    __test__ = False  # no test of pytest's

    def __init__(self, block_builder: Builder, def_vars: Sequence[Var]) -> None:
        super().__init__(block_builder.testing_scope(def_vars))
