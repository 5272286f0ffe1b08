"""Checks a candidate against the unscheduled program, in the process in which candidates run.

A candidate runs once per kind of inputs (``inputs.py``) and a second time with the first one. Its
arguments lie in guarded memory: inputs can't be written, results hold something else beforehand,
and an access outside an argument ends the process (or is seen by a pattern, on one side).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtypes
from tilewright.meta_schedule.arg_info import TensorInfo, random_arguments
from tilewright.meta_schedule.packing import PackedOperand
from tilewright.meta_schedule.runner.base import Reference
from tilewright.meta_schedule.runner.inputs import KINDS, arguments_of, limits
from tilewright.meta_schedule.runner.on_device import DeviceFunction, is_for_gpu
from tilewright.runtime import (
    CompiledFunction,
    GuardedArray,
    LibraryModule,
    Module,
    numpy_dtype,
    tensor,
)

Array = np.ndarray[Any, Any]

# So many elements are compared at once: they stay in the caches.
_CHUNK = 1 << 16

# What further kinds of inputs may cost. The unscheduled program may take so many seconds with all
# but the first kinds, which it is given if it takes no longer than that for one; the arguments so
# many bytes; and a candidate that is measured, rather than compared with others, so many seconds.
_REFERENCE_SECONDS, _FIRST_KINDS, _SLOW_SECONDS = 0.1, 2, 2.0
_REFERENCE_BYTES = 64 << 20
_CANDIDATE_SECONDS = 4e-3

# An ill-conditioned program (the variance of equal numbers) changes more than rounding explains:
# so many times what it changes by if its inputs are changed by their last bits.
_SENSITIVITY = 8.0


@dataclass(frozen=True)
class Checked:
    """What a check found: operands packed for timing, if there is no error.

    ``reason`` is ``"wrong"``. ``seconds`` is the time of the first call, ``kinds`` the names of the
    inputs with which it was right.
    """

    made: dict[int, Any]
    ratio: float | None = None
    seconds: float = 0.0
    error: str | None = None
    kinds: tuple[str, ...] = ()


Function = CompiledFunction | DeviceFunction


def entry(module: Module | LibraryModule) -> Function:
    """Return the function of a candidate that is measured; it takes arrays of the host."""
    found = _main(module)
    return DeviceFunction(found) if is_for_gpu(module) else found


def _main(module: Module | LibraryModule) -> CompiledFunction:
    if isinstance(module, LibraryModule) or module.implements_function("main"):
        return module["main"]
    return module[module.entry_name]


def replaced(arguments: Sequence[object], others: dict[int, Any]) -> list[Any]:
    """Return arguments with some of them replaced."""
    return [others.get(index, argument) for index, argument in enumerate(arguments)]


class Expected:
    """A result of the unscheduled program, prepared for comparisons.

    With ``overflows`` nothing is demanded where it isn't finite.
    """

    def __init__(self, array: Array, dtype: str, overflows: bool = False) -> None:
        self.array = np.array(array)
        self.is_float = dtypes.is_float(dtype)
        if not self.is_float:
            return
        wide = np.float64 if dtype == "float64" else np.float32
        self._flat = self.array.reshape(-1).astype(wide, copy=False)
        self._odd = np.flatnonzero(~np.isfinite(self._flat))
        self._strange = self._flat[self._odd]
        self._overflows = overflows
        if len(self._odd):
            self._flat = self._flat.copy()
            self._flat[self._odd] = 0.0
        parts = [self._flat[n : n + _CHUNK] for n in range(0, len(self._flat), _CHUNK)]
        largest = max((max(-float(part.min()), float(part.max())) for part in parts), default=0.0)
        # Below that, results may also be rounded to zero.
        self._largest = max(largest, 1024 * float(limits(dtype).tiny))

    def difference(self, actual: Array) -> tuple[float, str]:
        """Return the largest difference relative to the largest result, and where it is."""
        if not self.is_float:
            wrong = actual != self.array
            return (math.inf, self._place(int(np.argmax(wrong)))) if wrong.any() else (0.0, "")
        found = actual.reshape(-1)
        strange = self.strange(found)
        if len(strange):
            return math.inf, self._place(int(strange[0]))
        furthest, place = self._furthest(found)
        return furthest / self._largest if furthest == furthest else math.inf, self._place(place)

    def strange(self, found: Array) -> Array:
        """Indices where flat results should be NaN or infinite, and are something else."""
        if self._overflows or not len(self._odd):
            return self._odd[:0]
        here = found[self._odd].astype(self._flat.dtype, copy=False)
        wrong = (here != self._strange) & ~(np.isnan(here) & np.isnan(self._strange))
        made: Array = self._odd[wrong]
        return made

    def _furthest(self, found: Array) -> tuple[float, int]:
        """The largest difference and its index; NaN or infinity if any is."""
        furthest, place = 0.0, 0
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(found), _CHUNK):
                part = self._flat[start : start + _CHUNK]
                delta = np.abs(found[start : start + _CHUNK].astype(part.dtype, copy=False) - part)
                if len(self._odd):
                    low, high = np.searchsorted(self._odd, (start, start + len(part)))
                    delta[self._odd[low:high] - start] = 0.0
                worst = float(delta.max())
                if not worst <= furthest:
                    furthest, place = worst, start + int(np.argmax(delta))
                if not math.isfinite(furthest):
                    break
        return furthest, place

    def _place(self, index: int) -> str:
        if not self.array.size:
            return ""
        return str(tuple(map(int, np.unravel_index(index, self.array.shape))))


class Case:
    """Inputs of one kind, in guarded memory, and the unscheduled program's results for them."""

    def __init__(self, task: Task, number: int) -> None:
        reference = task.reference
        self.kind = KINDS[number]
        self.number = number
        #: Arguments begin where memory begins, rather than end where it ends.
        self.from_start = number > 0
        self.name = "random" if task.only_random else self.kind.name
        traits = reference.traits
        self.arguments = arguments_of(
            number,
            reference.args_info,
            reference.seed,
            traits.fixed,
            task.written,
            masks=traits.masks,
            pads=traits.pads,
        )
        for index, argument in enumerate(self.arguments):
            if isinstance(argument, np.ndarray) and index not in task.written:
                memory = GuardedArray(argument.shape, argument.dtype, from_start=self.from_start)
                np.copyto(memory.array, argument)
                memory.set_writable(False)
                self.arguments[index] = memory.array
        results = task.results_of(self)
        self.seconds = task.call(entry(reference.module), self.arguments, results)
        self.expected = {
            index: Expected(array, task.dtype(index), self.kind.overflows)
            for index, array in results.items()
        }
        self._sensitivity: dict[int, float] | None = None
        self._numbers: list[dict[int, Array]] = []

    def sensitivity(self, task: Task) -> dict[int, float]:
        """How much each result changes if the inputs' last bits do."""
        if self._sensitivity is None:
            rng = np.random.default_rng((task.reference.seed, self.number))
            arguments = list(self.arguments)
            for index, argument in enumerate(arguments):
                if isinstance(argument, np.ndarray) and index not in task.fixed_or_written:
                    arguments[index] = _nudged(argument, task.dtype(index), rng)
            self._sensitivity = {
                index: self.expected[index].difference(array)[0]
                for index, array in self._results_of(arguments, task).items()
            }
        return self._sensitivity

    def without_padding(self, task: Task, index: int, found: Array) -> Array:
        """Return a result with NaN where only products with the zeros of padding make it NaN.

        A schedule may leave these products out. There the unscheduled program's results are the
        same for any two numbers in place of NaN, and the candidate's are these.
        """
        expected, flat = self.expected[index], found.reshape(-1)
        places = expected.strange(flat)
        if not self._numbers:
            for number in (3.0, -5.0):
                arguments = list(self.arguments)
                for n, argument in enumerate(arguments):
                    if n not in task.written and np.asarray(argument).dtype.kind not in "iub":
                        wide = np.asarray(argument, np.float64)
                        arguments[n] = np.where(np.isnan(wide), number, wide).astype(argument.dtype)
                self._numbers.append(self._results_of(arguments, task))
        first, second = (
            results[index].reshape(-1)[places].astype(np.float64) for results in self._numbers
        )
        allowed = task.allowed(expected) * float(np.abs(first).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            near = np.abs(flat[places].astype(np.float64) - first) <= allowed
        made = found.copy()
        made.reshape(-1)[places[(first == second) & near]] = np.nan
        return made

    def _results_of(self, arguments: Sequence[Any], task: Task) -> dict[int, Array]:
        """The unscheduled program's results for other arguments."""
        results = {index: item.array.copy() for index, item in self.expected.items()}
        task.call(entry(task.reference.module), arguments, results)
        return results


def _nudged(array: Array, dtype: str, rng: np.random.Generator) -> Array:
    """Change the last bits of floats up or down."""
    if not dtypes.is_float(dtype):
        return array
    signs = rng.integers(0, 2, array.shape, np.int8) * 2 - 1
    with np.errstate(invalid="ignore", over="ignore"):
        wide = array.astype(np.float64)
        made: Array = (wide + signs * (float(limits(dtype).eps) * wide)).astype(array.dtype)
    return made


class Task:
    """A task's arguments, and the unscheduled program's results for several kinds of them.

    Without ``verify`` the unscheduled program isn't run.
    """

    def __init__(self, reference: Reference, verify: bool = True) -> None:
        self.reference = reference
        self.arguments = random_arguments(reference.args_info, reference.seed)
        flags = _main(reference.module).info.written
        self.written = [
            index
            for index, info in enumerate(reference.args_info)
            if isinstance(info, TensorInfo) and (index >= len(flags) or flags[index])
        ]
        self.fixed_or_written = reference.traits.fixed.union(self.written)
        tensors = [n for n, info in enumerate(reference.args_info) if isinstance(info, TensorInfo)]
        self.only_random = self.fixed_or_written.issuperset(tensors)
        # Candidates are timed on memory that they may overwrite, aligned as it is in graphs. That
        # of NumPy's arrays is not: vectors cross the lines of caches there, and no store streams.
        self.timing = [
            tensor(arg) if isinstance(arg, np.ndarray) else arg for arg in self.arguments
        ]
        self.cases: list[Case] = []
        if verify and not reference.alone:
            self._make_cases()

    def _make_cases(self) -> None:
        infos = {index: self.reference.args_info[index] for index in self.written}
        #: Memory of results: where it ends at a page, and where it begins at one.
        self.results: tuple[dict[int, GuardedArray], ...] = tuple(
            {
                index: GuardedArray(info.shape, numpy_dtype(info.dtype), from_start=from_start)
                for index, info in infos.items()
                if isinstance(info, TensorInfo)
            }
            for from_start in (False, True)
        )
        size = sum(x.nbytes for x in self.arguments if isinstance(x, np.ndarray))
        spent = 0.0
        for number in range(_FIRST_KINDS if self.only_random else len(KINDS)):
            if number >= _FIRST_KINDS and (
                spent + self.cases[0].seconds > _REFERENCE_SECONDS
                or number * size > _REFERENCE_BYTES
            ):
                break
            self.cases.append(Case(self, number))
            if number == 0 and self.cases[0].seconds > _SLOW_SECONDS:
                break
            spent += self.cases[-1].seconds if number else 0.0

    def results_of(self, case: Case) -> dict[int, Array]:
        """The memory of a case's results."""
        return {index: memory.array for index, memory in self.results[case.from_start].items()}

    def dtype(self, index: int) -> str:
        """The data type of a tensor argument."""
        return self.reference.args_info[index].dtype

    def call(
        self, function: Function, arguments: Sequence[Any], results: dict[int, Array]
    ) -> float:
        """Call a function whose results go to other memory; return its seconds."""
        actual = replaced(arguments, results)
        for index, memory in results.items():
            np.copyto(memory, arguments[index])
        if isinstance(function, DeviceFunction):
            return function.run(actual, results)
        start = time.perf_counter()
        function(*actual)
        return time.perf_counter() - start

    def pack(
        self, module: Module, packed: Sequence[PackedOperand], arguments: Sequence[Any]
    ) -> dict[int, Any]:
        """Pack operands into a candidate's layout, in guarded memory; padding is zero."""
        made = {}
        for operand in packed:
            info = operand.info
            memory = GuardedArray(info.shape, numpy_dtype(info.dtype), alignment=64)
            memory.array[...] = 0
            module[operand.packer](arguments[operand.position], memory.array)
            memory.set_writable(False)
            made[operand.position] = memory.array
        return made

    def check(
        self,
        module: Module,
        packed: Sequence[PackedOperand] = (),
        *,
        hopeless: float = math.inf,
        thorough: bool = True,
        varies: bool = False,
    ) -> Checked:
        """Run a candidate on the kinds of inputs, and a second time on the first one.

        One whose first call takes longer than ``hopeless`` seconds isn't called again. Unless
        ``thorough``, the rarer kinds are left out once the check has taken long. With ``varies``
        two calls may round differently.
        """
        if not self.cases:
            made = self.pack(module, packed, self.arguments)
            return Checked(_unguarded(made))
        function = entry(module)
        worst, first = 0.0, 0.0
        kinds: dict[str, None] = {}
        operands: dict[int, Any] = {}
        begin = time.perf_counter()
        for case in self.cases:
            spent = time.perf_counter() - begin
            if case.number >= _FIRST_KINDS and not thorough and spent > _CANDIDATE_SECONDS:
                break
            made = self.pack(module, packed, case.arguments)
            results = self.results_of(case)
            seconds = self.call(function, replaced(case.arguments, made), results)
            ratio, error = self._compare(case, results)
            if case.number == 0:
                first, worst, operands = seconds, ratio, made
            if error is not None:
                return Checked({}, ratio, seconds, error)
            kinds[case.name] = None
            if case.number == 0 and seconds > hopeless:
                return Checked(_unguarded(operands), worst, first, None, tuple(kinds))
        error = self._differs_again(function, operands, varies)
        if error is not None:
            return Checked({}, worst, first, error)
        return Checked(_unguarded(operands), worst, first, None, (*kinds, "again"))

    def _compare(self, case: Case, results: dict[int, Array]) -> tuple[float, str | None]:
        """Return the largest difference, and what is wrong with it."""
        worst = 0.0
        for index, expected in case.expected.items():
            if self.results[case.from_start][index].overrun():
                return math.inf, f"argument #{index} was written outside its bounds"
            ratio, where = expected.difference(results[index])
            if ratio == math.inf and expected.is_float and self.reference.traits.pads:
                result = case.without_padding(self, index, results[index])
                ratio, where = expected.difference(result)
            worst = max(worst, ratio)
            allowed = self.allowed(expected)
            if allowed < ratio < math.inf:
                sensitivity = case.sensitivity(self)[index]
                if sensitivity < math.inf:
                    allowed = max(allowed, _SENSITIVITY * sensitivity)
            if ratio > allowed:
                kind = "" if case.number == 0 else f" (inputs: {case.name})"
                return worst, (
                    f"argument #{index} differs from the unscheduled program at {where}: relative "
                    f"difference {ratio:.3g}, allowed {allowed:.3g}{kind}"
                )
        return worst, None

    def allowed(self, expected: Expected) -> float:
        """The largest difference of a result that is right."""
        if not expected.is_float:
            return 0.0
        given = self.reference.tolerance
        return self.reference.traits.tolerance if given is None else given

    def _differs_again(
        self, function: Function, operands: dict[int, Any], varies: bool
    ) -> str | None:
        """Call again with the first inputs, other memory for results, and compare the bits."""
        case, (before, after) = self.cases[0], self.results
        results = {index: memory.array for index, memory in after.items()}
        self.call(function, replaced(case.arguments, operands), results)
        for index, memory in after.items():
            if memory.overrun():
                return f"argument #{index} was written outside its bounds"
            first, second = before[index].array, memory.array
            if np.array_equal(_bits(first), _bits(second)):
                continue
            once = Expected(first, self.dtype(index))
            ratio, where = once.difference(second)
            if ratio > (self.allowed(once) if varies else 0.0):
                return (
                    f"argument #{index} differs between two calls with the same inputs at {where}: "
                    f"relative difference {ratio:.3g}"
                )
        return None


def _bits(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _unguarded(made: dict[int, Any]) -> dict[int, Any]:
    """Copy packed operands to memory as it is in graphs."""
    return {index: tensor(array) for index, array in made.items()}
