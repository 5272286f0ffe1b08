"""Optimizers as graph functions: from parameters, gradients and states to new ones.

adam = Adam(0.01).init(params)
mod["adam"] = adam.get_function()   # (params, gradients, states) -> (params, states)
state = adam.state                  # the first states
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import GLOBAL_SYMBOL, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import Function, RelaxExpr, RelaxVar, Tuple
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.values import const, numpy_dtype
from tilewright.runtime import Tensor, from_numpy
from tilewright.support.errors import VerifyError


class Optimizer:
    """Base of optimizers.

    ``init`` takes the parameters to optimize; then ``get_function`` makes the graph function and
    ``state`` has the first states.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[RelaxVar] = []
        self.state: list[Tensor] = []
        self.dtype = ""

    def init(self, params: RelaxVar | Sequence[RelaxVar]) -> Optimizer:
        """Take the parameters, which are floating-point tensors of one dtype.

        Raises ``VerifyError`` for other parameters, for none, and for one that occurs twice.
        """
        made = [params] if isinstance(params, RelaxVar) else list(params)
        if not made:
            raise VerifyError(f"{self.name} needs at least one parameter")
        if len(set(made)) != len(made):
            raise VerifyError(f"{self.name} got a parameter twice: {made}")
        for param in made:
            info = param.struct_info
            if not isinstance(info, TensorStructInfo) or not dtypes.is_float(info.dtype):
                raise VerifyError(
                    f"{self.name} optimizes floating-point tensors; {param.name} is {info!r}"
                )
            if not info.has_shape or any(as_int(extent) is None for extent in info.shape):
                raise VerifyError(f"{self.name} needs constant shapes; {param.name} is {info!r}")
            if info.dtype != made[0].dtype:
                raise VerifyError(
                    f"{self.name} optimizes parameters of one dtype: {made[0].name} is "
                    f"{made[0].dtype}, {param.name} is {info.dtype}"
                )
        self.param_list, self.dtype = made, made[0].dtype
        numbers = [np.zeros((), "int64"), *(np.ones((), self._numpy()) for _ in self._products())]
        zeros = [np.zeros(self._shape(p), self._numpy()) for p in made * self._slots()]
        self.state = [from_numpy(array) for array in (*numbers, *zeros)]
        return self

    def get_function(self) -> Function:
        """Make ``(params, gradients, optim_states) -> (new params, new states)``, all tuples.

        Raises ``VerifyError`` before ``init``.
        """
        if not self.param_list:
            raise VerifyError(f"call {self.name}.init(params) first")
        infos = tuple(param.struct_info for param in self.param_list)
        scalar = TensorStructInfo((), self.dtype)
        products = [scalar] * len(self._products())
        states: list[StructInfo] = [TensorStructInfo((), "int64"), *products]
        states += infos * self._slots()
        params = RelaxVar("params", TupleStructInfo(infos))
        gradients = RelaxVar("gradients", TupleStructInfo(infos))
        optim_states = RelaxVar("optim_states", TupleStructInfo(tuple(states)))
        builder = BlockBuilder()

        def body() -> RelaxExpr:
            with builder.dataflow():
                return self._updated(builder, params, gradients, optim_states)

        operands = [params, gradients, optim_states]
        return builder.build_function(operands, body, {GLOBAL_SYMBOL: self.name})

    def _updated(
        self, builder: BlockBuilder, params: RelaxVar, gradients: RelaxVar, states: RelaxVar
    ) -> RelaxExpr:
        count, slots, head = len(self.param_list), self._slots(), 1 + len(self._products())
        numbers = [builder.emit_output(op.add(states[0], const(1, "int64")), "num_steps")]
        numbers += [
            builder.emit_output(op.multiply(states[1 + n], self._number(factor)))
            for n, factor in enumerate(self._products())
        ]
        new_params: list[RelaxExpr] = []
        new_states: list[list[RelaxExpr]] = [[] for _ in range(slots)]
        for n, param in enumerate(self.param_list):
            own = [builder.emit(states[head + slot * count + n]) for slot in range(slots)]
            old, gradient = builder.emit(params[n]), builder.emit(gradients[n])
            if self.weight_decay:
                gradient = gradient + old * self.weight_decay
            value, made = self._step(old, gradient, own, numbers[1:])
            for slot, state in enumerate(made):
                new_states[slot].append(builder.emit_output(state))
                made[slot] = new_states[slot][-1]
            new_params.append(builder.emit_output(value, f"{param.name}_new"))
        flat = [state for slot in new_states for state in slot]
        return Tuple((Tuple(tuple(new_params)), Tuple((*numbers, *flat))))

    weight_decay: float = 0.0
    """The share of a parameter that is added to its gradient."""

    # ---- what optimizers define -------------------------------------------------------------

    def _products(self) -> tuple[float, ...]:
        """Factors by which scalar states, which begin as 1, are multiplied in each step."""
        return ()

    def _slots(self) -> int:
        """How many states each parameter has; they begin as zeros."""
        return 0

    def _step(
        self, param: RelaxExpr, gradient: RelaxExpr, states: Sequence[RelaxExpr],
        products: Sequence[RelaxExpr],
    ) -> tuple[RelaxExpr, list[RelaxExpr]]:  # fmt: skip
        """The new parameter and its new states."""
        raise NotImplementedError(f"{type(self).__name__} must define _step")

    # ---- helpers ----------------------------------------------------------------------------

    def _numpy(self) -> np.dtype[Any]:
        return numpy_dtype(self.dtype)

    def _number(self, value: float) -> RelaxExpr:
        return const(np.asarray(value, self._numpy()))

    @staticmethod
    def _shape(param: RelaxVar) -> tuple[int, ...]:
        return tuple(int(as_int(extent) or 0) for extent in param.shape)


