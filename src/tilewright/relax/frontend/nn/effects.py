"""State that graph functions take and return: ``Effect``, ``IOEffect``, ``KVCache``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import Var, as_expr
from tilewright.relax import ops
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxExpr, RelaxVar, ShapeExpr
from tilewright.relax.frontend.nn.tensor import (
    Tensor,
    current_builder,
    get_default_dtype,
)
from tilewright.relax.struct_info import ObjectStructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


class Effect:
    """State that a module changes: graph functions take it after their inputs and return it.

    Subclasses say how it starts (``emit_init``) and which variables hold it at a point of the graph
    (``create``, ``set_state``, ``finalize``).
    """

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[RelaxVar]:
        """Emit how the state starts; returns the variables that hold it."""
        raise NotImplementedError(f"{type(self).__name__} must define emit_init")

    def create(self, name_hint: str) -> list[RelaxVar]:
        """Make the variables that hold the state when a function starts, and take them."""
        raise NotImplementedError(f"{type(self).__name__} must define create")

    def set_state(self, state_vars: list[RelaxVar]) -> None:
        """Take variables that hold the state from now on."""
        raise NotImplementedError(f"{type(self).__name__} must define set_state")

    def finalize(self) -> list[RelaxVar]:
        """Give up the state at the end of a function; returns the variables that hold it."""
        raise NotImplementedError(f"{type(self).__name__} must define finalize")

    def to(self, dtype: str | None = None) -> None:
        """Change the element type, if the state has one."""


class _OneVariable(Effect):
    """An effect that one variable holds."""

    _state: RelaxVar | None = None

    def create(self, name_hint: str) -> list[RelaxVar]:
        """Make the variable and take it."""
        self._state = RelaxVar(name_hint, ObjectStructInfo())
        return [self._state]

    def set_state(self, state_vars: list[RelaxVar]) -> None:
        """Take another variable."""
        (self._state,) = state_vars

    def finalize(self) -> list[RelaxVar]:
        """Give up the variable."""
        held, self._state = self.state, None
        return [held]

    @property
    def state(self) -> RelaxVar:
        """The variable.

        Raises ``VerifyError`` outside of the export of a method that has effects.
        """
        if self._state is None:
            raise VerifyError(
                f"{type(self).__name__} is used where no effects are: export its module with the "
                'effect_mode "plain" or "packed"'
            )
        return self._state

    def update(self, value: RelaxExpr, name: str) -> None:
        """Emit a value that becomes the state."""
        self._state = current_builder().emit(value, name)


class IOEffect(_OneVariable):
    """The order of what a graph prints and of other calls that the world sees."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[RelaxVar]:
        """Start with nothing."""
        return [builder.emit(ops.null_value(), name_hint)]

    def call(self, name: str, *args: object) -> None:
        """Emit a call of the global function ``vm.builtin.invoke_debug_func``."""
        call = ops.call_pure_packed(
            "vm.builtin.invoke_debug_func",
            self.state,
            name,
            *args,
            ty_args=ObjectStructInfo(),
        )
        self.update(call, self.state.name)


class KVCache(_OneVariable):
    """Keys or values that attention has seen: a tensor ``[length, *unit_shape]`` that grows.

    ``init_seq_len`` is the length that it has memory for at the start.
    """

    def __init__(
        self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None
    ) -> None:
        self.init_seq_len = init_seq_len
        self.unit_shape = [int(extent) for extent in unit_shape]
        self.dtype = get_default_dtype() if dtype is None else dtype

    def emit_init(self, name_hint: str, bb: BlockBuilder) -> list[RelaxVar]:
        """Start empty."""
        shape = [self.init_seq_len, *self.unit_shape]
        call = ops.call_pure_packed(
            "vm.builtin.attention_kv_cache_create",
            bb.emit(ops.zeros(shape, self.dtype)),
            ShapeExpr(tuple(map(as_expr, shape))),
            0,
            ty_args=ObjectStructInfo(),
        )
        return [bb.emit(call, name_hint)]

    def append(self, new_element: Tensor) -> None:
        """Add ``[new_length, *unit_shape]`` at the end.

        Raises ``VerifyError`` for another dtype or unit shape.
        """
        if new_element.dtype != self.dtype or new_element.shape[1:] != self.unit_shape:
            raise VerifyError(
                f"a KVCache of {self.dtype}[*, {', '.join(map(str, self.unit_shape))}] can't take "
                f"{new_element!r}"
            )
        call = ops.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append",
            self.state,
            new_element._expr,
            inplace_indices=[0],
            ty_args=ObjectStructInfo(),
        )
        self.update(call, self.state.name)

    def view(self, seq_len: Var | int) -> Tensor:
        """Return the first ``seq_len`` elements: ``[seq_len, *unit_shape]``."""
        shape: list[Any] = [seq_len, *self.unit_shape]
        call = ops.call_pure_packed(
            "vm.builtin.attention_kv_cache_view",
            self.state,
            ShapeExpr(tuple(map(as_expr, shape))),
            ty_args=TensorStructInfo(shape, self.dtype),
        )
        return Tensor(current_builder().emit(call))

    def to(self, dtype: str | None = None) -> None:
        """Change the element type."""
        self.dtype = self.dtype if dtype is None else dtype
