"""From a ``torch.export`` program to a graph function: the walk over its nodes.

The graph is imported as exported: ``linear``, ``layer_norm`` or attention stay whole where there is
a converter; PyTorch first decomposes only operators without one. Programs that write into tensors
are made functional.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilewright.arith import Analyzer
from tilewright.ir import Expr, IRModule, Var, free_vars
from tilewright.relax import ops as op
from tilewright.relax.assertion import assertion
from tilewright.relax.expr import Constant, ConstantData, RelaxExpr, RelaxVar, Tuple
from tilewright.relax.frontend.torch.converters import CONVERTERS, Context, Converter, is_known
from tilewright.relax.frontend.torch.exported import (
    as_real,
    functionalize,
    location,
    require_torch,
    take_apart,
    to_numpy,
    written_buffers,
)
from tilewright.relax.frontend.torch.guards import guards_of
from tilewright.relax.frontend.torch.nodes import (
    CustomConverter,
    NodeConverter,
    branch_graphs,
    constant,
    custom_converter,
    is_branches,
    is_complex,
    is_scalar,
    is_statement,
    operator_name,
    table_converter,
)
from tilewright.relax.frontend.torch.pairs import Complex
from tilewright.relax.struct_info import defined_vars, used_vars
from tilewright.relax.transform import ConvertToDataflow
from tilewright.support.collector import few_collections
from tilewright.support.errors import ImportModelError

if TYPE_CHECKING:
    import torch

Results = Callable[[list[RelaxExpr]], RelaxExpr]
"""Makes of results what ``main`` returns."""


@few_collections()
def from_exported_program(
    exported_program: torch.export.ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = True,
    custom_convert_map: Mapping[str, CustomConverter] | None = None,
    run_ep_decomposition: bool = False,
) -> IRModule:
    """Import a ``torch.export.ExportedProgram`` as a module with the function ``main``.

    ``main`` takes the user inputs that are tensors (inputs fixed by the export, such as ``None`` or
    a number, are dropped) and returns a flat tuple of the outputs, with symbolic sizes as
    0-dimensional int64 tensors; with ``unwrap_unit_return_tuple`` a single output is returned by
    itself, and without ``no_bind_return_tuple`` the tuple is bound to a variable first. Parameters
    and buffers are constants. With ``keep_params_as_input`` they follow the user inputs as
    parameters instead, and ``relax.frontend.detach_params`` gives their values. Complex inputs,
    parameters and outputs are real tensors with a last axis of 2, as ``torch.view_as_real`` makes
    them.

    ``main`` is pure. Buffers that the model writes into, such as caches of keys and values, are
    parameters after the user inputs, and the new values of buffers and inputs that it writes into
    are returned before the outputs, in the order of ``program.graph_signature`` after
    ``program.run_decompositions({})``. ``tilewright.compile`` writes them back.

    ``custom_convert_map`` adds or replaces converters by operator, with its namespace or without,
    of one variant or of all (``"aten.sigmoid.default"``, ``"sigmoid.default"``, ``"sigmoid"``).
    They get a node and the importer:

        def convert(node: torch.fx.Node, importer: ExportedProgramImporter) -> relax.Var:
            (x,) = importer.retrieve_args(node)
            return importer.block_builder.emit(relax.op.sigmoid(x))

    ``register_converter`` does so for all imports. Operators with a converter are imported whole;
    with ``run_ep_decomposition`` PyTorch first takes the program apart into its core operators.

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
    if run_ep_decomposition:
        exported_program = exported_program.run_decompositions()
    return import_program(
        exported_program,
        custom_convert_map,
        keep_params=keep_params_as_input,
        results=_unwrapped if unwrap_unit_return_tuple else _as_tuple,
        bind=not no_bind_return_tuple,
    )


def import_program(
    exported_program: torch.export.ExportedProgram,
    custom: Mapping[str, CustomConverter] | None,
    *,
    keep_params: bool,
    results: Results,
    bind: bool,
) -> IRModule:
    """Import a program whose results are put together by a function.

    If a tuple is what that gives, it is bound to a variable with ``bind``.
    """
    importer = _importer(exported_program, dict(custom or {}), keep_params=keep_params)
    importer.put_together, importer.bind = results, bind
    return importer.run()


