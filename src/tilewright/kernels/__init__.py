"""Hand-written kernels, for operators that no loop order makes fast.

Each has a folder below the kind of its target (``cpu``, ``gpu``), and is a ``Kernel``; what it
recognises is in ``problems``. ``ApplyKernels`` is the pass that applies them;
``dlight.default_schedule`` is that pass followed by rules for the rest.
"""

from __future__ import annotations

from tilewright.kernels import cpu, gpu
from tilewright.kernels.apply import ApplyKernels, kernels_for
from tilewright.kernels.kernel import Kernel

__all__ = ["ApplyKernels", "Kernel", "cpu", "gpu", "kernels_for"]
