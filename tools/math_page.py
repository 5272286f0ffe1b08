"""Measure the vector math library, and write `docs/math.md`.

    python tools/math_page.py                 # write the page from what was measured last
    python tools/math_page.py --check         # exit status 1 if the page is out of date
    python tools/math_page.py --measure       # every function; some 20 minutes
    python tools/math_page.py --measure exp   # some functions

Measuring goes through all 2**32 arguments of a float32 function, on each instruction set that has
a formula of its own (on a machine that has it), samples the others against mpmath, and times all
of them. It keeps results and worst arguments in `tools/math_measured.json`, from which the page is
made and which the tests evaluate again. Exit status 1 if a stated bound is broken.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.llvm.math import MATH_FUNCTIONS, MathSpec, exhaustive, max_ulp, oracle
from tilewright.codegen.llvm.math.measure import compile_math, host_instruction_sets
from tilewright.codegen.llvm.math.spec import AVX2, AVX512, GENERIC, UNFUSED_ULP, has_variant

MEASURED = Path(__file__).parent / "math_measured.json"
PAGE = Path(__file__).parent.parent / "docs" / "math.md"
SAMPLES = 20_000
ELEMENTS = 1 << 16
ANGLES, HUGE = ("sin", "cos", "tan"), 0x47800000
"""Functions whose arguments beyond 65536 (these bits) go lane by lane."""

EXACT = ("fabs floor ceil trunc round nearbyint copysign fmod isnan isinf isfinite").split()
"""Functions that LLVM or one instruction computes without an error."""


def entries(spec: MathSpec) -> list[tuple[str, str]]:
    """Return the (dtype, instruction set) pairs with a formula of their own."""
    own = [("float32", isa) for isa in (AVX512, AVX2) if has_variant(spec.name, "float32", isa)]
    return [*own, ("float32", GENERIC), ("float64", GENERIC)]


def measure(spec: MathSpec, dtype: str, isa: str) -> dict[str, Any]:
    """Return worst error, where it is, and how it was looked for."""
    if dtype == "float32" and spec.name in ANGLES:
        sweeps = [
            exhaustive.worst_error(spec.name, isa, start=sign + start, count=count, stride=stride)
            for sign in (0, 1 << 31)
            for start, count, stride in ((0, HUGE, 1), (HUGE, 0x7F800000 - HUGE, 61))
        ]
        found = max(sweeps, key=lambda item: item.ulp)
        how = "all to 65536, every 61st beyond"
        return {"ulp": found.ulp, "at": [found.argument], "how": how}
    if dtype == "float32" and spec.arity == 1:
        found = exhaustive.worst_error(spec.name, isa)
        return {"ulp": found.ulp, "at": [found.argument], "how": "all arguments"}
    compiled = compile_math(spec.name, dtype, 8, isa)
    ulp, where = oracle.worst_error(compiled, oracle.arguments(spec.name, dtype, SAMPLES))
    return {"ulp": ulp, "at": list(where), "how": "sampled"}


def nanoseconds(spec: MathSpec, dtype: str, isa: str) -> float:
    """Return the time per element, arrays in the level-2 cache, one thread."""
    lanes = 64 if dtype == "float32" else 32
    compiled = compile_math(spec.name, dtype, lanes, isa)
    rng = np.random.default_rng(1)
    low, high = (1.0, 4.0) if spec.name in ("acosh", "log", "log2", "log10", "pow") else (0.0, 1.0)
    arrays = [rng.uniform(low, high, ELEMENTS).astype(dtype) for _ in range(spec.arity + 1)]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), ctypes.c_int64)
    run, pointers = prototype(compiled.address), [array.ctypes.data for array in arrays]
    best = float("inf")
    for _ in range(200):
        start = time.perf_counter()
        run(*pointers, ELEMENTS)
        best = min(best, time.perf_counter() - start)
    return best / ELEMENTS * 1e9


def measure_all(names: list[str], *, times_only: bool) -> bool:
    """Measure and keep the results; return whether all bounds hold."""
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    good = True
    for name in names or [name for name in MATH_FUNCTIONS if name not in EXACT]:
        spec = MATH_FUNCTIONS[name]
        for dtype, isa in entries(spec):
            if isa not in host_instruction_sets():
                print(f"{name}: this machine has no {isa}", file=sys.stderr)
                continue
            entry = measured.setdefault(name, {}).setdefault(f"{dtype} {isa}", {})
            if not times_only:
                entry.update(measure(spec, dtype, isa))
            entry["ns"] = round(nanoseconds(spec, dtype, isa), 3)
            bound = max_ulp(name, dtype, isa)
            good &= entry["ulp"] <= bound
            verdict = "" if entry["ulp"] <= bound else "  BROKEN"
            about = f"{name:10} {dtype} {isa:8} {entry['ulp']:8.4f} of {bound} ulp"
            print(f"{about} at {entry['at']}, {entry['ns']:.3f} ns{verdict}", flush=True)
            MEASURED.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    return good


def page() -> str:
    """Return the text of `docs/math.md`."""
    measured = json.loads(MEASURED.read_text())
    lines = [
        "# Vector math",
        "",
        "Made by `tools/math_page.py`; edit the functions in `codegen/llvm/math`, not this page.",
        "",
        "The LLVM backend computes elementary functions by its own vector code, at every width,",
        "for every target; no libm is called (but for `fmod`, and to round on x86 before SSE4.1).",
        "float16 and bfloat16 are computed in float32 and rounded. Special values are as IEEE 754",
        "and annex F of C have them: infinities at the limits, NaN in, NaN out, zeros with their",
        "sign; denormals are not flushed.",
        "",
        "Errors are in units in the last place of the result, next to the bound that the tests",
        "hold them to. For float32 functions of one argument the error was measured on all 2**32",
        "of them, otherwise on a sample against mpmath. `operand` means that the unit is that of",
        "the larger of result and operand: these results vanish by cancellation. `avx512` and",
        "`avx2` formulas look coefficients up in registers; `portable` ones serve everything else:",
        f"where there is no fused multiply-add, their bounds are {UNFUSED_ULP} larger. Lane counts",
        "that are no whole registers are filled up: a function gives the same bits at every width.",
        "Times are those of one thread of an AMD Zen 5 core on arrays in its level-2 cache.",
        "",
        "| function | dtype | formula | bound | measured | at | ns per element |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, spec in MATH_FUNCTIONS.items():
        if name not in EXACT:
            lines += [_row(spec, dtype, isa, measured[name]) for dtype, isa in entries(spec)]
    lines += ["", "## Domains", "", "| function | domain |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(spec.domain)} |" for name, spec in MATH_FUNCTIONS.items()]
    names = ", ".join(f"`{name}`" for name in EXACT)
    lines += ["", f"Without error: {names}."]
    return "\n".join(lines) + "\n"


def _row(spec: MathSpec, dtype: str, isa: str, measured: dict[str, Any]) -> str:
    entry = measured[f"{dtype} {isa}"]
    unit = " operand" if spec.scale == "operand" else ""
    at = ", ".join(f"{value:.9g}" for value in entry["at"])
    how = "" if entry["how"] == "all arguments" else f" ({entry['how']})"
    cells = [
        f"`{spec.name}`",
        dtype,
        "portable" if isa == GENERIC else isa,
        f"{max_ulp(spec.name, dtype, isa)}{unit}",
        f"{entry['ulp']:.3f}{how}",
        at,
        f"{entry['ns']:.3f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="functions to measure (default: all)")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--times", action="store_true", help="measure times only")
    parser.add_argument("--check", action="store_true", help="compare the page, write nothing")
    options = parser.parse_args()
    good = True
    if options.measure or options.times:
        good = measure_all(options.names, times_only=not options.measure)
    text = page()
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