def _as_tuple(results: list[RelaxExpr]) -> RelaxExpr:
    return Tuple(tuple(results))


def _unwrapped(results: list[RelaxExpr]) -> RelaxExpr:
    return results[0] if len(results) == 1 else _as_tuple(results)


def import_to_compile(
    exported_program: torch.export.ExportedProgram,
) -> tuple[IRModule, list[tuple[int, int]]]:
    """Import a program as ``from_exported_program`` does, without copying parameters and buffers.

    The constants are lent: whoever keeps some of them materializes those, see ``ConstantData``.

    Results may have sizes that only data tell. Such a result is as large as it may become; which
    ones and along which axes is returned, and the sizes, 0-dimensional, are further results.
    """
    importer = _importer(exported_program, {}, copies=False)
    importer.cuts = []
    return importer.run(), importer.cuts


def functional_to_compile(
    exported_program: torch.export.ExportedProgram,
) -> torch.export.ExportedProgram:
    """Make a program that writes functional, as ``import_to_compile`` needs it."""
    return functionalize(
        exported_program, lambda candidate: _Support(candidate, {}, True).missing_targets()
    )


def _importer(
    exported_program: torch.export.ExportedProgram,
    custom: Mapping[str, CustomConverter],
    *,
    keep_params: bool = False,
    copies: bool = True,
) -> ExportedProgramImporter:

    def unsupported(candidate: torch.export.ExportedProgram) -> list[Any]:
        return _Support(candidate, custom, not keep_params).missing_targets()

    program = take_apart(functionalize(exported_program, unsupported), unsupported)
    support = _Support(program, custom, not keep_params)
    support.require()
    return ExportedProgramImporter(program, support, keep_params, copies)


class _Support:
    """Which nodes of a program can be converted, and how."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        custom: Mapping[str, CustomConverter],
        fold_params: bool,
    ) -> None:
        self.custom = custom
        self.static: dict[object, object] = {}
        """Nodes whose tensors are known now, with them: lifted constants and what follows."""
        self.missing: list[Any] = []
        self._torch = require_torch()
        self._lift(program, fold_params)
        self.has_branches = False
        self._look_at(program.graph)

    def _look_at(self, graph: torch.fx.Graph) -> None:
        """Note what isn't supported in a graph, branches included."""
        for node in graph.nodes:
            if is_branches(node):
                self.has_branches = True
                for branch in branch_graphs(node):
                    self._look_at(branch)
            elif node.op == "call_function" and not self._is_supported(node):
                self.missing.append(node)

    def converter(self, node: torch.fx.Node) -> Converter | None:
        """The converter of a node's operator in the table, if there is one."""
        return table_converter(self._torch, node)

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
            lines.append(f"  {operator_name(target)}: {location(nodes[0])}{more}")
            if all(is_complex(self._torch, node) for node in nodes):
                known = "; for real ones it is known" if is_known(str(target)) else ""
                lines.append(f"    of complex numbers{known}")
            if self._torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
                lines.append(
                    "    it draws random numbers: pass them as an input, or use torch.compile, "
                    "where PyTorch draws them"
                )
            close = _near(operator_name(target), [*self.custom, *CONVERTERS])
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
        written = written_buffers(program)
        tensors = {
            name: item for name, item in _lifted_tensors(program).items() if name not in written
        }
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in tensors:
                kind, tensor = tensors[node.name]
                if fold_params or kind == "constant":
                    self.static[node] = tensor

    def _is_supported(self, node: torch.fx.Node) -> bool:
        if node.target is operator.getitem or is_scalar(self._torch, node.meta.get("val")):
            return True
        if is_statement(node):
            return True
        if custom_converter(self.custom, node) or self.converter(node) is not None:
            return True
        return self._evaluate(node)

    def _evaluate(self, node: torch.fx.Node) -> bool:
        """Let PyTorch compute, once, an operator on constants that has no converter."""
        if not isinstance(node.target, self._torch._ops.OpOverload):
            return False
        if self._torch.Tag.nondeterministic_seeded in node.target.tags:
            return False
        if node.target._schema.is_mutable:
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


