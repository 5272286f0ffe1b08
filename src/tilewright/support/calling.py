"""Calling functions by other names of their parameters, as versions of an interface have them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def other_names(**names: str) -> Callable[[Function], Function]:
    """Let a function be called with other names of parameters too: ``other_names(new="own")``.

    Raises ``TypeError`` when a call gives a parameter by both names.
    """

    def declare(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for other in names.keys() & kwargs.keys():
                own = names[other]
                if own in kwargs:
                    raise TypeError(f"{other} and {own} are one parameter: give it once")
                kwargs[own] = kwargs.pop(other)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return declare
