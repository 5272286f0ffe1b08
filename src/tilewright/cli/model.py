"""``MODEL`` arguments: a ``.pt2`` or ``.onnx`` file, or ``module:function`` that makes a model."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

from tilewright.cli.options import Dynamic, Shapes
from tilewright.ir import IRModule
from tilewright.meta_schedule.sizes import Symbols, symbols_within
from tilewright.relax import Function
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn.by_example import export_by_example
from tilewright.relax.frontend.onnx import from_onnx
from tilewright.relax.frontend.onnx import load_model as load_onnx
from tilewright.relax.frontend.torch import from_exported_program, load_exported_program
from tilewright.relax.frontend.torch.calling import export_module
from tilewright.support.errors import ImportModelError, MissingExtraError, TilewrightError
from tilewright.support.registry import near_matches

logger = logging.getLogger("tilewright.cli")

MODEL_HELP = (
    "MODEL is an .onnx file, a .pt2 file that torch.export.save wrote, or module:function or "
    "file.py:function: a "
    "function without arguments that returns a model (torch.nn.Module, "
    "tilewright.relax.frontend.nn.Module or IRModule) and example inputs, "
    "in order or in a dict by name."
)

# What people try, and what to do instead.
_HINTS = {
    ".py": "name the function that makes the model, such as {}:make_model",
    ".so": "that is a compiled library; `tilewright run` takes it",
    ".pt": "export the model: torch.export.save(torch.export.export(model, inputs), 'model.pt2')",
    ".pth": "export the model: torch.export.save(torch.export.export(model, inputs), 'model.pt2')",
}


@dataclass
class LoadedModel:
    """A model as a graph, example inputs, and a way to compute its reference result (if known)."""

    name: str
    mod: IRModule
    inputs: list[Any] | None
    """``None``: the model came without, random ones will do."""
    entry: str = "main"
    reference: Callable[[], list[np.ndarray[Any, Any]]] | None = None
    symbols: Symbols = field(default_factory=dict)
    """Sizes to tune at, by name."""


def load_model(text: str, shapes: Shapes = (), dynamic: Sequence[Dynamic] = ()) -> LoadedModel:
    """Load what a MODEL argument names; ``shapes`` are those of an ONNX model's inputs.

    ``dynamic`` are the axes that may have any size.

    Raises ``click.UsageError`` if it names nothing, and for axes that inputs don't have.
    """
    bounds = {item.size: item.bounds for item in dynamic if item.bounds is not None}
    for item in dynamic:
        if item.bounds not in (None, bounds.get(item.size)):
            raise click.UsageError(f"--dynamic gives the size {item.size} two ranges")
    made = _load(text, shapes, dynamic)
    made.symbols = symbols_within(bounds)
    return made


def _load(text: str, shapes: Shapes, dynamic: Sequence[Dynamic]) -> LoadedModel:
    path = Path(text)
    if path.suffix == ".onnx":
        if not path.exists():
            raise click.UsageError(f"there is no file {text}")
        return LoadedModel(path.stem, from_onnx(path, _onnx_shapes(path, shapes, dynamic)), None)
    if shapes:
        raise click.UsageError(f"--shape is for ONNX models; {text} has its shapes")
    if path.suffix == ".pt2":
        if not path.exists():
            raise click.UsageError(f"there is no file {text}")
        if dynamic:
            raise click.UsageError(
                f"{path.name} has its shapes: torch.export.export takes dynamic_shapes=, or name "
                "the function that makes the model"
            )
        return _from_exported(path.stem, load_exported_program(path))
    # What the model's code prints must not get into our output.
    with redirect_stdout(sys.stderr):
        model, inputs, named = call_function(text)
        return _from_object(text.rpartition(":")[2], model, inputs, named, dynamic)


def _onnx_shapes(path: Path, shapes: Shapes, dynamic: Sequence[Dynamic]) -> dict[str, list[Any]]:
    """The shapes that an ONNX model's inputs are to have, of numbers and names."""
    found: dict[str, list[Any]] = dict(shapes)
    inputs = (
        {item.name: item.type.tensor_type for item in load_onnx(path).graph.input}
        if (dynamic)
        else {}
    )
    for item in dynamic:
        if item.input not in found:
            if item.input not in inputs:
                raise _no_input(item.input, inputs)
            found[item.input] = [
                dim.dim_value
                if dim.HasField("dim_value")
                else dim.dim_param or f"{item.input}_{axis}"
                for axis, dim in enumerate(inputs[item.input].shape.dim)
            ]
        found[item.input] = _with_size(item, found[item.input])
    return found


