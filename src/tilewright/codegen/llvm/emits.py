"""What emits functions, as the modules see it that write values for it.

They come before it in the order of imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tilewright.ir import Expr, Var
from tilewright.target import Target
from tilewright.tir import Buffer

T = TypeVar("T")


class Emits(Protocol):
    """Writes instructions, each as far out of loops as it may stand: see ``Writer``."""

    lanes_off: dict[str, frozenset[int]]
    levels: dict[str, int]
    mask: tuple[str, int] | None
    stack_elements: dict[Var, int]
    target: Target
    tile_columns: dict[tuple[str, ...], list[str]]

    def pure(self, text: str, *operands: str) -> str: ...
    def guarded(self, text: str, *operands: str) -> str: ...
    def here(self, text: str) -> str: ...
    def effect(self, text: str) -> None: ...
    def memory_read(self, text: str, data: object, *operands: str) -> str: ...
    def mask_type(self, dtype: str) -> str: ...
    def broadcast(self, value: str, dtype: str, lanes: int) -> str: ...
    def pick(self, a: str, b: str, lanes: int, picks: list[int], element: str) -> str: ...
    def visit(self, node: Expr) -> str: ...
    def linear(self, expr: Expr) -> str: ...
    def under_mask(self, mask: str, lanes: int, emit: Callable[[], T]) -> T: ...


class EmitsAccesses(Emits, Protocol):
    """Knows where elements lie, besides."""

    def pointer(self, buffer: Buffer, index: Expr) -> str: ...
