"""Prints IR as script text: names, lines, precedence, marks. Dialects register the rest.

A dialect registers two kinds of functions by node class:

- ``@register(cls)``: ``function(printer, node, precedence) -> str`` gives the text of an expression
  or of another value that stands within a line. It puts parentheses around itself if it binds
  looser than ``precedence``.
- ``@register_lines(cls)``: ``function(printer, node) -> None`` writes whole lines
  (statements, functions).

Text that is printed parses back to a structurally equal tree. Variables keep their names as far as
they are unique in their scope; a symbol that nothing defines is declared in front.
"""

from __future__ import annotations

import keyword
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tilewright.ir import (
    GLOBAL_SYMBOL,
    BaseFunc,
    Expr,
    FloatImm,
    IntImm,
    IRModule,
    Node,
    StringImm,
    node_at,
    structural_hash,
)
from tilewright.script.scope import DIALECTS, load_dialect
from tilewright.support.errors import TilewrightError

LOWEST = 0
OR, AND, NOT, COMPARE, SUM, PRODUCT, UNARY, ATOM = range(1, 9)
"""Precedences, the loosest first."""

ExprPrinter = Callable[["Printer", Any, int], str]
LinePrinter = Callable[["Printer", Any], None]
_EXPRS: dict[type, ExprPrinter] = {}
_LINES: dict[type, LinePrinter] = {}

F = TypeVar("F", bound=Callable[..., Any])

_OPEN, _CLOSE = "\x01", "\x02"
_RESERVED = frozenset(
    [*keyword.kwlist, *(alias for alias, _ in DIALECTS.values()), "range", "float", "cls"]
)


def register(*classes: type) -> Callable[[F], F]:
    """Return a decorator that makes a function the printer of expressions of some classes."""

    def decorate(function: F) -> F:
        for cls in classes:
            _EXPRS[cls] = function
        return function

    return decorate


def register_lines(*classes: type) -> Callable[[F], F]:
    """Return a decorator that makes a function the printer of statements of some classes."""

    def decorate(function: F) -> F:
        for cls in classes:
            _LINES[cls] = function
        return function

    return decorate


def quote(text: str) -> str:
    """Return a Python string literal, in double quotes where that needs no escapes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return repr(text)


def _find(table: Mapping[type, Any], cls: type) -> Any:
    for base in cls.__mro__:
        if base in table:
            return table[base]
    return None


def is_printable(value: object) -> bool:
    """Whether an attribute may hold a value: whether script has a text for it."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return True
    if isinstance(value, Mapping):
        return all(map(_is_literal, value)) and all(map(is_printable, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_printable, value))
    if not isinstance(value, Node) and hasattr(value, "item"):
        return True  # NumPy scalars
    if _find(_EXPRS, type(value)) is None:
        load_dialect("tir")
    return any(_find(table, type(value)) is not None for table in (_EXPRS, _LINES))


def _is_literal(key: object) -> bool:
    """Whether a key is a number or text; symbols are known by the place that defines them."""
    if isinstance(key, tuple):
        return all(map(_is_literal, key))
    return key is None or isinstance(key, (bool, int, float, str, bytes))


