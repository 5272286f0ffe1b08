"""Vector math functions as LLVM IR text.

The LLVM code generator asks for ``exp`` of ``<16 x float>`` and gets a function of that type,
branch-free but for rare huge angles, with a stated error bound, IEEE special values and gradual
underflow. It then calls the function by its symbol and appends :func:`collect` of all requests to
its module; LLVM inlines the calls. The formulas use ``llvm.fma`` and rounding intrinsics: on
targets without FMA or SSE4.1 LLVM turns these into calls of libm. ``fmod`` always is one. Nothing
here imports LLVM, and nothing knows Tilewright's IR.

Example:
    >>> from tilewright.codegen.llvm.math import collect, emit_math
    >>> emit_math("exp", "float32", 16).symbol
    'tw_exp_v16f32'
    >>> module_text += collect([("exp", "float32", 16), ("tanh", "float32", 1)])  # doctest: +SKIP
"""

from __future__ import annotations

from tilewright.codegen.llvm.math import (
    avx2,
    avx512,
    elementary,
    exponential,
    inverse_trig,
    logarithm,
    trigonometric,
)
from tilewright.codegen.llvm.math.spec import (
    MATH_FUNCTIONS,
    MathFunction,
    MathRequest,
    MathSpec,
    collect,
    compute_dtype,
    emit_math,
    has_variant,
    instruction_set,
    max_ulp,
)

__all__ = [
    "MATH_FUNCTIONS",
    "MathFunction",
    "MathRequest",
    "MathSpec",
    "collect",
    "compute_dtype",
    "emit_math",
    "has_variant",
    "instruction_set",
    "max_ulp",
]
