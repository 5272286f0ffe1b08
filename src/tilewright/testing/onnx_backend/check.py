"""One backend test: import, compile, run, compare.

A model may take as an input what must be known at import, such as the shape for ``Reshape``. Then
these inputs are fixed to the test's values, as constants of the model, which the outcome says.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from tilewright.relax import build
from tilewright.relax.frontend.onnx import from_onnx, require_onnx
from tilewright.relax.frontend.onnx.values import UnknownValueError
from tilewright.relax.values import numpy_dtype
from tilewright.support.errors import ImportModelError

if TYPE_CHECKING:
    from onnx import ModelProto, SequenceProto, TensorProto
    from onnx.backend.test.case.test_case import TestCase

#: What a test passes: an array, a sequence of them, or an optional without an element.
Input = Union[NDArray[Any], "list[Input]", None]

PASSED, FIXED, FAILED, UNSUPPORTED = "passed", "passed, inputs fixed", "failed", "unsupported"
OUTSIDE = "outside"
"""About texts, encoded pictures or random numbers, which say nothing of a compiler of tensors."""
#: Narrow floats are compared as float32; the last digit may differ.
_NARROW = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
#: Types that tensors here don't have: values are compared in the wider one.
_WIDENED = frozenset(
    "int2 int4 uint2 uint4 float4_e2m1fn float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
)


@dataclass(frozen=True)
class Outcome:
    """How a test ended, and why."""

    status: str
    reason: str = ""


def cases(kind: str) -> dict[str, TestCase]:
    """ONNX's tests of a kind that need no download, by name."""
    require_onnx()
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about the data that it makes
        found = load_model_tests(kind=kind)
    return {case.name: case for case in found if case.url is None}


def node_cases(*modules: str) -> dict[str, TestCase]:
    """The tests in a few of ONNX's modules, such as ``lstm``: all of them take long to make."""
    require_onnx()
    found = importlib.import_module("onnx.backend.test.case.node")
    for module in modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
    return {case.name: case for case in found._NodeTestCases}


def check(case: TestCase) -> Outcome:
    """Run a test on all of its data."""
    model, data = _loaded(case)
    status = PASSED
    for inputs, expected in data:
        try:
            fixed, results = run(model, inputs, len(expected))
        except ImportModelError as error:
            return Outcome(OUTSIDE if _is_outside(model) else UNSUPPORTED, str(error))
        if fixed:
            status = FIXED
        for number, (made, wanted) in enumerate(zip(results, expected)):
            reason = difference(made, wanted, case.rtol, case.atol)
            if reason:
                return Outcome(FAILED, f"output {number}: {reason}")
    return Outcome(status)


_OUTSIDE = frozenset(
    "ImageDecoder RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial "
    "Bernoulli".split()
)


def _is_outside(model: ModelProto) -> bool:
    """Whether a model computes with texts, pictures in a file's format, or random numbers."""
    text = require_onnx().TensorProto.STRING
    infos = [*model.graph.input, *model.graph.output]
    return (
        any(item.type.tensor_type.elem_type == text for item in infos)
        or any(node.op_type in _OUTSIDE for node in model.graph.node)
        # A third input of dropout says whether the model is trained.
        or any(node.op_type == "Dropout" and len(node.input) > 2 for node in model.graph.node)
    )


