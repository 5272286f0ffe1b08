"""``Trainer``: runs what ``SetupTrainer`` made, and keeps parameters and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import IRModule, as_int
from tilewright.relax.execution.virtual_machine import VirtualMachine
from tilewright.relax.expr import Function, RelaxVar
from tilewright.relax.training.setup_trainer import (
    OPTIM_STATE,
    PARAM_NUM,
    STATE_NUM,
    SetupTrainer,
)
from tilewright.relax.values import numpy_dtype
from tilewright.runtime import Device, Tensor, from_dlpack, from_numpy
from tilewright.support.errors import RunError, VerifyError
from tilewright.support.registry import near_matches


class Trainer:
    """Trains the module that ``SetupTrainer`` made, compiled into a virtual machine.

    Parameters and states begin as zeros with ``zero_init_param_state``, else they must be loaded
    (or initialised) before the first use. The module's functions have the names that follow.
    """

    BACKBONE_FUNC = SetupTrainer.BACKBONE_FUNC
    BACKBONE_LOSS_FUNC = SetupTrainer.BACKBONE_LOSS_FUNC
    ADJOINT_FUNC = SetupTrainer.ADJOINT_FUNC
    OPTIMIZER_FUNC = SetupTrainer.OPTIMIZER_FUNC

    def __init__(
        self,
        train_mod: IRModule,
        vm: VirtualMachine,
        device: Device,
        zero_init_param_state: bool = True,
    ) -> None:
        self.vm = vm
        self.device = device
        backbone = train_mod.functions.get(self.BACKBONE_FUNC)
        if not isinstance(backbone, Function) or OPTIM_STATE not in train_mod.attrs:
            raise VerifyError("Trainer takes the module that SetupTrainer made")
        params, states = int(train_mod.attrs[PARAM_NUM]), int(train_mod.attrs[STATE_NUM])
        end = len(backbone.params) - states
        self._input_num = end - params
        self._param_vars = list(backbone.params[self._input_num : end])
        self._state_vars = list(backbone.params[end:])
        self._params: list[Any] = [None] * params
        self._states: list[Any] = [None] * states
        self._optim_states: tuple[Any, ...] = tuple(
            from_numpy(np.array(item.data)) for item in train_mod.attrs[OPTIM_STATE]
        )
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    # ---- parameters and states --------------------------------------------------------------

    def xaviar_uniform_init_params(self) -> None:
        """Draw parameters from Xavier's uniform distribution (Glorot & Bengio, 2010).

        Parameters of one dimension and of none are zeros.
        """
        rng = np.random.default_rng()
        for position, var in enumerate(self._param_vars):
            shape = _shape(var)
            made = np.zeros(shape, numpy_dtype(var.dtype))
            if len(shape) > 1:
                field = int(np.prod(shape[2:]))
                bound = float(np.sqrt(6 / max(1, (shape[0] + shape[1]) * field)))
                made = rng.uniform(-bound, bound, shape).astype(made.dtype)
            self._params[position] = from_numpy(made)

    xaiver_uniform_init_params = xaviar_uniform_init_params  # as TVM spells it

    def zero_init_params(self) -> None:
        """Set all parameters to zero."""
        self._params = [_zeros(var) for var in self._param_vars]

    def zero_init_states(self) -> None:
        """Set all states to zero."""
        self._states = [_zeros(var) for var in self._state_vars]

    def load_params(self, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Set parameters: all in order, or some by name.

        Raises ``RunError`` for a wrong number, an unknown name, and another shape or dtype.
        """
        self._params = _loaded("parameter", self._param_vars, self._params, params)

    def load_states(self, states: Sequence[Any] | Mapping[str, Any]) -> None:
        """Set states: all in order, or some by name; errors as of ``load_params``."""
        self._states = _loaded("state", self._state_vars, self._states, states)

    def export_params(self) -> dict[str, Tensor]:
        """Return the parameters by name."""
        return _exported("parameter", self._param_vars, self._params)

    def export_states(self) -> dict[str, Tensor]:
        """Return the states by name."""
        return _exported("state", self._state_vars, self._states)

    # ---- running ----------------------------------------------------------------------------

    def predict(self, *input_instances: object) -> Any:
        """Run the backbone; return its outputs, without new states."""
        found = self.vm[self.BACKBONE_FUNC](
            *self._inputs(input_instances), *self._known_params(), *self._known_states()
        )
        if not self._states:
            return found
        outputs = found[: len(found) - len(self._states)]
        return outputs[0] if len(outputs) == 1 else outputs

    def update(self, input_instances: object, targets: object) -> Any:
        """Do one step: compute loss and gradients, update parameters and states.

        Inputs and targets are tensors, or sequences of them. Returns the loss.
        """
        result, gradients = self.vm[self.ADJOINT_FUNC](
            *self._step_arguments(input_instances, targets)
        )
        loss = result
        if self._states:
            loss, states = result[0], result[-len(self._states) :]
            self._states = list(states)
        params, self._optim_states = self.vm[self.OPTIMIZER_FUNC](
            tuple(self._params), gradients, self._optim_states
        )
        self._params = list(params)
        return loss

    def profile_adjoint(self, input_instances: object, targets: object) -> Any:
        """Profile loss and gradients, kernel by kernel; see ``VirtualMachine.profile``."""
        return self.vm.profile(self.ADJOINT_FUNC, *self._step_arguments(input_instances, targets))

    def _step_arguments(self, input_instances: object, targets: object) -> list[object]:
        inputs = self._inputs(_sequence(input_instances))
        return [*inputs, *self._known_params(), *self._known_states(), *_sequence(targets)]

    def _inputs(self, inputs: Sequence[object]) -> list[object]:
        if len(inputs) != self._input_num:
            raise RunError(f"the backbone takes {self._input_num} inputs, got {len(inputs)}")
        return list(inputs)

    def _known_params(self) -> list[object]:
        return list(self.export_params().values())

    def _known_states(self) -> list[object]:
        return list(self.export_states().values())


