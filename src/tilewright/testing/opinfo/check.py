"""One sample: exported, compiled by rule, run, compared with PyTorch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.compiling import compile as compile_model
from tilewright.relax.frontend.torch.exported import quiet, require_torch
from tilewright.support.errors import TilewrightError
from tilewright.testing.opinfo.cases import Case, entries
from tilewright.testing.opinfo.results import (
    LISTED,
    REFUSED,
    RIGHT,
    SKIPPED,
    UNEXPORTABLE,
    WRONG,
    Sample,
)
from tilewright.testing.workers import FAILED

#: Relative and absolute error allowed, by dtype: PyTorch's own for comparing two devices, doubled.
_TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-5, 2e-5),
    "float16": (2e-3, 2e-3),
    "bfloat16": (1.6e-2, 1.6e-2),
    "complex64": (1e-5, 2e-5),
    "complex128": (1e-7, 1e-7),
}


@dataclass(frozen=True)
class Outcome:
    """How a sample ended, and why."""

    status: str
    reason: str = ""


def list_samples(name: str) -> tuple[str, str]:
    """How many samples an operator has in a dtype: ``float32 add``."""
    dtype, op = name.split()
    return LISTED, str(len(_cases(dtype, op)))


def check_sample(name: str) -> tuple[str, str]:
    """How the sample of a name ended, and why."""
    sample = Sample.named(name)
    outcome = check(_cases(sample.dtype, sample.op)[sample.number])
    return outcome.status, outcome.reason


@lru_cache(maxsize=1)
def _cases(dtype: str, op: str) -> list[Case]:
    return entries()[op].cases(getattr(require_torch(), dtype))


def check(case: Case) -> Outcome:
    """Compile a sample's call and compare its results with PyTorch's."""
    torch = require_torch()
    with warnings.catch_warnings(), torch.no_grad(), quiet():
        warnings.simplefilter("ignore")
        strange = [t for t in case.tensors if t.layout is not torch.strided]
        if strange:
            return Outcome(SKIPPED, f"an operand is {strange[0].layout}")
        try:
            expected = case.call(*_copies(case.tensors))
        except Exception as error:  # whatever PyTorch refuses a sample with
            return Outcome(SKIPPED, f"PyTorch refuses it: {_first_line(error)}")
        return _compare_compiled(case, expected)


def _compare_compiled(case: Case, expected: object) -> Outcome:
    torch: Any = require_torch()

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            return case.call(*tensors)

    try:
        exported = torch.export.export(Call(), tuple(_copies(case.tensors)))
    except Exception as error:  # any class: torch.export has none of its own
        return Outcome(UNEXPORTABLE, _first_line(error))
    random = any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for node in exported.graph.nodes
    )
    try:
        found = compile_model(exported)(*_copies(case.tensors))
    except TilewrightError as error:
        text = reason(error)
        return Outcome(REFUSED, f"{text}, which draws random numbers" if random else text)
    except Exception as error:  # a fault of ours, to be told with its class
        return Outcome(FAILED, f"{type(error).__name__}: {_first_line(error)}")
    fault = difference(found, expected, numbers=case.numbers and not random)
    if fault and _is_as_close(case, found):
        return Outcome(RIGHT, "as close to float64 as PyTorch")
    if fault and is_other_order(exported, case, found, expected):
        return Outcome(RIGHT, "equal elements in another order")
    return Outcome(WRONG, fault) if fault else Outcome(RIGHT)


def _copies(tensors: Sequence[Any]) -> list[Any]:
    """Operands that a call may write into, laid out in memory as before."""
    torch = require_torch()
    made = []
    for tensor in tensors:
        copy = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        # Operands that overlap themselves (expanded ones) can't be written one by one.
        made.append(copy.copy_(tensor) if 0 not in tensor.stride() else tensor.clone())
    return made


def difference(found: object, expected: object, *, numbers: bool = True) -> str:
    """What is wrong with results; empty if nothing is. Without ``numbers`` only types count."""
    torch = require_torch()
    ours, theirs = (torch.utils._pytree.tree_leaves(tree) for tree in (found, expected))
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for a, b in zip(ours, theirs):
        text = _difference(a, b, numbers)
        if text:
            return text
    return ""


def _difference(found: Any, expected: Any, numbers: bool) -> str:
    torch = require_torch()
    if not isinstance(expected, torch.Tensor):
        expected = torch.as_tensor(expected) if isinstance(expected, (bool, int, float)) else None
        if expected is None:
            return ""
        found = torch.as_tensor(found).to(expected.dtype)
    if not isinstance(found, torch.Tensor):  # without an input, results are nobody's in particular
        found = torch.from_dlpack(found)
    if (found.dtype, tuple(found.shape)) != (expected.dtype, tuple(expected.shape)):
        return (
            f"{found.dtype} of {tuple(found.shape)} instead of {expected.dtype} of "
            f"{tuple(expected.shape)}"
        )
    if not numbers:
        return ""
    rtol, atol = _TOLERANCES.get(str(expected.dtype).removeprefix("torch."), (0.0, 0.0))
    same = torch.isclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    if bool(same.all()):
        return ""
    place = tuple((~same).nonzero()[0].tolist())
    return f"{found[place].item()!r} instead of {expected[place].item()!r}"


def _is_as_close(case: Case, found: object) -> bool:
    """Whether results are near those of float64, where PyTorch's own rounding is the far one."""
    torch = require_torch()
    narrow = (torch.float16, torch.bfloat16, torch.float32, torch.complex64)
    if not any(t.dtype in narrow for t in case.tensors):
        return False
    wide = [
        t.double()
        if t.is_floating_point()
        else t.to(torch.complex128)
        if t.is_complex()
        else t.clone()
        for t in case.tensors
    ]
    try:
        exact = torch.utils._pytree.tree_leaves(case.call(*wide))
    except Exception:  # the call fixes a dtype: then there is nothing to compare with
        return False
    ours = torch.utils._pytree.tree_leaves(found)
    rounded = [
        value.to(mine.dtype) if isinstance(value, torch.Tensor) else value
        for value, mine in zip(exact, ours)
    ]
    return not difference(ours, rounded)


