"""Non-maximum suppression: of boxes that overlap, those with the best scores are kept.

Which boxes are kept depends on those kept before, so the step is written as loops; sequences of a
batch (and classes) are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import (
    EQ,
    Expr,
    Var,
    and_,
    as_expr,
    call,
    cast,
    compare,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, extern, require_equal, with_conditions
from tilewright.tir import Buffer, IfThenElse, Stmt, decl_buffer, seq
from tilewright.tir.building import Axis, block, load, loop, store
from tilewright.topi.sort import argsort
from tilewright.topi.utils import require_ndim


def _overlap(first: Sequence[Expr], second: Sequence[Expr]) -> Expr:
    """Intersection over union of boxes, given by any two opposite corners."""
    zero = const(0, first[0].dtype)

    def sides(box: Sequence[Expr], axis: int) -> tuple[Expr, Expr]:
        return minimum(box[axis], box[axis + 2]), maximum(box[axis], box[axis + 2])

    inner: Expr = const(1, first[0].dtype)
    areas: list[Expr] = [inner, inner]
    for axis in range(2):
        (low, high), (begin, end) = sides(first, axis), sides(second, axis)
        inner = inner * maximum(minimum(high, end) - maximum(low, begin), zero)
        areas = [areas[0] * (high - low), areas[1] * (end - begin)]
    union = areas[0] + areas[1] - inner
    return select(union > zero, inner / union, zero)


@with_conditions
def get_valid_counts(
    data: Tensor, score_threshold: float | Tensor = 0, id_index: int = 0, score_index: int = 1
) -> list[Tensor]:
    """Move boxes with a score above a threshold to the front of ``data [B, N, elements]``.

    A class (element ``id_index``, unless -1) below zero makes a box invalid too. The result is
    their number ``[B]`` (int32), the boxes, and where in ``data`` each was ``[B, N]`` (int32); what
    is left is -1.
    """
    require_ndim("get_valid_counts", data, 3)
    batch, count, elements = data.shape
    shapes = [(batch,), (batch, count), (batch, count, elements)]
    limit = [] if isinstance(score_threshold, (int, float)) else [score_threshold]

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        x, (number, indices, rows) = sources[0], results
        threshold = _number(score_threshold, sources[1:], x.dtype)

        def image(b: Var) -> Stmt:
            place = load(number, b)

            def one(n: Var) -> Stmt:
                valid = load(x, b, n, score_index) > threshold
                if id_index >= 0:
                    valid = and_(valid, load(x, b, n, id_index) >= const(0, x.dtype))
                # Places move on after a row was copied.
                copied = loop(
                    "e",
                    elements,
                    lambda e: store(rows, load(x, b, n, e), b, cast(place, "int64"), e),
                )
                moved = seq(
                    store(indices, cast(n, "int32"), b, cast(place, "int64")),
                    copied,
                    store(number, place + const(1, "int32"), b),
                )
                return IfThenElse(valid, moved, None)

            def clear(n: Var) -> Stmt:
                nothing = const(-1, rows.dtype)
                return seq(
                    store(indices, const(-1, "int32"), b, n),
                    loop("e", elements, lambda e: store(rows, nothing, b, n, e)),
                )

            return seq(
                store(number, const(0, "int32"), b),
                loop("n", count, clear),
                loop("m", count, one),
            )

        return block("valid_counts", [Axis("b", batch)], image)

    number, indices, rows = extern(
        shapes, [data, *limit], body, dtype=["int32", "int32", data.dtype], name="valid_counts"
    )
    return [number, rows, indices]


def _number(value: Any, buffers: Sequence[Buffer], dtype: str) -> Expr:
    """A number, or the only element of the first buffer."""
    if isinstance(value, Tensor):
        return cast(load(buffers[0], *(const(0) for _ in buffers[0].shape)), dtype)
    return const(value, dtype)


@with_conditions
def non_max_suppression(
    data: Tensor,
    valid_count: Tensor,
    indices: Tensor,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> Tensor | list[Tensor]:
    """Keep the boxes of ``data [B, N, elements]`` that overlap no better one of their class.

    The first ``valid_count[b]`` boxes of an image are looked at, by falling score, ``top_k`` of
    them at most; ``max_output_size`` are kept at most. Boxes overlap if the intersection over the
    union reaches ``iou_threshold``. Classes don't count with ``force_suppress`` or without
    ``id_index``. With ``soft_nms_sigma`` scores of overlapping boxes decay instead, and boxes are
    dropped at ``score_threshold`` (Bodla et al., Soft-NMS, 2017).

    The result has the numbers in ``indices [B, N]`` of the boxes kept, and how many they are
    ``[B, 1]``; with a sigma the boxes come first. With ``return_indices=False`` it is the boxes by
    score, with rows of -1 for those dropped, or behind all others if ``invalid_to_bottom``.

    Raises ``VerifyError`` if shapes don't fit.
    """
    require_ndim("non_max_suppression", data, 3)
    require_ndim("non_max_suppression", valid_count, 1)
    require_ndim("non_max_suppression", indices, 2)
    batch, count, elements = data.shape
    require_equal("non_max_suppression: images", batch, valid_count.shape[0])
    require_equal("non_max_suppression: boxes", count, indices.shape[1])
    lowest = const(float("-inf"), data.dtype)
    scores = compute(
        (batch, count),
        lambda b, n: select(n < cast(valid_count(b), "int64"), data(b, n, score_index), lowest),
        name="scores",
    )
    order = argsort(scores, axis=1, is_ascend=False, dtype="int32")
    soft = soft_nms_sigma > 0

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        x, valid, numbers, ranks = sources
        rows, places, kept = results
        found = decl_buffer((1,), "int32", "found", scope="local")
        best = decl_buffer((1,), "int32", "best", scope="local")
        spare = decl_buffer((1,), x.dtype, "spare", scope="local")
        spare_place = decl_buffer((1,), "int32", "spare_place", scope="local")

        def box(b: Expr, n: Expr) -> list[Expr]:
            return [load(rows, b, n, coord_start + axis) for axis in range(4)]

        def drop(b: Expr, n: Expr) -> Stmt:
            return seq(
                store(places, const(-1, "int32"), b, n),
                loop("e", elements, lambda e: store(rows, const(-1, x.dtype), b, n, e)),
            )

        def image(b: Var) -> Stmt:
            used = minimum(cast(load(valid, b), "int64"), count)
            if top_k > 0:
                used = minimum(used, top_k)

            def sort(n: Var) -> Stmt:
                source = cast(load(ranks, b, n), "int64")
                take = seq(
                    store(places, cast(load(numbers, b, source), "int32"), b, n),
                    loop("e", elements, lambda e: store(rows, load(x, b, source, e), b, n, e)),
                )
                return IfThenElse(n < used, take, drop(b, n))

            def suppress(n: Var) -> Stmt:
                def other(m: Var) -> Stmt:
                    same = [m > n, load(rows, b, m, score_index) > const(0, x.dtype)]
                    if id_index >= 0 and not force_suppress:
                        classes = (load(rows, b, k, id_index) for k in (n, m))
                        same.append(compare(EQ, *classes))
                    share = _overlap(box(b, n), box(b, m))
                    if not soft:
                        hit = share >= const(iou_threshold, x.dtype)
                        return IfThenElse(and_(*same, hit), drop(b, m), None)
                    decay = call("exp", const(-0.5 / soft_nms_sigma, x.dtype) * share * share)
                    score = load(rows, b, m, score_index) * decay
                    return IfThenElse(and_(*same), store(rows, score, b, m, score_index), None)

                valid_box = [load(rows, b, n, score_index) > const(
                    score_threshold if soft else 0.0, x.dtype
                )]  # fmt: skip
                if id_index >= 0:
                    valid_box.append(load(rows, b, n, id_index) >= const(0, x.dtype))
                if max_output_size >= 0:
                    valid_box.append(load(found, 0) < const(max_output_size, "int32"))
                keep = seq(
                    store(found, load(found, 0) + const(1, "int32"), 0), loop("m", used, other)
                )
                step = IfThenElse(and_(*valid_box), keep, drop(b, n))
                return seq(bring_best(b, n, used), step) if soft else step

            def bring_best(b: Var, n: Var, used: Expr) -> Stmt:
                """Swap the best of the boxes from ``n`` on to its place."""
                at = cast(load(best, 0), "int64")

                def look(m: Var) -> Stmt:
                    better = load(rows, b, m, score_index) > load(rows, b, at, score_index)
                    return IfThenElse(and_(m > n, better), store(best, cast(m, "int32"), 0), None)

                def swap(e: Var) -> Stmt:
                    return seq(
                        store(spare, load(rows, b, n, e), 0),
                        store(rows, load(rows, b, at, e), b, n, e),
                        store(rows, load(spare, 0), b, at, e),
                    )

                return seq(
                    store(best, cast(n, "int32"), 0),
                    loop("m", used, look),
                    store(spare_place, load(places, b, n), 0),
                    store(places, load(places, b, at), b, n),
                    store(places, load(spare_place, 0), b, at),
                    loop("e", elements, swap),
                )

            def gather(n: Var) -> Stmt:
                """Move what is kept to the front."""
                at = cast(load(found, 0), "int64")
                there = load(places, b, n) >= const(0, "int32")
                moves: list[Stmt] = [
                    IfThenElse(at < n, store(places, load(places, b, n), b, at), None)
                ]
                clear: Stmt = store(places, const(-1, "int32"), b, n)
                if not return_indices or soft:
                    moves.append(IfThenElse(at < n, loop(
                        "e", elements, lambda e: store(rows, load(rows, b, n, e), b, at, e)
                    ), None))  # fmt: skip
                    clear = drop(b, n)
                moves.append(IfThenElse(at < n, clear, None))
                moves.append(store(found, load(found, 0) + const(1, "int32"), 0))
                return IfThenElse(there, seq(*moves), None)

            steps = [
                store(found, const(0, "int32"), 0),
                loop("n", count, sort),
                loop("k", used, suppress),
                store(kept, load(found, 0), b, 0),
            ]
            if return_indices or invalid_to_bottom:
                steps += [store(found, const(0, "int32"), 0), loop("g", count, gather)]
            return seq(*steps)

        return block("suppress", [Axis("b", batch)], image, [found, best, spare, spare_place])

    rows, places, kept = extern(
        [(batch, count, elements), (batch, count), (batch, 1)],
        [data, valid_count, indices, order],
        body,
        dtype=[data.dtype, "int32", "int32"],
        name="non_max_suppression",
    )
    if not return_indices:
        made: Tensor = rows
        return made
    return [rows, places, kept] if soft else [places, kept]


@with_conditions
def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: int | Tensor,
    iou_threshold: float | Tensor,
    score_threshold: float | Tensor,
    output_format: str = "onnx",
    output_shape: Sequence[Any] | None = None,
) -> list[Tensor]:
    """Keep boxes ``[B, N, 4]`` for each class of ``scores [B, C, N]`` by itself.

    Of the boxes with a score above ``score_threshold``, by falling score, one is kept unless its
    intersection over the union with one kept before is above ``iou_threshold``. In the format
    ``onnx`` the result is rows of image, class and box ``[rows, 3]``, and how many of them are
    valid ``[1]``, all int64; the others are zero. In ``tensorflow``, for each image, rows of class
    and box ``[B, C * N, 2]``, their scores and their number ``[B]``. ``output_shape`` of the rows
    must be what this gives, if it is given.

    Raises ``VerifyError`` for other formats, and shapes that don't fit.
    """
    what = "all_class_non_max_suppression"
    if output_format not in ("onnx", "tensorflow"):
        raise VerifyError(f"{what}: output_format is 'onnx' or 'tensorflow', got {output_format!r}")
    require_ndim(what, boxes, 3)
    require_ndim(what, scores, 3)
    batch, classes, count = scores.shape
    require_equal(f"{what}: images", batch, boxes.shape[0])
    require_equal(f"{what}: boxes", count, boxes.shape[1])
    order = argsort(scores, axis=2, is_ascend=False, dtype="int64")
    limits = max_output_boxes_per_class, iou_threshold, score_threshold
    given = [limit for limit in limits if isinstance(limit, Tensor)]

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        corners, values, ranks, *numbers = sources
        chosen, kept = results
        left = iter(numbers)
        most, overlap, least = (
            _number(limit, [next(left)] if isinstance(limit, Tensor) else [], dtype)
            for limit, dtype in zip(limits, ("int64", boxes.dtype, scores.dtype))
        )
        is_free = decl_buffer((1,), "int32", "is_free", scope="local")

        def one(b: Var, c: Var) -> Stmt:
            def box(index: Expr) -> list[Expr]:
                return [load(corners, b, index, axis) for axis in range(4)]

            def look(n: Var) -> Stmt:
                index = load(ranks, b, c, n)

                def against(m: Var) -> Stmt:
                    hit = _overlap(box(index), box(load(chosen, b, c, m))) > overlap
                    return IfThenElse(hit, store(is_free, const(0, "int32"), 0), None)

                number = load(kept, b, c)
                add = seq(
                    store(chosen, index, b, c, number),
                    store(kept, number + const(1, "int64"), b, c),
                )
                wanted = and_(number < most, load(values, b, c, index) > least)
                free = compare(EQ, load(is_free, 0), const(1, "int32"))
                return IfThenElse(
                    wanted,
                    seq(
                        store(is_free, const(1, "int32"), 0),
                        loop("m", number, against),
                        IfThenElse(free, add, None),
                    ),
                    None,
                )

            return seq(
                store(kept, const(0, "int64"), b, c),
                loop("z", count, lambda n: store(chosen, const(0, "int64"), b, c, n)),
                loop("n", count, look),
            )

        return block("suppress", [Axis("b", batch), Axis("c", classes)], one, [is_free])

    chosen, kept = extern(
        [(batch, classes, count), (batch, classes)],
        [boxes, scores, order, *given],
        body,
        dtype=["int64", "int64"],
        name="suppress",
    )
    if output_format == "tensorflow":
        return _by_image(scores, chosen, kept)
    most = max_output_boxes_per_class
    per_class = minimum(as_expr(most), count) if isinstance(most, int) else count
    rows = batch * classes * per_class
    if output_shape is not None:
        require_equal(f"{what}: output_shape", as_expr(output_shape[0]), rows)
    return _in_rows(chosen, kept, rows)


def _collected(
    chosen: Buffer,
    kept: Buffer,
    images: Callable[[Callable[[Expr], Stmt]], Stmt],
    write: Callable[[Expr, Expr, Expr, Expr], Stmt],
    place: Buffer,
) -> Stmt:
    """Loops over what is kept, with the place that each row has in a result."""
    classes = chosen.shape[1]

    def image(b: Expr) -> Stmt:
        def of_class(c: Var) -> Stmt:
            def row(n: Var) -> Stmt:
                at = load(place, 0)
                return seq(write(b, c, load(chosen, b, c, n), at), store(place, at + 1, 0))

            return loop("n", load(kept, b, c), row)

        return loop("c", classes, of_class)

    return images(image)


def _in_rows(chosen: Tensor, kept: Tensor, rows: Expr) -> list[Tensor]:
    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        (picked, numbers), (indices, total) = sources, results
        place = decl_buffer((1,), "int64", "place", scope="local")

        def write(b: Expr, c: Expr, box: Expr, at: Expr) -> Stmt:
            return seq(*(
                store(indices, cast(value, "int64"), at, column)
                for column, value in enumerate((b, c, box))
            ))  # fmt: skip

        def whole(one: Var) -> Stmt:
            def images(image: Callable[[Expr], Stmt]) -> Stmt:
                return loop("b", picked.shape[0], image)

            clear = loop("r", rows, lambda r: seq(*(
                store(indices, const(0, "int64"), r, column) for column in range(3)
            )))  # fmt: skip
            return seq(
                clear,
                store(place, const(0, "int64"), 0),
                _collected(picked, numbers, images, write, place),
                store(total, load(place, 0), one),
            )

        return block("collect", [Axis("one", 1)], whole, [place])

    made: tuple[Tensor, ...] = extern(
        [(rows, 3), (1,)], [chosen, kept], body, dtype=["int64", "int64"], name="collect"
    )
    return list(made)


def _by_image(scores: Tensor, chosen: Tensor, kept: Tensor) -> list[Tensor]:
    batch, classes, count = scores.shape

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        (values, picked, numbers), (indices, best, total) = sources, results
        place = decl_buffer((1,), "int64", "place", scope="local")

        def write(b: Expr, c: Expr, box: Expr, at: Expr) -> Stmt:
            return seq(
                store(indices, cast(c, "int64"), b, at, 0),
                store(indices, box, b, at, 1),
                store(best, load(values, b, c, box), b, at),
            )

        def whole(b: Var) -> Stmt:
            clear = loop("r", classes * count, lambda r: seq(
                store(indices, const(0, "int64"), b, r, 0),
                store(indices, const(0, "int64"), b, r, 1),
                store(best, const(0, best.dtype), b, r),
            ))  # fmt: skip
            return seq(
                clear,
                store(place, const(0, "int64"), 0),
                _collected(picked, numbers, lambda image: image(b), write, place),
                store(total, load(place, 0), b),
            )

        return block("collect", [Axis("b", batch)], whole, [place])

    rows = classes * count
    made: tuple[Tensor, ...] = extern(
        [(batch, rows, 2), (batch, rows), (batch,)], [scores, chosen, kept], body,
        dtype=["int64", scores.dtype, "int64"], name="collect",
    )  # fmt: skip
    return list(made)
