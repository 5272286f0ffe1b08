"""``MODEL`` arguments: a ``.pt2`` or ``.onnx`` file, or ``module:function`` that makes a model."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

from tilewright.ir import IRModule
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn.by_example import export_by_example
from tilewright.relax.frontend.onnx import from_onnx
from tilewright.relax.frontend.torch import from_exported_program, load_exported_program
from tilewright.relax.frontend.torch.calling import export_module
from tilewright.support.errors import ImportModelError, MissingExtraError, TilewrightError

logger = logging.getLogger("tilewright.cli")

MODEL_HELP = (
    "MODEL is an .onnx file, a .pt2 file that torch.export.save wrote, or module:function or "
    "file.py:function: a "
    "function without arguments that returns a model (torch.nn.Module, "
    "tilewright.relax.frontend.nn.Module or IRModule) and example inputs."
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


def load_model(text: str, shapes: Sequence[tuple[str, list[int]]] = ()) -> LoadedModel:
    """Load what a MODEL argument names; ``shapes`` are those of an ONNX model's inputs.

    Raises ``click.UsageError`` if it names nothing.
    """
    path = Path(text)
    if path.suffix == ".onnx":
        if not path.exists():
            raise click.UsageError(f"there is no file {text}")
        return LoadedModel(path.stem, from_onnx(path, dict(shapes)), None)
    if shapes:
        raise click.UsageError(f"--shape is for ONNX models; {text} has its shapes")
    if path.suffix == ".pt2":
        if not path.exists():
            raise click.UsageError(f"there is no file {text}")
        return _from_exported(path.stem, load_exported_program(path))
    module_name, colon, function_name = text.rpartition(":")
    if not (colon and module_name and function_name):
        hint = _HINTS.get(path.suffix, "")
        raise click.UsageError(
            "MODEL is an .onnx or .pt2 file, module:function or file.py:function, "
            f"got {text!r}" + (f": {hint.format(text)}" if hint else "")
        )
    # What the model's code prints must not get into our output.
    with redirect_stdout(sys.stderr):
        return _from_function(text, module_name, function_name)


def _from_function(text: str, module_name: str, function_name: str) -> LoadedModel:
    module = _import(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise click.UsageError(f"{module_name} has no function {function_name!r}")
    with _foreign_code(text):
        made = function()
    if not (isinstance(made, tuple) and len(made) == 2):
        raise ImportModelError(
            f"{text} must return (model, example inputs), it returned {type(made).__name__}"
        )
    model, inputs = made
    inputs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    return _from_object(function_name, model, inputs)


@contextmanager
def _foreign_code(what: str) -> Iterator[None]:
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
            with _foreign_code(f"module {name}"):
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
    with _foreign_code(name):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise click.UsageError(f"there is no module {name!r}") from None
        raise  # the module is there, what it imports isn't


def _from_object(name: str, model: object, inputs: list[object]) -> LoadedModel:
    if isinstance(model, IRModule):
        if not model.functions:
            raise ImportModelError(f"the module that {name} returns has no functions")
        graphs = [key for key in ("main", "forward") if key in model.functions]
        return LoadedModel(name, model, inputs, graphs[0] if graphs else next(iter(model)))
    if isinstance(model, nn.Module):
        with _foreign_code(f"{type(model).__name__}.forward"):
            mod, values = export_by_example(model, inputs)
        return LoadedModel(name, mod, values, "forward")
    torch = sys.modules.get("torch")  # whoever made a PyTorch model has imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        return _from_exported(name, export_module(model, inputs))
    if torch is not None and isinstance(model, torch.export.ExportedProgram):
        return _from_exported(name, model)
    raise ImportModelError(
        f"a {type(model).__name__} can't be imported; known are torch.nn.Module, "
        "torch.export.ExportedProgram, tilewright.relax.frontend.nn.Module and IRModule"
    )


def _from_exported(name: str, exported: Any) -> LoadedModel:
    mod = from_exported_program(exported)
    if exported.example_inputs is None:
        raise ImportModelError(
            "the exported program came without example inputs; save it as torch.export.export "
            "returned it"
        )
    arguments, keywords = exported.example_inputs
    if keywords:
        raise ImportModelError("example inputs by keyword are not supported; pass them by position")
    torch = sys.modules["torch"]
    # Inputs that are no tensors were fixed by the export; the graph doesn't take them.
    leaves = torch.utils._pytree.tree_leaves(arguments)
    inputs = [item.detach() for item in leaves if isinstance(item, torch.Tensor)]

    def reference() -> list[np.ndarray[Any, Any]]:
        with torch.no_grad():
            results = torch.utils._pytree.tree_leaves(exported.module()(*arguments))
        return [
            (item.float() if item.dtype == torch.bfloat16 else item).numpy()
            for item in results
            if isinstance(item, torch.Tensor)
        ]

    return LoadedModel(name, mod, inputs, "main", reference)