def _sequence(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _shape(var: RelaxVar) -> tuple[int, ...]:
    extents = [as_int(extent) for extent in var.shape]
    if None in extents:
        raise RunError(f"{var.name} has a symbolic shape {list(var.shape)}: load it")
    return tuple(int(extent or 0) for extent in extents)


def _zeros(var: RelaxVar) -> Tensor:
    return from_numpy(np.zeros(_shape(var), numpy_dtype(var.dtype)))


def _exported(what: str, variables: Sequence[RelaxVar], values: Sequence[object]) -> dict[str, Any]:
    for var, value in zip(variables, values):
        if value is None:
            raise RunError(
                f"{what} {var.name} has no value: load_{'params' if what[0] == 'p' else 'states'} "
                "sets it"
            )
    return {var.name: value for var, value in zip(variables, values)}


def _loaded(
    what: str,
    variables: Sequence[RelaxVar],
    known: Sequence[object],
    given: Sequence[Any] | Mapping[str, Any],
) -> list[object]:
    names = [var.name for var in variables]
    if not isinstance(given, Mapping):
        if len(given) != len(variables):
            raise RunError(f"there are {len(variables)} {what}s ({', '.join(names)}), got "
                           f"{len(given)}")  # fmt: skip
        given = dict(zip(names, given))
    made = list(known)
    for name, value in given.items():
        if name not in names:
            raise RunError(f"there is no {what} {name!r}; {near_matches(name, names)}")
        position = names.index(name)
        made[position] = _checked(what, variables[position], value)
    return made


def _checked(what: str, var: RelaxVar, value: object) -> object:
    """A copy of a value, which training doesn't change."""
    if hasattr(value, "detach"):
        value = value.detach()
    array = value if isinstance(value, (np.ndarray, np.generic)) else from_dlpack(value).numpy()
    wanted = _shape(var)
    if array.shape != wanted or array.dtype.name != var.dtype:
        raise RunError(
            f"{what} {var.name} is {var.dtype}{list(wanted)}, got "
            f"{array.dtype.name}{list(array.shape)}"
        )
    return from_numpy(np.array(array))
