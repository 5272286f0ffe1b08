"""Operations written as statements: those without a formula per element (sorting)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import ExprLike, as_expr, dtypes
from tilewright.support.errors import VerifyError
from tilewright.te.tensor import Operation, Tensor
from tilewright.tir import Buffer, Stmt

ExternBody = Callable[[Sequence[Buffer], Sequence[Buffer]], Stmt]
"""From the buffers of inputs and outputs to statements: blocks under loops."""


class ExternOp(Operation):
    """An operation whose ``body`` makes statements from buffers, once for each function."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[Tensor],
        shapes: Sequence[Sequence[ExprLike]],
        dtypes_: Sequence[str],
        body: ExternBody,
    ) -> None:
        super().__init__(name, (), ())
        self._inputs = list(dict.fromkeys(inputs))
        self.operands = tuple(inputs)
        self.body = body
        self.dtypes = tuple(dtypes_)
        self.outputs = tuple(
            Tensor(
                self,
                number,
                tuple(as_expr(extent) for extent in shape),
                dtype,
                name if len(shapes) == 1 else f"{name}_v{number}",
            )
            for number, (shape, dtype) in enumerate(zip(shapes, dtypes_))
        )

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the statements read, once each."""
        return self._inputs


def extern(
    shapes: Sequence[Sequence[ExprLike]],
    inputs: Sequence[Tensor],
    body: ExternBody,
    *,
    dtype: Sequence[str],
    name: str = "extern",
) -> tuple[Tensor, ...]:
    """Define tensors by statements; one shape and one dtype for each.

    ``body`` takes the buffers of ``inputs`` and those of the results, and returns blocks under
    loops. It is called once for each function that is created, and must declare new buffers each
    time.

    Raises ``VerifyError`` if there are not as many dtypes as shapes.
    """
    if not shapes or len(shapes) != len(dtype):
        raise VerifyError(
            f"extern {name!r} needs a dtype for each shape, got {len(shapes)} shapes and "
            f"{len(dtype)} dtypes"
        )
    for item in dtype:
        dtypes.split_dtype(item)
    return ExternOp(name, inputs, shapes, dtype, body).outputs
