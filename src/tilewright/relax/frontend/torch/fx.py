"""Graphs of ``torch.fx`` as modules: those of ``symbolic_trace``, and of ``torch.compile``.

A graph module is exported with inputs of the shapes that ``input_info`` says, and the exported
program is imported: one table of converters serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.ir import IRModule, Var, as_int
from tilewright.relax.expr import RelaxExpr, Tuple
from tilewright.relax.frontend.torch.exported import require_torch
from tilewright.relax.frontend.torch.importer import import_program
from tilewright.relax.frontend.torch.nodes import CustomConverter
from tilewright.support.errors import ImportModelError

if TYPE_CHECKING:
    import torch

InputInfo = Sequence[tuple[Sequence[Any], Any]]
"""``(shape, dtype)`` of each input; extents may be variables, dtypes ``"torch.float32"``."""


def from_fx(
    model: torch.fx.GraphModule,
    input_info: InputInfo,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = True,
    custom_convert_map: Mapping[str, CustomConverter] | None = None,
) -> IRModule:
    """Import a graph module of ``torch.fx`` as a module with the function ``main``.

    ``main`` takes the inputs as ``inp_0``, ``inp_1``, …, and returns what the model does: a tensor,
    or tuples of them (a list and the values of a dictionary are tuples). The model is imported for
    inference, as after ``model.eval()``. The other arguments are those of
    ``from_exported_program``; names in ``custom_convert_map`` are those of ATen's operators.

        graph = torch.fx.symbolic_trace(model)
        mod = from_fx(graph, [((1, 3, 224, 224), "float32")])

    Raises ``ImportModelError`` for anything else, for a number of inputs that isn't the model's,
    and for an unsupported operator.
    """
    torch = require_torch()
    if not isinstance(model, torch.fx.GraphModule):
        raise ImportModelError(
            f"expected a torch.fx.GraphModule, got {type(model).__name__}; make one with "
            "torch.fx.symbolic_trace(model)"
        )
    for name in custom_convert_map or ():
        if not isinstance(name, str):
            raise ImportModelError(
                f"{name!r} in custom_convert_map is no name of an operator: the operators inside "
                'of layers are imported, "conv2d.default" for one'
            )
    graph_module = _with_numbered_inputs(model, len(input_info))
    inputs, dims = _examples(input_info)
    with _for_inference(model):
        program = torch.export.export(
            graph_module, tuple(inputs), dynamic_shapes=tuple(dims) if any(dims) else None
        )
    return import_program(
        program,
        custom_convert_map,
        keep_params=keep_params_as_input,
        results=_nested(program.call_spec.out_spec, unwrap_unit_return_tuple),
        bind=not no_bind_return_tuple,
    )


def dynamo_capture_subgraphs(
    model: Any, *params: Any, keep_params_as_input: bool = False, **kwargs: Any
) -> IRModule:
    """Import the graphs that ``torch.compile`` makes of a model, when it is called with ``params``.

    They are the functions ``subgraph_0``, ``subgraph_1``, …; between them is what PyTorch runs by
    itself. Parameters of the model are constants, or with ``keep_params_as_input`` parameters,
    whose values ``relax.frontend.detach_params`` gives. ``kwargs`` are the model's.

    Raises ``ImportModelError`` as ``from_fx`` does, and for graphs of symbolic sizes.
    """
    torch = require_torch()
    own: list[Any] = []
    if isinstance(model, torch.nn.Module):
        own = [*model.parameters(), *model.buffers()]
    graphs: list[tuple[Any, list[Any]]] = []

    def capture(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        # What layers hold is passed to the graph, too.
        held = {
            number: value
            for number, value in enumerate(example_inputs)
            if any(value is item for item in own)
        }
        # What it takes is looked at later: PyTorch wraps errors of a backend.
        given = [value for i, value in enumerate(example_inputs) if i not in held]
        graphs.append((_with_attributes(graph_module, held), given))
        run: Callable[..., Any] = graph_module.forward
        return run

    torch._dynamo.reset()
    torch.compile(model, backend=capture)(*params, **kwargs)
    mod = IRModule()
    for number, (graph_module, given) in enumerate(graphs):
        made = from_fx(
            graph_module,
            [_info(value) for value in given],
            keep_params_as_input=keep_params_as_input,
            unwrap_unit_return_tuple=True,
        )
        mod[f"subgraph_{number}"] = made["main"]
    return mod


def _info(value: Any) -> tuple[tuple[int, ...], Any]:
    torch = require_torch()
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in value.shape):
        raise ImportModelError(
            f"a graph takes {value!r}: only graphs of tensors of known sizes are captured; "
            "torch.compile(..., dynamic=False) makes them"
        )
    return tuple(value.shape), value.dtype


def _with_numbered_inputs(model: Any, count: int) -> Any:
    """The graph module with inputs called ``inp_0``, ``inp_1``, …; it shares all that it holds."""
    torch = require_torch()
    graph = torch.fx.Graph()
    places = [node for node in model.graph.nodes if node.op == "placeholder"]
    if len(places) != count:
        names = ", ".join(str(node.target) for node in places)
        raise ImportModelError(
            f"input_info has {count} inputs, the model takes {len(places)}: {names}"
        )
    made = {node: graph.placeholder(f"inp_{number}") for number, node in enumerate(places)}
    graph.output(graph.graph_copy(model.graph, made))
    return torch.fx.GraphModule(model, graph)


def _with_attributes(model: Any, held: Mapping[int, Any]) -> Any:
    """The graph module with some inputs as tensors that it holds."""
    torch = require_torch()
    graph, made = torch.fx.Graph(), {}
    result = torch.fx.GraphModule(model, torch.fx.Graph())
    for number, node in enumerate(n for n in model.graph.nodes if n.op == "placeholder"):
        if number not in held:
            made[node] = graph.placeholder(node.target)
            continue
        value = held[number]
        if isinstance(value, torch.nn.Parameter):
            result.register_parameter(f"held_{number}", value)
        else:
            result.register_buffer(f"held_{number}", value)
        made[node] = graph.get_attr(f"held_{number}")
    graph.output(graph.graph_copy(model.graph, made))
    result.graph = graph
    return result


@contextmanager
def _for_inference(model: Any) -> Iterator[None]:
    """Put the layers of a model into the mode of inference meanwhile, and no gradients."""
    torch = require_torch()
    training = [layer for layer in model.modules() if layer.training]
    try:
        for layer in training:
            layer.training = False
        with torch.no_grad():
            yield
    finally:
        for layer in training:
            layer.training = True


def _examples(input_info: InputInfo) -> tuple[list[Any], list[dict[int, Any] | None]]:
    """A tensor for each input, whose values nobody sees, and which axes are symbolic."""
    torch = require_torch()
    symbols: dict[Var, tuple[int, Any]] = {}
    inputs, dims = [], []
    for number, info in enumerate(input_info):
        try:
            (*shape,), dtype = info
        except (TypeError, ValueError):
            raise ImportModelError(
                f'input {number} is {info!r}: it must be a shape and a dtype, ((2, 3), "float32")'
            ) from None
        sizes, axes = [], {}
        for axis, extent in enumerate(shape):
            size = as_int(extent)
            if size is None or size < 0:
                if not isinstance(extent, Var):
                    raise ImportModelError(
                        f"extent {axis} of input {number} is {extent!r}: it must be a number, not "
                        "negative, or a variable"
                    )
                # 0 and 1 would be taken for constants.
                made = 3 + 2 * len(symbols), torch.export.Dim(extent.name, min=0)
                size, axes[axis] = symbols.setdefault(extent, made)
            sizes.append(size)
        inputs.append(torch.empty(sizes, dtype=_dtype(dtype)))
        dims.append(axes or None)
    return inputs, dims


def _dtype(dtype: Any) -> Any:
    torch = require_torch()
    found = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ImportModelError(f"{dtype!r} is no dtype of PyTorch")
    return found


def _nested(spec: Any, unwrap: bool) -> Callable[[list[RelaxExpr]], RelaxExpr]:
    """Return what puts results together as the model returns them."""

    def build(spec: Any, left: Iterator[RelaxExpr]) -> RelaxExpr:
        if not spec.num_nodes > 1 and spec.num_leaves == 1:
            return next(left)
        return Tuple(tuple(build(child, left) for child in spec.children()))

    def put_together(results: list[RelaxExpr]) -> RelaxExpr:
        if len(results) != spec.num_leaves:
            raise ImportModelError(
                "the model writes into its inputs or buffers, or returns something that is no "
                "tensor: from_exported_program says in which order its results are then"
            )
        made = build(spec, iter(results))
        if unwrap and isinstance(made, Tuple) and len(made.fields) == 1:
            return made.fields[0]
        return made

    return put_together
