"""``from_onnx``: the walk over a model's graph, its subgraphs and functions.

For each node there is, in this order: an evaluator, if its inputs are known (``known.py``); a
function of the model itself; a converter (``converters/``); the function by which ONNX defines the
operator.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import IRModule, as_int
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Constant,
    ConstantData,
    DataflowVar,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    TupleGetItem,
)
from tilewright.relax.frontend.onnx import known
from tilewright.relax.frontend.onnx.converters import CONVERTERS, Context
from tilewright.relax.frontend.onnx.converters.base import DEFINED, Noted
from tilewright.relax.frontend.onnx.inputs import (
    MOST_ELEMENTS,
    Inputs,
    ShapeDict,
    free_name,
    identifier,
)
from tilewright.relax.frontend.onnx.model import (
    NARROW,
    attribute_value,
    element_name,
    load_model,
    require_onnx,
    sparse_to_numpy,
    to_numpy,
)
from tilewright.relax.frontend.onnx.order import in_order, names_used
from tilewright.relax.frontend.onnx.values import (
    NeedsBranchesError,
    Numbers,
    UnknownValueError,
    Value,
    place,
)
from tilewright.relax.struct_info import (
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.relax.transform import ConvertToDataflow
from tilewright.relax.values import const
from tilewright.support.collector import few_collections
from tilewright.support.errors import ImportModelError, TilewrightError
from tilewright.support.registry import near_matches

if TYPE_CHECKING:
    import onnx

#: Nodes that a model may have after its loops are unrolled and its functions expanded.
MOST_NODES = 200_000
#: How deeply functions and subgraphs may be nested.
_DEEPEST = 64


@few_collections()
def from_onnx(
    model: onnx.ModelProto | str | os.PathLike[str],
    shape_dict: ShapeDict | None = None,
    dtype_dict: str | Mapping[str, str] | None = None,
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """Import an ONNX model as a module with the function ``main``.

    ``model`` is an ``onnx.ModelProto``, or the path of a file, beside which external data are
    found. ``main`` takes the model's inputs that have no initial value, and returns its output, or
    a tuple if there are several. Weights are constants; with ``keep_params_in_input`` they follow
    the inputs as parameters, and ``relax.frontend.detach_params`` gives their values.

    ``shape_dict`` has shapes of inputs by name, of numbers, names and ``Var``; others are those of
    the model, with a symbolic size for each name of an extent. For a sequence it has a list of
    shapes, and ``None`` for an optional without an element; neither is an input if it is empty.
    ``dtype_dict`` is the dtype of inputs that the model does not type, or has dtypes by name.
    ``opset`` takes the place of the version of ONNX's operators that the model names. All versions
    from 7 are supported; of older ones what differs is refused, or done as it was then. Characters
    that a variable's name can't have are replaced in inputs' names by ``_``, unless
    ``sanitize_input_names`` is false.

    Tensors that decide sizes or what is computed must be known at import: constants, or computed
    from the inputs' shapes; ``Squeeze`` without axes leaves symbolic sizes. Integers of 2 and 4
    bits are passed as such of 8, and floats that tensors don't have, such as FLOAT4E2M1, as wider
    ones of the same value.

    Raises ``ImportModelError`` for a damaged model and for operators that aren't supported, which
    it names, and ``MissingExtraError`` if ``onnx`` isn't installed.
    """
    onnx = require_onnx()
    folder = None
    if isinstance(model, (str, os.PathLike)):
        folder = Path(model).parent
        model = load_model(model)
    if not isinstance(model, onnx.ModelProto):
        raise ImportModelError(
            f"expected an onnx.ModelProto or the path of a file, got {type(model).__name__}"
        )
    options = shape_dict or {}, dtype_dict or {}, keep_params_in_input, sanitize_input_names
    try:
        return _Importer(model, folder, opset).run(*options)
    except NeedsBranchesError:
        # Again, in plain blocks: no dataflow block takes branches.
        made = _Importer(model, folder, opset).run(*options, dataflow=False)
        return ConvertToDataflow(1)(made)


class _Scope:
    """Values by name in a graph; those of the graph around it are seen too."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        parent: _Scope | None = None,
        attributes: Mapping[str, onnx.AttributeProto] | None = None,
    ) -> None:
        self.opsets = opsets
        self.parent = parent
        self.attributes = attributes
        """Those of the call, in the body of a function."""
        self.values: dict[str, Value] = {}
        self.depth: int = 0 if parent is None else parent.depth + 1

    def has(self, name: str) -> bool:
        return name in self.values or (self.parent is not None and self.parent.has(name))

    def get(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if self.parent is None:
            raise ImportModelError(f"there is no value {name!r}")
        return self.parent.get(name)


class _Importer:
    """One import of a model."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, opset: int | None) -> None:
        self.onnx = require_onnx()
        self.model = model
        self.folder = folder
        self.opsets = _opsets(model.opset_import, opset)
        self.functions = {
            (_domain(item.domain), item.name, getattr(item, "overload", "")): item
            for item in model.functions
        }
        self.builder = BlockBuilder()
        self.inputs: dict[str, Value] = {}
        self.noted = Noted()
        self.made_of: dict[RelaxExpr, Sequence[Value]] = {}
        """The inputs of the nodes that make values."""
        self.element_of_result = ""
        self.nodes_left = MOST_NODES

    def run(
        self,
        shapes: ShapeDict,
        dtypes: str | Mapping[str, str],
        keep_params: bool,
        sanitize: bool,
        *,
        dataflow: bool = True,
    ) -> IRModule:
        graph = self.model.graph
        scope = _Scope(self.opsets)
        initial = {item.name: to_numpy(item, self.folder) for item in graph.initializer}
        for item in graph.sparse_initializer:
            initial[item.values.name] = sparse_to_numpy(item, self.folder)
        made = Inputs(graph, initial, shapes, dtypes, sanitize)
        inputs = made.params
        self.inputs = made.values
        self.noted.elements.update(made.elements)
        scope.values.update(made.values)
        params: list[RelaxVar] = []
        for name, array in initial.items():
            if keep_params:
                var = RelaxVar(
                    free_name(identifier(name, "param"), [*inputs, *params]),
                    TensorStructInfo(array.shape, array.dtype.name),
                )
                self.noted.held[var] = array
                params.append(var)
                scope.values[name] = var
            else:
                scope.values[name] = Constant(ConstantData(array))
        for item in graph.initializer:
            self._note_element(scope.get(item.name), item.data_type)
        attrs: dict[str, Any] = {}
        if keep_params:
            attrs["num_input"] = len(inputs)
            attrs["params"] = tuple(const(self.noted.held[var]).value for var in params)
        with self.builder.function("main", [*inputs, *params], attrs):
            with self.builder.dataflow() if dataflow else nullcontext():
                results = self.run_graph(graph, scope)
                outputs = [
                    self._output(item.name, value) for item, value in zip(graph.output, results)
                ]
            if not outputs:
                raise ImportModelError("the model has no output")
            self.builder.emit_func_output(
                outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
            )
        return self.builder.get()

    # ---- inputs and outputs ---------------------------------------------------------------------

    def _output(self, name: str, value: Value) -> RelaxExpr:
        if isinstance(value, list):
            if not value:
                raise ImportModelError(f"output {name!r} is an empty sequence")
            return Tuple(tuple(self._output(f"{name}_{n}", item) for n, item in enumerate(value)))
        if isinstance(value, Numbers):
            value = value.tensor()
        if value is None:
            raise ImportModelError(f"output {name!r} is an optional without an element")
        if not isinstance(value, (DataflowVar, RelaxCall)):
            return value
        emit = self.builder.emit_output if self.builder.in_dataflow else self.builder.emit
        return emit(value, identifier(name, "output"))

    # ---- graphs ---------------------------------------------------------------------------------

    def run_graph(self, graph: onnx.GraphProto, scope: _Scope) -> list[Value]:
        """Convert a graph whose inputs and initial values are in ``scope``; returns its results."""
        if scope.depth > _DEEPEST:
            raise ImportModelError(f"functions and subgraphs are nested deeper than {_DEEPEST}")
        for node in in_order(graph.node):
            self._convert(node, scope)
        return [self._result(item.name, scope) for item in graph.output]

    def _result(self, name: str, scope: _Scope) -> Value:
        if not name:
            return None
        if not scope.has(name):
            raise ImportModelError(f"nothing makes the output {name!r}")
        return scope.get(name)

    def run_subgraph(
        self, graph: onnx.GraphProto, inputs: Sequence[Value], around: _Scope
    ) -> list[Value]:
        """Convert a graph that is an attribute of a node in the graph ``around``."""
        scope = _Scope(around.opsets, around, around.attributes)
        for item in graph.initializer:
            scope.values[item.name] = Constant(ConstantData(to_numpy(item, self.folder)))
            self._note_element(scope.values[item.name], item.data_type)
        for sparse in graph.sparse_initializer:
            scope.values[sparse.values.name] = const(sparse_to_numpy(sparse, self.folder))
        if len(inputs) != len(graph.input):
            raise ImportModelError(
                f"the subgraph {graph.name!r} takes {len(graph.input)} inputs, it is given "
                f"{len(inputs)}"
            )
        for item, value in zip(graph.input, inputs):
            scope.values[item.name] = value
        return self.run_graph(graph, scope)

    def run_function(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: Sequence[Value],
        around: _Scope,
    ) -> list[Value]:
        """Convert the body of a function in place of a node that calls it."""
        given = {item.name: item for item in node.attribute}
        defaults = {item.name: item for item in function.attribute_proto}
        scope = _Scope(_opsets(function.opset_import, None), None, {**defaults, **given})
        scope.depth = around.depth + 1
        if scope.depth > _DEEPEST:
            raise ImportModelError(f"{place(node)}: functions are nested deeper than {_DEEPEST}")
        if len(inputs) > len(function.input):
            raise ImportModelError(
                f"{place(node)}: the function takes {len(function.input)} inputs, got {len(inputs)}"
            )
        for number, name in enumerate(function.input):
            scope.values[name] = inputs[number] if number < len(inputs) else None
        for inner in in_order(function.node):
            self._convert(inner, scope)
        wanted = {number for number, name in enumerate(node.output) if name}
        return [
            self._result(name, scope) if number in wanted else None
            for number, name in enumerate(function.output)
        ]

    # ---- nodes ----------------------------------------------------------------------------------

    def _convert(self, node: onnx.NodeProto, scope: _Scope) -> None:
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise ImportModelError(
                f"the model has more than {MOST_NODES} nodes, with loops unrolled and functions "
                "expanded"
            )
        node = self._resolved(node, scope)
        inputs = [self._input(node, name, scope) for name in node.input]
        self.element_of_result = ""
        try:
            made = self._results(node, inputs, scope)
        except UnknownValueError as error:
            if error.value is None:
                raise
            raise UnknownValueError(error.message, None, self._sources(error.value)) from None
        except ImportModelError:
            raise
        except TilewrightError as error:
            raise ImportModelError(f"{place(node)}: {error}") from error
        except (ArithmeticError, IndexError, TypeError, ValueError, AttributeError) as error:
            # Numbers of a damaged model that no converter expects.
            raise ImportModelError(
                f"{place(node)} can't be converted: {type(error).__name__}: {error}"
            ) from error
        used = inputs
        if any(item.HasField("g") for item in node.attribute):
            used = [scope.get(name) for name in names_used(node) if scope.has(name)]
        if len(made) < len(node.output) and any(node.output[len(made) :]):
            raise ImportModelError(
                f"{place(node)} makes {len(made)} results, {len(node.output)} are wanted"
            )
        for number, (name, value) in enumerate(zip(node.output, made)):
            if name:
                scope.values[name] = bound = self._bound(node, name, value)
                element = self.element_of_result or self._kept_element(node, number, inputs, scope)
                if element and isinstance(bound, RelaxExpr):
                    self.noted.elements[bound] = element
                if isinstance(bound, RelaxVar):
                    self.made_of.setdefault(bound, used)

    def _note_element(self, value: Value, element: int) -> None:
        """Remember ONNX's element type of a value if its dtype does not tell."""
        if isinstance(value, RelaxExpr) and element_name(element) in NARROW:
            self.noted.elements[value] = element_name(element)

    def _kept_element(
        self, node: onnx.NodeProto, number: int, inputs: Sequence[Value], scope: _Scope
    ) -> str:
        """The element type of a result that has an input's, where the dtype does not tell."""
        found = [self.noted.elements.get(v) if isinstance(v, RelaxExpr) else None for v in inputs]
        domain = _domain(node.domain)
        if not any(found) or (domain, node.op_type, getattr(node, "overload", "")) in (
            self.functions
        ):
            return ""
        try:
            schema = self.onnx.defs.get_schema(node.op_type, scope.opsets.get(domain, 1), domain)
        except self.onnx.defs.SchemaError:
            return ""
        if not schema.outputs or not schema.inputs:
            return ""
        kind = schema.outputs[min(number, len(schema.outputs) - 1)].type_str
        for place_of, element in enumerate(found):
            own = schema.inputs[min(place_of, len(schema.inputs) - 1)].type_str
            if element and own == kind:
                return element
        return ""

    def _input(self, node: onnx.NodeProto, name: str, scope: _Scope) -> Value:
        if not name:
            return None
        if not scope.has(name):
            raise ImportModelError(f"{place(node)}: nothing makes its input {name!r}")
        return scope.get(name)

    def _results(
        self, node: onnx.NodeProto, inputs: Sequence[Value], scope: _Scope
    ) -> Sequence[Value]:
        domain = _domain(node.domain)
        local = self.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if local is not None:
            return self.run_function(local, node, inputs, scope)
        attributes = {item.name: attribute_value(item, self.folder) for item in node.attribute}
        for item in node.attribute:
            if item.name == "value" and item.HasField("t"):
                name = element_name(item.t.data_type)
                self.element_of_result = name if name in NARROW else ""
        if not domain and not self._is_narrow_cast(node, inputs):
            arrays = [known.elements(value, self.noted.held) for value in inputs]
            said = {**attributes, known.OUTPUTS: len(node.output)}
            found = known.evaluate(node.op_type, said, inputs, arrays)
            if found is not None:
                return found
        key = f"{domain}.{node.op_type}" if domain else node.op_type
        version = scope.opsets.get(domain)
        if version is None:
            raise ImportModelError(f"{place(node)}: the model imports no operators of {domain!r}")
        if key in CONVERTERS:
            context = Context(
                node, version, self.builder, self.noted,
                lambda graph, values: self.run_subgraph(graph, values, scope), scope.get,
            )  # fmt: skip
            made = context.call(CONVERTERS.get(key), inputs, attributes)
            self.element_of_result = context.element_of_result or self.element_of_result
            if made is not DEFINED:
                return made if isinstance(made, tuple) else (made,)
        body = self._defined(node, domain, version, inputs)
        if body is not None:
            return self.run_function(body, node, inputs, scope)
        raise ImportModelError(
            f"{place(node)}: there is no converter for {key}; {near_matches(key, [*CONVERTERS])}"
        )

    def _is_narrow_cast(self, node: onnx.NodeProto, inputs: Sequence[Value]) -> bool:
        """Whether a node converts to a type that its second input's dtype does not tell."""
        like = inputs[1] if len(inputs) > 1 else None
        if node.op_type != "CastLike" or not isinstance(like, RelaxExpr):
            return False
        return like in self.noted.elements

    def _resolved(self, node: onnx.NodeProto, scope: _Scope) -> onnx.NodeProto:
        """A node with attributes of its own: in functions some are those of the call."""
        if not any(item.ref_attr_name for item in node.attribute):
            return node
        made = self.onnx.NodeProto()
        made.CopyFrom(node)
        made.ClearField("attribute")
        for item in node.attribute:
            found = item
            if item.ref_attr_name:
                found = (scope.attributes or {}).get(item.ref_attr_name)
            if found is not None:
                own = made.attribute.add()
                own.CopyFrom(found)
                own.name = item.name
        return made

    def _defined(
        self, node: onnx.NodeProto, domain: str, version: int, inputs: Sequence[Value]
    ) -> onnx.FunctionProto | None:
        """The function by which ONNX defines an operator, if it is defined by one."""
        try:
            schema = self.onnx.defs.get_schema(node.op_type, version, domain)
        except self.onnx.defs.SchemaError:
            return None
        if schema.has_context_dependent_function:
            types = [self._type_of(value) for value in inputs]
            versions = schema.context_dependent_function_opset_versions
            fitting = [item for item in versions if item <= version] or versions[:1]
            text = schema.get_context_dependent_function_with_opset_version(
                max(fitting), node.SerializeToString(), types
            )
        elif schema.has_function:
            versions = schema.function_opset_versions
            fitting = [item for item in versions if item <= version] or versions[:1]
            text = schema.get_function_with_opset_version(max(fitting))
        else:
            return None
        function = self.onnx.FunctionProto()
        function.ParseFromString(text)
        given = {item.name for item in node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.name:
                function.attribute_proto.append(attribute.default_value)
        return function

    def _type_of(self, value: Value) -> bytes:
        if not isinstance(value, (RelaxExpr, Numbers)):
            return bytes(self.onnx.TypeProto().SerializeToString())
        element = self.onnx.helper.np_dtype_to_tensor_dtype(const(0, value.dtype).data.dtype)
        made = self.onnx.helper.make_tensor_type_proto(
            element,
            [extent if isinstance(extent, int) else as_int(extent) for extent in value.shape],
        )
        return bytes(made.SerializeToString())

    def _bound(self, node: onnx.NodeProto, name: str, value: Value) -> Value:
        """Bind a converted value to a variable named as the node's result."""
        if isinstance(value, np.ndarray):
            return const(value)
        if not isinstance(value, RelaxExpr) or isinstance(value, (RelaxVar, Constant)):
            return value
        info = value.struct_info
        if isinstance(info, TupleStructInfo) and not isinstance(value, TupleGetItem):
            raise ImportModelError(f"{place(node)}: its converter returned a tuple")
        if isinstance(info, TensorStructInfo):
            known_part = [as_int(extent) for extent in info.shape]
            if math.prod(item for item in known_part if item) > MOST_ELEMENTS:
                raise ImportModelError(f"{place(node)}: its result {info!r} is too large")
        return self.builder.emit(value, identifier(name, "lv"))

    def _sources(self, value: Value) -> list[str]:
        """Names of the model's inputs from which a value is computed."""
        names: dict[RelaxExpr, str] = {}
        for name, param in self.inputs.items():
            for item in param if isinstance(param, list) else [param]:
                if isinstance(item, RelaxExpr):
                    names[item] = name
        found: dict[str, None] = {}
        seen: set[RelaxExpr] = set()
        stack: list[Any] = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, list):
                stack.extend(item)
            if not isinstance(item, RelaxExpr) or item in seen:
                continue
            seen.add(item)
            if item in names:
                found[names[item]] = None
            else:
                stack.extend(self.made_of.get(item, ()))
        return list(found)


def _opsets(imports: Sequence[onnx.OperatorSetIdProto], opset: int | None) -> dict[str, int]:
    """Versions by domain."""
    made = {_domain(item.domain): int(item.version) for item in imports}
    if opset is not None:
        made[""] = opset
    version = made.get("")
    if version is not None and version < 1:
        raise ImportModelError(f"there is no version {version} of ONNX's operators")
    return made


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
