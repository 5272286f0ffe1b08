"""One model: imported, built by rule, run, and judged node by node.

Each node is judged by what the reference implementation makes of *our* operands, so errors don't
add up, and the node that is wrong is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright import relax
from tilewright.relax.frontend.onnx import from_onnx
from tilewright.relax.frontend.onnx.values import UnknownValueError
from tilewright.relax.values import numpy_dtype
from tilewright.support.errors import TilewrightError
from tilewright.testing.onnx_graphs.draw import Case, draw_case
from tilewright.testing.onnx_graphs.drawing import Array, Redraw, reference, rounding

PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"
Outcome = tuple[str, str]


def check(name: str) -> Outcome:
    """How the case of a name ends, and why."""
    return check_case(draw_case(name))


def check_case(case: Case) -> Outcome:
    """Import, build, run and judge a case."""
    arrays = case.drawing.arrays
    made = _run(case, case.outputs)
    if isinstance(made, tuple):
        return made
    text = ""
    for output, array in made.items():
        text = text or difference(array, arrays[output], [arrays[output]], 30.0)
    if not text:
        return PASSED, ""
    every = _run(case, [*dict.fromkeys([*case.results, *case.outputs])])
    if isinstance(every, tuple):
        return every
    known = {**arrays, **every}
    for node in case.drawing.nodes:
        try:
            right = reference(node, known, case.drawing.opset, case.drawing.functions)
        except Redraw as error:
            return WRONG, f"{node.op_type}: operands make no sense: {error}"
        for output, array in zip(node.output, right):
            if not output:
                continue
            operands = [known[name] for name in node.input if name]
            coarsest = case.drawing.coarsest.get(node.output[0], 0.0)
            text = difference(known[output], array, operands, 8.0, coarsest)
            if text:
                return WRONG, f"{node.op_type}: {text}"
    for output, array in made.items():
        text = difference(array, every[output], [array], 300.0)
        if text:
            return WRONG, f"alone, {output} is another: {text}"
    return PASSED, ""


def _run(case: Case, outputs: Sequence[str]) -> dict[str, Array] | Outcome:
    arrays = case.drawing.arrays
    model = case.model(outputs)
    try:
        mod = from_onnx(model)
        function = relax.build(mod, "native")["main"]
    except UnknownValueError as error:
        return REFUSED, f"{error}"
    except TilewrightError as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    except Exception as error:  # what this looks for
        return CRASHED, f"{type(error).__name__}: {error}"
    args = []
    for name, param in zip(case.drawing.inputs, mod["main"].params):
        array = arrays[name]
        wide = numpy_dtype(param.struct_info.dtype)
        args.append(array if array.dtype == wide else array.astype(wide))
    before = [arg.copy() for arg in args]
    try:
        found = function(*args)
    except (TilewrightError, RuntimeError, ValueError) as error:
        # Sizes that don't broadcast while they are names, for instance.
        return REFUSED, f"run: {type(error).__name__}: {error}"
    except Exception as error:  # what this looks for
        return CRASHED, f"run: {type(error).__name__}: {error}"
    for old, new in zip(before, args):
        if old.tobytes() != new.tobytes():
            return WRONG, "an input was written"
    results = [found] if len(outputs) == 1 else list(found)
    made = {}
    for name, result in zip(outputs, results):
        array = np.asarray(result.numpy() if hasattr(result, "numpy") else result)
        wanted = arrays[name]
        if array.shape != wanted.shape:
            return WRONG, f"{_maker(case, name)}: shape {array.shape} instead of {wanted.shape}"
        narrow = wanted.dtype.itemsize == 1 and wanted.dtype.kind == "V"
        if array.dtype != wanted.dtype and not narrow:
            return WRONG, f"{_maker(case, name)}: {array.dtype} instead of {wanted.dtype}"
        made[name] = array.astype(wanted.dtype)
    return made


def _maker(case: Case, name: str) -> str:
    return next((node.op_type for node in case.drawing.nodes if name in node.output), "input")


def difference(
    made: Array, right: Array, operands: Sequence[Array], slack: float, coarsest: float = 0.0
) -> str:
    """What is wrong with an array; an empty text if nothing is.

    ``coarsest`` is the rounding error on the way to it, if it is greater than its own.
    """
    if made.shape != right.shape:
        return f"shape {made.shape} instead of {right.shape}"
    if right.dtype.kind in "iub":
        wrong = made != right
        if not np.any(wrong):
            return ""
        if right.dtype.itemsize == 1 and right.dtype.kind != "b":  # quantised: a tie either way
            far = np.abs(made.astype(int) - right.astype(int))
            if far.max() <= 1 and wrong.mean() < 0.2:
                return ""
        at = _first(wrong)
        return f"{made[at]} instead of {right[at]} at {at} ({right.dtype})"
    eps = max(rounding(right), coarsest)
    half = eps > 2.0**-23
    a, b = made.astype(np.float64), right.astype(np.float64)
    scale = max([1.0, *(_size(x) for x in (*operands, right))])
    eps = max(eps, 2.0**-28)  # attributes such as 0.2 are floats of 32 bits
    with np.errstate(all="ignore"):
        bound = slack * eps * (scale * (1.0 if half else 4.0) + 16 * np.abs(b))
        good = (np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b))
    if np.all(good):
        return ""
    at = _first(~good)
    return f"{made[at]} instead of {right[at]} at {at} ({right.dtype})"


def _first(wrong: Array) -> tuple[int, ...]:
    """The place of the first element that is wrong."""
    return tuple(map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape)))


def _size(array: Array) -> float:
    if array.dtype.kind in "b" or not array.size:
        return 1.0
    wide = np.abs(array.astype(np.float64))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 1.0