class Printer:
    """Collects the lines of one text.

    ``underline`` are nodes to mark with carets, ``annotate`` maps nodes to comments. ``prelude``
    takes declarations of symbols that nothing defines, ``late_prelude`` those which build on
    parameters. ``context`` is for the dialects' own use.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        line_length: int = 100,
        underline: Iterable[object] = (),
        annotate: Mapping[Any, str] | None = None,
    ) -> None:
        self.option_name = name
        self.line_length = line_length
        self.underline = frozenset(underline)
        self.annotate = dict(annotate or {})
        self.marks = self.underline.union(self.annotate)
        self.lines: list[str] = []
        self.prelude: list[str] = []
        self.late_prelude: list[str] = []
        self.context: dict[Any, Any] = {}
        self.pad = ""
        self.names: dict[Any, str] = {}
        self.dialects: set[str] = set()
        self._taken: set[str] = set(_RESERVED)
        self._counters: dict[str, int] = {}
        self._defined: list[tuple[Any, str, bool]] = []
        self.early: set[object] = set()
        """Symbols to declare in front although an inner scope names them too."""
        self.needed_early: set[object] = set()

    # ---- lines ---------------------------------------------------------------------------

    def use(self, dialect: str) -> None:
        """Note that the text uses a dialect, for the header."""
        self.dialects.add(dialect)

    def line(self, text: str) -> None:
        """Write one line at the current depth."""
        self.lines.append(self.pad + text if text else "")

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Write deeper; names defined inside go out of scope at the end."""
        pad, count = self.pad, len(self._defined)
        self.pad += "    "
        yield
        self.pad = pad
        self.leave(count, suite=True)

    def enter(self) -> int:
        """Open a scope of names without indenting; returns a token for ``leave``."""
        return len(self._defined)

    def leave(self, token: int, *, suite: bool = False) -> None:
        """Forget the names that were defined since ``enter``.

        Those with a line of their own are seen until the end of the ``suite`` that it stands in.
        """
        kept = []
        while len(self._defined) > token:
            entry = self._defined.pop()
            symbol, name, lasting = entry
            if lasting and not suite:
                kept.append(entry)
                continue
            self.names.pop(symbol, None)
            self._taken.discard(name)
        self._defined.extend(reversed(kept))

    @contextmanager
    def captured(self) -> Iterator[list[str]]:
        """Write lines into a list of their own."""
        outer, self.lines = self.lines, []
        made = self.lines
        yield made
        self.lines = outer

    # ---- names ---------------------------------------------------------------------------

    def define(self, symbol: Any, base: str | None = None, *, lasting: bool = False) -> str:
        """Give a symbol a name that is unique among those in scope.

        ``lasting`` ones get a line of their own and are in scope until the end of its suite.
        """
        name = self.fresh(symbol.name if base is None else base)
        self.names[symbol] = name
        self._defined.append((symbol, name, lasting))
        return self.name(symbol)

    def alias(self, symbol: object, text: str) -> None:
        """Let a symbol print as ``text`` (which needs no name of its own) in this scope."""
        self.names[symbol] = text
        self._defined.append((symbol, text, False))

    def needs_early(self, symbol: object) -> None:
        """Note that a declaration in front uses a symbol: an inner scope may not be what names it.

        The text is then written once more, with the symbol in ``early``.
        """
        outer = self.context.get("outer", 0)
        if any(symbol is item for item, _, _ in self._defined[outer:]):
            self.needed_early.add(symbol)

    def save(self) -> tuple[Any, ...]:
        """Return the state of names and lines, for ``restore``."""
        return (dict(self.names), set(self._taken), len(self._defined), len(self.lines), self.pad)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to a saved state; what was written and named since is dropped."""
        names, taken, defined, lines, self.pad = saved
        self.names, self._taken = dict(names), set(taken)
        del self._defined[defined:]
        del self.lines[lines:]
        self.prelude, self.late_prelude = [], []

    def fresh(self, base: str) -> str:
        """Return a valid name that nothing in scope has."""
        taken = self._taken
        if not base.isascii():
            base = unicodedata.normalize("NFKC", base)  # as Python reads identifiers
        if base not in taken and base.isidentifier():
            taken.add(base)
            return base
        base = re.sub(r"\W", "_", base) or "v"
        if base[0].isdigit():
            base = "v" + base
        name, number = base, self._counters.get(base, 0)
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        self._counters[base] = number
        if number:
            # Counting restarts when all such names have gone out of scope.
            self._counters[base] = 0
        taken.add(name)
        return name

    def name(self, symbol: object) -> str:
        """Return the name of a symbol that is in scope, marked if it shall be."""
        name = self.names[symbol]
        if symbol in self.underline:
            return f"{_OPEN}{name}{_CLOSE}"
        return name

    # ---- values --------------------------------------------------------------------------

    def expr(self, node: object, precedence: int = LOWEST) -> str:
        """Return the text of an expression, in parentheses if it binds looser.

        Raises ``TilewrightError`` for nodes that no dialect prints.
        """
        function = _EXPRS.get(type(node))
        if function is None:
            load_dialect("tir")  # which prints the expressions that all dialects share
            function = _find(_EXPRS, type(node))
            if function is None:
                raise TilewrightError(
                    f"script can't print a {type(node).__name__}: {node!r}; "
                    "its dialect registers no printer for it"
                )
            _EXPRS[type(node)] = function
        text = function(self, node, precedence)
        if self.marks and node in self.underline and node not in self.names:
            return f"{_OPEN}{text}{_CLOSE}"
        return text

    def value(self, value: object) -> str:
        """Return the text of an attribute: numbers, text, lists, dicts, expressions."""
        if value is None or isinstance(value, (bool, int, bytes)):
            return repr(value)
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, Mapping):
            inner = (f"{self.value(key)}: {self.value(item)}" for key, item in value.items())
            return "{" + ", ".join(inner) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.value, value)) + "]"
        if isinstance(value, tuple):
            return self.tuple(map(self.value, value))
        if isinstance(value, (IntImm, FloatImm, StringImm)):
            return self.constant(value)
        if not isinstance(value, (Node, Expr)) and hasattr(value, "item"):
            return self.value(value.item())  # NumPy scalars
        return self.expr(value)

    def constant(self, value: object) -> str:
        """Return a constant that parses to a node, not to a Python number; set by a dialect."""
        return self.expr(value, ATOM + 1)

    @staticmethod
    def tuple(items: Iterable[str]) -> str:
        """Return the text of a tuple."""
        made = list(items)
        return f"({made[0]},)" if len(made) == 1 else f"({', '.join(made)})"

    # ---- statements ----------------------------------------------------------------------

    def stmt(self, node: object) -> None:
        """Write the lines of a statement."""
        function = _LINES.get(type(node))
        if function is None:
            load_dialect("tir")
            function = _find(_LINES, type(node))
            if function is None:
                self.line(self.expr(node))
                return
        if not self.marks:
            function(self, node)
            return
        start = len(self.lines)
        function(self, node)
        self.mark(node, start)

    def mark(self, node: object, line: int) -> None:
        """Mark the line on which a node starts, if that was asked for."""
        if node not in self.marks or line >= len(self.lines):
            return
        text = self.lines[line]
        while text.lstrip().startswith("@") and line + 1 < len(self.lines):
            line += 1  # a decorator: mark the definition below
            text = self.lines[line]
        if node in self.underline:
            body = text.lstrip(" ")
            text = f"{text[: len(text) - len(body)]}{_OPEN}{body}{_CLOSE}"
        comment = self.annotate.get(node)
        self.lines[line] = text if comment is None else f"{text}  # {comment}"

    def function(self, function: BaseFunc, name: str) -> None:
        """Write a function definition under a name; its names are forgotten at the end.

        Raises ``TilewrightError`` for functions that no dialect prints.
        """
        printer = _find(_LINES, type(function))
        if printer is None:
            raise TilewrightError(f"script can't print a {type(function).__name__}")
        outer, self.option_name = self.option_name, name
        saved, start = self.save(), len(self.lines)
        preludes = self.prelude, self.late_prelude
        self.prelude, self.late_prelude = [], []
        printer(self, function)
        written = self.lines
        self.lines = []
        self.restore((*saved[:3], 0, saved[4]))
        self.lines, self.option_name = written, outer
        self.prelude, self.late_prelude = preludes
        self.mark(function, start)

    # ---- the whole -----------------------------------------------------------------------

    def signature(self, start: str, items: list[str], end: str) -> None:
        """Write ``start(items)end`` on one line, or one item a line if that is too long."""
        line = f"{self.pad}{start}({', '.join(items)}){end}"
        if len(line.replace(_OPEN, "").replace(_CLOSE, "")) <= self.line_length:
            self.lines.append(line)
            return
        self.line(f"{start}(")
        self.lines.extend(f"{self.pad}    {item}," for item in items)
        self.line(f"){end}")

    def text(self) -> str:
        """Return the text: long lines wrapped, marks turned into carets."""
        line_length = self.line_length
        made: list[str] = []
        for line in (*self.prelude, *self.late_prelude, *self.lines):
            if _OPEN in line:
                made.extend(_carets(line))
            elif len(line) > line_length:
                made.extend(_wrap(line, line_length))
            else:
                made.append(line)
        return "\n".join(made)


def _carets(line: str) -> tuple[str, str]:
    """Take the marks out of a line and return it with a line of carets below."""
    text: list[str] = []
    carets: list[str] = []
    depth = 0
    for character in line:
        if character == _OPEN:
            depth += 1
        elif character == _CLOSE:
            depth -= 1
        else:
            text.append(character)
            carets.append("^" if depth else " ")
    return "".join(text), "".join(carets).rstrip()


_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|, | \+ | - | and | or |[()\[\]{}#]|[^'"]"""
)


