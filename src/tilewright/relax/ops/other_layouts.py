"""Images and filters whose axes have another order than the usual one, such as ``NHWC``.

Operators on images compute channels first. A call that states another order is, in its usual form
(``registry.usual_form``), one on permuted operands, the result of which is permuted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.relax.expr import RelaxCall, RelaxExpr
from tilewright.relax.ops.manipulate import permute_dims
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import Layout, image_layout, layout_of


def layouts_of(
    attrs: Mapping[str, Any], axes: Mapping[str, str], blocks: bool = False
) -> list[Layout]:
    """Parse the layouts that attributes name, of axes in any order.

    ``axes`` has the usual order of axes for each attribute; an ``out_layout`` that isn't given is
    the data's. With ``blocks``, axes in the usual order may have blocks of channels.

    Raises ``VerifyError`` for other axes, and for blocks beside another order.
    """
    made = []
    for name, usual in axes.items():
        given = attrs.get(name) or attrs.get("data_layout") or attrs.get("layout") or usual
        if sorted(given) == sorted(usual):
            made.append(layout_of(given))
        elif blocks and name != "kernel_layout":
            made.append(image_layout(name, given, usual))
        elif blocks and sorted(layout_of(given).axes) == sorted(usual):
            made.append(layout_of(given))
        else:
            raise VerifyError(f"{name} has the axes {usual} in any order, got {given!r}")
    mixed = any(item.ndim > len(item.axes) for item in made)
    if mixed and not _are_usual(made, axes):
        names = [item.name for item in made]
        raise VerifyError(f"blocks of channels need the other axes in the usual order: {names}")
    return made


def _are_usual(layouts: list[Layout], axes: Mapping[str, str]) -> bool:
    return [item.axes for item in layouts] == list(axes.values())


def in_usual_order(
    operands: tuple[str, ...], result: str, axes: Mapping[str, str], blocks: bool = False
) -> Callable[[RelaxCall], RelaxExpr | None]:
    """Return the rule for an operator's usual form.

    ``operands`` and ``result`` are the attributes that name their layouts.
    """

    def rule(call: RelaxCall) -> RelaxExpr | None:
        found = dict(zip(axes, layouts_of(call.attrs, axes, blocks)))
        if _are_usual(list(found.values()), axes):
            return None
        images = [
            _permuted(arg, found[name].axes, axes[name])
            for arg, name in zip(call.args, operands, strict=True)
        ]
        options = {name: value for name, value in call.attrs.items() if name not in axes}
        made = call.op.build(*images, **options)
        return _permuted(made, axes[result], found[result].axes)

    return rule


def _permuted(x: RelaxExpr, have: str, want: str) -> RelaxExpr:
    return x if have == want else permute_dims(x, [have.index(axis) for axis in want])
