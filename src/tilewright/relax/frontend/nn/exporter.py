"""From a module's methods to graph functions: ``Module.export_tvm`` and ``Module.jit``.

forward(x, _io, k_cache, fc.weight, fc.bias) -> (result, (_io, k_cache))
        inputs, effects, parameters
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import IRModule, Pass, Var
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.execution.executable import build
from tilewright.relax.execution.virtual_machine import VirtualMachine
from tilewright.relax.expr import RelaxExpr, RelaxVar
from tilewright.relax.frontend.nn import spec as specs
from tilewright.relax.frontend.nn.effects import Effect, IOEffect
from tilewright.relax.frontend.nn.extern import ExternModule
from tilewright.relax.frontend.nn.tensor import Parameter, Tensor, unwrapped_result
from tilewright.relax.struct_info import (
    ObjectStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.relax.values import as_relax
from tilewright.runtime import Device, tensor
from tilewright.support.errors import VerifyError

_state = threading.local()


def current_exporter() -> Exporter:
    """Return the export that is running.

    Raises ``VerifyError`` if there is none.
    """
    found: Exporter | None = getattr(_state, "exporter", None)
    if found is None:
        raise VerifyError("no module is exported now: mod.export_tvm(spec)")
    return found


def add_extern(mod: ExternModule) -> None:
    """Add an external module to the export that is running.

    Raises ``VerifyError`` if there is none.
    """
    held = current_exporter().extern_modules
    if mod not in held:
        held.append(mod)


def io_effect() -> IOEffect:
    """Return what keeps prints in order.

    Raises ``VerifyError`` unless the export that is running has ``debug=True``.
    """
    effect = current_exporter().io
    if effect is None:
        raise VerifyError(
            "print_ and debug_func need an export with debug=True: mod.export_tvm(spec, debug=True)"
        )
    return effect


def export(module: Any, spec: Any, *, debug: bool, allow_extern: bool) -> Any:
    """Export a module; see ``Module.export_tvm``."""
    exporter = Exporter(debug)
    mod, params, extern_modules = exporter.build(specs.ModuleSpec.from_raw(spec, module))
    if allow_extern:
        return mod, params, extern_modules
    if extern_modules:
        raise VerifyError(
            "the model has external modules, which export_tvm returns with allow_extern=True"
        )
    return mod, params


class Exporter:
    """Builds a module of graph functions from a module's methods."""

    def __init__(self, debug: bool = False) -> None:
        self.io = IOEffect() if debug else None
        self.builder = BlockBuilder()
        self.extern_modules: list[ExternModule] = []

    def build(
        self, spec: specs.ModuleSpec
    ) -> tuple[IRModule, list[tuple[str, Parameter]], list[ExternModule]]:
        """Build a function for each method, and ``_initialize_effect`` if there are effects."""
        named = list(spec.module.named_parameters())
        effects: list[tuple[str, Effect]] = [] if self.io is None else [("_io", self.io)]
        effects += spec.module.named_effects()
        before = getattr(_state, "exporter", None)
        _state.exporter = self
        try:
            if effects:
                self._initialize(effects)
            for name, method in zip(spec.method_names, spec.method_specs):
                _Method(self.builder, name, method).build(named, effects)
        finally:
            _state.exporter = before
        return self.builder.get(), named, self.extern_modules

    def _initialize(self, effects: Sequence[tuple[str, Effect]]) -> None:
        with self.builder.function("_initialize_effect", []):
            with self.builder.dataflow():
                held = [v for name, e in effects for v in e.emit_init(name, self.builder)]
                output = self.builder.emit_output(as_relax(tuple(held)))
            self.builder.emit_func_output(output)


