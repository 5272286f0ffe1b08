"""Carry out the copies of blocks with the annotation ``tensor_copy`` by hardware (TMA).

Such a block copies a box of a tensor in global memory to neighbouring elements of shared memory,
zeros where the tensor ends: ``cp.async.bulk.tensor``, which one thread starts. Zeros come wherever
the box is outside of the tensor and nowhere else, so a condition of the copy must be implied by the
bounds of the tensor. What the hardware can't do is refused (``LowerError``), with the reason.

Which barrier is told of the copy is up to the pipeline that it stands in (``SpecialisePipeline``).
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.arith import Analyzer, conjuncts, linear_coefficients
from tilewright.ir import (
    Call,
    Expr,
    Ramp,
    Var,
    and_,
    as_int,
    call,
    const,
    dtypes,
    free_vars,
    substitute,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import PIPELINE_SPECIALISED, TENSOR_COPY
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import TENSOR_RANK
from tilewright.tir.stmt import (
    SERIAL,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    Stmt,
)
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform.base import AnnotatedBlocks, FunctionTransform, bind_loop

_ALIGNMENT = 16
"""Bytes that rows of the tensor are multiples of (``cuTensorMapEncodeTiled``: strides)."""
_LARGEST = 256
"""Elements of a box along a dimension, at most (``boxDim``)."""


class LowerTensorCopy(FunctionTransform):
    """Rewrite annotated copies; runs while there are blocks."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return _Rewriter.applied(func)


class _Rewriter(AnnotatedBlocks):
    annotation = TENSOR_COPY

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self.threads: set[Var] = set()
        self.inside = False  # of a pipeline that tells a barrier of copies

    def visit_For(self, node: For) -> For:
        bind_loop(self.analyzer, node)
        if node.thread is not None:
            self.threads.add(node.loop_var)
        before = self.inside
        self.inside |= PIPELINE_SPECIALISED in node.annotations
        made: For = self.generic_visit(node)
        self.inside = before
        return made

    def rewritten(self, node: BlockRealize) -> BlockRealize:
        """Copy by a tensor map."""
        if not self.inside:
            raise LowerError(
                f"block {node.block.name!r} can't be copied by a tensor map: it stands in no loop "
                f"with {PIPELINE_SPECIALISED}, which has barriers for that"
            )
        body = _Copy(node.block.name, node.block.body, self.analyzer, self.threads).made()
        return node.replace(block=node.block.replace(body=body))


