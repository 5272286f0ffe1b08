"""From a ``torch.export`` program to a graph function: the walk over its nodes.

The graph is imported as exported: ``linear``, ``layer_norm`` or attention stay whole where there is
a converter; PyTorch first decomposes only operators without one. Programs that write into tensors
are made functional. Each converted node's shape and dtype are checked against what PyTorch
recorded, so a wrong conversion is an error here and not a wrong number later.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilewright.ir import IRModule
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    DataflowVar,
    RelaxExpr,
    RelaxVar,
    Tuple,
    TupleGetItem,
    const,
)
from tilewright.relax.frontend.torch.converters import CONVERTERS, Context, Converter, dtype_name
from tilewright.relax.frontend.torch.exported import (
    functionalize,
    location,
    require_torch,
    take_apart,
    to_numpy,
)
from tilewright.relax.frontend.torch.symbols import SymbolTable
from tilewright.relax.struct_info import (
    TensorStructInfo,
    TupleStructInfo,
    defined_vars,
    prove_different,
    used_vars,
)
from tilewright.support.errors import ImportModelError, VerifyError

if TYPE_CHECKING:
    import torch

# Nodes that only state facts about sizes: exporting has checked them.
_STATEMENTS = frozenset(
    "aten._assert_async.msg aten._assert_scalar.default aten._assert_tensor_metadata.default "
    "aten.sym_constrain_range.default aten.sym_constrain_range_for_size.default".split()
)
# Keyword arguments that say nothing of the numbers.
_IRRELEVANT = frozenset(
    "layout device pin_memory non_blocking memory_format requires_grad generator copy".split()
)


def from_exported_program(
    exported_program: torch.export.ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Converter] | None = None,
) -> Any:
    """Import a ``torch.export.ExportedProgram`` as a module with the function ``main``.

    ``main`` takes the user inputs that are tensors (inputs fixed by the export, such as ``None`` or
    a number, are dropped) and returns a flat tuple of the outputs, with symbolic sizes as
    0-dimensional int64 tensors; with ``unwrap_unit_return_tuple`` a single output is returned by
    itself. Parameters and buffers are constants. With ``keep_params_as_input`` they follow the user
    inputs as parameters instead, and ``(module, {name: array})`` is returned, the names those of
    the parameters of ``main``.

    ``custom_convert_map`` adds or replaces converters by operator, such as
    ``{"mylib.scale.default": convert}``; ``register_converter`` does so for all imports.

        exported = torch.export.export(model.eval(), (torch.randn(1, 3, 224, 224),))
        mod = from_exported_program(exported)

    Raises ``ImportModelError`` for anything else, and for an unsupported operator.
    """
    torch = require_torch()
    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise ImportModelError(
            f"expected a torch.export.ExportedProgram, got {type(exported_program).__name__}; "
            "make one with torch.export.export(model.eval(), example_inputs)"
        )
    custom = dict(custom_convert_map or {})
    fold_params = not keep_params_as_input
    program = functionalize(exported_program)
    program = take_apart(
        program, lambda candidate: _Support(candidate, custom, fold_params).missing_targets()
    )
    support = _Support(program, custom, fold_params)
    support.require()
    importer = _Importer(program, support, keep_params_as_input, unwrap_unit_return_tuple)
    mod = importer.run()
    return (mod, importer.params) if keep_params_as_input else mod


def _key(target: object) -> str:
    """Name of an operator's overload: ``aten.add.Tensor``."""
    return str(target)


