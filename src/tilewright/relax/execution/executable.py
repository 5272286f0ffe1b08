"""``relax.build`` and its result, the executable.

A compiled graph is one native function per graph function; calling it allocates the results and
makes one call. ``VirtualMachine`` has TVM's interface to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import runtime
from tilewright.dlight import default_schedule
from tilewright.driver import compile as compile_module
from tilewright.driver import resolve_target
from tilewright.ir import IRModule
from tilewright.relax.analysis import has_operators, verify_graph
from tilewright.relax.execution.executable_text import instructions, statistics
from tilewright.relax.execution.graph_cache import (
    GraphKey,
    Later,
    find,
    keep,
    materialize_all,
    recipes_of,
)
from tilewright.relax.execution.graph_call import (
    GraphFunction,
    GraphSignature,
    SizeCheck,
    TensorSpec,
    is_size_name,
)
from tilewright.relax.execution.graph_signature import graph_signature
from tilewright.relax.execution.objects import lower_objects, object_places
from tilewright.relax.expr import ConstantData, Function
from tilewright.relax.overwriting import Places, overwritable_parameters
from tilewright.relax.pipeline import Pipeline, run_pipeline, scheduled_by_rule
from tilewright.relax.struct_info import (
    FuncStructInfo,
)
from tilewright.relax.transform import BindParams, FlattenTupleParams, InlineFunctions, LowerGraph
from tilewright.relax.transform.flatten_tuple_params import nesting
from tilewright.runtime import (
    BaseModule,
    LibraryModule,
    Module,
    from_dlpack,
    stored_checksum,
)
from tilewright.runtime.beside import (
    beside_path,
    check_beside,
    read_beside,
    statistics_in,
    write_beside,
)
from tilewright.runtime.executable import FCompile
from tilewright.support.calling import other_names
from tilewright.support.collector import few_collections
from tilewright.support.errors import BuildError, RunError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CONSTANTS


class Executable(runtime.Executable):
    """A compiled graph: native code, constants included, and the signatures of its functions.

    Without ``signatures`` they are those beside the library, which ``load_module`` has loaded.
    """

    def __init__(
        self,
        mod: BaseModule,
        signatures: Sequence[GraphSignature] | None = None,
        target: str = "",
        *,
        planned: IRModule | Later | None = None,
        statistics: str | None = None,
    ) -> None:
        super().__init__(mod)
        if signatures is None:
            signatures, target, statistics = _described_beside(mod)
        self.module = mod
        self.signatures = {signature.name: signature for signature in signatures}
        self.target = target
        self._planned = planned
        self._statistics = statistics
        self._functions: dict[str, GraphFunction] = {}

    def __reduce__(self) -> tuple[object, ...]:
        signatures = list(self.signatures.values())
        known = self._known_statistics()
        return partial(type(self), statistics=known), (self.module, signatures, self.target)

    @property
    def overwritable(self) -> dict[str, Places]:
        """Which results of each function ``run_into`` may put in the memory of an input."""
        return {name: signature.overwritable for name, signature in self.signatures.items()}

    @property
    def planned(self) -> IRModule | None:
        """The graph as calls of kernels; not of an executable that was loaded or pickled."""
        if isinstance(self._planned, Later):
            self._planned, _ = self._planned.modules()
        return self._planned

    @property
    def device_kind(self) -> str:
        """Where inputs and results are: ``cpu`` or ``cuda``."""
        return Target(self.target).device_kind if self.target else "cpu"

    def __getitem__(self, name: str) -> GraphFunction:
        """Return a graph function."""
        found = self._functions.get(name)
        if found is None:
            if name not in self.signatures:
                raise RunError(
                    f"no graph function {name!r}; there is {', '.join(self.signatures) or 'none'}"
                )
            found = GraphFunction(self.signatures[name], self.module[name], self.device_kind)
            self._functions[name] = found
        return found

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run ``main``, or the only function; inputs may be given by name."""
        name = "main" if "main" in self.signatures else next(iter(self.signatures))
        return self[name](*inputs, **named)

    def jit(
        self,
        *,
        fcompile: FCompile | None = None,
        addons: Sequence[str] | None = None,
        force_recompile: bool = False,
        **kwargs: Any,
    ) -> Executable:
        """Return the executable, or one whose module was linked as the options say.

        Raises ``BuildError`` as ``export_library`` does.
        """
        module = self.module.jit(
            fcompile=fcompile, addons=addons, force_recompile=force_recompile, **kwargs
        )
        if module is self.module:
            return self
        signatures = list(self.signatures.values())
        return Executable(
            module,
            signatures,
            self.target,
            planned=self._planned,
            statistics=self._statistics,
        )

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        *,
        fcompile: FCompile | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Path:
        """Write a shared library with code and constants, and the signatures beside it (.json).

        With the suffix ``.tar`` it is one file that holds both.

        Any tvm-ffi host can load the library: ``main(*inputs, *outputs)``.
        ``tilewright.relax.load_executable`` reads both. See ``Module.export_library`` for options.

        Raises ``BuildError`` for an executable that was loaded.
        """
        if not isinstance(self.module, Module):
            raise BuildError("a loaded executable can't be exported again; copy its files")
        written = self.module.export_library(
            file_name, fcompile=fcompile, addons=addons, workspace_dir=workspace_dir, **kwargs
        )
        data = {
            "target": self.target,
            "functions": [asdict(signature) for signature in self.signatures.values()],
            "statistics": self._known_statistics(),
        }
        write_beside(written, data, stored_checksum(written))
        return written

    def stats(self) -> str:
        """Describe constants, calls of kernels, and memory.

        Raises ``RunError`` for a library that says nothing of it: of an earlier version.
        """
        known = self._known_statistics()
        if known is None:
            raise RunError("the library was exported without statistics: export the model again")
        return known

    def _known_statistics(self) -> str | None:
        if self._statistics is None and self.planned is not None:
            self._statistics = statistics(self.planned)
        return self._statistics

    def as_text(self) -> str:
        """Write the graph functions as they run: calls of kernels, in planned memory.

        Raises ``RunError`` for an executable that was loaded or pickled, as the next one does.
        """
        return instructions(self._graph())

    def as_python(self) -> str:
        """Write graph functions and kernels as a program in TVMScript."""
        return self._graph().script()

    def _graph(self) -> IRModule:
        if self.planned is None:
            raise RunError(
                "what an executable runs is known where relax.build made it, not after it was "
                "loaded or pickled: build the model again"
            )
        return self.planned

    def __repr__(self) -> str:
        return f"<Executable of {', '.join(self.signatures)} for {self.target}>"


