"""Primitives that attach information: annotations, and the start of post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import FloatImm, IntImm, StringImm
from tilewright.tir.attrs import TRUSTED_REGIONS, wrong_annotation
from tilewright.tir.schedule.handles import BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.trace import POSTPROC
from tilewright.tir.schedule.vocabulary import Annotation

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def _resolved(value: object) -> Any:
    """Replace handles and constants by their values."""
    if type(value) is ExprRV:
        return _resolved(value.value)
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item) for key, item in value.items()}
    return value


@primitive(marks=True)
def annotate(
    sch: Schedule, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Annotation
) -> None:
    """Attach a value to a block or loop under a key; replaces an older value.

    Values are numbers, text, ``None``, handles of sampled values, and lists and dicts of those.

    Preconditions:
        - the key is not ``trusted_regions``, which only other primitives set
        - the value of a key that the compiler reads is one that the key allows
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``annotate(i, "unroll_hint", 4)``:
        for i in T.serial(16, annotations={"unroll_hint": 4}):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    """
    if ann_key == TRUSTED_REGIONS:
        raise sch.error(
            f"{ann_key!r} says that a block's regions are taken on trust",
            remedy="unsafe_annotate_buffer_access and unsafe_hide_buffer_access say so",
        )
    value = _resolved(ann_val)
    if isinstance(ann_val, (IntImm, FloatImm, StringImm)):
        sch.note(ann_val=value)
    target: Any
    if isinstance(block_or_loop, BlockRV):
        target = sch.state.get_block(block_or_loop).block
    else:
        target = sch.state.get_loop(block_or_loop)
    made = target.replace(annotations={**target.annotations, ann_key: value})
    wrong = wrong_annotation(made)
    if wrong is not None:
        raise sch.error(wrong, target)
    sch.state.replace(target, made)


@primitive
def unannotate(sch: Schedule, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
    """Remove an annotation from a block or loop.

    Preconditions:
        - the block or loop has the annotation
        - the key is not ``trusted_regions``: the trusted regions would be refused without it
    Before:
        for i in T.serial(16, annotations={"unroll_hint": 4}):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``unannotate(i, "unroll_hint")``:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    """
    target: Any
    if isinstance(block_or_loop, BlockRV):
        target = sch.state.get_block(block_or_loop).block
    else:
        target = sch.state.get_loop(block_or_loop)
    if ann_key not in target.annotations:
        raise sch.error(
            f"there is no annotation {ann_key!r}; there are {sorted(target.annotations)}", target
        )
    if ann_key == TRUSTED_REGIONS:
        raise sch.error(
            f"{ann_key!r} says that the block's regions are taken on trust, and so they must be",
            target,
            remedy="annotate_buffer_access declares a region that holds all accesses",
        )
    kept = {key: value for key, value in target.annotations.items() if key != ann_key}
    sch.state.replace(target, target.replace(annotations=kept))


@primitive
def enter_postproc(sch: Schedule) -> None:
    """Mark in the trace where post-processing begins; the program is unchanged.

    With ``remove_postproc=True``, ``Trace.apply_to_schedule`` and ``simplified`` drop what follows.

    Preconditions: none
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``enter_postproc()``:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    """


assert enter_postproc.__name__ == POSTPROC
