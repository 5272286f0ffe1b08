"""Places in source text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceName:
    """The name of a text: most often, of a file."""

    name: str


@dataclass(frozen=True)
class Span:
    """A part of a text: from a line and column to others. Lines count from 1."""

    source_name: SourceName
    line: int
    end_line: int
    column: int
    end_column: int

    @property
    def name(self) -> str:
        """The name of the text."""
        return self.source_name.name

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column + 1}"


@dataclass(frozen=True)
class SequentialSpan:
    """Several parts of texts, in order."""

    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))
