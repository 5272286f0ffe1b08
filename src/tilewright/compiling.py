"""The front door: ``tilewright.compile`` of whatever holds a program.

It imports, tunes if asked to, applies a database, schedules the rest by rule and builds. Each of
these steps is a function of its own elsewhere; nothing is done here that can't be done by hand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright import driver
from tilewright.driver.build import TargetLike, as_module, resolve_target
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import Database, MemoryDatabase, is_url, open_place
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.meta_schedule.sizes import Symbols, symbols_within
from tilewright.meta_schedule.tir_integration import tune_tir
from tilewright.relax import Executable, Function, build
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn.by_example import export_by_example
from tilewright.relax.frontend.onnx import from_onnx, load_model
from tilewright.relax.frontend.torch.calling import Calling, export_module
from tilewright.relax.frontend.torch.exported import load_exported_program
from tilewright.relax.frontend.torch.importer import functional_to_compile, import_to_compile
from tilewright.relax.frontend.torch.symbols import bounds_of_sizes
from tilewright.relax.pipeline import Pipeline, run_pipeline
from tilewright.relax.tuning.models import compile_relax, sizes_in, tune_relax
from tilewright.runtime import Module
from tilewright.support.collector import few_collections
from tilewright.support.errors import BuildError
from tilewright.support.text import seconds_in
from tilewright.target import Target
from tilewright.tir import PrimFunc


class CompiledModel(Executable):
    """A compiled PyTorch model: called as the model is, inputs and results nested alike.

    Results are PyTorch's tensors if the first tensor among the inputs is one. Everything else is an
    ``Executable``'s; ``self["main"]`` takes and gives flat tensors.
    """

    def __init__(self, executable: Executable, calling: Calling) -> None:
        super().__init__(
            executable.module,
            list(executable.signatures.values()),
            executable.target,
            planned=executable._planned,
        )
        self._calling = calling
        # What a model is called with has been put in order when the graph is called.
        self._run = self["main"].by_position

    def __reduce__(self) -> tuple[object, ...]:
        plain = Executable(self.module, list(self.signatures.values()), self.target)
        return type(self), (plain, self._calling)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Raises ``RunError`` for inputs of another structure than those that it was compiled for;
        wrong types and shapes are ``TypeError`` and ``ValueError``, which name the input.
        """
        return self._calling(self._run, args, kwargs)


