"""Programs that write into tensors, made functional without tracing them again.

``ExportedProgram.run_decompositions`` traces the whole program, which takes longer than all that we
do with a convolutional network. Most models only write into what an operator has just made, as
``relu_`` after a convolution does: there the writing operator becomes the one that makes a new
tensor, and whoever reads the old one later reads that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.relax.frontend.torch.converters import CONVERTERS

if TYPE_CHECKING:
    import torch

#: Operators made of others, whose results are their own memory. The rest of these may return their
#: operand, as ``dropout`` does in evaluation.
_FRESH = frozenset(
    "aten.conv1d.default aten.conv2d.default aten.conv2d.padding aten.conv3d.default "
    "aten.linear.default aten.layer_norm.default aten.max_pool2d.default "
    "aten.adaptive_avg_pool2d.default".split()
)


def without_writes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram | None:
    """Return a functional program, or ``None`` if a write is not of the simple kind.

    The simple kind writes into one floating-point tensor, which an operator of the program has made
    and of which there is no view when it is written into.
    """
    import torch

    graph = torch.fx.Graph()
    made: dict[Any, Any] = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or not _may_write(torch, node):
            made[node] = graph.node_copy(node, made.__getitem__)
            continue
        if _does_nothing(node):
            made[node] = made[node.args[0]]
            continue
        target = _functional(torch, node)
        if target is None or not _is_alone(torch, node):
            return None
        copied = made[node] = graph.node_copy(node, made.__getitem__)
        copied.target = target
        written = node
        while written is not None:  # what was written into, by this and by earlier operators
            written = _written_by(torch, written)
            if written is not None:
                made[written] = copied
    root = torch.fx.GraphModule(program.graph_module, graph)
    root.meta.update(program.graph_module.meta)
    return torch.export.ExportedProgram(
        root,
        graph,
        program.graph_signature,
        program.state_dict,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=program.verifiers,
    )


def _may_write(torch: Any, node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return isinstance(node.target, torch._ops.HigherOrderOperator)
    return bool(node.target._schema.is_mutable)


def _does_nothing(node: torch.fx.Node) -> bool:
    """Whether an operator is dropout in evaluation, whose result nobody asks for by name."""
    is_dropout = str(node.target) == "aten.dropout_.default" and not node.args[2]
    return is_dropout and all(user.op != "output" for user in node.users)


def _written_by(torch: Any, node: torch.fx.Node) -> torch.fx.Node | None:
    """The node into whose tensor an operator writes; ``None`` for one that makes a tensor."""
    if node.op == "call_function" and _may_write(torch, node):
        found = node.args[0]
        return found if isinstance(found, torch.fx.Node) else None
    return None


def _functional(torch: Any, node: torch.fx.Node) -> Any:
    """The operator that gives what a node's operator writes into its first operand, if any."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not node.args:
        return None
    schema = target._schema
    name, overload = schema.name.rpartition("::")[2], target._overloadname
    packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
    found = getattr(packet, overload, None)
    if target.namespace != "aten" or found is None or f"{found}" not in CONVERTERS:
        return None
    plain = [(item.name, str(item.type)) for item in found._schema.arguments]
    if plain != [(item.name, str(item.type)) for item in schema.arguments]:
        return None
    if [item.name for item in schema.arguments if item.alias_info] != [schema.arguments[0].name]:
        return None
    if torch.Tag.nondeterministic_seeded in target.tags:
        return None
    # Otherwise the result could be of another type than what is written into.
    values = [source.meta.get("val") for source in node.all_input_nodes]
    if not all(isinstance(value, torch.Tensor) for value in values):
        return None
    dtypes = {value.dtype for value in (*values, node.meta["val"])}
    return found if len(dtypes) == 1 and dtypes.pop().is_floating_point else None


def _is_alone(torch: object, node: torch.fx.Node) -> bool:
    """Whether nothing else shares the memory that a node writes into."""
    chain = []
    written = _written_by(torch, node)
    while written is not None:
        chain.append(written)
        root, written = written, _written_by(torch, written)
    if not chain or not _makes_own(torch, root):
        return False
    for tensor in chain:
        for user in tensor.users:
            # The output refers to nodes by name. A write twice into one tensor is not looked into.
            if user.op == "output" or (user is not node and not _reads_only(torch, user, chain)):
                return False
    return True


def _reads_only(torch: object, user: torch.fx.Node, chain: list[Any]) -> bool:
    return user in chain or _makes_own(torch, user)


def _makes_own(torch: Any, node: torch.fx.Node) -> bool:
    """Whether an operator's result is memory of its own, and it writes into no operand."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    schema = target._schema
    if any(item.alias_info for item in (*schema.arguments, *schema.returns)):
        return False
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return False
    if str(target) == "aten.batch_norm.default":
        return not node.args[5]
    return str(target) in _FRESH or not (
        target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    )