def _with_size(item: Dynamic, shape: Sequence[Any]) -> list[Any]:
    """A shape with the name of a size."""
    if item.axis >= len(shape):
        raise click.UsageError(
            f"--dynamic {item.input}:{item.axis}: the input has {len(shape)} axes, numbered from 0"
        )
    return [item.size if axis == item.axis else size for axis, size in enumerate(shape)]


def _no_input(name: str, known: Mapping[str, object]) -> click.UsageError:
    return click.UsageError(
        f"--dynamic: the model has no input {name!r}; {near_matches(name, list(known))}"
    )


def call_function(text: str) -> tuple[object, list[object], dict[str, object]]:
    """Call the function that a MODEL argument names: a model, example inputs, and those by name.

    Raises ``click.UsageError`` if there is none, ``ImportModelError`` if it fails.
    """
    module_name, colon, function_name = text.rpartition(":")
    if not (colon and module_name and function_name):
        hint = _HINTS.get(Path(text).suffix, "")
        raise click.UsageError(
            "MODEL is an .onnx or .pt2 file, module:function or file.py:function, "
            f"got {text!r}" + (f": {hint.format(text)}" if hint else "")
        )
    module = _import(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise click.UsageError(f"{module_name} has no function {function_name!r}")
    with foreign_code(text):
        made = function()
    if not (isinstance(made, tuple) and len(made) == 2):
        raise ImportModelError(
            f"{text} must return (model, example inputs), it returned {type(made).__name__}"
        )
    model, inputs = made
    if isinstance(inputs, Mapping):
        return model, [], dict(inputs)
    return model, list(inputs) if isinstance(inputs, (tuple, list)) else [inputs], {}


@contextmanager
def foreign_code(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into one message with its location."""
    try:
        yield
    except (TilewrightError, click.ClickException):
        raise
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise MissingExtraError("torch", "torch", what) from error
        raise ImportModelError(f"{what} needs {error.name}, which isn't installed") from error
    except Exception as error:  # any class may come from code that isn't ours
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        # The last line of the user's own, rather than of a package that it called.
        frames = [f for f in frames if "site-packages" not in f.filename] or frames
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise ImportModelError(f"{what} raised {type(error).__name__}: {error}{place}") from error


def _import(name: str) -> ModuleType:
    if not name.endswith(".py"):
        sys.path.insert(0, "")  # modules of the current folder, as `python -m` finds them
        try:
            with foreign_code(f"module {name}"):
                return _import_module(name)
        finally:
            sys.path.remove("")
    path = Path(name).resolve()
    if not path.is_file():
        raise click.UsageError(f"there is no file {name}")
    # Not under its own name: a file called random.py must not stand for the real one.
    module_name = f"tilewright_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.append(str(path.parent))  # what lies beside the file can be imported, as by a script
    with foreign_code(name):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise click.UsageError(f"there is no module {name!r}") from None
        raise  # the module is there, what it imports isn't


def _from_object(
    name: str,
    model: object,
    inputs: list[object],
    named: dict[str, object],
    dynamic: Sequence[Dynamic],
) -> LoadedModel:
    if isinstance(model, nn.Module):
        with foreign_code(f"{type(model).__name__}.forward"):
            mod, values = export_by_example(model, inputs, named, _axes(dynamic))
        return LoadedModel(name, mod, values, "forward")
    torch = sys.modules.get("torch")  # whoever made a PyTorch model has imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        shapes = _dynamic_shapes(model, inputs, named, dynamic) if dynamic else None
        return _from_exported(name, export_module(model, inputs, named, shapes))
    if dynamic and isinstance(model, IRModule):
        raise click.UsageError(f"--dynamic is for models by example; {name} gives a module")
    if isinstance(model, IRModule):
        return _from_module(name, model, inputs, named)
    if torch is not None and isinstance(model, torch.export.ExportedProgram):
        if dynamic:
            raise click.UsageError(f"--dynamic: {name} gives an exported program with its shapes")
        return _from_exported(name, model)
    raise ImportModelError(
        f"a {type(model).__name__} can't be imported; known are torch.nn.Module, "
        "torch.export.ExportedProgram, tilewright.relax.frontend.nn.Module and IRModule"
    )


def _from_module(
    name: str, mod: IRModule, inputs: list[object], named: dict[str, object]
) -> LoadedModel:
    if not mod.functions:
        raise ImportModelError(f"the module that {name} returns has no functions")
    graphs = [key for key in ("main", "forward") if key in mod.functions]
    entry = graphs[0] if graphs else next(iter(mod))
    function = mod.functions[entry]
    if named and isinstance(function, Function):
        names = [param.name for param in function.params]
        if set(named) != set(names):
            raise ImportModelError(
                f"{entry} takes the inputs {', '.join(names)}, examples are of {', '.join(named)}"
            )
        inputs = [named[key] for key in names]
    return LoadedModel(name, mod, inputs, entry)


def _axes(dynamic: Sequence[Dynamic]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for item in dynamic:
        found.setdefault(item.input, {})[item.axis] = item.size
    return found


def _dynamic_shapes(
    model: Any, inputs: list[object], named: dict[str, object], dynamic: Sequence[Dynamic]
) -> dict[str, Any]:
    """What ``torch.export`` takes: a dimension for each dynamic axis."""
    torch = sys.modules["torch"]
    signature = inspect.signature(model.forward)
    try:
        given = signature.bind(*inputs, **named).arguments
    except TypeError as error:
        raise ImportModelError(
            f"the example inputs don't fit {type(model).__name__}.forward{signature}: {error}"
        ) from None
    rest = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    if any(given.get(name) for name in rest):
        raise click.UsageError(
            f"--dynamic: torch.export fixes the sizes of inputs that forward takes as **{rest[0]}"
        )
    shapes: dict[str, Any] = dict.fromkeys(given)
    bounds = {item.size: item.bounds for item in dynamic if item.bounds is not None}
    dims: dict[str, Any] = {}
    for item in dynamic:
        if item.input not in given:
            raise _no_input(item.input, given)
        example = given[item.input]
        if not isinstance(example, torch.Tensor):
            raise click.UsageError(
                f"--dynamic {item.input}:{item.axis}: the input is no tensor, it is of the type "
                f"{type(example).__name__}"
            )
        _with_size(item, example.shape)
        if item.size not in dims:
            least, most = bounds.get(item.size) or (None, None)
            dims[item.size] = torch.export.Dim(item.size, min=least, max=most)
        shapes[item.input] = {**(shapes[item.input] or {}), item.axis: dims[item.size]}
    return shapes


def _from_exported(name: str, exported: Any) -> LoadedModel:
    mod = from_exported_program(exported)
    if exported.example_inputs is None:
        raise ImportModelError(
            "the exported program came without example inputs; save it as torch.export.export "
            "returned it"
        )
    arguments, keywords = exported.example_inputs
    torch = sys.modules["torch"]
    # Inputs by name are the graph's in the order of the export, whatever that of the examples.
    order = exported.call_spec.in_spec.children()[1].context or ()
    by_name = {key: keywords[key] for key in order}
    # Inputs that are no tensors were fixed by the export; the graph doesn't take them.
    leaves = torch.utils._pytree.tree_leaves((arguments, by_name))
    inputs = [item.detach() for item in leaves if isinstance(item, torch.Tensor)]

    def reference() -> list[np.ndarray[Any, Any]]:
        with torch.no_grad():
            results = torch.utils._pytree.tree_leaves(exported.module()(*arguments, **keywords))
        return [
            (item.float() if item.dtype == torch.bfloat16 else item).numpy()
            for item in results
            if isinstance(item, torch.Tensor)
        ]

    return LoadedModel(name, mod, inputs, "main", reference)