@few_collections()
def compile(
    mod: Any,
    target: TargetLike = None,
    *,
    relax_pipeline: Pipeline = "default",
    tir_pipeline: Pipeline = "default",
    name: str | None = None,
    example_inputs: object = None,
    dynamic_shapes: object = None,
    database: Database | str | os.PathLike[str] | None = None,
    tune: int | str | None = None,
    adapt: str = "never",
    symbols: Symbols | None = None,
) -> Any:
    """Compile a program for a target, the native CPU if none is given or active.

    ``mod`` is one of:

    - a ``PrimFunc`` or an ``IRModule`` of them: gives a ``Module``. They are compiled as they are
      scheduled, unless ``database`` or ``tune`` is given. ``name`` names a single function;
    - a graph, ``relax.Function`` or ``IRModule``: gives an ``Executable``;
    - a ``torch.nn.Module`` with ``example_inputs`` (a tensor, a tuple, or a dict by name), and
      ``dynamic_shapes`` as ``torch.export.export`` takes them, an ``ExportedProgram``, or the path
      of a ``.pt2`` file: gives a ``CompiledModel``, which is called as the model is;
    - an ONNX model, ``onnx.ModelProto`` or the path of an ``.onnx`` file: gives an ``Executable``.
      Its inputs have the shapes of ``example_inputs`` (arrays in order, or by name), if given;
    - a ``relax.frontend.nn.Module`` whose parameters have data, with ``example_inputs``: gives an
      ``Executable`` with the function ``forward``.

    ``database`` holds tuned schedules: a ``Database``, or the folder or URL of one. ``tune`` is a
    budget for tuning into it first: a number of trials, or a time such as ``"90s"``, ``"10min"`` or
    ``"1h"``. What has no record is scheduled by rule, unless ``adapt`` says that records of other
    shapes and fusions may be adapted, see ``MetaScheduleApplyDatabase``.

    ``symbols`` are the sizes, by name, that symbolic ones are tuned at; one may have several values
    (``{"n": [1, 16, 128]}``) and gets schedules for ranges. Without, those with bounds, such as
    ``torch.export.Dim("n", max=128)``, are tuned at values between these.

    ``relax_pipeline`` and ``tir_pipeline`` are passes to run instead of the default ones, as
    ``relax.build`` takes them; the latter also for tensor functions, before they are lowered.

    Raises ``BuildError`` for anything else and for arguments that don't belong together,
    ``ImportModelError`` for models that can't be imported.
    """
    program, resolved = mod, resolve_target(target)
    budget = _budget(tune)
    opened = _opened(database, tuned=tune is not None)
    if symbols is not None and budget is None:
        raise BuildError("symbols= says what is tuned at which sizes: give a budget by tune= too")
    if budget is not None:
        budget["symbols"] = symbols
    if opened is None and adapt != "never":
        raise BuildError("adapt= needs records: give a database= too")
    calling = None
    if isinstance(program, (str, os.PathLike)):
        program = _loaded(program)
    exported = _exported(program, example_inputs, dynamic_shapes)
    if exported is not None:
        exported = functional_to_compile(exported)
        program, cuts = import_to_compile(exported)
        calling = Calling(exported, cuts)
    elif _is_onnx(program):
        program = _imported(program, example_inputs)
    elif isinstance(program, nn.Module):
        args, kwargs = _by_position_and_name(() if example_inputs is None else example_inputs)
        program, _ = export_by_example(program, args, kwargs)
    elif example_inputs is not None:
        raise BuildError(f"a {type(program).__name__} takes no example_inputs: models do")
    if budget is not None and exported is not None and symbols is None:
        bounds, here = bounds_of_sizes(exported), sizes_in(program)
        bounds = {name: bounds[name] for name in bounds if name in here}
        budget["symbols"] = symbols_within(bounds) or None
    if isinstance(program, Function):
        program = IRModule.from_expr(program) if name is None else IRModule({name: program})
    elif name is not None and not isinstance(program, PrimFunc):
        raise BuildError("name= is for a single function")
    if isinstance(program, IRModule) and any(
        isinstance(function, Function) for function in program.functions.values()
    ):
        if opened is None:
            made = build(
                program, resolved, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline
            )
        elif (relax_pipeline, tir_pipeline) != ("default", "default"):
            raise BuildError("relax_pipeline= and tir_pipeline= go without database= and tune=")
        else:
            made = _graph(program, resolved, opened, budget, adapt)
        return made if calling is None else CompiledModel(made, calling)
    if relax_pipeline != "default":
        raise BuildError("relax_pipeline= is for graphs; tensor functions have tir_pipeline=")
    made_mod = as_module(program, name)
    if tir_pipeline != "default":
        made_mod = run_pipeline(made_mod, tir_pipeline, resolved)
    return _functions(made_mod, resolved, opened, budget, adapt)


def _functions(
    mod: IRModule,
    target: Target,
    database: Database | None,
    budget: dict[str, Any] | None,
    adapt: str,
) -> Module:
    """Compile tensor functions."""
    if budget is not None:
        tune_tir(mod, target, database=database or "memory", **budget)
    if database is not None:
        mod = MetaScheduleApplyDatabase(database=database, target=target, adapt=adapt)(mod)
    return driver.compile(mod, target)


