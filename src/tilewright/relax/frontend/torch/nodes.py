"""Conversion of the nodes of a PyTorch graph, one after another, by the table of converters.

Each converted node's shape and dtype are checked against what PyTorch recorded, so a wrong
conversion is an error here and not a wrong number later.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.ir import INDEX, as_expr
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import DataflowVar, RelaxExpr, RelaxVar, Tuple, TupleGetItem
from tilewright.relax.frontend.torch.converters import (
    Context,
    Converter,
    dtype_name,
    find_converter,
)
from tilewright.relax.frontend.torch.exported import as_real, location, require_torch, to_numpy
from tilewright.relax.frontend.torch.pairs import Complex, join, split
from tilewright.relax.frontend.torch.scalars import convert_number, element
from tilewright.relax.frontend.torch.symbols import SymbolTable
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo, prove_different
from tilewright.relax.values import const
from tilewright.support.errors import ImportModelError, VerifyError

if TYPE_CHECKING:
    import torch

# Nodes that only state facts: about sizes, which exporting has checked, and that an operator of
# linear algebra succeeds, which its own converter sees to.
STATEMENTS = frozenset(
    "aten._assert_async.msg aten._assert_scalar.default aten._assert_tensor_metadata.default "
    "aten.sym_constrain_range.default aten.sym_constrain_range_for_size.default "
    "aten._linalg_check_errors.default".split()
)
# Operators that give an element of a tensor as a number.
_ELEMENTS = frozenset(("aten._local_scalar_dense.default", "aten.item.default"))
# Keyword arguments that say nothing of the numbers.
_IRRELEVANT = frozenset(
    "layout device pin_memory non_blocking memory_format requires_grad generator copy".split()
)


CustomConverter = Callable[..., Any]
"""A converter of the user: it gets a node and the importer."""


def operator_name(target: object) -> str:
    """Name of an operator's overload: ``aten.add.Tensor``."""
    return str(target)


def is_statement(node: torch.fx.Node) -> bool:
    """Whether a node only states a fact, which nothing is computed for."""
    name = operator_name(node.target)
    if name == "with_effects":  # how decomposed programs keep such statements in order
        name = operator_name(node.args[1])
    return name in STATEMENTS


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


def named_constant(node: torch.fx.Node) -> Any:
    """The tensor (or what else) that a ``get_attr`` node names."""
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


def example(node: torch.fx.Node) -> Any:
    """The value of a node that PyTorch recorded, or that it names."""
    return named_constant(node) if node.op == "get_attr" else node.meta.get("val")


def is_complex(torch: ModuleType, node: torch.fx.Node) -> bool:
    """Whether a node takes or gives complex tensors."""
    for item in (node, *node.all_input_nodes):
        value = example(item)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.is_complex():
                return True
    return False


def table_converter(torch: ModuleType, node: torch.fx.Node) -> Converter | None:
    """The converter of a node's operator, if there is one for its kind of numbers."""
    return find_converter(operator_name(node.target), is_complex=is_complex(torch, node))


def custom_converter(
    custom: Mapping[str, CustomConverter], node: torch.fx.Node
) -> CustomConverter | None:
    """The user's converter of a node's operator: ``aten.add.Tensor``, ``add.Tensor``, ``add``."""
    name = operator_name(node.target)
    short = name.partition(".")[2]
    return custom.get(name) or custom.get(short) or custom.get(short.partition(".")[0])


def constant(tensor: torch.Tensor) -> RelaxExpr | Complex:
    """A tensor of PyTorch in a graph."""
    parts = to_numpy(as_real(tensor))
    if not tensor.is_complex():
        return const(parts)
    return Complex(const(parts[..., 0].copy()), const(parts[..., 1].copy()))