class _Support:
    """Which nodes of a program can be converted, and how."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        custom: Mapping[str, Converter],
        fold_params: bool,
    ) -> None:
        self.custom = custom
        self.static: dict[Any, Any] = {}
        """Nodes whose tensors are known now, with them: lifted constants and what follows."""
        self.missing: list[Any] = []
        self._torch = require_torch()
        self._lift(program, fold_params)
        for node in program.graph.nodes:
            if node.op == "call_function" and not self._is_supported(node):
                self.missing.append(node)

    def converter(self, node: torch.fx.Node) -> Converter | None:
        """The converter of a node's operator, if there is one."""
        key = _key(node.target)
        if key in self.custom:
            return self.custom[key]
        return CONVERTERS.get(key) if key in CONVERTERS else None

    def missing_targets(self) -> list[Any]:
        """Operators without a converter, without duplicates."""
        return list(dict.fromkeys(node.target for node in self.missing))

    def require(self) -> None:
        """Raise an error that names all operators without a converter."""
        if not self.missing:
            return
        lines = []
        for target in self.missing_targets():
            nodes = [node for node in self.missing if node.target is target]
            more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
            lines.append(f"  {_key(target)}: {location(nodes[0])}{more}")
            close = _near(_key(target), [*self.custom, *CONVERTERS])
            if close:
                lines.append(f"    near: {', '.join(close)}")
        raise ImportModelError(
            f"the model uses {len(self.missing_targets())} operator(s) that the PyTorch importer "
            "doesn't know:\n" + "\n".join(lines) + "\n"
            "Give converters for them with custom_convert_map={name: converter} or "
            "tilewright.relax.frontend.torch.register_converter(name)."
        )

    # ---- constants ------------------------------------------------------------------------------

    def _lift(self, program: torch.export.ExportedProgram, fold_params: bool) -> None:
        tensors = _lifted_tensors(program)
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in tensors:
                kind, tensor = tensors[node.name]
                if fold_params or kind == "constant":
                    self.static[node] = tensor

    def _is_supported(self, node: torch.fx.Node) -> bool:
        if node.target is operator.getitem or _is_scalar(self._torch, node.meta.get("val")):
            return True
        if _key(node.target) in _STATEMENTS:
            return True
        if self.converter(node) is not None:
            return True
        return self._evaluate(node)

    def _evaluate(self, node: torch.fx.Node) -> bool:
        """Let PyTorch compute, once, an operator on constants that has no converter."""
        if not isinstance(node.target, self._torch._ops.OpOverload):
            return False
        if self._torch.Tag.nondeterministic_seeded in node.target.tags:
            return False
        sources = node.all_input_nodes
        if any(source not in self.static for source in sources):
            return False
        args, kwargs = self._torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda source: self.static[source]
        )
        with self._torch.no_grad():
            value = node.target(*args, **kwargs)
        if not isinstance(value, self._torch.Tensor):
            return False
        self.static[node] = value
        return True


def _near(name: str, known: list[str]) -> list[str]:
    """Operators with a middle component (``softmax`` of ``aten.softmax.int``) like a name's."""
    by_stem: dict[str, list[str]] = {}
    for item in known:
        by_stem.setdefault(_stem(item), []).append(item)
    close = difflib.get_close_matches(_stem(name), list(by_stem), n=2, cutoff=0.75)
    return [item for stem in close for item in by_stem[stem]][:4]


def _stem(name: str) -> str:
    return name.split(".")[1] if name.count(".") > 1 else name


def _is_scalar(torch: ModuleType, value: object) -> bool:
    """Whether a node's value is a number or a symbolic size, which needs no conversion."""
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymBool, torch.SymFloat))


def _lifted_tensors(program: torch.export.ExportedProgram) -> dict[str, tuple[str, Any]]:
    """Placeholders of the model's tensors: ``(kind, tensor)`` by placeholder name."""
    found = {}
    kinds = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant"}
    for spec in program.graph_signature.input_specs:
        kind = kinds.get(spec.kind.name)
        if kind is None:
            continue
        store = program.state_dict if spec.target in program.state_dict else program.constants
        if spec.target not in store:
            raise ImportModelError(f"the program holds no tensor for the {kind} {spec.target!r}")
        found[spec.arg.name] = (kind, store[spec.target])
    return found