def _graph(
    mod: IRModule,
    target: Target,
    database: Database,
    budget: dict[str, Any] | None,
    adapt: str,
) -> Executable:
    """Compile graphs with what a database has."""
    if budget is not None:
        tune_relax(mod, None, target, None, database=database, **budget)
    return compile_relax(database, mod, target, adapt=adapt)


# ---- arguments ------------------------------------------------------------------------------


def _budget(tune: int | str | None) -> dict[str, Any] | None:
    """Return the budget as arguments of ``tune_tasks``."""
    if tune is None:
        return None
    if type(tune) is int and tune >= 0:
        return {"max_trials_global": tune}
    seconds = seconds_in(tune) if isinstance(tune, str) else None
    if seconds is None:
        raise BuildError(
            f"tune is a number of trials or a time such as '90s', '10min', '1h', got {tune!r}"
        )
    return {"time_budget": seconds}


def _opened(database: Database | str | os.PathLike[str] | None, *, tuned: bool) -> Database | None:
    """Return the database: the one given, that of a folder or URL, or one in memory to tune into.

    Raises ``BuildError`` if there is no such folder and nothing will be tuned into it.
    """
    if database is None:
        return MemoryDatabase() if tuned else None
    if isinstance(database, Database):
        return database
    if not isinstance(database, (str, os.PathLike)):
        raise BuildError(
            f"database is a Database, or the folder or URL of one, got {type(database).__name__}"
        )
    if not (tuned or is_url(database) or Path(database).is_dir()):
        raise BuildError(f"there is no database folder {os.fspath(database)!r}")
    return open_place(database, allow_missing=tuned or not is_url(database))


def _loaded(path: str | os.PathLike[str]) -> object:
    """Load a model's file; an ONNX file is left to its importer, which looks beside it."""
    suffix = Path(path).suffix
    if suffix == ".onnx":
        return Path(path)
    if suffix != ".pt2":
        raise BuildError(
            f"{os.fspath(path)!r} is no model file that can be compiled: known are .onnx, and "
            ".pt2, which torch.export.save writes"
        )
    return load_exported_program(Path(path))


def _is_onnx(program: object) -> bool:
    onnx = sys.modules.get("onnx")  # whoever has an ONNX model has imported it
    return isinstance(program, Path) or (onnx is not None and isinstance(program, onnx.ModelProto))


def _imported(program: Any, example_inputs: Any) -> IRModule:
    """Import an ONNX model, with the shapes of example inputs."""
    if example_inputs is None:
        return from_onnx(program)
    proto = load_model(program) if isinstance(program, Path) else program
    args, named = _by_position_and_name(example_inputs)
    held = {item.name for item in proto.graph.initializer}
    names = [item.name for item in proto.graph.input if item.name not in held]
    if len(args) > len(names):
        raise BuildError(f"the model has {len(names)} inputs, {len(args)} examples were given")
    examples = {**dict(zip(names, args)), **named}
    return from_onnx(program, {name: list(value.shape) for name, value in examples.items()})


def _exported(program: object, example_inputs: object, dynamic_shapes: object) -> Any:
    """Return a PyTorch model as an exported program; ``None`` for anything else."""
    torch = sys.modules.get("torch")  # whoever has a PyTorch model has imported it
    if torch is not None and isinstance(program, torch.nn.Module):
        if example_inputs is None:
            raise BuildError(
                f"compiling the model {type(program).__name__} needs example_inputs: a tensor, a "
                "tuple, or a dict by name"
            )
        args, kwargs = _by_position_and_name(example_inputs)
        return export_module(program, args, kwargs, dynamic_shapes)
    if dynamic_shapes is not None:
        raise BuildError("dynamic_shapes= is for a torch.nn.Module that is exported here")
    if torch is not None and isinstance(program, torch.export.ExportedProgram):
        if example_inputs is not None:
            raise BuildError("an exported program has its inputs; example_inputs= has no effect")
        return program
    return None


def _by_position_and_name(example_inputs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), {}
    return (example_inputs,), {}
