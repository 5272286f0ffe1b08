"""Hand-written kernels, for operators that no loop order makes fast.

Each has a folder below the kind of its target, and is a ``Kernel``. ``ApplyKernels`` is the pass
that applies them; ``dlight.default_schedule`` is that pass followed by rules for the rest.
"""

from __future__ import annotations

from tilewright.kernels import cpu
from tilewright.kernels.apply import ApplyKernels, kernels_for
from tilewright.kernels.kernel import Kernel

__all__ = ["ApplyKernels", "Kernel", "cpu", "kernels_for"]