def load_executable(path: str | os.PathLike[str]) -> Executable:
    """Load what ``Executable.export_library`` wrote.

    Raises ``BuildError`` if the files are missing, damaged or of another format, before any code
    of the library runs.
    """
    path = Path(path)
    data, signatures = _signatures_beside(path)
    statistics = statistics_in(path, data)
    library = LibraryModule(path, accept=partial(check_beside, path, data))
    return Executable(library, signatures, data.get("target", ""), statistics=statistics)


def _described_beside(library: BaseModule) -> tuple[list[GraphSignature], str, str | None]:
    """Read the signatures, target and statistics that were written beside a library."""
    if not isinstance(library, LibraryModule):
        raise BuildError(
            "only a library that an executable was exported to says which graph functions it has: "
            f"{library!r} doesn't; relax.build makes executables"
        )
    data, signatures = _signatures_beside(library.path)
    check_beside(library.path, data, library.checksum or b"")
    return signatures, data.get("target", ""), statistics_in(library.path, data)


def _signatures_beside(path: Path) -> tuple[dict[str, Any], list[GraphSignature]]:
    """Read what was written beside a library; ``BuildError`` if it is missing or damaged."""
    beside, data = beside_path(path), read_beside(path)
    try:
        signatures = [
            GraphSignature(
                item["name"],
                tuple(_spec(spec) for spec in item["inputs"]),
                tuple(_spec(spec) for spec in item["outputs"]),
                _structure(item["structure"]),
                tuple(_symbol(item["inputs"], *symbol) for symbol in item["symbols"]),
                tuple(map(_check, item.get("checks", ()))),
                tuple((str(name), _structure(inner)) for name, inner in item.get("parameters", ())),
                _objects(item),
                _overwritable(item),
            )
            for item in data["functions"]
        ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BuildError(f"{beside} is damaged: {type(error).__name__}: {error}") from None
    return data, signatures


def _spec(item: dict[str, Any]) -> TensorSpec:
    for extent in item["shape"]:
        if not isinstance(extent, int) and not _is_formula(extent):
            raise BuildError(f"extent {extent!r} of {item['name']} is no number or formula")
    return TensorSpec(item["name"], tuple(item["shape"]), item["dtype"])


def _symbol(
    inputs: Sequence[dict[str, Any]], name: str, argument: int, axis: int
) -> tuple[str, int, int]:
    if not is_size_name(name):
        raise ValueError(f"{name!r} is no name of an extent")
    if argument not in range(len(inputs)) or axis not in range(-1, len(inputs[argument]["shape"])):
        raise ValueError(f"there is no axis {axis!r} of argument {argument!r}")
    return name, argument, axis


def _objects(item: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    taken, given = item.get("objects", ((), ()))
    return tuple(map(int, taken)), tuple(map(int, given))


def _overwritable(item: dict[str, Any]) -> Places:
    pairs = tuple((int(source), int(result)) for source, result in item.get("overwritable", ()))
    for source, result in pairs:
        if source not in range(len(item["inputs"])) or result not in range(len(item["outputs"])):
            raise ValueError(f"there is no input {source} or no result {result}")
    return pairs


def _check(item: dict[str, Any]) -> SizeCheck:
    formulas = item["condition"], *item["values"]
    if not all(map(_is_formula, formulas)):
        raise ValueError(f"{formulas} are no formulas")
    return SizeCheck(item["condition"], str(item["message"]), tuple(item["values"]))


_FORMULA = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-*/%(), <>=!")


def _is_formula(text: object) -> bool:
    """Whether a text is only arithmetic over names: formulas from files are evaluated."""
    if not isinstance(text, str) or not set(text) <= _FORMULA:
        return False
    return "__" not in text and "**" not in text  # powers may be endless


def _structure(item: Any) -> Any:
    return None if item is None else tuple(_structure(inner) for inner in item)


# ---- building --------------------------------------------------------------------------------


@other_names(pipeline="relax_pipeline", schedule="tir_pipeline")
@few_collections()
def build(
    mod: IRModule | Function,
    target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: Pipeline = "default",
    tir_pipeline: Pipeline = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> Executable:
    """Compile a graph.

    ``params`` are bound to parameters of ``main`` by name. ``relax_pipeline`` turns operators into
    fused tensor functions: ``"default"`` is ``"zero"`` unless there are no operators left.
    ``tir_pipeline`` schedules functions without a schedule: ``"default"`` by rules, ``None`` not at
    all. Both may be passes. Each graph function becomes one native function, in either of TVM's
    ``exec_mode``s, ``"bytecode"`` and ``"compiled"``.

    Raises ``BuildError`` if the module has no graph function, for another ``exec_mode``, and for
    ``system_lib``.
    """
    if exec_mode not in ("bytecode", "compiled"):
        raise BuildError(f"exec_mode is 'bytecode' or 'compiled', got {exec_mode!r}")
    if system_lib:
        raise BuildError("there are no system libraries: write a library by export_library(path)")
    resolved = resolve_target(target)
    mod = _prepared(IRModule.from_expr(mod) if isinstance(mod, Function) else mod, params)
    parameters, objects = _parameters(mod), _object_places(mod)
    mod = FlattenTupleParams()(lower_objects(mod))
    if relax_pipeline == "default":
        # A graph of tensor functions stays as it is: fusing again would undo what was tuned.
        relax_pipeline = "zero" if any(map(has_operators, mod.functions.values())) else None
    mod = run_pipeline(mod, relax_pipeline, resolved)
    by_rule = tir_pipeline == "default"
    if not by_rule:
        mod = run_pipeline(mod, tir_pipeline, resolved)
    signatures = [
        replace(
            graph_signature(name, function, parameters.get(name, ())),
            objects=objects.get(name, ((), ())),
        )
        for name, function in mod.functions.items()
        if isinstance(function, Function)
        and not function.is_primitive
        and not function.is_partition
    ]
    if not signatures:
        raise BuildError("the module has no graph function; build tensor functions by compile")
    return _compiled(mod, signatures, resolved, by_rule=by_rule)


def _prepared(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    """The graph with its parameters bound, without functions that are parts of others."""
    if params:
        mod = BindParams("main", params)(mod)
    verify_graph(mod)
    # What patterns cut out, and no code generator took, is compiled in the functions it came from.
    return InlineFunctions()(mod).map_functions(
        lambda _, function: (
            None if function.is_partition or _takes_functions(function) else function
        ),
        Function,
    )


def _takes_functions(function: Function) -> bool:
    """Whether the function is only a part of those that call it."""
    return any(isinstance(param.struct_info, FuncStructInfo) for param in function.params)


def _parameters(mod: IRModule) -> dict[str, tuple[tuple[str, Any], ...]]:
    """Name and nesting of each parameter, of functions of which any parameter is a tuple."""
    found = {}
    for name, function in mod.functions.items():
        if isinstance(function, Function) and not function.is_primitive:
            made = tuple((param.name, nesting(param.struct_info)) for param in function.params)
            if any(item is not None for _, item in made):
                found[name] = made
    return found


def _object_places(mod: IRModule) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Where objects are in the parameters and in the result of each function."""
    return {
        name: (
            object_places([param.struct_info for param in function.params]),
            object_places([function.body.struct_info]),
        )
        for name, function in mod.functions.items()
        if isinstance(function, Function)
    }


def _compiled(
    mod: IRModule, signatures: Sequence[GraphSignature], target: Target, *, by_rule: bool
) -> Executable:
    """Compile a graph, or find it compiled: scheduled ``by_rule`` only, on CPUs."""
    lower = partial(_lowered, target=target, by_rule=by_rule)
    # Kernels are found by their text (``codegen.cuda.nvrtc``).
    key = GraphKey(mod, target) if by_rule and target.kind == "llvm" else None
    found = None if key is None else find(key, lower)
    if found is not None:
        module, later, places, described = found
        return Executable(
            module,
            _with_places(signatures, places),
            str(target),
            planned=later,
            statistics=described,
        )
    planned, lowered = lower(mod)
    constants = lowered.attrs.get(CONSTANTS, {})
    recipes = None if key is None else recipes_of(key, constants)
    materialize_all(data for data in constants.values() if isinstance(data, ConstantData))
    module = compile_module(lowered, target)
    names = {signature.name for signature in signatures}
    places = {
        name: overwritable_parameters(planned, function)
        for name, function in planned.functions.items()
        if isinstance(function, Function) and name in names
    }
    if key is not None and recipes is not None:
        keep(key, recipes, module, places, statistics(planned))
    return Executable(module, _with_places(signatures, places), str(target), planned=planned)


def _with_places(
    signatures: Sequence[GraphSignature], places: Mapping[str, Places]
) -> list[GraphSignature]:
    """Signatures that say which results may lie where an input does."""
    return [replace(item, overwritable=places.get(item.name, ())) for item in signatures]


def _lowered(mod: IRModule, *, target: Target, by_rule: bool) -> tuple[IRModule, IRModule]:
    """Schedule, plan and lower a graph: the planned module and the one to compile."""
    scheduled = scheduled_by_rule(target)(mod) if by_rule else mod
    planned = run_pipeline(scheduled, "plan_memory", target)
    if by_rule:
        # Copies that planning added.
        planned = default_schedule(target)(planned)
    lowered = LowerGraph()(planned)
    if not all(isinstance(function, PrimFunc) for function in lowered.functions.values()):
        lowered = lowered.map_functions(
            lambda _, function: None if isinstance(function, Function) else function
        )
    return planned, lowered


def as_numpy(value: object) -> Any:
    """Convert results to NumPy arrays, keeping the nesting."""
    if isinstance(value, tuple):
        return tuple(as_numpy(item) for item in value)
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    return from_dlpack(value).numpy()  # NumPy alone doesn't know PyTorch's bfloat16
