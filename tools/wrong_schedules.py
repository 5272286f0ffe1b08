"""Wrong schedules, each with what it tries: the error gallery shows what their authors see.

Each function gets a fresh schedule of its program and makes the mistake in its last line.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def matmul_relu() -> PrimFunc:
    a = te.placeholder((128, 64), name="A")
    b = te.placeholder((64, 96), name="B")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((128, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((128, 96), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_prim_func([a, b, d])


def row_sums() -> PrimFunc:
    a = te.placeholder((32, 50), name="A")
    b = te.compute((32, 50), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 50), "k")
    c = te.compute((32,), lambda i: te.sum(b[i, k], axis=k), name="C")
    return te.create_prim_func([a, c])


def two_readers() -> PrimFunc:
    a = te.placeholder((32,), name="A")
    b = te.compute((32,), lambda i: te.exp(a[i]), name="B")
    c = te.compute((32,), lambda i: b[i] + 1.0, name="C")
    d = te.compute((32,), lambda i: b[i] * c[i], name="D")
    return te.create_prim_func([a, d])


def running_window() -> PrimFunc:
    a = te.placeholder((66,), name="A")
    b = te.compute((66,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((64,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    return te.create_prim_func([a, c])


def misspelled_block(sch: Schedule) -> None:
    """Ask for a block that is not there."""
    sch.get_block("C1")


def uncovered_split(sch: Schedule) -> None:
    """Split a loop of 128 iterations into 4 times 16."""
    i, _, _ = sch.get_loops("C")
    sch.split(i, [4, 16])


def stale_handle(sch: Schedule) -> None:
    """Use a loop after `fuse` took it away."""
    i, j, _ = sch.get_loops("C")
    sch.fuse(i, j)
    sch.split(i, [None, 8])


def parallel_reduction(sch: Schedule) -> None:
    """Let threads add to one element at the same time."""
    _, _, k = sch.get_loops("C")
    sch.parallel(k)


def reorder_other_nest(sch: Schedule) -> None:
    """Reorder loops of two different nests."""
    i, _, _ = sch.get_loops("C")
    other, _ = sch.get_loops("D")
    sch.reorder(other, i)


def inline_reduction(sch: Schedule) -> None:
    """Inline a matrix product into its consumer."""
    sch.compute_inline("C")


def inline_window(sch: Schedule) -> None:
    """Inline a consumer that reads three elements into the producer of one."""
    sch.reverse_compute_inline("C")


def late_initialisation(sch: Schedule) -> None:
    """Initialise an accumulator inside the loop that accumulates."""
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    sch.decompose_reduction("C", i)


def compute_at_one_reader(sch: Schedule) -> None:
    """Move a producer under a loop that only one of its two readers is in."""
    sch.compute_at("B", sch.get_loops("C")[0])


def vectorize_reduction(sch: Schedule) -> None:
    """Vectorize a reduction."""
    sch.vectorize(sch.get_loops("C")[1])


def rfactor_spatial(sch: Schedule) -> None:
    """Factor a reduction along a loop that reduces nothing."""
    sch.rfactor(sch.get_loops("C")[0], 0)


def wrong_type(sch: Schedule) -> None:
    """Give a block's name where a loop is asked for."""
    sch.unroll("C")  # type: ignore[arg-type]  # the mistake


def tensorize_wrong_shape(sch: Schedule) -> None:
    """Tensorize a whole product with an intrinsic that nobody registered."""
    sch.tensorize(sch.get_loops("C")[0], "dot_4x4")


GALLERY: list[tuple[Callable[[], PrimFunc], Callable[[Schedule], None]]] = [
    (matmul_relu, misspelled_block),
    (matmul_relu, wrong_type),
    (matmul_relu, uncovered_split),
    (matmul_relu, stale_handle),
    (matmul_relu, parallel_reduction),
    (row_sums, vectorize_reduction),
    (matmul_relu, reorder_other_nest),
    (matmul_relu, inline_reduction),
    (running_window, inline_window),
    (matmul_relu, late_initialisation),
    (two_readers, compute_at_one_reader),
    (row_sums, rfactor_spatial),
    (matmul_relu, tensorize_wrong_shape),
]
