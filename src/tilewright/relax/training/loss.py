"""Losses as graph functions: ``MSELoss()(predictions, targets)`` makes one.

The arguments are variables, or struct info of which variables are made. ``AppendLoss`` joins the
function to a backbone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.ir import GLOBAL_SYMBOL
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import Function, RelaxExpr, RelaxVar
from tilewright.relax.ops.losses import check_reduction
from tilewright.relax.struct_info import StructInfo
from tilewright.support.errors import VerifyError

Argument = RelaxVar | StructInfo


class Loss:
    """Base of losses; ``loss_name`` names the function, ``reduction`` is mean, sum or none."""

    def __init__(
        self, loss_name: str, reduction: str = "mean", num_backbone_outputs: int = 1
    ) -> None:
        check_reduction(reduction)
        self._loss_name = loss_name
        self._reduction = reduction
        self._num_backbone_outputs = num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        """How many of the loss's parameters are results of the backbone."""
        return self._num_backbone_outputs

    def __call__(self, *args: Argument) -> Function:
        """Make the loss function."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def _function(
        self, body: Callable[..., RelaxExpr], names: str, *args: Argument | None
    ) -> Function:
        """A function whose parameters are the arguments."""
        given = [(name, arg) for name, arg in zip(names.split(), args) if arg is not None]
        params = [_param(name, arg) for name, arg in given]
        builder = BlockBuilder()

        def emitted() -> RelaxExpr:
            with builder.dataflow():
                return builder.emit_output(body(*params))

        return builder.build_function(params, emitted, {GLOBAL_SYMBOL: self._loss_name})

    def _reduced(self, losses: RelaxExpr) -> RelaxExpr:
        if self._reduction == "none":
            return losses
        made: RelaxExpr = (op.sum if self._reduction == "sum" else op.mean)(losses)
        return made


def _param(name: str, arg: Argument) -> RelaxVar:
    if isinstance(arg, RelaxVar):
        return arg
    if isinstance(arg, StructInfo):
        return RelaxVar(name, arg)
    raise VerifyError(
        f"the {name} of a loss are a variable or struct info, got {type(arg).__name__} {arg!r}"
    )


class _Distance(Loss):
    """A loss of each difference between prediction and target."""

    _name: ClassVar[str]
    _of: ClassVar[Callable[[RelaxExpr], RelaxExpr]]

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(self._name, reduction)

    def __call__(self, predictions: Argument, targets: Argument) -> Function:  # type: ignore[override]  # each loss has arguments of its own
        """Make the function of predictions and targets of one shape."""
        of = type(self)._of
        body: Any = lambda p, t: self._reduced(of(op.subtract(p, t)))
        return self._function(body, "predictions targets", predictions, targets)


class L1Loss(_Distance):
    """Mean (or sum) of ``|predictions - targets|``."""

    _name = "l1_loss"
    _of = op.abs


class MSELoss(_Distance):
    """Mean (or sum) of ``(predictions - targets)²``."""

    _name = "mse_loss"
    _of = op.square


class CrossEntropyLoss(Loss):
    """Negative log-likelihood of target classes under the softmax of the predictions.

    Predictions are ``[N, C, …]`` or ``[C]``; ``ignore_index`` and weights are as of
    ``nn.nll_loss``.
    """

    _name: ClassVar[str] = "cross_entropy_loss"

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(self._name, reduction)
        self.ignore_index = ignore_index

    def __call__(  # type: ignore[override]  # each loss has arguments of its own
        self, predictions: Argument, targets: Argument, weights: Argument | None = None
    ) -> Function:
        """Make the function of predictions, targets and, if given, weights of the classes."""
        names = "predictions targets weights"
        return self._function(self._losses, names, predictions, targets, weights)

    def _losses(self, p: RelaxExpr, targets: RelaxExpr, *weight: RelaxExpr) -> RelaxExpr:
        return self._likelihood(op.nn.log_softmax(p, _axis(p)), targets, *weight)

    def _likelihood(self, rows: RelaxExpr, classes: RelaxExpr, *weight: RelaxExpr) -> RelaxExpr:
        made: RelaxExpr = op.nn.nll_loss(
            rows, classes, *weight, reduction=self._reduction, ignore_index=self.ignore_index
        )
        return made


class CategoricalCrossEntropyLoss(CrossEntropyLoss):
    """As ``CrossEntropyLoss``, with targets one-hot: ``[N, C, …]`` or ``[C]``, of any dtype."""

    _name = "categorical_cross_entropy_loss"

    def _losses(self, p: RelaxExpr, targets: RelaxExpr, *weight: RelaxExpr) -> RelaxExpr:
        axis = _axis(p)
        rows = op.nn.log_softmax(p, axis)
        if self.ignore_index < 0 and not weight:
            losses: RelaxExpr = -op.sum(op.multiply(rows, op.astype(targets, p.dtype)), axis)
            return self._reduced(losses)
        return self._likelihood(rows, op.argmax(targets, axis), *weight)


def _axis(predictions: RelaxExpr) -> int:
    """The axis of classes."""
    return 0 if predictions.ndim == 1 else 1
