"""``LiftTransformParams``: what is computed from weights alone moves into a function of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from tilewright.ir import IRModule, Pass, free_vars, substitute
from tilewright.relax.analysis import NUM_INPUT, is_impure, used_graph_vars, weights_of
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Function,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import TupleStructInfo, same_struct_info, used_vars
from tilewright.relax.transform.eliminate_common_subexpr import identity_key
from tilewright.support.errors import VerifyError
from tilewright.tir import fresh_name


class LiftTransformParams(Pass):
    """Add functions that compute once, when weights are loaded, what depends on weights only.

    For each function with the attribute ``num_input``, ``<name>_transform_params`` takes the tuple
    of its weights and returns the tuple of what the function takes instead of them. With
    ``shared_transform`` (``True``: all such functions, or their names) there is one such function
    ``transform_params`` for several, whose weights must be alike. Values with symbolic extents, and
    calls with effects, stay, and so does what comes after ``stop_lift_params``.

    Before:
        def main(x, w):                      # num_input: 1
            lv = R.permute_dims(w)
            gv = R.matmul(x, lv)
    After:
        def main_transform_params(params):
            w = params[0]
            lv = R.permute_dims(w)
            return (lv,)
        def main(x, lv):                     # num_input: 1
            gv = R.matmul(x, lv)
    """

    def __init__(self, shared_transform: bool | Sequence[str] = False) -> None:
        self.shared_transform = (
            shared_transform if isinstance(shared_transform, bool) else tuple(shared_transform)
        )

    def transform(self, mod: IRModule) -> IRModule:
        """Split the functions.

        Raises ``VerifyError`` if functions that share a transformation have other weights.
        """
        found = [
            name
            for name, function in mod.functions.items()
            if isinstance(function, Function) and NUM_INPUT in function.attrs
        ]
        groups: list[tuple[str, list[str]]] = []
        shared = self.shared_transform
        if shared is not False:
            chosen = found if shared is True else list(shared)
            for name in chosen:
                if name not in found:
                    raise VerifyError(
                        f"shared_transform: {name!r} is no graph function with the attribute "
                        f"{NUM_INPUT!r}"
                    )
            if chosen:
                groups.append(("transform_params", chosen))
            found = [name for name in found if name not in chosen]
        groups.extend((f"{name}_transform_params", [name]) for name in found)
        for made_name, names in groups:
            mod = _lift(mod, made_name, names)
        return mod


@dataclass
class _Lifted:
    """The function that transforms weights, while it is collected."""

    weights: list[RelaxVar]
    bindings: list[tuple[RelaxVar, RelaxExpr]] = field(default_factory=list)
    known: dict[Hashable, RelaxVar] = field(default_factory=dict)
    outputs: dict[RelaxVar, None] = field(default_factory=dict)

    def add(self, value: RelaxExpr, name: str) -> RelaxVar:
        """Note a value over the weights, once."""
        key = identity_key(value)
        if key not in self.known:
            self.known[key] = RelaxVar(name, value.struct_info)
            self.bindings.append((self.known[key], value))
        return self.known[key]


def _lift(mod: IRModule, made_name: str, names: list[str]) -> IRModule:
    first = mod[names[0]]
    lifted = _Lifted([*weights_of(first)])
    images: list[dict[RelaxVar, RelaxVar]] = []
    for name in names:
        function = mod[name]
        weights = weights_of(function)
        if len(weights) != len(lifted.weights) or not all(
            same_struct_info(a.struct_info, b.struct_info) for a, b in zip(weights, lifted.weights)
        ):
            raise VerifyError(
                f"{name} and {names[0]} share a transformation, but their weights differ"
            )
        images.append(_collect(function, dict(zip(weights, lifted.weights)), lifted))
    if not lifted.bindings:
        return mod
    if made_name in mod:
        raise VerifyError(f"the module has a function {made_name!r} already")
    outputs = list(lifted.outputs)
    for name, image in zip(names, images):
        mod = mod.with_function(name, _remainder(mod[name], image, outputs))
    return mod.with_function(made_name, _transformation(lifted, outputs))


def _collect(
    function: Function, image: dict[RelaxVar, RelaxVar], lifted: _Lifted
) -> dict[RelaxVar, RelaxVar]:
    """Collect what can be computed from weights; return what stands for each variable there."""
    for binding in function.bindings:
        used = used_graph_vars(binding.value)
        if (
            not isinstance(binding, MatchCast)
            and isinstance(binding.value, (RelaxCall, Tuple))
            and used
            and all(var in image for var in used)
            and not is_impure(binding.value)
            and not is_call_to(binding.value, "stop_lift_params")
            and not used_vars(binding.var.struct_info)
            and not free_vars(binding.value)
        ):
            image[binding.var] = lifted.add(substitute(binding.value, image), binding.var.name)
    for binding in function.bindings:
        if binding.var not in image:
            _need(used_graph_vars(binding.value), image, lifted)
    _need(used_graph_vars(function.body.body), image, lifted)
    # Extents that only weights define must go on being defined.
    for var in weights_of(function):
        if used_vars(var.struct_info):
            _need([var], image, lifted)
    return image


def _need(used: list[RelaxVar], image: dict[RelaxVar, RelaxVar], lifted: _Lifted) -> None:
    for var in used:
        if var in image:
            lifted.outputs.setdefault(image[var])


def _transformation(lifted: _Lifted, outputs: list[RelaxVar]) -> Function:
    infos = tuple(weight.struct_info for weight in lifted.weights)
    params = RelaxVar("params", TupleStructInfo(infos))
    builder = BlockBuilder()
    mapping: dict[RelaxVar, RelaxVar] = {}

    def body() -> RelaxExpr:
        with builder.dataflow():
            for index, weight in enumerate(lifted.weights):
                mapping[weight] = builder.emit(params[index], weight.name)
            for var, value in lifted.bindings:
                mapping[var] = builder.emit(substitute(value, mapping), var.name)
            made = Tuple(tuple(mapping[var] for var in outputs))
            return builder.emit_output(made)

    return builder.build_function([params], body)


def _remainder(
    function: Function, image: dict[RelaxVar, RelaxVar], outputs: list[RelaxVar]
) -> Function:
    """The function with the transformed weights as parameters."""
    inputs = function.params[: function.attrs[NUM_INPUT]]
    taken = {param.name for param in inputs}
    own: dict[RelaxVar, RelaxVar] = {}
    for output in outputs:
        own[output] = RelaxVar(fresh_name(output.name, taken), output.struct_info)
    rewriter = FunctionRewriter()
    rewriter.mapping.update(
        {var: own[of] for var, of in image.items() if of in own}  # others are not used any more
    )
    blocks: list[BindingBlock] = []
    for block in function.body.blocks:
        kept: list[Binding] = [b for b in block.bindings if b.var not in image]
        blocks.append(block.replace(bindings=tuple(kept)))
    body = SeqExpr(tuple(block for block in blocks if block.bindings), function.body.body)
    return rewriter.rewrite(function.replace(params=(*inputs, *own.values()), body=body))
