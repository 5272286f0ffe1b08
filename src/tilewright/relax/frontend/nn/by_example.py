"""Exporting ``forward`` of a module by example inputs, its parameters as constants."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import IRModule
from tilewright.relax.frontend.nn import spec
from tilewright.relax.frontend.nn.core import Module
from tilewright.relax.transform import BindParams
from tilewright.support.errors import ImportModelError


def export_by_example(
    model: Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
) -> tuple[IRModule, list[Any]]:
    """Return a module with the function ``forward``, and its inputs in order.

    Arrays become tensors of their shape and dtype, integers symbolic sizes. ``dynamic`` has names
    of sizes for axes of inputs that may have any size.

    Raises ``ImportModelError`` for inputs that ``forward`` doesn't take, and for parameters without
    data.
    """
    kind = type(model).__name__
    names = [
        parameter.name
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(args) > len(names):
        raise ImportModelError(
            f"{kind}.forward takes {len(names)} inputs ({', '.join(names)}), "
            f"{len(args)} examples were given"
        )
    given = {**dict(zip(names, args)), **(kwargs or {})}
    unknown = [name for name in given if name not in names]
    if unknown or len(given) != len(args) + len(kwargs or {}):
        wrong = unknown or [name for name in kwargs or {} if name in names[: len(args)]]
        raise ImportModelError(
            f"{kind}.forward takes {len(names)} inputs ({', '.join(names)}); example {wrong[0]!r} "
            + ("is none of them" if unknown else "is given twice")
        )
    values = {
        name: given[name] if isinstance(given[name], int) else np.asarray(given[name])
        for name in names
        if name in given
    }
    described = {
        name: spec.Int() if isinstance(value, int) else spec.Tensor(value.shape, str(value.dtype))
        for name, value in values.items()
    }
    for name, axes in (dynamic or {}).items():
        example = described.get(name)
        if not isinstance(example, spec.Tensor) or not all(a < len(example.shape) for a in axes):
            raise ImportModelError(
                f"{kind}.forward has no axes {', '.join(map(str, axes))} of an example {name!r}"
            )
        shape = [axes.get(axis, extent) for axis, extent in enumerate(example.shape)]
        described[name] = spec.Tensor(shape, example.dtype)
    mod, parameters = model.export({"forward": described})
    missing = [name for name, parameter in parameters if parameter.data is None]
    if missing:
        raise ImportModelError(f"the parameters {', '.join(missing)} have no data")
    bound = BindParams("forward", {name: parameter.data for name, parameter in parameters})
    return bound(mod), list(values.values())
