"""Every error that Tilewright raises on purpose.

All derive from :class:`TilewrightError`. Rendering is lazy: an error may be built from a function
that makes its message, which runs only when somebody reads the error. Raising is then cheap, which
matters in a search that refuses thousands of schedules.
"""

from __future__ import annotations

from collections.abc import Callable

Message = str | Callable[[], str]


class TilewrightError(Exception):
    """Base of every error raised on purpose; ``message`` may be a function that renders it.

    ``summary`` is the message's first line, if that can be told without rendering the rest.
    """

    def __init__(self, message: Message = "", summary: Callable[[], str] | None = None) -> None:
        super().__init__()
        self._message = message
        self._summary = summary

    @property
    def message(self) -> str:
        """The rendered text."""
        if not isinstance(self._message, str):
            self._message = self._message()
        return self._message

    @property
    def summary(self) -> str:
        """The first line of the text; where rendering is much work, it is not rendered for that."""
        told = self.message if self._summary is None else self._summary()
        return told.split("\n", 1)[0]

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message,)


class ScheduleError(TilewrightError):
    """A schedule primitive would change the program's meaning, or its arguments don't fit."""


class ParseError(TilewrightError):
    """Script text is not a program; the message points at line and column."""


class VerifyError(TilewrightError):
    """A program is not well formed, or two programs that must agree do not."""


class LowerError(TilewrightError):
    """A lowering pass met something that it can't lower."""


class CodegenError(TilewrightError):
    """The code generator or LLVM refused a lowered program."""


class BuildError(TilewrightError):
    """A module can't be built for a target, exported or loaded."""


class RunError(TilewrightError):
    """A compiled function was called wrongly, or failed while it ran."""


class UnknownNameError(RunError, ValueError):
    """There is no global function of a name; a ``ValueError``, too, as programs for TVM expect."""


class TuneError(TilewrightError):
    """Tuning can't go on: a bad configuration, an unusable database or work directory."""


class TargetError(TilewrightError):
    """A target is unknown or inconsistent."""


class ImportModelError(TilewrightError):
    """A model from a framework holds something that the importer doesn't know."""


class MissingExtraError(TilewrightError):
    """An optional dependency isn't installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str = "") -> None:
        why = f" for {purpose}" if purpose else ""
        super().__init__(
            f"{package} is needed{why} but is not installed; "
            f"get it with: pip install 'tilewright[{extra}]'"
        )
        self._arguments = (package, extra, purpose)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._arguments