def _unknown_size(number: int, value: RelaxExpr | Complex, size: Expr, cuts: object) -> str:
    info = (value.real if isinstance(value, Complex) else value).struct_info
    remedy = (
        "tilewright.compile cuts such results to their size if they can't be larger than a formula "
        "of the inputs' sizes"
        if cuts is None
        else "it has no bound"
    )
    return (
        f"output {number} has the shape {info!r}, and only data tell {size!r}: such tensors may be "
        f"used inside of a model, but not returned; {remedy}. Or return as many elements as there "
        "can be and their number (torch.nonzero_static), or use torch.compile, where PyTorch "
        "computes them"
    )


def _near(name: str, known: list[str]) -> list[str]:
    """Operators with a middle component (``softmax`` of ``aten.softmax.int``) like a name's."""
    by_stem: dict[str, list[str]] = {}
    for item in known:
        by_stem.setdefault(_stem(item), []).append(item)
    close = difflib.get_close_matches(_stem(name), list(by_stem), n=2, cutoff=0.75)
    return [item for stem in close for item in by_stem[stem]][:4]


def _stem(name: str) -> str:
    return name.split(".")[1] if name.count(".") > 1 else name


def _tokens(specs: Iterable[Any]) -> set[str]:
    """Names of what orders effects, and is no value."""
    return {spec.arg.name for spec in specs if spec.kind.name == "TOKEN"}


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