#: Whose order of equal elements isn't defined, and the number of the argument with the axis.
_UNSTABLE = {"aten.sort.default": 1, "aten.topk.default": 2}


def is_other_order(exported: Any, case: Case, found: Any, expected: Any) -> bool:
    """Whether results of sorting are right but for the order of equal elements.

    Then the elements are PyTorch's, and different indices lead to them.
    """
    torch = require_torch()
    calls = [node for node in exported.graph.nodes if node.op == "call_function"]
    axis_at = _UNSTABLE.get(str(calls[0].target)) if calls else None
    if axis_at is None or len(case.tensors) != 1 or not case.tensors[0].ndim:
        return False
    values, indices = torch.utils._pytree.tree_leaves(found)
    wanted, theirs = torch.utils._pytree.tree_leaves(expected)
    axis = (*calls[0].args, *[-1] * 3)[axis_at]
    axis = calls[0].kwargs.get("dim", axis)
    if difference([values], [wanted]) or difference([indices], [theirs], numbers=False):
        return False
    x = case.tensors[0]
    if bool(((indices < 0) | (indices >= x.shape[axis])).any()):
        return False
    places = indices.sort(axis).values
    return not difference([x.gather(axis, indices)], [values]) and bool(
        (places.diff(dim=axis) > 0).all()
    )


# ---- reasons ----------------------------------------------------------------------------------


def reason(error: Exception) -> str:
    """An error in one line without the names of nodes, such that equal causes read alike."""
    text = str(error)
    unknown = re.findall(r"^  (\S+): node", text, re.MULTILINE)
    if unknown:
        return f"no converter: {', '.join(unknown)}"
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    return re.sub(r" \(node '.*?\)(?=: )", "", line)[:200]
