"""``FuseOps``: groups calls of tensor functions into kernels.

The algorithm is Relay's: over the data flow of a block, find for each call its immediate
post-dominator, the call that all its results flow into, and fuse it with everything in between if
the access patterns (``AnnotateTIROpPattern``) allow. Contractions are fused with elementwise
consumers; elementwise chains with each other and a reduction after them; injective calls in a
second round. Each group becomes a function with attribute ``Primitive``, which ``FuseTIR`` turns
into one tensor function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.ir import IRModule, Pass, PassContext, Var, collect, free_vars
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import nested_bodies
from tilewright.relax.call_tir import call_tir_operands, is_call_tir, tensor_function
from tilewright.relax.expr import (
    Binding,
    DataflowBlock,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter, renew_symbols
from tilewright.relax.struct_info import (
    ShapeStructInfo,
    TensorStructInfo,
    defined_vars,
    same_shape,
    used_vars,
)
from tilewright.relax.transform.annotate_pattern import (
    OP_PATTERN,
    OpPattern,
    count_elements,
    is_read_once,
)
from tilewright.tir import BufferLoad, BufferStore, PrimFunc
from tilewright.tir.attrs import PRIMITIVE

Condition = Callable[[OpPattern, bool], bool]


class FuseOps(Pass):
    """Group calls; a group holds at most ``max_depth`` of them.

    At ``fuse_opt_level`` 0 nothing is grouped; -1 stands for the level of the pass context.
    """

    def __init__(self, fuse_opt_level: int = -1, *, max_depth: int = 256) -> None:
        self.fuse_opt_level = fuse_opt_level
        self.max_depth = max_depth

    def transform(self, mod: IRModule) -> IRModule:
        """Group the calls in every dataflow block."""
        level = self.fuse_opt_level
        if (PassContext.current().opt_level if level == -1 else level) == 0:
            return mod
        rewriter = _GroupRewriter(mod, self.max_depth)
        for name, function in mod.functions.items():
            if isinstance(function, Function) and not function.is_primitive:
                made = rewriter.rewrite(function)
                if made is not function:
                    rewriter.builder.update_func(name, made)
        return rewriter.builder.get() if rewriter.grouped else mod


@dataclass(eq=False)
class _Node:
    """A binding in the data flow."""

    binding: Binding
    index: int
    pattern: OpPattern
    computes: bool = True
    """Whether it computes elements, rather than moving them."""
    uses: list[tuple[_Node, OpPattern]] = field(default_factory=list)
    escapes: bool = False
    """Whether the result leaves the block or goes where fusion can't follow."""
    parent: _Node | None = None
    parent_pattern: OpPattern = OpPattern.OPAQUE
    depth: int = 0
    leader: _Node | None = None
    group_pattern: OpPattern = OpPattern.OPAQUE
    size: int = 1

    def group(self) -> _Node:
        node = self
        while node.leader is not None:
            node = node.leader
        return node


class _Partition:
    """Groups the bindings of one block."""

    def __init__(self, nodes: list[_Node], max_depth: int) -> None:
        self.nodes = nodes
        self.max_depth = max_depth
        self._dominate()
        for phase in (0, 1):
            for node in nodes:
                self._fuse(node, phase)

    def _dominate(self) -> None:
        for node in reversed(self.nodes):
            if node.escapes or not node.uses:
                node.depth = 1
                continue
            parent, pattern = None, OpPattern.ELEMENTWISE
            for position, (user, edge) in enumerate(node.uses):
                pattern = max(pattern, edge)
                if position == 0:
                    parent = user
                else:
                    parent, pattern = _common(parent, user, pattern)
            node.parent, node.parent_pattern = parent, pattern
            node.depth = 1 if parent is None else parent.depth + 1

    def _fuse(self, node: _Node, phase: int) -> None:
        sink = node.parent
        if sink is None or node.pattern == OpPattern.OPAQUE:
            return
        group = node.group()
        if group is sink.group() or _is_computed_before(node, sink):
            return
        kind = group.group_pattern
        if kind == OpPattern.OUTPUT_FUSABLE:
            if phase == 0 and node.parent_pattern <= OpPattern.BROADCAST:
                self._try(node, sink, lambda k, last: k <= OpPattern.BROADCAST)
        elif kind <= OpPattern.BROADCAST:
            if node.parent_pattern <= OpPattern.INJECTIVE or (
                node.parent_pattern == OpPattern.REDUCTION
            ):
                self._try(
                    node,
                    sink,
                    lambda k, last: (
                        k <= OpPattern.OUTPUT_FUSABLE if last else k <= OpPattern.INJECTIVE
                    ),
                )
        elif kind == OpPattern.INJECTIVE and phase == 1:
            self._try(node, sink, lambda k, last: k <= OpPattern.INJECTIVE)

    def _try(self, source: _Node, sink: _Node, allowed: Condition) -> None:
        path = self._path(source, sink, allowed)
        if path is None:
            return
        leaders = {node.group() for node in (source, *path, sink)}
        if sum(leader.size for leader in leaders) > self.max_depth:
            return
        root = sink.group()
        for leader in leaders:
            if leader is not root:
                leader.leader = root
                root.size += leader.size
                root.group_pattern = _combine(leader.group_pattern, root.group_pattern)

    def _path(self, source: _Node, sink: _Node, allowed: Condition) -> list[_Node] | None:
        """Calls between source and sink if all are allowed."""
        found: list[_Node] = []
        seen = {source}
        pending = [user for user, _ in source.uses]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            # Within the sink's group, what the edges allow is allowed.
            inside = node is not sink and node.group() is sink.group()
            if not inside and not allowed(node.group().group_pattern, node is sink):
                return None
            if node is not sink:
                found.append(node)
                pending.extend(user for user, _ in node.uses)
        return found