class _Method:
    """One method on its way to a graph function."""

    def __init__(self, builder: BlockBuilder, name: str, spec: specs.MethodSpec) -> None:
        self.builder, self.name, self.spec = builder, name, spec
        self.extents: dict[str, Var] = {}

    def build(
        self,
        named: Sequence[tuple[str, Parameter]],
        effects: Sequence[tuple[str, Effect]],
    ) -> None:
        inputs = [
            RelaxVar(name, self._info(item, name))
            for name, item in zip(self.spec.arg_names, self.spec.arg_specs)
        ]
        if self.spec.effect_mode == "none":
            effects = ()
        states = [var for name, effect in effects for var in effect.create(name)]
        weights = [
            RelaxVar(name, TensorStructInfo(self._shape(param.param_shape), param.param_dtype))
            for name, param in named
        ]
        taken = [
            *inputs,
            *_passed(self.spec.effect_mode, states, "packed_effects"),
        ]
        params = [*taken, *_passed(self.spec.param_mode, weights, "packed_params")]
        try:
            with self.builder.function(self.name, params, {"num_input": len(taken)}):
                with self.builder.dataflow():
                    self._unpack_effects(params, states, effects)
                    self._bind_weights(params, weights, named)
                    output = self.builder.emit_output(self._run(inputs, effects))
                self.builder.emit_func_output(output)
        finally:
            for _, param in named:
                param._bound = None
            for _, effect in effects:
                if getattr(effect, "_state", None) is not None:
                    effect.finalize()

    def _run(self, inputs: Sequence[RelaxVar], effects: Sequence[tuple[str, Effect]]) -> RelaxExpr:
        actual = {
            name: self._actual(item, var)
            for name, item, var in zip(self.spec.arg_names, self.spec.arg_specs, inputs)
        }
        result = unwrapped_result(_called(self.spec.method, actual), self.name)
        if not effects:
            return result
        held = [var for _, effect in effects for var in effect.finalize()]
        return as_relax((result, tuple(held)))

    def _unpack_effects(
        self,
        params: Sequence[RelaxVar],
        states: Sequence[RelaxVar],
        effects: Sequence[tuple[str, Effect]],
    ) -> None:
        if self.spec.effect_mode != "packed" or not states:
            return
        packed = next(param for param in params if param.name == "packed_effects")
        items = iter([self.builder.emit(packed[n], state.name) for n, state in enumerate(states)])
        for _, effect in effects:
            effect.set_state([next(items) for _ in effect.finalize()])

    def _bind_weights(
        self,
        params: Sequence[RelaxVar],
        weights: Sequence[RelaxVar],
        named: Sequence[tuple[str, Parameter]],
    ) -> None:
        mode = self.spec.param_mode
        for index, (var, (_, param)) in enumerate(zip(weights, named)):
            if mode == "plain":
                param._bound = var
            elif mode == "packed":
                param._bound = self.builder.emit(params[-1][index], var.name)

    def _shape(self, shape: Sequence[Any]) -> list[Any]:
        """Extents of one name are one variable in a function."""
        return [self._extent(item) if isinstance(item, (str, Var)) else item for item in shape]

    def _extent(self, item: str | Var) -> Var:
        name = item if isinstance(item, str) else item.name
        return self.extents.setdefault(name, Var(name))

    def _info(self, item: specs.ArgSpec, name: str) -> StructInfo:
        if isinstance(item, specs.Tensor):
            return TensorStructInfo(self._shape(item.shape), item.dtype)
        if isinstance(item, specs.Int):
            return ShapeStructInfo([self._extent(name)])
        if isinstance(item, specs.Object):
            return ObjectStructInfo()
        inner = (self._info(part, f"{name}_{n}") for n, part in enumerate(item.elements))
        return TupleStructInfo(tuple(inner))

    def _actual(self, item: specs.ArgSpec, var: RelaxVar) -> Any:
        """What the method gets for an argument."""
        if isinstance(item, specs.Int):
            return var.shape[0]
        if isinstance(item, specs.Object):
            return item.object_type(_expr=var, _name=var.name)
        if isinstance(item, specs.Tensor):
            return Tensor(var)
        parts = [self.builder.emit(var[n], f"{var.name}_{n}") for n in range(len(item.elements))]
        return tuple(self._actual(part, inner) for part, inner in zip(item.elements, parts))


