"""Measure the error of the vector math functions over the whole float32 range.

    python tools/measure_ulp.py                     # every function, every 257th float
    python tools/measure_ulp.py exp tanh --stride 1 # exhaustive (2**32 arguments; minutes)

Two-argument functions run over random pairs of bit patterns and of moderate values. The reference
is float64 (numpy or libm), whose own error is negligible at float32. For every function the largest
error, its argument and the stated bound are printed; exit status 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np

from tilewright.codegen.llvm.math import MATH_FUNCTIONS
from tilewright.codegen.llvm.math.measure import Array, compile_math, float32_errors

CHUNK = 1 << 21


def unary_arguments(stride: int) -> Iterator[tuple[Array]]:
    for start in range(0, 1 << 32, CHUNK * stride):
        patterns = np.arange(start, min(start + CHUNK * stride, 1 << 32), stride, dtype=np.uint64)
        yield (patterns.astype(np.uint32).view(np.float32),)


def binary_arguments(stride: int) -> Iterator[tuple[Array, Array]]:
    rng = np.random.default_rng(2024)
    for _ in range(max(1, (1 << 32) // stride // CHUNK)):
        half = CHUNK // 2
        x, y = rng.integers(0, 1 << 32, (2, half), dtype=np.uint64).astype(np.uint32)
        near = np.exp(rng.normal(0, 3, half)), rng.normal(0, 30, half)
        yield (
            np.concatenate([x.view(np.float32), near[0].astype(np.float32)]),
            np.concatenate([y.view(np.float32), near[1].astype(np.float32)]),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=[], help="functions (default: all)")
    parser.add_argument("--stride", type=int, default=257, help="take every n-th float")
    parser.add_argument("--lanes", type=int, default=16)
    options = parser.parse_args()
    broken = False
    for name in options.names or MATH_FUNCTIONS:
        spec = MATH_FUNCTIONS[name]
        compiled = compile_math(name, "float32", options.lanes)
        worst, where = 0.0, ""
        chunks = unary_arguments if spec.arity == 1 else binary_arguments
        for args in chunks(options.stride):
            errors = float32_errors(compiled, *args)
            at = int(np.argmax(errors))
            if errors[at] > worst:
                worst, where = float(errors[at]), ", ".join(repr(float(a[at])) for a in args)
        bound = compiled.max_ulp
        verdict = "ok" if worst <= bound else "BROKEN"
        broken |= worst > bound
        print(f"{name:10} max {worst:8.4f} ulp at {where:26} stated {bound}  {verdict}", flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