class ExportedProgramImporter(NodeConverter):
    """One import of an exported program."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        support: _Support,
        keep_params: bool,
        copies: bool,
    ) -> None:
        super().__init__(support.converter, support.custom, sizes_from_data=True)
        self.program = program
        self.support = support
        self.keep_params = keep_params
        self.copies = copies
        self.put_together: Results = _as_tuple
        self.bind = False
        self.cuts: list[tuple[int, int]] | None = None
        """Results (and axes) that are to be cut to sizes only data tell, if those are allowed."""
        self.held: dict[object, Constant] = {}
        self.params: dict[str, NDArray[Any]] = {}

    def run(self) -> IRModule:
        """Return the module of the program."""
        nodes = list(self.program.graph.nodes)
        inputs, held = self._placeholders([node for node in nodes if node.op == "placeholder"])
        results = self._results(next(node for node in nodes if node.op == "output"))
        wanted = set(results)
        attrs: dict[str, Any] = {}
        if self.keep_params:
            attrs["num_input"] = len(inputs)
            attrs["params"] = tuple(ConstantData(array) for array in self.params.values())
        with self.builder.function("main", [*inputs, *held], attrs):
            self._check_guards(nodes)
            # No dataflow block takes branches.
            with nullcontext() if self.support.has_branches else self.builder.dataflow():
                self.receive()
                for node in nodes:
                    if node.op == "call_function":
                        self._import_node(node, is_output=node in wanted)
                known = defined_vars([param.struct_info for param in (*inputs, *held)])
                sizes = self._cut_results(results, set(known))
                made = self.put_together([*(self.output(node) for node in results), *sizes])
                if self.bind and isinstance(made, Tuple):
                    made = self._emit(made, "outputs", True)
            self.builder.emit_func_output(made)
        mod = self.builder.get()
        return ConvertToDataflow(1)(mod) if self.support.has_branches else mod

    def _check_guards(self, nodes: list[Any]) -> None:
        """Assert what the export took for granted about the inputs' sizes."""
        shapes = {
            node.name: self.symbols.shape(node.meta["val"].shape)
            for node in nodes
            if node.op == "placeholder" and isinstance(node.meta.get("val"), self.torch.Tensor)
        }
        analyzer = Analyzer()
        for condition in guards_of(self.program, shapes, self.symbols, self._shapes(nodes)):
            if not analyzer.can_prove(condition.expr):
                analyzer.assume(condition.expr)
                self.builder.emit(assertion(condition), "_")

    def _shapes(self, nodes: list[Any]) -> Iterator[tuple[Expr, ...]]:
        """Shapes of the graph's tensors, those that are formulas of the inputs' sizes."""
        for node in nodes:
            made = node.meta.get("val")
            for value in made if isinstance(made, (list, tuple)) else (made,):
                if isinstance(value, self.torch.Tensor):
                    with suppress(ImportModelError):  # a size that has no form: others may do
                        yield self.symbols.shape(value.shape)

    def _cut_results(self, nodes: list[Any], known: set[Var]) -> list[RelaxExpr]:
        """Fill up results whose sizes only data tell; gives these sizes."""
        made: list[RelaxExpr] = []
        filled: dict[Any, list[tuple[int, Expr]]] = {}
        for number, node in enumerate(nodes):
            if node not in filled:
                filled[node] = self._fill_up(number, node, known)
            for axis, size in filled[node]:
                assert self.cuts is not None, "results are filled up to be cut"
                self.cuts.append((number, axis))
                context = Context(node, self.builder, self.symbols, location)
                made.append(self._emit(context.tensor(size), f"{node.name}_size", True))
        return made

    def _fill_up(self, number: int, node: object, known: set[Var]) -> list[tuple[int, Expr]]:
        """Make a result as large as it may become; gives the axes of this, and their real sizes."""
        value = self._value(node)
        if not isinstance(value, (RelaxExpr, Complex)):
            return []
        found = []
        for axis, size in enumerate(value.shape):
            if known.issuperset(free_vars(size)):
                continue
            most = self.symbols.bound(size)
            if self.cuts is None or most is None or not known.issuperset(free_vars(most)):
                raise ImportModelError(_unknown_size(number, value, size, self.cuts))
            value = self._filled_up(value, axis, most - size)
            found.append((axis, size))
        self.values[node] = value
        return found

    def _filled_up(self, value: RelaxExpr | Complex, axis: int, count: Expr) -> Any:
        """A value with so many zeros after it."""
        if isinstance(value, Complex):
            return value.map(lambda part: self._filled_up(part, axis, count))
        shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
        return self.builder.emit(op.concat([value, op.zeros(shape, value.dtype)], axis))

    def _import_node(self, node: torch.fx.Node, *, is_output: bool) -> None:
        if node in self.support.static and not self.has_converter(node):
            self.values[node] = constant(self.support.static[node])
        else:
            self.convert(node, is_output=is_output)

    # ---- inputs and outputs ---------------------------------------------------------------------

    def _placeholders(self, nodes: list[Any]) -> tuple[list[RelaxVar], list[RelaxVar]]:
        """Create the function's parameters and the constants for the model's tensors."""
        tensors = _lifted_tensors(self.program)
        tokens = _tokens(self.program.graph_signature.input_specs)
        given = [node for node in nodes if node.name not in tensors and node.name not in tokens]
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
            self.parameter(node)
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
        written = written_buffers(self.program)
        for node in nodes:
            if node.name not in tensors or not (node.users or node.name in written):
                continue
            kind, tensor = tensors[node.name]
            if node.name in written or (self.keep_params and kind != "constant"):
                held.append(self.parameter(node))
                self.params[node.name] = to_numpy(as_real(tensor))
            else:
                self.values[node] = self._constant(tensor)
        return inputs, held

    def _constant(self, tensor: torch.Tensor) -> RelaxExpr | Complex:
        """The constant for a tensor of the model; one for all names of a tensor."""
        if tensor.is_complex():
            return constant(tensor)
        key = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        if key not in self.held or not tensor.numel():
            array = to_numpy(tensor, copy=self.copies)
            self.held[key] = Constant(ConstantData(array, lent=not self.copies))
        return self.held[key]

    def _results(self, output: torch.fx.Node) -> list[Any]:
        """Nodes that are returned, in order."""
        results: list[Any] = []
        for spec, node in zip(self.program.graph_signature.output_specs, output.args[0]):
            kind = spec.kind.name
            if kind == "TOKEN":
                continue
            if kind == "PARAMETER_MUTATION":
                raise ImportModelError(
                    f"the model writes into its parameter {spec.target!r}: call it once before it "
                    "is compiled if only its first call does so, else use torch.compile"
                )
            if kind not in ("USER_OUTPUT", "BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                raise ImportModelError(
                    f"output {spec.arg!r} is of the kind {kind}; only inference programs are "
                    "supported"
                )
            if not isinstance(node, self.torch.fx.Node):
                continue  # a constant, which whoever calls the program knows
            value = node.meta.get("val")
            if not isinstance(value, self.torch.Tensor) and not is_scalar(self.torch, value):
                raise ImportModelError(
                    f"output {len(results)} is {value!r}, no tensor: let the model return tensors "
                    "only"
                )
            results.append(node)
        return results
