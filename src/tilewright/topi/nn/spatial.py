"""What operators over images of one to three axes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import Expr
from tilewright.te import Tensor, compute

_NAMES = ("d", "h", "w")


def axis_names(spatial: int) -> tuple[str, ...]:
    """Names of the last ``spatial`` axes of an image."""
    return _NAMES[3 - spatial :]


def compute_image(
    shape: Sequence[Any],
    channel: str,
    formula: Callable[..., Expr],
    name: str,
    tag: str,
    blocked: bool = False,
) -> Tensor:
    """Compute ``formula(n, channel, *place)``, with axes that are called so in programs.

    If channels are ``blocked``, the place within a block comes last.
    """
    lane = ("b",) if blocked else ()
    arguments = ", ".join(("n", channel, *axis_names(len(shape) - 2 - len(lane)), *lane))
    scope: dict[str, Any] = {"formula": formula}
    named = eval(f"lambda {arguments}: formula({arguments})", scope)
    made: Tensor = compute(tuple(shape), named, name=name, tag=tag)
    return made
