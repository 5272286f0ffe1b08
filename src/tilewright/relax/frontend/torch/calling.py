"""PyTorch models as they are called: exporting by example, nested inputs and results.

A compiled graph takes a flat list of tensors and returns a flat tuple. ``Calling`` gives it the
model's own signature, as ``torch.export`` noted it down, and writes back what the model writes into
its inputs and buffers.
"""

from __future__ import annotations

import inspect
import re
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.relax.frontend.torch.exported import (
    as_real,
    quiet,
    require_torch,
    written_buffers,
)
from tilewright.relax.frontend.torch.pairs import PART_DTYPES
from tilewright.support.errors import ImportModelError, RunError

if TYPE_CHECKING:
    import torch


# torch.export traces one model at a time in a process.
_exporting = threading.RLock()
_PLAIN = (bool, int, float, str, type(None))


def export_module(
    model: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
) -> torch.export.ExportedProgram:
    """Export a model, in evaluation mode, by example inputs; ``dynamic_shapes`` is PyTorch's.

    Raises ``ImportModelError``, which begins with the useful line of PyTorch's own and names the
    line of the model, if ``torch.export`` can't.
    """
    torch = require_torch()
    signature = inspect.signature(model.forward)
    try:
        # By position what can be: the compiled model can be called so, or by name.
        bound = signature.bind(*args, **(kwargs or {}))
    except TypeError as error:
        raise ImportModelError(
            f"the example inputs don't fit {type(model).__name__}.forward{signature}: {error}"
        ) from None
    with _exporting:
        plain = [
            (module, {k: v for k, v in vars(module).items() if isinstance(v, _PLAIN)})
            for module in model.modules()
        ]
        try:
            with torch.no_grad(), quiet():
                return torch.export.export(
                    model.eval(), bound.args, bound.kwargs, dynamic_shapes=dynamic_shapes
                )
        except Exception as error:  # any class: of PyTorch's tracing, or of the model's own code
            raise ImportModelError(_why(model, error)) from error
        finally:
            # Modes, of which parts may have another than the whole, and what the model notes down:
            # what it did while it was traced, such as scaling its weights once, has not happened.
            for module, values in plain:
                vars(module).update(values)


def _why(model: torch.nn.Module, error: Exception) -> str:
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = next((line for line in lines if not line.startswith(("To fix", "Suggested"))), "")
    place = _place(text, error)
    message = f"torch.export can't export {type(model).__name__}{place}: "
    message += f"{type(error).__name__}: {useful}"
    hint = next((line for line in lines if line.startswith("Hint:")), "")
    if hint:
        message += f"; {hint.removeprefix('Hint:').strip()}"
    if "Cache" in text and "pytree" in text:
        message += "; a Hugging Face model returns its cache: call it with use_cache=False"
    return message


def _place(text: str, error: Exception) -> str:
    """The last line of the user's own code in PyTorch's report, or in the traceback."""
    own = re.findall(r'File "([^"]+)", line (\d+)', text)
    if not own:
        frames = traceback.extract_tb(error.__traceback__)
        own = [(frame.filename, str(frame.lineno)) for frame in frames[1:]]
    own = [item for item in own if "site-packages" not in item[0]]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


