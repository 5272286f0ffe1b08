"""``MODEL`` arguments: a ``.pt2`` file, or ``module:function`` that makes a model and inputs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilewright.ir import IRModule
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.torch import from_exported_program, load_exported_program
from tilewright.relax.transform import BindParams
from tilewright.support.errors import ImportModelError, MissingExtraError


@dataclass
class LoadedModel:
    """A model as a graph, example inputs, and how to compute its result independently (if known)."""

    name: str
    mod: IRModule
    inputs: list[Any]
    entry: str = "main"
    reference: Callable[[], list[np.ndarray[Any, Any]]] | None = None


def load_model(text: str) -> LoadedModel:
    """Load what a MODEL argument names; raise ``click.UsageError`` if it names nothing."""
    if text.endswith(".pt2"):
        path = Path(text)
        if not path.exists():
            raise click.UsageError(f"there is no file {text}")
        return _from_exported(path.stem, load_exported_program(path))
    module_name, colon, function_name = text.rpartition(":")
    if not colon:
        raise click.UsageError(
            f"MODEL is a .pt2 file or module:function (or file.py:function), got {text!r}"
        )
    function = getattr(_import(module_name), function_name, None)
    if not callable(function):
        raise click.UsageError(f"{module_name} has no function {function_name!r}")
    made = function()
    if not (isinstance(made, tuple) and len(made) == 2):
        raise ImportModelError(
            f"{text} must return (model, example inputs), it returned {type(made).__name__}"
        )
    model, inputs = made
    inputs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    return _from_object(function_name, model, inputs)


def _import(name: str) -> Any:
    if name.endswith(".py"):
        path = Path(name)
        if not path.exists():
            raise click.UsageError(f"there is no file {name}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, "")  # modules of the current folder, as `python -m` finds them
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"module {name!r} can't be imported: {error}") from None
    finally:
        sys.path.remove("")


def _from_object(name: str, model: Any, inputs: list[Any]) -> LoadedModel:
    if isinstance(model, IRModule):
        graphs = [key for key in model.functions if key in ("main", "forward")]
        return LoadedModel(name, model, inputs, graphs[0] if graphs else next(iter(model)))
    if isinstance(model, nn.Module):
        return _from_nn(name, model, inputs)
    torch = sys.modules.get("torch")  # whoever made a PyTorch model has imported it
    if torch is None:
        raise MissingExtraError("torch", "torch", f"a model of type {type(model).__name__}")
    if isinstance(model, torch.nn.Module):
        with torch.no_grad():
            exported = torch.export.export(model.eval(), tuple(inputs))
        return _from_exported(name, exported)
    if isinstance(model, torch.export.ExportedProgram):
        return _from_exported(name, model)
    raise ImportModelError(
        f"a {type(model).__name__} can't be imported; known are torch.nn.Module, "
        "torch.export.ExportedProgram, tilewright.relax.frontend.nn.Module and IRModule"
    )


def _from_nn(name: str, model: nn.Module, inputs: list[Any]) -> LoadedModel:
    arrays = [np.asarray(item) for item in inputs]
    spec = {
        f"x{n}": nn.spec.Tensor(array.shape, str(array.dtype)) for n, array in enumerate(arrays)
    }
    mod, parameters = model.export({"forward": spec})
    missing = [key for key, parameter in parameters if parameter.data is None]
    if missing:
        raise ImportModelError(f"the parameters {', '.join(missing)} have no data")
    mod = BindParams("forward", {key: p.data for key, p in parameters})(mod)
    return LoadedModel(name, mod, list(arrays), "forward")


def _from_exported(name: str, exported: Any) -> LoadedModel:
    mod = from_exported_program(exported)
    arguments, keywords = exported.example_inputs
    if keywords:
        raise ImportModelError("example inputs by keyword are not supported; pass them by position")
    inputs = [item.detach().numpy() for item in arguments]

    def reference() -> list[np.ndarray[Any, Any]]:
        result = exported.module()(*arguments)
        items = result if isinstance(result, (tuple, list)) else [result]
        return [item.detach().numpy() for item in items]

    return LoadedModel(name, mod, inputs, "main", reference)
