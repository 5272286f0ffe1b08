"""The lowest part of the LLVM emitter: one function's text, SSA names and scopes.

Code is written as text, line by line. While it is written, two things happen that would cost LLVM
far more time later:

- a pure instruction that stands already (same text, same operands) is not written again;
- it is placed in the outermost scope where its operands are known, so loop-invariant arithmetic,
  addresses and loads leave their loops.

For that each SSA name has a *level*, the depth of the scope that defines it, and each scope has a
list of lines (``pre``) that stand just before it is entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.ir import Expr

Lines = list[Any]  # of text and of nested lists of lines


class Scope:
    """A loop body (``loop``), a branch (``if``) or the whole function (``function``)."""

    __slots__ = ("kind", "known", "loads", "opaque", "places", "pre", "table", "written")

    def __init__(
        self, kind: str, written: frozenset[Any] = frozenset(), opaque: bool = False
    ) -> None:
        self.kind = kind
        self.pre: Lines = []
        self.table: dict[str, str] = {}
        self.known: dict[Any, str] = {}  # what expressions were emitted as
        self.loads: dict[Any, dict[str, str]] = {}
        # Addresses by buffer and index, but for a constant distance, which stands beside.
        self.places: dict[Any, tuple[str, int]] = {}
        # What the body of a loop stores to, and whether it calls something unknown.
        self.written = written
        self.opaque = opaque


class Writer:
    """Collects the lines of one function."""

    def __init__(self) -> None:
        self.lines: Lines = []
        self.entry: Lines = []  # allocas and loads of captured values
        self.scopes: list[Scope] = [Scope("function")]
        self.levels: dict[str, int] = {}
        self.block = "entry"
        self._floor = 0  # the innermost branch: nothing that must not be speculated leaves it
        self._count = 0

    # ---- names and labels

    def fresh(self, hint: str = "v") -> str:
        """Return an unused SSA name."""
        self._count = count = self._count + 1
        return f"%{hint}{count}"

    def label(self, hint: str) -> str:
        """Return an unused label."""
        self._count = count = self._count + 1
        return f"{hint}.{count}"

    def start_block(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        """Jump."""
        self.lines.append(f"  br label %{label}")

    def branch_if(self, condition: str, yes: str, no: str) -> None:
        """Jump to one of two labels."""
        self.lines.append(f"  br i1 {condition}, label %{yes}, label %{no}")

    # ---- instructions

    def pure(self, text: str, *operands: str) -> str:
        """Write an instruction without effects that may run anywhere, as far out as possible."""
        levels = self.levels
        level = 0
        for operand in operands:
            own = levels.get(operand, 0)
            if own > level:
                level = own
        return self._place(text, level)

    def guarded(self, text: str, *operands: str) -> str:
        """Write a pure instruction that stays inside its branch (costly, or it may trap)."""
        level = self._floor
        for operand in operands:
            own = self.levels.get(operand, 0)
            if own > level:
                level = own
        return self._place(text, level)

    def _place(self, text: str, level: int) -> str:
        table = self.scopes[level].table
        name = table.get(text)
        if name is not None:
            return name
        self._count = count = self._count + 1
        name = table[text] = f"%v{count}"
        self.levels[name] = level
        if level == len(self.scopes) - 1:
            self.lines.append(f"  {name} = {text}")
        else:
            self.scopes[level + 1].pre.append(f"  {name} = {text}")
        return name

    def known(self, expr: Expr) -> str | None:
        """Return what an expression was emitted as before, if that can be used here."""
        for scope in self.scopes:
            name = scope.known.get(expr)
            if name is not None:
                return name
        return None

    def remember(self, expr: Expr, name: str) -> str:
        """Remember what an expression was emitted as: one that always has the same value."""
        self.scopes[self.levels.get(name, 0)].known[expr] = name
        return name

    def here(self, text: str) -> str:
        """Write an instruction exactly here."""
        name = self.fresh()
        self.levels[name] = len(self.scopes) - 1
        self.lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        """Write an instruction without a value."""
        self.lines.append(f"  {text}")

    def memory_read(self, text: str, data: object, *operands: str) -> str:
        """Write a load from the memory named ``data``; leaves loops that don't write it."""
        floor = self._floor
        for operand in operands:
            floor = max(floor, self.levels.get(operand, 0))
        level = len(self.scopes) - 1
        while level > floor:
            scope = self.scopes[level]
            if scope.opaque or data in scope.written:
                break
            level -= 1
        for scope in self.scopes[: level + 1]:
            known = scope.loads.get(data)
            if known is not None and text in known:
                return known[text]
        name = self.fresh()
        self.levels[name] = level
        if level == len(self.scopes) - 1:
            self.lines.append(f"  {name} = {text}")
        else:
            self.scopes[level + 1].pre.append(f"  {name} = {text}")
        self.scopes[level].loads.setdefault(data, {})[text] = name
        return name

    def forget(self, data: object = None) -> None:
        """Memory named ``data`` (or all memory) has changed: what was read of it is stale."""
        for scope in self.scopes:
            if data is None:
                scope.loads.clear()
            else:
                scope.loads.pop(data, None)

    # ---- scopes

    def enter(self, scope: Scope) -> None:
        """Enter a scope; the caller writes the jump into it afterwards."""
        self.lines.append(scope.pre)
        if scope.kind == "loop":
            if scope.opaque:
                self.forget()
            for data in scope.written:
                self.forget(data)
        self.scopes.append(scope)
        if scope.kind == "if":
            self._floor = len(self.scopes) - 1

    def leave(self) -> None:
        """Leave the innermost scope."""
        self.scopes.pop()
        self._floor = 0
        for index in range(len(self.scopes) - 1, 0, -1):
            if self.scopes[index].kind == "if":
                self._floor = index
                break

    def text_lines(self) -> Iterator[str]:
        """All lines of the body, in order."""
        yield from _flatten(self.entry)
        yield from _flatten(self.lines)


def _flatten(lines: Iterable[Any]) -> Iterator[str]:
    stack = [iter(lines)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, str):
                yield item
            else:
                stack.append(iter(item))
                break
        else:
            stack.pop()