class _Importer:
    """One import: values of nodes, and the builder that they are emitted with."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        support: _Support,
        keep_params: bool,
        unwrap: bool,
    ) -> None:
        self.torch = require_torch()
        self.program = program
        self.support = support
        self.keep_params = keep_params
        self.unwrap = unwrap
        self.builder = BlockBuilder()
        self.symbols = SymbolTable()
        self.values: dict[Any, Any] = {}
        self.params: dict[str, NDArray[Any]] = {}

    def run(self) -> IRModule:
        nodes = list(self.program.graph.nodes)
        inputs, held = self._placeholders([node for node in nodes if node.op == "placeholder"])
        results = self._results(next(node for node in nodes if node.op == "output"))
        wanted = set(results)
        attrs = {"num_input": len(inputs)} if self.keep_params else {}
        with self.builder.function("main", [*inputs, *held], attrs):
            with self.builder.dataflow():
                for node in nodes:
                    if node.op == "call_function":
                        self._convert(node, is_output=node in wanted)
                outputs = [self._output(node) for node in results]
            if self.unwrap and len(outputs) == 1:
                self.builder.emit_func_output(outputs[0])
            else:
                self.builder.emit_func_output(Tuple(tuple(outputs)))
        return self.builder.get()

    # ---- inputs and outputs ---------------------------------------------------------------------

    def _placeholders(self, nodes: list[Any]) -> tuple[list[RelaxVar], list[RelaxVar]]:
        """Create the function's parameters and the constants for the model's tensors."""
        tensors = _lifted_tensors(self.program)
        given = [node for node in nodes if node.name not in tensors]
        for node in given:
            value = node.meta.get("val")
            if isinstance(value, self.torch.Tensor):
                self.symbols.define(value.shape)
            elif isinstance(value, (self.torch.SymInt, self.torch.SymFloat)):
                raise ImportModelError(
                    f"input {node.name!r} is a symbolic number; only tensors can have symbolic "
                    "sizes: fix it when exporting, or pass it as a tensor"
                )
        inputs = [
            self._parameter(node)
            for node in given
            if isinstance(node.meta.get("val"), self.torch.Tensor)
        ]
        infos = [param.struct_info for param in inputs]
        defined = set(defined_vars(infos))
        for param in inputs:
            unknown = [var for var in used_vars(param.struct_info) if var not in defined]
            if unknown:
                raise ImportModelError(
                    f"input {param.name!r} has the shape {param.struct_info!r}, but no input has "
                    f"{unknown[0]!r} itself as a size"
                )
        held = []
        for node in nodes:
            if node.name not in tensors or not node.users:
                continue
            kind, tensor = tensors[node.name]
            if self.keep_params and kind != "constant":
                held.append(self._parameter(node))
                self.params[node.name] = to_numpy(tensor)
            else:
                self.values[node] = const(to_numpy(tensor))
        return inputs, held

    def _parameter(self, node: torch.fx.Node) -> RelaxVar:
        value = node.meta["val"]
        info = TensorStructInfo(self.symbols.shape(value.shape), dtype_name(value.dtype))
        self.values[node] = made = RelaxVar(node.name, info)
        return made

    def _results(self, output: torch.fx.Node) -> list[Any]:
        """Nodes that are returned, in order."""
        results: list[Any] = []
        for spec, node in zip(self.program.graph_signature.output_specs, output.args[0]):
            kind = spec.kind.name
            if "MUTATION" in kind:
                what = "buffer" if kind == "BUFFER_MUTATION" else "input"
                raise ImportModelError(
                    f"the model writes into the {what} {spec.target or spec.arg.name!r}, but "
                    "imported functions are pure: if that is training state, call model.eval() "
                    "before torch.export; else return the new value as an output"
                )
            if kind != "USER_OUTPUT":
                raise ImportModelError(
                    f"output {spec.arg!r} is of the kind {kind}; only inference programs are "
                    "supported"
                )
            value = node.meta.get("val") if isinstance(node, self.torch.fx.Node) else node
            if not isinstance(value, (self.torch.Tensor, self.torch.SymInt)):
                raise ImportModelError(
                    f"output {len(results)} is {value!r}, no tensor: let the model return tensors "
                    "only"
                )
            results.append(node)
        return results

    def _output(self, node: torch.fx.Node) -> RelaxExpr:
        value = self._value(node)
        if not isinstance(value, RelaxExpr):
            context = Context(node, self.builder, self.symbols, location)
            return self.builder.emit_output(context.tensor(value), node.name)
        # What was bound inside the dataflow block must be bound again to leave it.
        return self.builder.emit_output(value) if isinstance(value, DataflowVar) else value

    # ---- nodes ----------------------------------------------------------------------------------

    def _convert(self, node: torch.fx.Node, *, is_output: bool) -> None:
        if _key(node.target) in _STATEMENTS or _is_scalar(self.torch, node.meta.get("val")):
            return  # sizes are converted where they are used
        if node.target is operator.getitem:
            if node.users:  # programs take all results apart, whether they need them or not
                self.values[node] = self._item(node)
            return
        converter = self.support.converter(node)
        if converter is None:
            self.values[node] = const(to_numpy(self.support.static[node]))
            return
        context = Context(node, self.builder, self.symbols, location)
        args, kwargs = self._arguments(node)
        try:
            made = converter(context, *args, **kwargs)
        except ImportModelError:
            raise
        except VerifyError as error:
            raise context.error(str(error)) from error
        if isinstance(made, (list, tuple)):
            self.values[node] = list(made)
        elif isinstance(made, RelaxExpr):
            self.values[node] = self._bind(context, made, is_output)
        else:
            raise context.error(f"its converter returned {type(made).__name__}, no graph value")

    def _item(self, node: torch.fx.Node) -> RelaxExpr:
        source, index = node.args
        items = self._value(source)
        made = items[index]
        context = Context(node, self.builder, self.symbols, location)
        if made is None:
            raise context.error(f"result {index} of {_key(source.target)} is not supported")
        return self._bind(context, made, False)

    def _bind(self, context: Context, made: RelaxExpr, is_output: bool) -> RelaxExpr:
        """Bind a converted value to a variable named as the node, after checking it."""
        self._check(context, made)
        if isinstance(made, RelaxVar) or not _is_computed(made):
            return made
        if is_output:
            return self.builder.emit_output(made, context.node.name)
        return self.builder.emit(made, context.node.name)

    def _check(self, context: Context, made: RelaxExpr) -> None:
        info = made.struct_info
        if isinstance(info, TupleStructInfo):
            return
        shape, dtype = context.shape, context.dtype
        if not isinstance(info, TensorStructInfo) or (
            info.dtype != dtype
            or info.ndim != len(shape)
            or any(map(prove_different, info.shape, shape))
        ):
            raise context.error(
                f"converted to {info!r}, but PyTorch has "
                f"{TensorStructInfo(shape, dtype)!r}; this operator's variant is not supported"
            )

    def _value(self, item: Any) -> Any:
        """Convert an argument: a node's value, a size, or a Python value."""
        if not isinstance(item, self.torch.fx.Node):
            return item
        if item in self.values:
            return self.values[item]
        value = item.meta.get("val")
        if isinstance(value, self.torch.SymInt):
            return self.symbols.expr(value)
        if _is_scalar(self.torch, value) and not isinstance(value, self.torch.SymFloat):
            return value
        raise ImportModelError(
            f"the value of {_key(item.target)} ({location(item)}) is not supported as an operand"
        )

    def _arguments(self, node: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        """Arguments in the order of the operator's schema, defaults filled in."""
        schema = getattr(node.target, "_schema", None)
        convert = self._deep_value
        if schema is None:
            return [convert(arg) for arg in node.args], {
                k: convert(v) for k, v in node.kwargs.items()
            }
        args, kwargs = [], {}
        for number, argument in enumerate(schema.arguments):
            if number < len(node.args):
                value = node.args[number]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                # Defaults of keyword-only arguments are the converter's own.
                if argument.kwarg_only:
                    continue
                value = argument.default_value
            if argument.kwarg_only:
                if argument.name not in _IRRELEVANT:
                    kwargs[argument.name] = convert(value)
            elif argument.name not in _IRRELEVANT:
                args.append(convert(value))
        return args, kwargs

    def _deep_value(self, item: object) -> Any:
        if isinstance(item, (list, tuple)):
            return [self._deep_value(entry) for entry in item]
        if isinstance(item, dict):
            return {key: self._deep_value(entry) for key, entry in item.items()}
        return self._value(item)


def _is_computed(expr: RelaxExpr) -> bool:
    return hasattr(expr, "args") or isinstance(expr, (TupleGetItem, Tuple))
