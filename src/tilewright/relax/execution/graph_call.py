"""Calling a compiled graph: its signature, and the function that makes the results and runs it.

What a call does besides the native code is written once, as Python text, when the graph is first
requested; every call pays for its lines.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.cuda.tensors import native_cuda_empty
from tilewright.codegen.llvm.tensors import native_empty, packed_dtype
from tilewright.relax.execution.objects import call_with_objects
from tilewright.runtime import CompiledFunction, CUDAGraph, Device, Tensor, from_dlpack, tensor
from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.tensor import as_argument, is_native_class
from tilewright.support.errors import RunError

_CUDA = 2  # DLPack's number


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument or result: extents are numbers or Python formulas over symbolic names."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True)
class SizeCheck:
    """A condition on the inputs' extents; ``values`` fill the message's placeholders."""

    condition: str
    message: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class GraphSignature:
    """The inputs and results of a compiled graph function.

    ``outputs`` are flat; ``structure`` says how they are nested (``None`` is a tensor). ``symbols``
    says where each symbolic extent is read: argument and axis (-1: the scalar itself). ``checks``
    repeat the native function's checks, for what must be known before calling it. ``parameters``
    are name and nesting of what the graph function takes, if any of that is a tuple; ``inputs`` are
    flat. ``objects`` are the places of objects, which are passed as numbers, among flat inputs and
    results. ``overwritable`` says which results may lie where an input does: pairs of places among
    flat inputs and results.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    structure: object
    symbols: tuple[tuple[str, int, int], ...]
    checks: tuple[SizeCheck, ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()
    objects: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    overwritable: tuple[tuple[int, int], ...] = ()


class _Explanation:
    """Says what is wrong with inputs.

    Apart from ``GraphFunction``, so that one which is dropped frees its memory at once: no cycle of
    references keeps it until the next collection.
    """

    def __init__(self, signature: GraphSignature, call: CompiledFunction, device: str) -> None:
        self.signature, self.device = signature, device
        self._call = call

    def __call__(self, error: Exception, *inputs: object) -> None:
        """Raise for inputs of which the results' sizes can't be computed."""
        inputs = flat_inputs(self.signature, inputs)
        self._call.check_exports(inputs)
        self._check_kinds(inputs)
        self._check_sizes(inputs)
        raise RunError(f"{self.signature.name}: {error}") from error

    def _check_kinds(self, inputs: Sequence[object]) -> None:
        for spec, given in zip(self.signature.inputs, inputs):
            shape = getattr(given, "shape", None)
            if len(shape or ()) != len(spec.shape):
                found = type(given).__name__ + ("" if shape is None else f" of shape {shape}")
                raise TypeError(
                    f"{self.signature.name}: argument {spec.name!r}: expected a tensor of "
                    f"{len(spec.shape)} dimensions, got {found}"
                )
            place = getattr(given, "__dlpack_device__", None)
            if place is not None and self.device == "cuda" and place()[0] != _CUDA:
                raise ValueError(
                    f"{self.signature.name}: argument {spec.name!r}: expected a tensor on cuda, "
                    "got one on the cpu; copy it: tilewright.runtime.tensor(it, device='cuda'), "
                    "or it.cuda() of PyTorch's"
                )

    def _check_sizes(self, inputs: Sequence[object]) -> None:
        for check in self.signature.checks:
            names = [f"__a{number}" for number in range(len(self.signature.inputs))]
            lines = [f"    {line}" for line in _sizes(self.signature, names)]
            returned = f"    return [{', '.join((check.condition, *check.values))}]"
            held, *values = _compiled(
                "__check", [f"def __check({', '.join(names)}):", *lines, returned], {}
            )(*inputs)
            if not held:
                raise RunError(f"{self.signature.name}: {check.message.format(*values)}")


class CapturedGraph:
    """A graph function for fixed sizes, launched as one CUDA graph: ``captured(*inputs)``.

    Tensors are copied to where the recorded call had them. Results are the same tensors at every
    call, and hold the last one's values.
    """

    def __init__(self, function: GraphFunction, inputs: Sequence[Any]) -> None:
        if function.device != "cuda":
            raise RunError(f"{function.signature.name} runs on the cpu; only GPUs have CUDA graphs")
        self._function = function
        given = [
            tensor(item, device=Device("cuda", item.__dlpack_device__()[1]))
            if hasattr(item, "__dlpack__")
            else item
            for item in self._flat(inputs)
        ]
        self.results = function(*_as_nested(function.signature, given))
        self._given = given
        self._graph = CUDAGraph(function.native, *function.operands(given, self.results))

    def _flat(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return flat_inputs(self._function.signature, inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Run the graph on the current stream; doesn't wait for it.

        Raises ``RunError`` for inputs of other shapes or dtypes, or other numbers, than recorded.
        """
        flat, name = self._flat(inputs), self._function.signature.name
        if len(flat) != len(self._given):
            raise RunError(f"{name} takes {len(self._given)} arguments, got {len(flat)}")
        for spec, known, given in zip(self._function.signature.inputs, self._given, flat):
            if isinstance(known, Tensor):
                known.copyfrom(given)
            elif known != given:
                raise RunError(
                    f"{name}: argument {spec.name!r} was {known!r} when the graph was recorded, "
                    f"got {given!r}: record it again"
                )
        self._graph.replay()
        return self.results


class GraphFunction:
    """A compiled graph function: ``f(*inputs)`` returns fresh tensors.

    Inputs are NumPy arrays, tensors of any DLPack library, and numbers. Results are PyTorch's
    tensors if the first tensor is one, else ``Tensor``. Their memory is kept for later results when
    the last owner drops it.

    Inputs of a graph for a GPU (``device`` is ``"cuda"``) are tensors there, and so are results: on
    the GPU of the first one. What it launches goes to the caller's stream; the call doesn't wait.
    """

    def __init__(
        self, signature: GraphSignature, call: CompiledFunction, device: str = "cpu"
    ) -> None:
        self.signature = signature
        self.device = device
        self._call = call
        self._names = [name for name, _ in parameters_of(signature)]
        explain = _Explanation(signature, call, device)
        self.by_position = _straight_line(signature, call, explain, device)
        """The graph as a plain function, for callers that have all inputs in order."""
        if any(signature.objects):
            self.by_position = _knowing_objects(signature, self.by_position, device)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the graph; inputs may be given by name.

        Raises ``RunError`` for missing and unknown inputs, and for sizes that operators don't
        allow; wrong types and shapes are ``TypeError`` and ``ValueError``, which name the input.
        """
        if named or len(inputs) != len(self._names):
            inputs = self._in_order(inputs, named)
        return self.by_position(*inputs)

    def _in_order(self, inputs: Sequence[object], named: dict[str, object]) -> tuple[object, ...]:
        names = self._names
        rest = names[len(inputs) :]
        unknown = [name for name in named if name not in rest]
        missing = [name for name in rest if name not in named]
        if len(inputs) <= len(names) and not unknown and not missing:
            return (*inputs, *(named[name] for name in rest))
        problem = f"got {len(inputs)}" + (f" and {', '.join(named)}" if named else "")
        raise RunError(
            f"{self.signature.name} takes {len(names)} arguments ({', '.join(names)}), {problem}"
        )

    @property
    def native(self) -> Callable[..., object]:
        """The bare native function of inputs and results, which are tensors already."""
        native: Callable[..., object] = self._call.ffi
        return native

    def operands(self, inputs: Sequence[Any], result: object) -> list[Any]:
        """What ``native`` takes: flat inputs, and results to write into.

        Raises ``RunError`` for a graph with objects, which only a call of it knows.
        """
        if any(self.signature.objects):
            raise RunError(f"{self.signature.name} takes or gives objects: it can only be called")
        return [as_argument(item) for item in (*inputs, *_leaves(result))]

    def capture(self, *inputs: object) -> CapturedGraph:
        """Record what a call with such inputs launches on a GPU, to launch it as a whole.

        Raises ``RunError`` for a graph on the CPU, and for one that reads from the GPU while it
        runs (conditions, sizes that are computed).
        """
        return CapturedGraph(self, inputs)

    def run_into(self, inputs: Sequence[object], outputs: Sequence[object]) -> None:
        """Run the graph, writing into existing tensors.

        Results lie apart from inputs and each other, or exactly where an input does if the pair is
        in ``overwritable`` of the ``Executable``; others are refused with ``ValueError``.
        """
        self._call(*flat_inputs(self.signature, inputs), *outputs)

    def __repr__(self) -> str:
        names = ", ".join(self._names)
        return f"<compiled graph {self.signature.name}({names})>"


def _knowing_objects(
    signature: GraphSignature, run: Callable[..., object], device: str
) -> Callable[..., object]:
    """A function that takes and gives objects, of one that takes and gives numbers for them."""
    taken, given = signature.objects

    def as_handle(number: int) -> object:
        handle = np.array(number, "int64")
        return tensor(handle, device=Device("cuda")) if device == "cuda" else handle

    def call(flat: list[Any]) -> object:
        return run(*_as_nested(signature, flat))

    return lambda *inputs: call_with_objects(
        call, flat_inputs(signature, inputs), taken, given, as_handle
    )


def _leaves(result: object) -> list[object]:
    if isinstance(result, tuple):
        return [leaf for item in result for leaf in _leaves(item)]
    return [result]


def parameters_of(signature: GraphSignature) -> Sequence[tuple[str, Any]]:
    """Name and nesting of each parameter."""
    return signature.parameters or [(spec.name, None) for spec in signature.inputs]


def flat_inputs(signature: GraphSignature, inputs: Sequence[object]) -> tuple[object, ...]:
    """Take nested inputs apart.

    Raises ``RunError`` for an input that isn't nested as the parameter is.
    """
    if not signature.parameters:
        return tuple(inputs)
    made: list[Any] = []

    def take(name: str, nesting: Any, value: object) -> None:
        if nesting is None:
            made.append(value)
            return
        if isinstance(value, int) and len(nesting) == 1:
            value = (value,)
        if not isinstance(value, (tuple, list)) or len(value) != len(nesting):
            found = f"{len(value)} items" if hasattr(value, "__len__") else repr(value)[:80]
            raise RunError(
                f"{signature.name}: argument {name!r} is a tuple of {len(nesting)} items, got "
                f"{type(value).__name__} of {found}"
            )
        for number, (inner, item) in enumerate(zip(nesting, value)):
            take(f"{name}[{number}]", inner, item)

    for (name, nesting), value in zip(signature.parameters, inputs):
        take(name, nesting, value)
    return tuple(made)


# What making results raises; RuntimeError if PyTorch has none like the first input.
_FAILURES = (AttributeError, IndexError, RuntimeError, ValueError, ZeroDivisionError)


def _as_nested(signature: GraphSignature, flat: Sequence[Any]) -> list[Any]:
    """Flat inputs as the function takes them."""
    rest = iter(flat)

    def take(nesting: Any) -> Any:
        return next(rest) if nesting is None else tuple(map(take, nesting))

    return [take(nesting) for _, nesting in parameters_of(signature)]


def _straight_line(
    signature: GraphSignature,
    call: Callable[..., object],
    explain: Callable[..., None],
    device: str,
) -> Callable[..., object]:
    """Write the function that makes the results and runs the graph: every call pays for its lines.

    ::

        def __run(__a0, __a1):
            try:
                __source = __like(__a0)
                n = __a0.shape[0]
                __r0 = __empty(__source, 73730, n, 256)
            except __failures as __error:
                __explain(__error, __a0, __a1)
            __call(__a0, __a1, __r0)
            return __r0

    On a GPU, ``__empty`` also takes the number of the first tensor's. The names of sizes have no
    double underscore (``is_size_name``).
    """
    inputs = [f"__a{number}" for number in range(len(signature.inputs))]
    results = [f"__r{number}" for number in range(len(signature.outputs))]
    given, unpacked = _unpacked(signature, inputs)
    tensors = [name for name, spec in zip(inputs, signature.inputs) if spec.shape]
    like = next(iter(tensors or inputs), None)
    sizes = _sizes(signature, inputs)
    on_gpu = device == "cuda"
    number = ", __gpu" if on_gpu else ""
    made = [
        f"{name} = __empty(__source{number}, {packed_dtype(spec.dtype)}"
        + "".join(f", {extent}" for extent in spec.shape)
        + ")"
        for name, spec in zip(results, signature.outputs)
    ]
    lines = [
        f"def __run({', '.join(given)}):",
        "    try:",
        *(f"        {line}" for line in unpacked),
        "        __source = " + (f"__like({like})" if like else "None"),
        *(["        __gpu = " + (f"__number({like})" if like else "0")] if on_gpu else []),
        *(f"        {line}" for line in (*sizes, *made)),
        "    except __failures as __error:",
        f"        __explain({', '.join(['__error', *given])})",
        f"    __call({', '.join([*inputs, *results])})",
        f"    return {_nested(signature.structure, iter(results))}",
    ]
    nested = (TypeError,) if unpacked else ()  # what can't be taken apart
    scope = {
        "__call": call,
        "__empty": _empty_of(device),
        "__explain": explain,
        "__failures": (*_FAILURES, *nested),
        "__int": int,
        "__is": isinstance,
        "__like": _like,
        "__number": _gpu_number,
    }
    return _compiled("__run", lines, scope)


def _unpacked(signature: GraphSignature, inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of the parameters, and lines that take nested ones apart."""
    names, given, lines = iter(inputs), [], []
    for number, (_, nesting) in enumerate(parameters_of(signature)):
        if nesting is None:
            given.append(next(names))
            continue
        given.append(f"__p{number}")
        value = f"__p{number}"
        if nesting == (None,):  # a shape of one extent may be given as that
            value = f"({value},) if __is({value}, __int) else {value}"
        lines.append(f"{_nested(nesting, names)} = {value}")
    return given, lines


def is_size_name(name: str) -> bool:
    """Whether a symbolic extent can have a name in the formulas of results' extents.

    Python takes some letters outside of ASCII for one another.
    """
    reserved = keyword.iskeyword(name) or name in ("min", "max")
    return name.isascii() and name.isidentifier() and "__" not in name and not reserved


def evaluated(extent: int | str, sizes: Mapping[str, int]) -> int:
    """The number that an extent of a signature is, by the sizes that it is made of."""
    if isinstance(extent, int):
        return extent
    value = eval(extent, {"__builtins__": {}, "min": min, "max": max}, dict(sizes))
    return int(value)


def _nested(structure: Any, names: Iterator[str]) -> str:
    """The text of a result (or of what takes an argument apart): names of tensors, in tuples."""
    if structure is None:
        return next(names)
    return "(" + "".join(f"{_nested(item, names)}, " for item in structure) + ")"


def _sizes(signature: GraphSignature, inputs: Sequence[str]) -> list[str]:
    """Lines that define the symbolic extents from the inputs."""
    return [
        f"{name} = {inputs[argument]}" + (f".shape[{axis}]" if axis >= 0 else "")
        for name, argument, axis in signature.symbols
    ]


def _compiled(name: str, lines: Sequence[str], scope: Mapping[str, object]) -> Callable[..., Any]:
    names: dict[str, Any] = {"min": min, "max": max, "__builtins__": {}, **scope}
    exec("\n".join(lines), names)
    made: Callable[..., Any] = names[name]
    return made


def _empty_of(device: str) -> Callable[..., object]:
    """The function that makes results on a kind of device."""
    native = native_cuda_empty() if device == "cuda" else native_empty()
    if is_native_class():
        return native  # type: ignore[no-any-return]

    def converted(*arguments: object) -> object:
        # Another library has set the class of the tensors that tvm-ffi makes.
        made = native(*arguments)
        return from_dlpack(made) if isinstance(made, tvm_ffi.Tensor) else made

    return converted


def _gpu_number(source: Any) -> int:
    """The number of the GPU that a tensor is on."""
    kind, number = source.__dlpack_device__()
    if kind != _CUDA:
        raise ValueError("it is not on a GPU")
    return int(number)


def _like(source: object) -> object:
    """A tensor whose library the results come from; ``None`` for ours, and for NumPy's arrays."""
    return source if hasattr(type(source), "__dlpack_c_exchange_api__") else None