class Calling:
    """The signature of a functional exported program: where tensors are in its inputs and results.

    Inputs that are no tensors were fixed by the export: they may be given, with the same values.
    Buffers that the model writes into are copied, and live here from one call to the next. ``cuts``
    are those of ``import_to_compile``.
    """

    def __init__(
        self, program: torch.export.ExportedProgram, cuts: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._tensor = require_torch().Tensor
        self._cuts = list(cuts)
        self._outputs = _outputs(program)
        self._state = _state(program)
        self._written = _written(program, list(self._state))
        self._complex_inputs, self._complex_outputs = _complex_places(program)
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        user = [s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        self._tensors = [
            number
            for number, spec in enumerate(user)
            if type(spec.arg).__name__ != "ConstantArgument"
        ]
        self._fixed = {
            number: (spec.arg.name, spec.arg.value)
            for number, spec in enumerate(user)
            if type(spec.arg).__name__ == "ConstantArgument"
        }
        args, kwargs = self._in_spec.children()
        self._positional = len(args.children())
        self._keywords = list(kwargs.context or ())
        flat = all(item.is_leaf() for item in (*args.children(), *kwargs.children()))
        self._flat = flat and not self._fixed
        # PyTorch computes what a structure is each time that it is asked.
        self._single = self._out_spec.is_leaf()
        children = () if self._single else self._out_spec.children()
        self._plain_tuple = self._out_spec.type is tuple and all(c.is_leaf() for c in children)
        changed = self._cuts or self._complex_outputs or self._written or self._outputs is not None
        # The graph's results are the model's: small models pay for each question asked.
        self._as_given = not changed and (self._single or self._plain_tuple)
        # By keyword too what was given by position: inputs are named after the model's parameters.
        self._names = [spec.arg.name for spec in user] if flat else []

    def __call__(self, run: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a compiled graph as the model is called.

        Raises ``RunError`` for inputs of another structure than the export's, and for other values
        of those that it fixed.
        """
        if not (self._flat and not kwargs and len(args) == self._positional == len(self._names)):
            args = self._leaves(args, kwargs)
        if self._state:
            args = (*args, *self._state.values())
        passed: Sequence[Any] = args
        for arg in args:
            # DLPack doesn't say of memory, as a conjugate's imaginary part, that it is negated.
            if isinstance(arg, self._tensor) and arg.is_neg():
                passed = [
                    item.resolve_neg() if isinstance(item, self._tensor) else item for item in args
                ]
                break
        if self._complex_inputs:
            passed = self._as_real(passed)
        try:
            results = run(*passed)
        except ValueError:
            compact = _compact(passed)
            if compact is None:
                raise
            results = run(*compact)
        if self._as_given:
            return results[0] if self._single else results
        if self._cuts:
            results = self._cut(list(results))
        if self._complex_outputs:
            results = list(results)
            for place in self._complex_outputs:
                results[place] = _as_complex(results[place])
        if self._written:
            results = self._write_back(args, results)
        if self._outputs is not None:
            given = iter(results)
            results = [next(given) if is_given else value for is_given, value in self._outputs]
        if self._single:
            return results[0]
        if self._plain_tuple:
            return tuple(results)
        return self._out_spec.unflatten(results)

    def _cut(self, results: list[Any]) -> list[Any]:
        """Cut results to the sizes that follow them."""
        count = len(results) - len(self._cuts)
        results, sizes = results[:count], results[count:]
        for (number, axis), size in zip(self._cuts, sizes):
            result, most = results[number], int(np.asarray(size))
            if hasattr(result, "narrow"):  # PyTorch's
                results[number] = result.narrow(axis, 0, most).contiguous()
            else:
                results[number] = np.take(np.asarray(result), range(most), axis)
        return results

    def _as_real(self, args: Sequence[Any]) -> Sequence[Any]:
        """Show the complex ones among the inputs as real tensors.

        Raises ``TypeError`` for real numbers in their place.
        """
        torch = require_torch()
        shown = list(args)
        for place, (name, dtype) in self._complex_inputs.items():
            arg = args[place]
            if isinstance(arg, torch.Tensor):
                found = str(arg.dtype).removeprefix("torch.")
            else:
                arg = np.asarray(arg)
                found = arg.dtype.name
            if found != dtype:
                raise TypeError(f"input {name!r} takes {dtype} numbers, got {found}")
            if isinstance(arg, torch.Tensor):
                shown[place] = as_real(arg)
            else:
                part = np.dtype(PART_DTYPES[dtype])
                shown[place] = np.ascontiguousarray(arg).view(part).reshape(*arg.shape, 2)
        return shown

    def _write_back(self, args: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        """Write the new values of inputs and buffers; returns the other results."""
        torch = require_torch()
        with torch.no_grad():
            for place, value in zip(self._written, results):
                target = args[place]
                if isinstance(target, torch.Tensor):
                    target.copy_(torch.as_tensor(value))
                else:
                    target[...] = value
        return results[len(self._written) :]

    def _leaves(self, args: Sequence[object], kwargs: dict[str, object]) -> list[object]:
        """The tensors of nested inputs, in order."""
        names = self._names
        wanted = names[len(args) : self._positional]
        if wanted and all(name in kwargs for name in wanted):
            args = (*args, *(kwargs[name] for name in wanted))
            kwargs = {key: value for key, value in kwargs.items() if key not in wanted}
        if set(kwargs) == set(self._keywords):
            kwargs = {key: kwargs[key] for key in self._keywords}
        leaves, spec = require_torch().utils._pytree.tree_flatten((tuple(args), kwargs))
        if spec != self._in_spec:
            raise RunError(
                f"the model was exported for inputs of the structure {_shown(self._in_spec)}, "
                f"got {_shown(spec)}"
            )
        for number, (name, value) in self._fixed.items():
            given = leaves[number]
            if not (given is value or (type(given) is type(value) and given == value)):
                raise RunError(
                    f"input {name!r} was fixed to {value!r} by the export, got {given!r}; "
                    "compile the model for that value, or pass a tensor"
                )
        return [leaves[number] for number in self._tensors]


def _complex_places(
    program: torch.export.ExportedProgram,
) -> tuple[dict[int, tuple[str, str]], list[int]]:
    """Which of a graph's inputs take complex numbers, with name and dtype, and which results."""
    Tensor = require_torch().Tensor
    nodes = {node.name: node for node in program.graph.nodes}
    written = written_buffers(program)
    given = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind.name == "USER_INPUT" and type(spec.arg).__name__ != "ConstantArgument"
    ]
    inputs = {}
    for place, name in enumerate((*given, *written)):
        value = nodes[name].meta.get("val")
        if isinstance(value, Tensor) and value.is_complex():
            inputs[place] = (name, str(value.dtype).removeprefix("torch."))
    (results,) = next(node for node in program.graph.nodes if node.op == "output").args
    values = [
        item.meta.get("val")
        for spec, item in zip(program.graph_signature.output_specs, results)
        if hasattr(item, "meta") and spec.kind.name != "TOKEN"
    ]
    return inputs, [
        place
        for place, value in enumerate(values)
        if isinstance(value, Tensor) and value.is_complex()
    ]


def _as_complex(result: object) -> Any:
    """The complex tensor that a result shows, of the same library; NumPy's array of ours."""
    torch = require_torch()
    if isinstance(result, torch.Tensor):
        return torch.view_as_complex(result)
    array = np.asarray(result)
    kind = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}[array.dtype]
    return array.view(kind).reshape(array.shape[:-1])


def _outputs(program: torch.export.ExportedProgram) -> list[tuple[bool, Any]] | None:
    """For each output whether the graph gives it, else its constant; ``None`` if all are given."""
    user = [s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    constants = [type(spec.arg).__name__ == "ConstantArgument" for spec in user]
    if not any(constants):
        return None
    return [
        (not constant, spec.arg.value if constant else None)
        for constant, spec in zip(constants, user)
    ]


def _state(program: torch.export.ExportedProgram) -> dict[str, object]:
    """Copies of the buffers that a program writes into, in the order of its parameters."""
    names = written_buffers(program).values()
    stores = ({**program.constants, **program.state_dict}[name] for name in names)
    return {name: tensor.detach().clone() for name, tensor in zip(names, stores)}


def _written(program: torch.export.ExportedProgram, buffers: Sequence[str]) -> list[int]:
    """Places among the inputs, then buffers, of what is written; the new values come first."""
    signature = program.graph_signature
    user = [
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind.name == "USER_INPUT" and type(spec.arg).__name__ != "ConstantArgument"
    ]
    places = []
    for spec in signature.output_specs:
        if spec.kind.name == "BUFFER_MUTATION":
            places.append(len(user) + buffers.index(spec.target))
        elif spec.kind.name == "USER_INPUT_MUTATION":
            places.append(user.index(spec.target))
    return places


def _compact(args: Sequence[object]) -> list[object] | None:
    """The same numbers in compact memory; ``None`` if they are in compact memory already."""
    torch = require_torch()
    made = [
        arg.contiguous()
        if isinstance(arg, torch.Tensor)
        else np.require(arg, requirements=("C", "A"))
        if isinstance(arg, np.ndarray)
        else arg
        for arg in args
    ]
    return None if all(new is old for new, old in zip(made, args)) else made


def _shown(spec: Any) -> str:
    """A structure of inputs in a line: ``(*, [*, *], name=*)``."""
    args, kwargs = spec.children()
    parts = [_form(item) for item in args.children()]
    named = zip(kwargs.context or (), kwargs.children())
    parts += [f"{name}={_form(item)}" for name, item in named]
    return f"({', '.join(parts)})"


def _form(spec: Any) -> str:
    if spec.is_leaf():
        return "*"
    inner = ", ".join(map(_form, spec.children()))
    if spec.type is list:
        return f"[{inner}]"
    if spec.type is tuple:
        return f"({inner})"
    return f"{spec.type.__name__}({inner})"
