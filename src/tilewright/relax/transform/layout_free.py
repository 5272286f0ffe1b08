"""Constants in the layouts that kernels want.

``AttachAttrLayoutFreeBuffers`` records which operands of each tensor function are constants in
every call (``layout_free_buffers``), so that its schedule may change their layout.
``AttachConstantBytes`` says how much of the caches a graph's constants take. After scheduling,
``SplitLayoutRewritePreproc`` moves the packing of such operands out of the functions, runs it on
the constants, and passes the packed constants instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.driver import compile as compile_module
from tilewright.ir import GlobalVar, IRModule, Pass, as_int, structural_hash
from tilewright.relax.branches import all_bindings
from tilewright.relax.call_tir import (
    CALL_DPS,
    call_tir,
    call_tir_operands,
    is_call_tir,
    output_infos,
)
from tilewright.relax.expr import (
    Constant,
    ConstantData,
    Function,
    FunctionRef,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.values import numpy_dtype
from tilewright.runtime import Module
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CONSTANT_BYTES, IS_SCHEDULED, LAYOUT_FREE
from tilewright.tir.layout_rewrite import split_layout_rewrite


def _calls(mod: IRModule) -> Iterator[tuple[str, tuple[RelaxExpr, ...]]]:
    """Names and operands of all calls of tensor functions in graph functions."""
    for function in mod.functions.values():
        if not isinstance(function, Function):
            continue
        for binding in all_bindings(function):
            value = binding.value
            if not isinstance(value, RelaxCall):
                continue
            if is_call_tir(value):
                ref, args, _ = call_tir_operands(value)
            elif value.op is CALL_DPS:
                made, operands = value.args[:2]
                assert isinstance(made, FunctionRef) and isinstance(operands, Tuple)
                ref, args = made, operands.fields
            else:
                continue
            if isinstance(ref.callee, GlobalVar):
                yield ref.callee.name, args


def constant_positions(mod: IRModule) -> dict[str, tuple[int, ...]]:
    """For each tensor function that graphs call: the operands that are constants in every call."""
    found: dict[str, set[int]] = {}
    for name, args in _calls(mod):
        here = {position for position, arg in enumerate(args) if isinstance(arg, Constant)}
        found[name] = found[name] & here if name in found else here
    return {name: tuple(sorted(positions)) for name, positions in found.items()}


class AttachAttrLayoutFreeBuffers(Pass):
    """Set ``layout_free_buffers`` of every tensor function to the operands that are constants.

    The attribute is part of a function's identity: a function whose weights may be packed is a
    different tuning task than one whose operands are known only at run time.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Annotate the functions."""
        positions = constant_positions(mod)

        def annotate(name: str, func: PrimFunc) -> PrimFunc:
            own = list(positions.get(name, ()))
            if not own or list(func.attrs.get(LAYOUT_FREE, ())) == own:
                return func
            made: PrimFunc = func.with_attr(LAYOUT_FREE, own)
            return made

        return mod.map_functions(annotate, PrimFunc)


def constant_bytes(mod: IRModule) -> int:
    """Return how many bytes the constants have that the graphs of a module pass to functions."""
    found = {
        arg.value: arg.value.nbytes
        for _, args in _calls(mod)
        for arg in args
        if isinstance(arg, Constant)
    }
    return sum(found.values())


class AttachConstantBytes(Pass):
    """Tell tensor functions with constants how many bytes all constants of their graphs have.

    What a rule fetches ahead depends on where constants are when a graph is called again. For the
    rules only: a function is the same tuning task in whatever graph it is.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Annotate the functions that are still to be scheduled."""
        size = constant_bytes(mod)

        def annotate(_: str, func: PrimFunc) -> PrimFunc:
            if not func.attrs.get(LAYOUT_FREE) or func.attrs.get(IS_SCHEDULED):
                return func
            made: PrimFunc = func.with_attr(CONSTANT_BYTES, size)
            return made

        return mod.map_functions(annotate, PrimFunc)


class SplitLayoutRewritePreproc(Pass):
    """Pack constants at compile time instead of in every call.

    A function is not split, and packs in each call, if one of its calls passes no constant.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Split the functions and rewrite their calls."""
        constant = constant_positions(mod)
        split: dict[str, tuple[PrimFunc, dict[int, PrimFunc]]] = {}
        for name, func in mod.functions.items():
            if not isinstance(func, PrimFunc) or not constant.get(name):
                continue
            main, packers = split_layout_rewrite(func)
            if packers and set(packers) <= set(constant[name]):
                split[name] = (main, packers)
        if not split:
            return mod
        packed = _PackedConstants([func for _, made in split.values() for func in made.values()])
        rewriter = _PackedCalls(mod, {name: made for name, (_, made) in split.items()}, packed)
        for name, function in mod.functions.items():
            if isinstance(function, Function):
                rewriter.builder.update_func(name, rewriter.rewrite(function))
        for name, (main, _) in split.items():
            rewriter.builder.update_func(name, main)
        return rewriter.builder.get()


class PackedData(ConstantData):
    """The values of a constant as the function ``packer`` of a compiled module packs them."""

    __slots__ = ("module", "packer", "source")

    module: Module
    packer: str
    source: ConstantData

    def materialize(self, place: NDArray[np.uint8] | None = None) -> ConstantData:
        """Keep the values, and forget what they were made from."""
        if place is not None and self._array is None:
            # What only fills up the last panel is zero, and is so already.
            kept = place.view(self.dtype).reshape(self.shape)
            self.module[self.packer](self.source.compute(), kept)
            self._array, place = ConstantData(kept).array, None
        super().materialize(place)
        self.module = self.source = None  # type: ignore[assignment]
        return self


def packed_data(
    module: Module, packer: str, source: ConstantData, shape: Sequence[int], dtype: np.dtype[Any]
) -> PackedData:
    """Return a constant packed by a function, when it is needed."""

    def make() -> NDArray[Any]:
        # What only fills up the last panel is zero.
        result = np.zeros(shape, dtype)
        module[packer](source.compute(), result)
        return result

    made = PackedData.later(shape, dtype, make, [source])
    made.module, made.packer, made.source = module, packer, source
    return made


class _PackedConstants:
    """Runs packing functions; each function is compiled once, each constant packed once by it."""

    def __init__(self, packers: list[PrimFunc]) -> None:
        self.names = {id(func): f"pack_{structural_hash(func)[:16]}" for func in packers}
        unique = {self.names[id(func)]: func for func in packers}
        self.module: Module = compile_module(IRModule(unique), "native")
        self.made: dict[tuple[str, ConstantData], Constant] = {}

    def get(self, packer: PrimFunc, constant: Constant) -> Constant:
        """Return a constant in the packed layout."""
        key = self.names[id(packer)], constant.value
        if key not in self.made:
            target = packer.buffers[1]
            shape = [as_int(extent) or 0 for extent in target.shape]
            dtype = numpy_dtype(target.dtype)
            made = packed_data(self.module, key[0], constant.value, shape, dtype)
            self.made[key] = Constant(made)
        return self.made[key]


class _PackedCalls(FunctionRewriter):
    def __init__(
        self, mod: IRModule, packers: dict[str, dict[int, PrimFunc]], packed: _PackedConstants
    ) -> None:
        super().__init__(mod)
        self.packers = packers
        self.packed = packed

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_call_tir(value):
            return value
        assert isinstance(value, RelaxCall)
        ref, args, extra = call_tir_operands(value)
        packers = self.packers.get(ref.name)
        if not packers or not isinstance(ref.callee, GlobalVar):
            return value
        made = list(args)
        for position, packer in packers.items():
            operand = made[position]
            assert isinstance(operand, Constant)
            made[position] = self.packed.get(packer, operand)
        infos = output_infos(value)
        return call_tir(ref.callee, Tuple(tuple(made)), infos, extra or ())