def _check(name: str, value: float, low: float = 0.0, high: float = float("inf")) -> float:
    if not low <= value < high:
        raise VerifyError(f"{name} must be at least {low} and less than {high}, got {value}")
    return float(value)


class SGD(Optimizer):
    """``param - lr * (gradient + weight_decay * param)``. States: the number of steps."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr = _check("lr", lr)
        self.weight_decay = _check("weight_decay", weight_decay)

    def _step(
        self, param: RelaxExpr, gradient: RelaxExpr, states: Sequence[RelaxExpr],
        products: Sequence[RelaxExpr],
    ) -> tuple[RelaxExpr, list[RelaxExpr]]:  # fmt: skip
        return param - gradient * self.lr, []


class MomentumSGD(Optimizer):
    """SGD along a velocity ``momentum * velocity + (1 - dampening) * gradient``.

    With ``nesterov`` the step is along ``gradient + momentum * velocity``. States: the number of
    steps, then the velocities, which begin as zeros.
    """

    def __init__(
        self,
        lr: float,
        momentum: float,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr = _check("lr", lr)
        self.momentum = _check("momentum", momentum)
        self.dampening = float(dampening)
        self.weight_decay = _check("weight_decay", weight_decay)
        self.nesterov = nesterov

    def _slots(self) -> int:
        return 1

    def _step(
        self, param: RelaxExpr, gradient: RelaxExpr, states: Sequence[RelaxExpr],
        products: Sequence[RelaxExpr],
    ) -> tuple[RelaxExpr, list[RelaxExpr]]:  # fmt: skip
        velocity = states[0] * self.momentum + gradient * (1 - self.dampening)
        along = gradient + velocity * self.momentum if self.nesterov else velocity
        return param - along * self.lr, [velocity]


class Adam(Optimizer):
    """Adam (Kingma & Ba, 2015). States: number of steps, powers of the betas, both moments."""

    def __init__(
        self,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
    ) -> None:
        super().__init__("Adam")
        self.lr = _check("lr", lr)
        self.beta1, self.beta2 = (_check("betas", beta, high=1.0) for beta in betas)
        self.eps = _check("eps", eps)
        self.weight_decay = _check("weight_decay", weight_decay)

    def _products(self) -> tuple[float, ...]:
        return self.beta1, self.beta2

    def _slots(self) -> int:
        return 2

    def _step(
        self, param: RelaxExpr, gradient: RelaxExpr, states: Sequence[RelaxExpr],
        products: Sequence[RelaxExpr],
    ) -> tuple[RelaxExpr, list[RelaxExpr]]:  # fmt: skip
        first = states[0] * self.beta1 + gradient * (1 - self.beta1)
        second = states[1] * self.beta2 + gradient * gradient * (1 - self.beta2)
        mean = first / (1.0 - products[0])
        scale = op.sqrt(second / (1.0 - products[1])) + self.eps
        return param - mean / scale * self.lr, [first, second]
