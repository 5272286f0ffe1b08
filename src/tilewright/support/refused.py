"""Options that a class has in TVM and that mean nothing here: refused, never ignored."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from tilewright.support.errors import TuneError


def refuse_options(owner: type, options: Mapping[str, object], why: str) -> None:
    """Raise ``TuneError`` if one of the ``options`` is given; the message has those that are left.

    One that isn't given is ``None``.
    """
    given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    if given:
        known = [name for name in inspect.signature(owner).parameters if name not in options]
        raise TuneError(
            f"{owner.__name__} has nothing that corresponds to {', '.join(given)}: {why}; "
            f"its options are {', '.join(known)}"
        )
