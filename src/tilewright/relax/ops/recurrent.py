"""Recurrent layers."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import as_int, dtypes
from tilewright.relax.conditions import require_equal
from tilewright.relax.ops.common import known, require_ndim, same_dtype, tensor_like
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.nn.recurrent import cell_named


@operator("nn.recurrence", legalize=topi.nn.recurrence)
def recurrence(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    state: Tensor,
    memory: Tensor | None = None,
    cell: str = "lstm",
    reverse: bool = False,
    batch_first: bool = False,
) -> StructInfo:
    """Run a recurrent layer over its steps: the outputs ``[steps, batch, hidden]``, the last state.

    ``x`` is ``[steps, batch, gates * hidden]``, the inputs' products with their weight, which are
    made for all steps at once; ``weight`` is ``[hidden, gates * hidden]`` and ``bias``
    ``[gates * hidden]``, for the product with the state. ``state`` is the output before the first
    step, ``[batch, hidden]``, as is ``memory``, which an LSTM has besides: it gives three results,
    the other cells two. ``cell`` is ``lstm`` (gates: input, forget, cell, output), ``gru`` (reset,
    update, new; the reset comes after the product), ``tanh`` or ``relu``. ``reverse`` goes from the
    last step to the first; with ``batch_first`` inputs and outputs have the batch before the steps.

    Raises ``VerifyError`` if shapes, dtypes or the operands don't fit each other and the cell.
    """
    gates = cell_named(cell, memory is not None).gates
    for name, info, ndim in (("x", x, 3), ("weight", weight, 2), ("bias", bias, 1)):
        require_ndim(info, ndim, name)
    shape, hidden = known(x, "x"), known(weight, "weight")[0]
    size = as_int(hidden)
    if size is None:
        raise VerifyError(f"the hidden size must be constant, got {hidden!r}")
    for name, info in (("x", x), ("weight", weight), ("bias", bias)):
        require_equal(f"gates of {name}", known(info, name)[-1], gates * size)
    states = [state] if memory is None else [state, memory]
    for item in states:
        require_ndim(item, 2, "state")
        batch, own = known(item, "state")
        require_equal("batches of x and of the state differ", shape[0 if batch_first else 1], batch)
        require_equal("hidden sizes of state and weight differ", own, hidden)
    dtype = same_dtype(x, weight, bias, *states)
    if not dtypes.is_float(dtype):
        raise VerifyError(f"needs floating-point numbers, got {dtype}")
    y = TensorStructInfo((*shape[:2], hidden), dtype)
    return TupleStructInfo((y, *map(tensor_like, states)))
