"""``layout_transform``: rearranging the elements of a tensor by an index map."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relax.ops.common import known, require_ndim
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir import IndexMap
from tilewright.topi import layout as topi_layout


def _as_text(x: Any, index_map: Any, pad_value: float | None) -> dict[str, Any]:
    """Store maps as text, which prints and parses."""
    if not isinstance(index_map, (str, IndexMap)):
        index_map = IndexMap.from_func(index_map, max(x.struct_info.ndim, 0))
    if isinstance(index_map, IndexMap):
        index_map = index_map.to_text()
    return {"index_map": index_map}


def _transformed(
    x: np.ndarray[Any, Any], index_map: str, pad_value: float | None
) -> np.ndarray[Any, Any]:
    made = IndexMap.from_text(index_map)
    result: np.ndarray[Any, Any] = made.map_ndarray(x)
    if pad_value:
        inside = made.map_ndarray(np.ones(x.shape, bool))
        result = np.where(inside, result, np.asarray(pad_value, x.dtype))
    return result


@operator(
    "layout_transform",
    legalize=topi_layout.map_layout,
    numpy=_transformed,
    prepare=_as_text,
)
def layout_transform(x: Tensor, index_map: str, pad_value: float | None = None) -> StructInfo:
    """Rearrange elements by ``index_map`` (a function, an ``IndexMap`` or its text).

    Result elements to which nothing is mapped get ``pad_value``, which is required if there are
    any.

    Raises ``VerifyError`` if the map doesn't fit the shape.
    """
    shape = known(x)
    try:
        made = IndexMap.from_text(index_map)
        require_ndim(x, len(made.initial_indices))
        if pad_value is None:
            made.layout_inverse(shape)
        return TensorStructInfo(made.map_shape(shape), x.dtype)
    except ScheduleError as error:
        raise VerifyError(str(error)) from None
