"""Graph operators by family; ``relax.op`` is this package. ``nn`` has neural network operators.

It contains everything that the folder's files declare: ``@operator("square")`` is ``op.square`` and
``@operator("nn.relu")`` is ``op.nn.relu``.
"""

from __future__ import annotations

from tilewright.relax import assertion as _assertion  # `op.assert_op`
from tilewright.relax import call_packed as _call_packed  # `op.call_packed`, `op.print`
from tilewright.relax import call_tir as _call_tir  # `op.call_tir`, `op.call_dps`
from tilewright.relax import closures as _closures  # `op.invoke_closure`
from tilewright.relax.ops import grad, image, nn, vision
from tilewright.relax.registry import OPERATORS, RelaxOp, builders_in, get_op, operator
from tilewright.support.folder import modules_in
from tilewright.support.later import imported_later

modules_in(__name__)
__getattr__ = imported_later(
    __name__, {"register_gradient": "tilewright.relax.gradients:register_gradient"}
)
for _namespace in (nn, image, grad, vision):
    _found = builders_in(_namespace.__name__.rpartition(".")[2])
    vars(_namespace).update(_found, __all__=sorted(_found))
# The operators of `vision` are found here too, as TVM has them.
_FOUND = {**builders_in("vision"), **builders_in()}
globals().update(_FOUND)

__all__ = [
    "OPERATORS",
    "RelaxOp",
    "get_op",
    "grad",
    "image",
    "nn",
    "operator",
    "vision",
    *_FOUND,
]
