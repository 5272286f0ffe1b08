"""``SetupTrainer``: the module that a ``Trainer`` runs, from a backbone."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import GLOBAL_SYMBOL, IRModule, Pass
from tilewright.relax.expr import Function, RelaxVar
from tilewright.relax.pipeline import get_pipeline
from tilewright.relax.struct_info import StructInfo
from tilewright.relax.training.loss import Loss
from tilewright.relax.training.optimizer import Optimizer
from tilewright.relax.training.utils import AppendLoss
from tilewright.relax.transform import (
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    Gradient,
)
from tilewright.relax.values import const
from tilewright.support.errors import VerifyError

PARAM_NUM, STATE_NUM, OPTIM_STATE = "param_num", "state_num", "optim_state"


class SetupTrainer(Pass):
    """Add the functions that train the function ``backbone``.

    The backbone is ``(*inputs, *params, *states) -> (*outputs, *new states)``; the module's
    attributes ``param_num`` and ``state_num`` say how many parameters and states there are (states
    are what is updated without gradients, such as running means). The loss takes the first outputs
    and the targets, described by ``loss_args``: struct info or variables. Made are

    - ``backbone_loss``: ``(*inputs, *params, *states, *targets) -> loss`` (and new states),
    - ``backbone_loss_adjoint``: the same, and the gradients of the parameters,
    - ``optimizer``: ``(params, gradients, optim_states) -> (params, optim_states)``,

    and the attribute ``optim_state`` has the optimizer's first states. ``backbone`` remains, for
    inference. With ``legalize`` operators become fused tensor functions, ready to be tuned
    (the pipeline ``zero``).
    """

    BACKBONE_FUNC = "backbone"
    BACKBONE_LOSS_FUNC = "backbone_loss"
    ADJOINT_FUNC = "backbone_loss_adjoint"
    OPTIMIZER_FUNC = "optimizer"

    def __init__(
        self,
        loss: Loss,
        optimizer: Optimizer,
        loss_args: Sequence[RelaxVar | StructInfo],
        legalize: bool = True,
    ) -> None:
        self.loss = loss
        self.optimizer = optimizer
        self.loss_args = tuple(loss_args)
        self.legalize = legalize

    def transform(self, mod: IRModule) -> IRModule:
        """Add the functions.

        Raises ``VerifyError`` if the module isn't as described.
        """
        params, states = (_count(mod, name) for name in (PARAM_NUM, STATE_NUM))
        backbone = mod.functions.get(self.BACKBONE_FUNC)
        if not isinstance(backbone, Function):
            raise VerifyError(f"the module has no graph function {self.BACKBONE_FUNC!r} to train")
        inputs = len(backbone.params) - params - states
        if params < 1 or inputs < 0:
            raise VerifyError(
                f"{self.BACKBONE_FUNC} has {len(backbone.params)} parameters, but {PARAM_NUM} is "
                f"{params} and {STATE_NUM} is {states}"
            )
        mod = AppendLoss(
            self.BACKBONE_FUNC,
            self.loss(*self.loss_args),
            self.loss.num_backbone_outputs,
            self.BACKBONE_LOSS_FUNC,
        )(mod)
        mod = DecomposeOpsForTraining(self.BACKBONE_LOSS_FUNC)(mod)
        wanted = mod[self.BACKBONE_LOSS_FUNC].params[inputs : inputs + params]
        mod = Gradient(self.BACKBONE_LOSS_FUNC, wanted)(mod)
        self.optimizer.init(wanted)
        update = self.optimizer.get_function().with_attr(GLOBAL_SYMBOL, self.OPTIMIZER_FUNC)
        state = tuple(const(item.numpy()) for item in self.optimizer.state)
        mod = IRModule(
            {**mod.functions, self.OPTIMIZER_FUNC: update}, {**mod.attrs, OPTIM_STATE: state}
        )
        mod = DecomposeOpsForInference()(mod)
        return get_pipeline("zero")(mod) if self.legalize else mod


def _count(mod: IRModule, name: str) -> int:
    found = mod.attrs.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise VerifyError(
            f"the module needs the attribute {name!r}, a number of the backbone's parameters; "
            f"it is {found!r}: mod.with_attr({name!r}, ...)"
        )
    return found