def _loaded(case: TestCase) -> tuple[ModelProto, list[tuple[list[Input], list[Input]]]]:
    onnx = require_onnx()
    from onnx import numpy_helper

    def value(item: TensorProto | SequenceProto | Input) -> Input:
        if isinstance(item, onnx.TensorProto):
            array: Input = numpy_helper.to_array(item)
            return array
        if isinstance(item, onnx.SequenceProto):
            items: Input = numpy_helper.to_list(item)
            return items
        return item

    if case.model is not None:
        data = [([*map(value, a)], [*map(value, b)]) for a, b in case.data_sets]
        return case.model, data
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    kinds = [
        [item.type.WhichOneof("value") for item in items]
        for items in (model.graph.input, model.graph.output)
    ]
    data = []
    for place in sorted(folder.glob("test_data_set_*")):
        sides = []
        for side, side_kinds in zip(("input", "output"), kinds):
            files = sorted(place.glob(f"{side}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
            items = []
            for path, kind in zip(files, side_kinds):
                is_list = kind == "sequence_type"
                item = onnx.SequenceProto() if is_list else onnx.TensorProto()
                item.ParseFromString(path.read_bytes())
                items.append(value(item))
            sides.append(items)
        data.append((sides[0], sides[1]))
    return model, data


def run(model: ModelProto, inputs: Sequence[Input], count: int) -> tuple[list[str], list[object]]:
    """Import and call a model; returns the names of fixed inputs, and the results."""
    held = {item.name for item in model.graph.initializer}
    names = [item.name for item in model.graph.input if item.name not in held]
    given = dict(zip(names, inputs))
    fixed: list[str] = []
    while True:
        mod_model = _with_fixed(model, given, fixed)
        shapes = {name: _shapes(value) for name, value in given.items() if name not in fixed}
        try:
            mod = from_onnx(mod_model, shapes)
            break
        except UnknownValueError as error:
            more = [name for name in error.inputs if name not in fixed]
            if not more:
                raise
            fixed += more
    executable = build(mod, "native")
    main = mod["main"]
    left = [given[name] for name in names if name not in fixed]
    left = [value for value in left if value is not None and not _is_empty(value)]
    args = [_passed(value, param.struct_info) for value, param in zip(left, main.params)]
    made = executable(*args)
    single = len(model.graph.output) == 1
    return fixed, [made] if single else list(made)


def _shapes(value: Input) -> object:
    """What ``shape_dict`` says of an input."""
    if isinstance(value, list):
        return [_shapes(item) for item in value]
    return None if value is None else list(np.shape(value))


def _is_empty(value: object) -> bool:
    return isinstance(value, list) and not value


def _passed(value: Input, info: Any) -> object:  # info is of a tensor or a tuple, as the value
    """A value in the dtype that it has here."""
    if isinstance(value, list):
        return tuple(_passed(item, field) for item, field in zip(value, info.fields))
    array = np.asarray(value)
    return array if array.dtype.name == info.dtype else array.astype(numpy_dtype(info.dtype))


def _with_fixed(model: ModelProto, given: dict[str, Input], fixed: Sequence[str]) -> ModelProto:
    from onnx import numpy_helper

    if not fixed:
        return model
    made = type(model)()
    made.CopyFrom(model)
    for name in fixed:
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(given[name]), name))
    return made


def difference(made: object, wanted: object, rtol: float, atol: float) -> str:
    """What is wrong with a result; an empty text if nothing is."""
    if isinstance(wanted, list):
        if not isinstance(made, (list, tuple)) or len(made) != len(wanted):
            return f"a sequence of {len(wanted)} was expected"
        found = [difference(a, b, rtol, atol) for a, b in zip(made, wanted)]
        return next(filter(None, found), "")
    array: NDArray[Any] = np.asarray(made)
    wanted = np.asarray(wanted)
    if array.shape != wanted.shape:
        return f"its shape is {list(array.shape)} instead of {list(wanted.shape)}"
    name = wanted.dtype.name
    if array.dtype.name != name:
        if name not in _WIDENED:
            return f"its dtype is {array.dtype} instead of {name}"
        wanted = wanted.astype(array.dtype)
    if array.dtype.kind not in "biu":
        wide = np.float64 if name == "float64" else np.float32
        array, wanted = array.astype(wide), wanted.astype(wide)
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        # Where sums cancel, the expected numbers have rounding errors too.
        atol = max(atol, float(4 * np.finfo(np.float32).eps * largest))
    rtol = max(rtol, _NARROW.get(name, 0.0))
    close = np.isclose(array, wanted, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    at = tuple(int(item) for item in np.argwhere(~close)[0])
    return (
        f"{int((~close).sum())} of {close.size} elements differ, at {list(at)} it is "
        f"{array[at]} instead of {wanted[at]}"
    )
