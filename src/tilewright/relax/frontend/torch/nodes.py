"""Conversion of the nodes of a PyTorch graph, one after another, by the table of converters.

Each converted node's shape and dtype are checked against what PyTorch recorded, so a wrong
conversion is an error here and not a wrong number later.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import DataflowVar, RelaxExpr, RelaxVar, Tuple, TupleGetItem
from tilewright.relax.frontend.torch.converters import Context, Converter, dtype_name
from tilewright.relax.frontend.torch.exported import location, require_torch
from tilewright.relax.frontend.torch.scalars import convert_number, element
from tilewright.relax.frontend.torch.symbols import SymbolTable
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo, prove_different
from tilewright.support.errors import ImportModelError, VerifyError

if TYPE_CHECKING:
    import torch

# Nodes that only state facts about sizes: exporting has checked them.
STATEMENTS = frozenset(
    "aten._assert_async.msg aten._assert_scalar.default aten._assert_tensor_metadata.default "
    "aten.sym_constrain_range.default aten.sym_constrain_range_for_size.default".split()
)
# Operators that give an element of a tensor as a number.
_ELEMENTS = frozenset(("aten._local_scalar_dense.default", "aten.item.default"))
# Keyword arguments that say nothing of the numbers.
_IRRELEVANT = frozenset(
    "layout device pin_memory non_blocking memory_format requires_grad generator copy".split()
)


def operator_name(target: object) -> str:
    """Name of an operator's overload: ``aten.add.Tensor``."""
    return str(target)


def is_branches(node: torch.fx.Node) -> bool:
    """Whether a node is ``torch.cond``."""
    return node.op == "call_function" and operator_name(node.target) == "cond"


def branch_graphs(node: torch.fx.Node) -> tuple[Any, Any]:
    """The graphs of both branches of ``torch.cond``."""
    module = node.graph.owning_module
    first, second = (module.get_submodule(item.target).graph for item in node.args[1:3])
    return first, second


def is_scalar(torch: ModuleType, value: object) -> bool:
    """Whether a node's value is a number or a symbolic size, which needs no conversion."""
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymBool, torch.SymFloat))