def _is_computed_before(source: _Node, sink: _Node) -> bool:
    """Whether something is better computed once, into memory, than by an epilogue that reads it.

    Such as the factors of a batch normalisation, of which there are fewer than results.
    """
    if sink.group().group_pattern != OpPattern.OUTPUT_FUSABLE:
        return False
    if sink.pattern == OpPattern.OUTPUT_FUSABLE or source.pattern > OpPattern.INJECTIVE:
        return False
    alone = source.group().size == 1 and not source.computes
    return not alone and _has_fewer(source.binding.var, sink.binding.var)


def _has_fewer(a: RelaxVar, b: RelaxVar) -> bool:
    """Whether a tensor has fewer elements than another, as far as can be seen."""
    infos = [var.struct_info for var in (a, b)]
    shapes = [info.shape for info in infos if isinstance(info, TensorStructInfo) and info.has_shape]
    if len(shapes) < 2:
        return False
    # Sizes that come with the call count where the other tensor hasn't the same.
    (first, more), (second, others) = map(count_elements, shapes)
    if more == others:
        return first < second
    return first <= second and not Counter(more) - Counter(others)


def _common(a: _Node | None, b: _Node | None, pattern: OpPattern) -> tuple[_Node | None, OpPattern]:
    """Least common ancestor of two nodes in the tree of post-dominators."""
    while a is not b:
        if a is None or b is None:
            return None, OpPattern.OPAQUE
        if a.depth < b.depth:
            pattern, b = max(pattern, b.parent_pattern), b.parent
        elif a.depth > b.depth:
            pattern, a = max(pattern, a.parent_pattern), a.parent
        else:
            pattern = max(pattern, a.parent_pattern, b.parent_pattern)
            a, b = a.parent, b.parent
    return a, pattern


def _combine(a: OpPattern, b: OpPattern) -> OpPattern:
    return max(a, b)


