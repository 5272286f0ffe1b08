"""Searching in sorted rows: ``searchsorted``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, Var, cast, dtypes, not_
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, extern, require_equal, with_conditions
from tilewright.tir import Buffer, IfThenElse, Stmt, While, decl_buffer, seq
from tilewright.tir.building import Axis, block, let, load, store
from tilewright.topi.sort import comparable


@with_conditions
def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64"
) -> Tensor:
    """Where each value would be inserted into a sorted sequence, so that it stays sorted.

    Before equal elements, or with ``right`` after them; NaN goes to the end. There is one sequence
    for all values, or one for each row of them: then all axes but the last are the same.

    Raises ``VerifyError`` if these differ, or dtypes aren't as needed.
    """
    what = "searchsorted"
    check_search(what, sorted_sequence.dtype, values.dtype, out_dtype)
    if sorted_sequence.ndim == 0:
        raise VerifyError(f"{what}: the sequence needs at least one dimension")
    if sorted_sequence.ndim > 1:
        if values.ndim != sorted_sequence.ndim:
            raise VerifyError(
                f"{what}: sequences in {sorted_sequence.ndim} dimensions need values in as many, "
                f"they have {values.ndim}"
            )
        for axis, (a, b) in enumerate(zip(sorted_sequence.shape[:-1], values.shape)):
            require_equal(f"{what}: extent of axis {axis}", a, b)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        sequence, wanted = operands
        low, high = (decl_buffer((1,), "int64", name, scope="local") for name in ("low", "high"))

        def search(*i: Var) -> Stmt:
            row = i[:-1] if len(sequence.shape) > 1 else ()

            def halve(middle: Expr) -> Stmt:
                element = comparable(load(sequence, *row, middle))
                value = comparable(load(wanted, *i))
                after = element > value if right else element >= value
                return IfThenElse(not_(after), store(low, middle + 1, 0), store(high, middle, 0))

            first, last = load(low, 0), load(high, 0)
            step = let("middle", first + (last - first) // 2, halve)
            return seq(
                store(low, 0, 0),
                store(high, sequence.shape[-1], 0),
                While(first < last, step),
                store(outputs[0], cast(load(low, 0), out_dtype), *i),
            )

        axes = [Axis(f"i{n}", extent) for n, extent in enumerate(values.shape)]
        return block(what, axes, search, [low, high])

    made: Tensor = extern(
        [values.shape], [sorted_sequence, values], body, dtype=[out_dtype], name=what
    )
    return made


def check_search(what: str, sequence: str, values: str, dtype: str) -> None:
    """Raise ``VerifyError`` unless both operands have one dtype, and positions are integers."""
    if sequence != values:
        raise VerifyError(
            f"{what}: the sequence is {sequence} and values are {values}: convert one"
        )
    if not dtypes.is_integer(dtype):
        raise VerifyError(f"{what}: positions are integers, not {dtype}")