class _Copy:
    """One annotated copy: its loops, its conditions, and what it stores."""

    def __init__(self, name: str, body: Any, analyzer: Analyzer, threads: set[Var]) -> None:
        self.name, self.analyzer, self.threads = name, analyzer, threads
        self.loops: dict[Var, int] = {}
        self.starts: dict[Var, Expr] = {}
        self.conditions: list[Expr] = []
        while not isinstance(body, BufferStore):
            if isinstance(body, For) and body.kind == SERIAL:
                bind_loop(analyzer, body)
                extent = as_int(body.extent)
                if extent is None:
                    raise self.refusal("its loops have no known extents")
                self.loops[body.loop_var] = extent
                self.starts[body.loop_var] = body.min
                body = body.body
            elif isinstance(body, BlockRealize) and not body.block.iter_vars:
                self.conditions += conjuncts(body.predicate)
                body = body.block.body
            elif isinstance(body, IfThenElse) and body.else_case is None:
                self.conditions += conjuncts(body.condition)
                body = body.then_case
            else:
                raise self.refusal("it isn't a nest of loops around one store")
        value = body.value
        if isinstance(value, Call) and value.op.name == "if_then_else":
            condition, value, other = value.args
            self.conditions += conjuncts(condition)
            if getattr(other, "value", None) != 0:
                raise self.refusal("it fills with something else than zeros")
        if not isinstance(value, BufferLoad):
            raise self.refusal("it computes what it stores")
        self.store, self.load = body, value

    def refusal(self, why: str) -> LowerError:
        return LowerError(f"block {self.name!r} can't be copied by a tensor map: {why}")

    def made(self) -> Stmt:
        """The call that does the copy."""
        target, source = self.store.buffer, self.load.buffer
        self.check_buffers(target, source)
        boxes = self.boxes()
        self.check_conditions()
        rows, columns, axis, step = self.placed(boxes)
        operands: list[Expr] = []
        for n, (_, box) in enumerate(boxes):
            stride = self.analyzer.simplify(prod(source.shape[n + 1 :], start=const(1)))
            operands += [source.shape[n], stride, const(box), self.start(self.load.indices[n])]
        first = [self.start(index) for index in self.store.indices]
        one = const(1, first[-1].dtype)
        along = BufferLoad(target, (*first[:-1], Ramp(first[-1], one, columns)))
        pointer = call("address_of", along)
        if rows > 1:
            down = list(first)
            down[axis] = Ramp(first[axis], const(step, one.dtype), rows)
            pointer = call("tile_of", BufferLoad(target, tuple(down)), along)
        zeros = tuple(const(0, index.dtype) for index in self.load.indices)
        begin = call("address_of", BufferLoad(source, zeros))
        return Evaluate(
            call("ptx_cp_async_bulk_tensor", pointer, begin, *(const(0),) * 3, *operands)
        )

    def start(self, index: Expr) -> Expr:
        """An index where all loops begin."""
        return self.analyzer.simplify(substitute(index, self.starts))

    def check_buffers(self, target: Buffer, source: Buffer) -> None:
        """Check what doesn't depend on the loops."""
        if not is_shared(target.scope) or source.scope != "global":
            raise self.refusal(f"it goes from {source.scope} to {target.scope} memory")
        if source.dtype != target.dtype or dtypes.bits_of(source.dtype) < 8:
            raise self.refusal(f"it goes from {source.dtype} to {target.dtype}")
        if source.strides or target.strides or not 1 <= source.ndim <= TENSOR_RANK:
            raise self.refusal(f"{source.name} has strides, or more than {TENSOR_RANK} dimensions")
        if source.elem_offset is not None and as_int(source.elem_offset) != 0:
            raise self.refusal(f"{source.name} begins at an offset")
        row = source.shape[-1] * dtypes.bytes_of(source.dtype)
        if source.ndim > 1 and not self.analyzer.can_prove_equal(row % _ALIGNMENT, 0):
            raise self.refusal(
                f"rows of {source.name} are {self.analyzer.simplify(row)!r} bytes, which must be "
                f"a multiple of {_ALIGNMENT}"
            )

    def boxes(self) -> list[tuple[Var | None, int]]:
        """For each dimension of the source the loop along it, and the extent of the box."""
        variables = [var for var, extent in self.loops.items() if extent > 1]
        made: list[tuple[Var | None, int]] = []
        for index in self.load.indices:
            steps = [
                (var, step) for var, step in zip(variables, self.steps(index, variables)) if step
            ]
            if len(steps) > 1 or any(step != 1 for _, step in steps):
                raise self.refusal(f"{index!r} goes along more than one loop, or in steps")
            var = steps[0][0] if steps else None
            extent = 1 if var is None else self.loops[var]
            if extent > _LARGEST:
                raise self.refusal(f"a box has up to {_LARGEST} elements in a row, not {extent}")
            made.append((var, extent))
        if sorted(map(id, variables)) != sorted(id(var) for var, _ in made if var is not None):
            raise self.refusal("a loop goes along no dimension of the tensor, or along two")
        return made

    def steps(self, index: Expr, variables: list[Var]) -> list[int]:
        """How far an index moves with each loop."""
        found = linear_coefficients(index, variables, analyzer=self.analyzer)
        steps = None if found is None else [as_int(step) for step in found[: len(variables)]]
        if steps is None or None in steps:
            raise self.refusal(f"{index!r} is no sum of a loop variable and a start")
        return [step or 0 for step in steps]

    def check_conditions(self) -> None:
        """Zeros come outside of the tensor alone: inside of it, all conditions must hold."""
        sizes = zip(self.load.indices, self.load.buffer.shape)
        inside = [item for index, size in sizes for item in (index >= 0, index < size)]
        with self.analyzer.constraint(and_(*inside)):
            for condition in self.conditions:
                if self.threads.issuperset(free_vars(condition)):
                    continue  # one thread does it, in any case
                if not self.analyzer.can_prove(condition):
                    raise self.refusal(
                        f"it copies only where {condition!r}, which is more than the bounds of "
                        f"{self.load.buffer.name}"
                    )

    def placed(self, boxes: list[tuple[Var | None, int]]) -> tuple[int, int, int, int]:
        """Rows and columns of the box in shared memory, the axis of its rows there, and their step.

        Its elements must be neighbours in shared memory.
        """
        target = self.store.buffer
        extents = [as_int(extent) or 0 for extent in target.shape]
        along = [(var, box) for var, box in boxes if var is not None]
        if not all(extents) or not 1 <= len(along) <= 2 or boxes[-1][0] is None:
            raise self.refusal("the box is no matrix whose rows lie along the tensor's last axis")
        variables = [var for var, _ in along]
        steps, axes = [0] * len(variables), {}
        for n, index in enumerate(self.store.indices):
            own = self.steps(index, variables)
            if own[0]:
                axes[n] = own[0]
            steps = [step + more * prod(extents[n + 1 :]) for step, more in zip(steps, own)]
        columns = along[-1][1]
        if steps[-1] != 1 or len(axes) != 1 or (len(along) == 2 and steps[0] != columns):
            raise self.refusal("its elements are no neighbours in shared memory")
        ((axis, step),) = axes.items()
        return (along[0][1] if len(along) == 2 else 1), columns, axis, step