def _wrap(line: str, limit: int) -> list[str]:
    """Break a long line where brackets are open: after commas, or else before operators."""
    pad = len(line) - len(line.lstrip(" "))
    made: list[str] = []
    rest, prefix = line, " " * (pad + 4)
    depth = 0
    while len(rest) > limit:
        position, best, best_rank, best_depth = 0, -1, (99, 0), 0
        here = depth
        for match in _TOKEN.finditer(rest):
            token = match.group()
            if token == "#":
                break
            if token in "([{" and len(token) == 1:
                here += 1
            elif token in ")]}" and len(token) == 1:
                here -= 1
            position = match.end() if token == ", " else match.start()
            if position > limit and best >= 0:
                break
            if here > 0 and (token == ", " or token in (" + ", " - ", " and ", " or ")):
                # The shallowest place is best; of several, the last.
                rank = (here, 0 if token == ", " else 1)
                if position > pad + 4 and rank <= best_rank:
                    best, best_rank, best_depth = position, rank, here
        if best < 0:
            break
        made.append(rest[:best].rstrip())
        rest = prefix + rest[best:].lstrip()
        depth = best_depth
    made.append(rest)
    return made


def to_text(
    node: object,
    *,
    name: str | None = None,
    header: bool = False,
    show_meta: bool = False,
    line_length: int = 100,
    underline: Iterable[object] = (),
    annotate: Mapping[Any, str] | None = None,
) -> str:
    """Print any node as script text.

    ``name`` is the name of the class or function. ``header`` puts the imports in front, which make
    the text a Python file. ``show_meta`` adds a comment with the structural hash of each function.
    ``underline`` are nodes (statements, expressions, variables, buffers) that get carets below
    them, ``annotate`` maps nodes to comments; such text is for reading. Instead of a node its path
    may be given, as ``first_difference`` writes it: ``"<root>.body.block.body"``.

    >>> print(to_text(func, underline=[loop], annotate={loop: "not a serial loop"}))
    """
    marked = [_marked(node, item) for item in underline]
    comments = {_marked(node, item): text for item, text in (annotate or {}).items()}
    early: set[object] = set()
    while True:
        printer = Printer(name=name, line_length=line_length, underline=marked, annotate=comments)
        printer.early = early
        if isinstance(node, BaseFunc):
            printer.function(node, name or str(node.attrs.get(GLOBAL_SYMBOL, "main")))
        else:
            printer.stmt(node)
        if printer.needed_early <= early:
            break
        early = early | printer.needed_early
    text = printer.text()
    if header:
        aliases = (
            f"from tilewright.script import {key} as {alias}"
            for key, (alias, _) in DIALECTS.items()
            if key in printer.dialects
        )
        text = "\n".join(aliases) + "\n\n\n" + text
    if show_meta:
        text += "\n\n" + "\n".join(_meta(node, name))
    return text


def _marked(root: object, item: object) -> object:
    return node_at(root, item) if isinstance(item, str) else item


def _meta(node: object, name: str | None) -> Iterator[str]:
    functions = node.functions.items() if isinstance(node, IRModule) else [(name or "main", node)]
    for key, function in functions:
        yield f"# structural hash of {key}: {structural_hash(function)}"


def script(
    node: object, *, name: str | None = None, show_meta: bool = False, line_length: int = 100
) -> str:
    """Print a module or function as a Python file, a statement as part of one.

    That is what ``node.script()`` calls.
    """
    whole = isinstance(node, (BaseFunc, IRModule))
    return (
        to_text(node, name=name, header=whole, show_meta=show_meta, line_length=line_length) + "\n"
    )
