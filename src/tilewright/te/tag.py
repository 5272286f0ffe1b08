"""Tags of operations: what kind of computation a tensor's definition says it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tilewright.support.errors import VerifyError

_CURRENT: ContextVar[str | None] = ContextVar("tag", default=None)


class TagScope:
    """Gives its tag to the operations defined in a ``with`` statement or a decorated function."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __enter__(self) -> TagScope:
        if _CURRENT.get() is not None:
            raise VerifyError(f"the scope of tag {self.tag!r} is inside that of {_CURRENT.get()!r}")
        _CURRENT.set(self.tag)
        return self

    def __exit__(self, *exception: object) -> None:
        _CURRENT.set(None)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def tagged(*args: object, **kwargs: object) -> Any:
            with TagScope(self.tag):
                return function(*args, **kwargs)

        return tagged


def tag_scope(tag: str) -> TagScope:
    """Tag what is defined inside: ``with te.tag_scope("gemm"):`` or ``@te.tag_scope("gemm")``.

    Raises ``VerifyError`` for a scope inside a scope, and for an operation that has a tag already.
    """
    return TagScope(tag)


def current_tag(own: str) -> str:
    """The tag of an operation defined here, which may have one of its own."""
    found = _CURRENT.get()
    if found is None:
        return own
    if own:
        raise VerifyError(f"an operation tagged {own!r} is defined in the scope of tag {found!r}")
    return found
