"""Source text with its place in a file, spans, and errors that point at line and column.

Used by every dialect's parser. Line and column numbers of the Python ``ast`` are kept as they are,
so that an error in a decorated function names the line of the file that the user edits.
"""

from __future__ import annotations

import ast
import re
from typing import NoReturn

from tilewright.ir import SourceName, Span
from tilewright.support.errors import Message, ParseError
from tilewright.support.text import caret_excerpt

# What `ast.parse` raises: for text that is no Python, nested too deeply, or holds odd characters.
_UNREADABLE = (SyntaxError, RecursionError, MemoryError, ValueError, OverflowError)
_LONG_LINE = 2000
_LONG_MESSAGE = 2000


def _why_unreadable(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"not valid Python: {error.msg}"
    if isinstance(error, (RecursionError, MemoryError)):
        return "the text is nested too deeply"
    return f"not valid Python: {error}"


class ScriptError(ParseError):
    """A ``ParseError`` that knows its place: ``line`` counts from 1, ``column`` from 0."""

    def __init__(self, message: Message, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.line, self.column)


class Source:
    """Script text. ``first_line`` is the line of the file on which ``text`` starts.

    Indented text (a function inside another one) is parsed below an ``if`` line, so that the
    columns stay those of the file.
    """

    def __init__(self, text: str, name: str = "<script>", first_line: int = 1) -> None:
        self.name = name
        self.text = "\n" * (first_line - 1) + text
        self._lines: list[str] | None = None

    def parse(self) -> list[ast.stmt]:
        """Return the statements; a Python syntax error becomes a ``ParseError``."""
        text = self.text
        stripped = text.lstrip("\n")
        indented = stripped[:1] in (" ", "\t")
        if indented:
            blank = len(text) - len(stripped)
            text = "\n" * max(0, blank - 1) + "if 1:\n" + stripped
        try:
            body = ast.parse(text).body
        except _UNREADABLE as error:
            line, column = 1, 0
            if isinstance(error, SyntaxError):
                line, column = error.lineno or 1, max(0, (error.offset or 1) - 1)
            raise self.error_at(line, column, None, _why_unreadable(error)) from None
        if indented:
            assert isinstance(body[0], ast.If)
            return body[0].body
        return body

    def parse_expression(self, node: ast.AST, text: str) -> ast.expr:
        """Return the expression that a string holds; its place is that of the string."""
        try:
            parsed = ast.parse(text.strip(), mode="eval").body
        except _UNREADABLE as error:
            self.fail(node, f"{text[:60]!r} is no expression: {_why_unreadable(error)}")
        for part in ast.walk(parsed):
            if isinstance(part, (ast.expr, ast.keyword)):
                ast.copy_location(part, node)
        return parsed

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        if self._lines is None:
            self._lines = re.split("\r\n|\r|\n", self.text)  # as Python reads them
        return self._lines

    def column(self, line: int, offset: int) -> int:
        """Turn a UTF-8 offset, as ``ast`` has it, into a column in characters."""
        if not 0 < line <= len(self.lines):
            return offset
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))

    def span(self, node: ast.AST) -> Span:
        """Return where an ``ast`` node stands."""
        line: int = getattr(node, "lineno", 1)
        end_line: int = getattr(node, "end_lineno", None) or line
        return Span(
            SourceName(self.name),
            line,
            end_line,
            self.column(line, getattr(node, "col_offset", 0)),
            self.column(end_line, getattr(node, "end_col_offset", None) or 0),
        )

    def error_at(self, line: int, column: int, end: int | None, message: str) -> ScriptError:
        """Make an error that shows the line with a caret below ``column``."""
        shown = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        place = f"{self.name}:{line}:{column + 1}"

        def render() -> str:
            if len(shown) > _LONG_LINE:  # nothing to read for anybody
                return f"{message}\n  --> {place}"
            blank = "\n" * (line - 1)
            return f"{message}\n{caret_excerpt(blank + shown, line, column, end, name=self.name)}"

        return ScriptError(render, line, column)

    def fail(self, node: ast.AST, message: str, cause: BaseException | None = None) -> NoReturn:
        """Raise an error that points at ``node``."""
        span = self.span(node)
        if len(message) > _LONG_MESSAGE:  # it cites a name or a value of the text
            message = f"{message[: _LONG_MESSAGE // 2]} ... {message[-_LONG_MESSAGE // 4 :]}"
        end = span.end_column if span.end_line == span.line else len(self.lines[span.line - 1])
        raise self.error_at(span.line, span.column, end, message) from cause
