"""Whether a function is an operator: structurally equal to ``topi``'s definition.

The definition is built for the buffers' shapes and dtypes, and compared structurally. So a function
that was fused with others, or changed, is not the operator, though its stages may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright import te
from tilewright.ir import structural_equal
from tilewright.scheduling import nests_of
from tilewright.support.errors import VerifyError
from tilewright.tir import Buffer, PrimFunc, Stmt, seq


def is_definition(
    func: PrimFunc,
    operands: Sequence[Buffer],
    define: Callable[[Mapping[Buffer, te.Tensor]], Mapping[Buffer, te.Tensor]],
    stages: Sequence[Stmt] | None = None,
) -> bool:
    """Whether a function equals this definition for its operands, apart from its attributes.

    ``define`` takes a placeholder for each operand, and returns a tensor for each result. With
    ``stages`` only these statements of the function are compared.
    """
    tensors = {item: te.placeholder(item.shape, item.dtype, item.name) for item in operands}
    try:
        tensors.update(define(tensors))
    except VerifyError:
        return False  # The definition takes no such operands.
    if stages is not None:
        wanted = te.create_prim_func(list(tensors.values()))
        return structural_equal(seq(*stages), seq(*nests_of(wanted)), map_free_vars=True)
    if set(func.buffers) != set(tensors):
        return False
    args = [
        tensors[func.buffer_map[param]] if param in func.buffer_map else param
        for param in func.params
    ]
    wanted = te.create_prim_func(args)
    return structural_equal(func.replace(attrs={}), wanted.replace(attrs={}))