class NodeConverter:
    """Values of nodes, and the builder that they are emitted with.

    ``converter_of`` gives a node's converter; ``values`` has what is known before: parameters and
    constants. With ``sizes_from_data`` tensors inside of the graph may have sizes that data decide.
    """

    def __init__(
        self, converter_of: Callable[[Any], Converter | None], *, sizes_from_data: bool = False
    ) -> None:
        self.torch = require_torch()
        self.converter_of = converter_of
        self.builder = BlockBuilder()
        self.symbols = SymbolTable(from_data=sizes_from_data)
        self.values: dict[Any, Any] = {}

    def parameter(self, node: torch.fx.Node) -> RelaxVar:
        """Make a parameter for a tensor that comes from outside."""
        value = node.meta["val"]
        info = TensorStructInfo(self.symbols.shape(value.shape), dtype_name(value.dtype))
        self.values[node] = made = RelaxVar(node.name, info)
        return made

    def output(self, node: torch.fx.Node) -> RelaxExpr:
        """Bind the value of a node such that a function can return it."""
        value = self._value(node)
        if not isinstance(value, RelaxExpr):
            context = Context(node, self.builder, self.symbols, location)
            return self._emit(context.tensor(value), node.name, True)
        # What was bound inside the dataflow block must be bound again to leave it.
        return self.builder.emit_output(value) if isinstance(value, DataflowVar) else value

    def convert(self, node: torch.fx.Node, *, is_output: bool) -> None:
        """Convert a node whose operands are converted; an output keeps its name.

        Raises ``ImportModelError`` if it, or this variant of it, is not supported.
        """
        if operator_name(node.target) in STATEMENTS:
            return
        if is_scalar(self.torch, node.meta.get("val")):
            self._convert_number(node)
            return
        if node.target is operator.getitem:
            if node.users:  # programs take all results apart, whether they need them or not
                self.values[node] = self._item(node)
            return
        context = Context(node, self.builder, self.symbols, location)
        if is_branches(node):
            self.values[node] = self._convert_branches(context)
            return
        converter = self.converter_of(node)
        if converter is None:
            raise context.error("there is no converter")
        args, kwargs = self._arguments(node)
        try:
            inspect.signature(converter).bind(context, *args, **kwargs)
        except TypeError as error:
            raise context.error(f"this variant is not supported: {error}") from None
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

    def _convert_branches(self, context: Context) -> list[RelaxExpr]:
        """Convert ``torch.cond``; only the branch that is taken is computed."""
        test, operands = self._value(context.node.args[0]), context.node.args[3]
        first, second = (
            partial(self._convert_branch, graph, operands) for graph in branch_graphs(context.node)
        )
        if isinstance(test, bool):
            return list((first if test else second)().items)
        if not isinstance(test, RelaxExpr):
            raise context.error(f"its condition is {test!r}, no truth value")
        if isinstance(test.struct_info, TensorStructInfo):
            test = op.reshape(context.cast(test, "bool"), ())
        whole = self.builder.emit_if(test, first, second, context.node.name)
        info = whole.struct_info
        items = info.fields_ if isinstance(info, TupleStructInfo) else ()
        for item in items:
            if not isinstance(item, TensorStructInfo) or not item.has_shape:
                raise context.error("its branches give different shapes or dtypes")
        return [self.builder.emit(whole[number]) for number in range(len(items))]

    def _convert_branch(self, graph: torch.fx.Graph, operands: Any) -> Tuple:
        """Convert the graph of a branch where the builder is; give its results."""
        given = iter(operands)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self._value(next(given))
            elif node.op == "call_function":
                self.convert(node, is_output=False)
        (output,) = (node for node in graph.nodes if node.op == "output")
        context = Context(output, self.builder, self.symbols, location)
        return Tuple(tuple(context.tensor(self._value(item)) for item in output.args[0]))

    def _convert_number(self, node: torch.fx.Node) -> None:
        """Compute a number that only tensors tell; others are converted where they are used."""
        context = Context(node, self.builder, self.symbols, location)
        if operator_name(node.target) in _ELEMENTS:
            made: RelaxExpr | None = element(self._value(node.args[0]))
        elif self._is_formula(node.meta["val"]) or not isinstance(
            node.meta["val"], (self.torch.SymInt, self.torch.SymFloat, self.torch.SymBool)
        ):
            return
        else:
            made = convert_number(context, self._value)
        if made is not None:
            self.values[node] = self.builder.emit(made, node.name)

    def _is_formula(self, value: object) -> bool:
        """Whether a number is a formula of the inputs' extents."""
        return isinstance(value, self.torch.SymInt) and self.symbols.has(value)

    def _item(self, node: torch.fx.Node) -> RelaxExpr:
        source, index = node.args
        items = self._value(source)
        made = items[index]
        context = Context(node, self.builder, self.symbols, location)
        if made is None:
            raise context.error(
                f"result {index} of {operator_name(source.target)} is not supported"
            )
        return self._bind(context, made, False)

    def _bind(self, context: Context, made: RelaxExpr, is_output: bool) -> RelaxExpr:
        """Bind a converted value to a variable named as the node, after checking it."""
        self._check(context, made)
        if isinstance(made, RelaxVar) or not _is_computed(made):
            return made
        return self._emit(made, context.node.name, is_output)

    def _emit(self, value: RelaxExpr, name: str, is_output: bool) -> RelaxVar:
        # Outside of dataflow blocks all variables are seen.
        local = not is_output or not self.builder.in_dataflow
        return self.builder.emit(value, name) if local else self.builder.emit_output(value, name)

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

    def _value(self, item: object) -> Any:
        """Convert an argument: a node's value, a size, or a Python value."""
        if not isinstance(item, self.torch.fx.Node):
            return item
        if item in self.values:
            return self.values[item]
        value = item.meta.get("val")
        if isinstance(value, self.torch.SymInt):
            return self.symbols.expr(value)
        if is_scalar(self.torch, value) and not isinstance(value, self.torch.SymFloat):
            return value
        raise ImportModelError(
            f"the value of {operator_name(item.target)} ({location(item)}) is not supported as an "
            "operand"
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

    def _deep_value(self, item: object) -> object:
        if isinstance(item, (list, tuple)):
            return [self._deep_value(entry) for entry in item]
        if isinstance(item, dict):
            return {key: self._deep_value(entry) for key, entry in item.items()}
        return self._value(item)


def _is_computed(expr: RelaxExpr) -> bool:
    return hasattr(expr, "args") or isinstance(expr, (TupleGetItem, Tuple))