def _passed(mode: str, variables: Sequence[RelaxVar], name: str) -> list[RelaxVar]:
    """The parameters of a function for some of its variables."""
    if mode == "plain":
        return list(variables)
    if mode == "none" or (name == "packed_effects" and not variables):
        return []
    return [RelaxVar(name, TupleStructInfo(tuple(var.struct_info for var in variables)))]


# ---- running ---------------------------------------------------------------------------------


def jit(
    module: Any,
    spec: Any,
    device: str | Device,
    pipeline: str | Pass | None,
    out_format: str,
    debug: bool,
) -> Any:
    """Compile a module; see ``Module.jit``."""
    if out_format not in ("torch", "raw"):
        raise VerifyError(f"out_format must be 'torch' or 'raw', got {out_format!r}")
    described = specs.ModuleSpec.from_raw(spec, module)
    mod, params, _ = export(module, described, debug=debug, allow_extern=True)
    missing = [name for name, param in params if param.data is None]
    if missing:
        raise VerifyError(f"the parameters {', '.join(missing)} have no data")
    place = Device(device) if isinstance(device, str) else device
    if pipeline in (None, "default_build"):
        pipeline = "default"  # what `build` does: the rest of default_build comes after it
    executable = build(mod, "cuda" if place.kind == "cuda" else None, relax_pipeline=pipeline)
    machine = VirtualMachine(executable, place)
    data = [tensor(param.data, device=place) for _, param in params]
    if out_format == "raw":
        return described, machine, data
    return CompiledModule(described, data, machine)


class CompiledModule:
    """A compiled module with its parameters and effects: ``model["forward"](x)``.

    It takes PyTorch's tensors (or others) and numbers, and gives PyTorch's tensors.
    """

    def __init__(self, spec: specs.ModuleSpec, params: Sequence[Any], vm: VirtualMachine) -> None:
        self.spec, self.params, self.vm = spec, list(params), vm
        self.effects = None
        if "_initialize_effect" in vm.executable.signatures:
            self.effects = vm["_initialize_effect"]()

    def __getitem__(self, method_name: str) -> Callable[..., Any]:
        """Return a method.

        Raises ``VerifyError`` if there is none of that name.
        """
        if method_name not in self.spec.method_names:
            raise VerifyError(
                f"no method {method_name!r}; there is {', '.join(self.spec.method_names)}"
            )
        spec = self.spec.method_specs[self.spec.method_names.index(method_name)]
        function = self.vm[method_name]

        def call(*args: object) -> Any:
            if len(args) != len(spec.arg_names):
                raise TypeError(
                    f"{method_name} takes {', '.join(spec.arg_names)}, got {len(args)} arguments"
                )
            params = _as_passed(spec.param_mode, self.params)
            if self.effects is None or spec.effect_mode == "none":
                return _as_torch(function(*args, *params))
            effects = _as_passed(spec.effect_mode, self.effects)
            result, self.effects = function(*args, *effects, *params)
            return _as_torch(result)

        return call


def _as_passed(mode: str, values: Sequence[Any]) -> list[Any]:
    return {"plain": list(values), "packed": [tuple(values)], "none": []}[mode]


def _as_torch(value: object) -> Any:
    import torch

    if isinstance(value, tuple):
        return tuple(map(_as_torch, value))
    if isinstance(value, torch.Tensor) or not hasattr(value, "__dlpack__"):
        return value
    return torch.from_dlpack(value)


def _called(method: Callable[..., Any], arguments: Mapping[str, object]) -> Any:
    """Call a method by its own names; by position if a specification has others."""
    parameters = inspect.signature(method).parameters
    known = [name for name in parameters if name in arguments]
    takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    if takes_any or known == list(arguments):
        return method(**arguments)
    return method(*arguments.values())