class NodeConverter:
    """Values of nodes, and the builder that they are emitted with.

    ``converter_of`` gives a node's converter, ``custom`` has those of the user, which come first;
    ``values`` has what is known before: parameters and constants. With ``sizes_from_data`` tensors
    inside of the graph may have sizes that data decide.
    """

    def __init__(
        self,
        converter_of: Callable[[Any], Converter | None],
        custom: Mapping[str, CustomConverter] | None = None,
        *,
        sizes_from_data: bool = False,
    ) -> None:
        self.torch = require_torch()
        self.converter_of = converter_of
        self.custom = custom or {}
        self.builder = BlockBuilder()
        self.symbols = SymbolTable(from_data=sizes_from_data)
        self.values: dict[Any, Any] = {}
        self._received: dict[Any, tuple[int, ...] | None] = {}

    # ---- what converters of the user get --------------------------------------------------------

    @property
    def env(self) -> dict[Any, Any]:
        """The values of converted nodes."""
        return self.values

    @property
    def block_builder(self) -> BlockBuilder:
        """What emits bindings."""
        return self.builder

    def retrieve_args(self, node: torch.fx.Node) -> list[Any]:
        """Return a node's arguments, converted, in their order."""
        return [self._deep_value(item) for item in node.args]

    # ---- nodes ----------------------------------------------------------------------------------

    def has_converter(self, node: torch.fx.Node) -> bool:
        """Whether there is a converter, in the table or of the user."""
        return not (custom_converter(self.custom, node) is None and self.converter_of(node) is None)

    def parameter(self, node: torch.fx.Node, layout: tuple[int, ...] | None = None) -> RelaxVar:
        """Make a parameter for a tensor that comes from outside, its axes in the layout's order.

        A complex one is a real tensor with a last axis of 2.
        """
        value = node.meta["val"]
        shape = self.symbols.shape(value.shape)
        if layout is not None:
            shape = tuple(shape[axis] for axis in layout)
        if value.is_complex():
            shape = (*shape, as_expr(2, INDEX))
        info = TensorStructInfo(shape, dtype_name(value.dtype))
        self.values[node] = made = RelaxVar(node.name, info)
        self._received[node] = layout
        return made

    def receive(self) -> None:
        """Take the parameters apart, as the first thing in the function."""
        for node, layout in self._received.items():
            value = self.values[node]
            if node.meta["val"].is_complex():
                value = split(value)
            if layout is not None:
                value = _permuted(value, tuple(map(layout.index, range(len(layout)))))
            if value is not self.values[node]:
                self.values[node] = self._emit_parts(value, node.name)

    def output(self, node: torch.fx.Node, layout: tuple[int, ...] | None = None) -> RelaxExpr:
        """Bind the value of a node such that a function can return it, its axes in that order."""
        value = self._value(node)
        if layout is not None:
            value = _permuted(value, layout)
        if isinstance(value, Complex) or layout is not None:
            return self._emit(join(value), node.name, True)
        if not isinstance(value, RelaxExpr):
            context = Context(node, self.builder, self.symbols, location)
            return self._emit(context.tensor(value), node.name, True)
        # What was bound inside the dataflow block must be bound again to leave it.
        return self.builder.emit_output(value) if isinstance(value, DataflowVar) else value

    def convert(self, node: torch.fx.Node, *, is_output: bool) -> None:
        """Convert a node whose operands are converted; an output keeps its name.

        Raises ``ImportModelError`` if it, or this variant of it, is not supported.
        """
        if is_statement(node):
            return
        if is_scalar(self.torch, node.meta.get("val")):
            self._convert_number(node)
            return
        if node.target is operator.getitem:
            # Programs take all results apart, whether they need them or not.
            if node.users and not is_statement(node.args[0]):
                self.values[node] = self._item(node)
            return
        context = Context(node, self.builder, self.symbols, location)
        if is_branches(node):
            self.values[node] = self._convert_branches(context)
            return
        own = custom_converter(self.custom, node)
        made = own(node, self) if own is not None else self._by_table(context)
        if isinstance(made, (list, tuple)):
            self.values[node] = list(made)
        elif isinstance(made, (RelaxExpr, Complex)):
            self.values[node] = self._bind(context, made, is_output)
        else:
            raise context.error(f"its converter returned {type(made).__name__}, no graph value")

    def _by_table(self, context: Context) -> object:
        """Convert by the converter of the node's operator."""
        node = context.node
        converter = self.converter_of(node)
        if converter is None:
            kind = " for complex numbers" if is_complex(self.torch, node) else ""
            raise context.error(f"there is no converter{kind}")
        args, kwargs = self._arguments(node)
        try:
            inspect.signature(converter).bind(context, *args, **kwargs)
        except TypeError as error:
            raise context.error(f"this variant is not supported: {error}") from None
        try:
            return converter(context, *args, **kwargs)
        except ImportModelError:
            raise
        except VerifyError as error:
            raise context.error(str(error)) from error

    def _convert_branches(self, context: Context) -> list[RelaxExpr | Complex]:
        """Convert ``torch.cond``; only the branch that is taken is computed."""
        test, operands = self._value(context.node.args[0]), context.node.args[3]
        first, second = (
            partial(self._convert_branch, graph, operands) for graph in branch_graphs(context.node)
        )
        if isinstance(test, bool):
            return self._branch_results(context, list((first if test else second)().fields))
        if not isinstance(test, RelaxExpr):
            raise context.error(f"its condition is {test!r}, no truth value")
        if isinstance(test.struct_info, TensorStructInfo):
            test = op.reshape(context.cast(test, "bool"), ())
        whole = self.builder.emit_if(test, first, second, context.node.name)
        info = whole.struct_info
        items = info.fields if isinstance(info, TupleStructInfo) else ()
        for item in items:
            if not isinstance(item, TensorStructInfo) or not item.has_shape:
                raise context.error("its branches give different shapes or dtypes")
        results = [self.builder.emit(whole[number]) for number in range(len(items))]
        return self._branch_results(context, results)

    def _branch_results(
        self, context: Context, items: Sequence[RelaxExpr]
    ) -> list[RelaxExpr | Complex]:
        """Results of branches, complex ones as the pairs that they are."""
        return [
            self._emit_parts(split(item), "") if value.is_complex() else item
            for item, value in zip(items, context.result)
        ]

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
        results = map(self._value, output.args[0])
        return Tuple(
            tuple(
                join(item) if isinstance(item, Complex) else context.tensor(item)
                for item in results
            )
        )

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

    def _item(self, node: torch.fx.Node) -> RelaxExpr | Complex:
        source, index = node.args
        items = self._value(source)
        made = items[index]
        context = Context(node, self.builder, self.symbols, location)
        if made is None:
            raise context.error(
                f"result {index} of {operator_name(source.target)} is not supported"
            )
        return self._bind(context, made, False)

    def _bind(
        self, context: Context, made: RelaxExpr | Complex, is_output: bool
    ) -> RelaxExpr | Complex:
        """Bind a converted value to a variable named as the node, after checking it."""
        if isinstance(made, Complex) != context.is_complex:
            raise context.error("its converter mixes up real and complex numbers")
        if isinstance(made, Complex):
            made.map(partial(self._check, context))
            parts: Complex = self._emit_parts(made, context.node.name)
            return parts
        self._check(context, made)
        if isinstance(made, RelaxVar) or not _is_computed(made):
            return made
        return self._emit(made, context.node.name, is_output)

    def _emit(self, value: RelaxExpr, name: str, is_output: bool) -> RelaxVar:
        # Outside of dataflow blocks all variables are seen.
        local = not is_output or not self.builder.in_dataflow
        return self.builder.emit(value, name) if local else self.builder.emit_output(value, name)

    def _emit_parts(self, value: RelaxExpr | Complex, name: str) -> Any:
        """Bind a value, of complex numbers both parts, for use in the function."""
        if isinstance(value, Complex):
            return value.map(lambda part: self._emit_parts(part, name))
        return self._emit(value, name, False) if _is_computed(value) else value

    def _check(self, context: Context, made: RelaxExpr) -> RelaxExpr:
        info = made.struct_info
        if isinstance(info, TupleStructInfo):
            return made
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
        return made

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


def _permuted(value: RelaxExpr | Complex, axes: tuple[int, ...]) -> Any:
    if isinstance(value, Complex):
        return value.map(lambda part: op.permute_dims(part, axes))
    return op.permute_dims(value, axes)


def _is_computed(expr: RelaxExpr) -> bool:
    return hasattr(expr, "args") or isinstance(expr, (TupleGetItem, Tuple))
