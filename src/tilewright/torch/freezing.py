"""Parameters as constants of an inference graph: the option ``freezing``.

What ``nn.Module`` holds comes with each call of a graph. With ``freezing`` it is a constant of the
graph instead, so weights are packed, folded and transformed once. Each call makes sure that it gets
the same tensors, unchanged since; otherwise (another instance of the class, weights that were
loaded later) the graph is compiled a second time, without constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Run = Callable[[list[Any]], Any]
Compile = Callable[["GraphModule"], Run]


def compile_frozen(graph_module: GraphModule, example_inputs: Sequence[Any], make: Compile) -> Run:
    """Compile a graph of AOTAutograd whose parameters and buffers are constants.

    ``example_inputs`` are those that TorchDynamo gave the backend, ``make`` compiles a graph to a
    function that takes a list, which it empties.
    """
    places = {
        number: value
        for number, value in _static_inputs(graph_module, example_inputs).items()
        if _is_constant(_inputs(graph_module)[number], value)
    }
    if not places:
        return make(graph_module)
    frozen = make(_with_constants(graph_module, places))
    known = [(number, value, value._version) for number, value in places.items()]
    kept = [number for number in range(len(_inputs(graph_module))) if number not in places]
    others: list[Run] = []

    def run(inputs: list[Any]) -> Any:
        for number, value, version in known:
            if inputs[number] is not value or value._version != version:
                if not others:
                    others.append(make(graph_module))
                return others[0](inputs)
        rest = [inputs[number] for number in kept]
        inputs.clear()
        return frozen(rest)

    return run


def _inputs(graph_module: GraphModule) -> list[Node]:
    return [node for node in graph_module.graph.nodes if node.op == "placeholder"]


def _static_inputs(graph_module: GraphModule, example_inputs: Sequence[Any]) -> dict[int, Any]:
    """The graph's inputs that modules hold, by number."""
    import torch

    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return {}
    values = [*(context.params_flat or ()), *example_inputs]
    inputs = _inputs(graph_module)
    if len(values) != len(inputs):
        return {}  # AOTAutograd made others of the inputs
    return {number: values[number] for number in context.fw_metadata.static_input_indices}


def _is_constant(node: Node, value: Any) -> bool:
    """Whether an input can be a constant: the graph neither writes it nor returns it."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_inference()  # whose changes PyTorch doesn't count
        and value.shape == node.meta["val"].shape
        and not any(
            user.op == "output"
            or (str(user.target) == "aten.copy_.default" and user.args[0] is node)
            for user in node.users
        )
    )


def _with_constants(graph_module: GraphModule, places: dict[int, Any]) -> GraphModule:
    """A copy of the graph in which inputs are attributes of its module."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    made = torch.fx.GraphModule(graph_module, graph)
    for number, node in enumerate(_inputs(made)):
        if number not in places:
            continue
        name = f"frozen_{number}"
        with _disable_current_modes():  # AOTAutograd's, of tensors without values
            made.register_buffer(name, places[number].detach(), persistent=False)
        with made.graph.inserting_before(node):
            constant = made.graph.get_attr(name)
        constant.meta = node.meta
        node.replace_all_uses_with(constant)
        made.graph.erase_node(node)
    return made