class _GroupRewriter(FunctionRewriter):
    """Moves each group of several calls into a function of its own."""

    def __init__(self, mod: IRModule, max_depth: int) -> None:
        super().__init__(mod)
        self.max_depth = max_depth
        self.grouped = False

    def rewrite(self, function: Function) -> Function:
        bodies = list(nested_bodies(function.body))
        self.outside = {var for body in bodies for var in used_graph_vars(body.body)}
        self.block_of: dict[RelaxVar, object] = {}
        blocks = [block for body in bodies for block in body.blocks]
        for block in blocks:
            for binding in block.bindings:
                for var in used_graph_vars(binding.value):
                    if self.block_of.get(var, block) is not block:
                        self.outside.add(var)
                self.block_of[binding.var] = block
        self.dataflow = {block.bindings for block in blocks if isinstance(block, DataflowBlock)}
        return super().rewrite(function)

    def rewrite_block(self, bindings: tuple[Binding, ...]) -> None:  # type: ignore[override]
        if bindings not in self.dataflow:
            super().rewrite_block(bindings)
            return
        nodes = self._nodes(bindings)
        _Partition(list(nodes.values()), self.max_depth)
        members: dict[_Node, list[_Node]] = {}
        for node in nodes.values():
            members.setdefault(node.group(), []).append(node)
        for binding in bindings:
            node = nodes[binding.var]
            group = members[node.group()]
            if len(group) == 1:
                self.rewrite_binding(binding)
            elif node is group[-1]:
                self._emit_group(group)

    def _nodes(self, bindings: tuple[Binding, ...]) -> dict[RelaxVar, _Node]:
        nodes: dict[RelaxVar, _Node] = {}
        for index, binding in enumerate(bindings):
            pattern = self._pattern(binding)
            node = _Node(binding, index, pattern, self._computes(binding), group_pattern=pattern)
            nodes[binding.var] = node
            node.escapes = binding.var in self.outside
            for var in used_graph_vars(binding.value):
                source = nodes.get(var)
                if source is None:
                    continue
                if pattern == OpPattern.OPAQUE:
                    source.escapes = True
                else:
                    source.uses.append((node, self._edge(binding, pattern, var)))
        return nodes

    def _pattern(self, binding: Binding) -> OpPattern:
        func = self._callee(binding)
        if func is None or not isinstance(binding.value.struct_info, TensorStructInfo):
            return OpPattern.OPAQUE
        return OpPattern(func.attrs.get(OP_PATTERN, OpPattern.OPAQUE))

    def _computes(self, binding: Binding) -> bool:
        func = self._callee(binding)
        stores = [] if func is None else collect(func.body, BufferStore)
        return not stores or not all(isinstance(store.value, BufferLoad) for store in stores)

    def _callee(self, binding: Binding) -> PrimFunc | None:
        if not is_call_tir(binding.value):
            return None
        assert isinstance(binding.value, RelaxCall)
        return tensor_function(self.mod, call_tir_operands(binding.value)[0])

    def _edge(self, binding: Binding, pattern: OpPattern, source: RelaxVar) -> OpPattern:
        """The pattern by which a call uses one operand, which may be simpler than its kind."""
        if pattern == OpPattern.BROADCAST:
            a, b = source.struct_info, binding.var.struct_info
            assert isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo)
            if same_shape(a.shape, b.shape):
                return OpPattern.ELEMENTWISE
        func = self._callee(binding)
        if pattern == OpPattern.OUTPUT_FUSABLE and func is not None:
            assert isinstance(binding.value, RelaxCall)
            _, args, _ = call_tir_operands(binding.value)
            operands = [func.buffers[i] for i, arg in enumerate(args) if arg is source]
            if all(is_read_once(func, operand) for operand in operands):
                return OpPattern.REDUCTION
        return pattern

    def _emit_group(self, group: list[_Node]) -> None:
        """Build the group's function and call it in place of the group's last call."""
        self.grouped = True
        inside = {node.binding.var for node in group}
        sources: dict[RelaxExpr, RelaxVar] = {}
        local: dict[RelaxExpr, RelaxExpr] = {}
        names: list[str] = []
        for node in group:
            value = self.resolve(node.binding.value)
            ref, args, _ = call_tir_operands(value)
            names.append(ref.name)
            for arg in args:
                if arg in inside or arg in sources:
                    continue
                name = arg.name if isinstance(arg, RelaxVar) else "param"
                sources[arg] = RelaxVar(_fresh_param(name, sources), arg.struct_info)
        local.update(sources.items())
        params = list(sources.values())
        operands = list(sources)
        extra = self._undefined_extents(group, params)
        if extra:
            params.append(RelaxVar("s", ShapeStructInfo(extra)))
            operands.append(ShapeExpr(tuple(extra)))

        last = group[-1].binding
        inner = BlockBuilder()

        def body() -> RelaxExpr:
            with inner.dataflow():
                for node in group:
                    value = _replace(self.resolve(node.binding.value), local)
                    if node is group[-1]:
                        return_var = RelaxVar("gv", value.struct_info)
                        inner.emit_binding(VarBinding(return_var, value))
                    else:
                        local[node.binding.var] = inner.emit(value)
            return return_var

        function = inner.build_function(params, body, {PRIMITIVE: True})
        gvar = self.builder.add_func(renew_symbols(function), _group_name(names))
        call = RelaxCall(gvar, tuple(operands), {}, (self.resolve(last.value).struct_info,))
        self.bind(last.var, call)

    def _undefined_extents(self, group: list[_Node], params: list[RelaxVar]) -> list[Var]:
        defined = set(defined_vars([param.struct_info for param in params]))
        missing: dict[Var, None] = {}
        for node in group:
            found = used_vars(node.binding.var.struct_info)
            for var in (*found, *free_vars(node.binding.value)):
                if var not in defined:
                    missing.setdefault(var)
        for param in params:
            for var in used_vars(param.struct_info):
                if var not in defined:
                    missing.setdefault(var)
        return list(missing)


def _replace(value: RelaxCall, mapping: dict[RelaxExpr, RelaxExpr]) -> RelaxCall:
    args = value.args[1]
    assert isinstance(args, Tuple)
    made = Tuple(tuple(mapping.get(arg, arg) for arg in args.fields))
    return value.replace(args=(value.args[0], made, *value.args[2:]))


def _fresh_param(name: str, taken: dict[RelaxExpr, RelaxVar]) -> str:
    names = {var.name for var in taken.values()}
    made, number = name, 0
    while made in names:
        number += 1
        made = f"{name}{number}"
    return made


def _group_name(names: list[str]) -> str:
    made = "fused_" + "_".join(re.sub(r"_\d+$", "", name) for name in names)
    return made if len(made) <= 120 else made[:100] + f"_and_{len(names)}_calls"
