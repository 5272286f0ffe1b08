"""Names of functions that are made by others: of one definition for a family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])


def named(function: Made, name: str, doc: str | None) -> Made:
    """Give a function that another one has made its own name and docstring; return it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function
