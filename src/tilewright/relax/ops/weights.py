"""A mark for the passes that move work from calls of a model to the loading of its weights."""

from __future__ import annotations

from tilewright.relax.ops.common import tensor_like
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo


@operator("stop_lift_params", decompose=lambda call: call.args[0])
def stop_lift_params(x: Tensor) -> StructInfo:
    """``x``, which ``LiftTransformParams`` leaves in its function, with all that uses it."""
    return tensor_like(x)
