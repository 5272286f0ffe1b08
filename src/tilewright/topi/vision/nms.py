"""Non-maximum suppression: of boxes that overlap, those with the best scores are kept.

Which boxes are kept depends on those kept before, so the step is written as loops; sequences of a
batch (and classes) are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
        found = decl_buffer((1,), "int32", "found", scope="local")

        def image(b: Var) -> Stmt:
            place = load(found, 0)

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
                    store(found, place + const(1, "int32"), 0),
                )
                return IfThenElse(valid, moved, None)

            def clear(n: Var) -> Stmt:
                nothing = const(-1, rows.dtype)
                return seq(
                    store(indices, const(-1, "int32"), b, n),
                    loop("e", elements, lambda e: store(rows, nothing, b, n, e)),
                )

            return seq(
                store(found, const(0, "int32"), 0),
                loop("n", count, clear),
                loop("m", count, one),
                store(number, load(found, 0), b),
            )

        return block("valid_counts", [Axis("b", batch)], image, [found])

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
    them at most; a ``max_output_size`` above zero is how many are kept at most. Boxes overlap if
    the intersection over the union reaches ``iou_threshold``. Classes don't count with
    ``force_suppress`` or without ``id_index``. With ``soft_nms_sigma`` scores of boxes that
    overlap less decay, and boxes are dropped at ``score_threshold`` (Bodla et al., Soft-NMS,
    2017).

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
    how = _Options(
        max_output_size, iou_threshold, force_suppress or id_index < 0, top_k, coord_start,
        score_index, id_index, soft_nms_sigma, score_threshold,
        return_indices or invalid_to_bottom,
    )  # fmt: skip

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        return _Suppression(sources, results, how).build()

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
    return [rows, places, kept] if soft_nms_sigma > 0 else [places, kept]


@dataclass(frozen=True)
class _Options:
    """The arguments of ``non_max_suppression``; ``gathers`` moves what is kept to the front."""

    most: int
    overlap: float
    all_classes: bool
    top_k: int
    coord_start: int
    score_index: int
    id_index: int
    sigma: float
    score_threshold: float
    gathers: bool


class _Suppression:
    """The loops over the boxes of an image, on copies of them in the order of their scores."""

    def __init__(self, sources: Sequence[Buffer], results: Sequence[Buffer], how: _Options) -> None:
        self.x, self.valid, self.numbers, self.ranks = sources
        self.results, self.how = results, how
        _, self.count, self.elements = self.x.shape
        self.dtype = self.x.dtype
        self.rows = decl_buffer((self.count, self.elements), self.dtype, "rows")
        self.places = decl_buffer((self.count,), "int32", "places")
        self.found, self.best, self.spare_place = (
            decl_buffer((1,), "int32", name, scope="local")
            for name in ("found", "best", "spare_place")
        )
        self.spare = decl_buffer((1,), self.dtype, "spare", scope="local")

    def build(self) -> Stmt:
        """The block of an image."""
        alloc = [self.rows, self.places, self.found, self.best, self.spare_place, self.spare]
        return block("suppress", [Axis("b", self.x.shape[0])], self._image, alloc)

    def _image(self, b: Var) -> Stmt:
        used = minimum(cast(load(self.valid, b), "int64"), self.count)
        if self.how.top_k > 0:
            used = minimum(used, self.how.top_k)
        rows, places, kept = self.results
        steps = [
            loop("n", self.count, lambda n: self._sorted(b, n, used)),
            store(self.found, const(0, "int32"), 0),
            loop("k", used, lambda n: self._step(n, used)),
            store(kept, load(self.found, 0), b, 0),
        ]
        if self.how.gathers:
            steps.append(store(self.found, const(0, "int32"), 0))
            steps.append(loop("g", self.count, self._gather))
        steps.append(loop("n", self.count, lambda n: seq(
            store(places, load(self.places, n), b, n),
            self._each(lambda e: store(rows, load(self.rows, n, e), b, n, e)),
        )))  # fmt: skip
        return seq(*steps)

    def _each(self, body: Callable[[Var], Stmt]) -> Stmt:
        return loop("e", self.elements, body)

    def _number(self, value: float) -> Expr:
        return const(value, self.dtype)

    def _score(self, n: Expr) -> Expr:
        return load(self.rows, n, self.how.score_index)

    def _box(self, n: Expr) -> list[Expr]:
        return [load(self.rows, n, self.how.coord_start + axis) for axis in range(4)]

    def _drop(self, n: Expr) -> Stmt:
        return seq(
            store(self.places, const(-1, "int32"), n),
            self._each(lambda e: store(self.rows, self._number(-1), n, e)),
        )

    def _sorted(self, b: Var, n: Var, used: Expr) -> Stmt:
        source = cast(load(self.ranks, b, n), "int64")
        take = seq(
            store(self.places, cast(load(self.numbers, b, source), "int32"), n),
            self._each(lambda e: store(self.rows, load(self.x, b, source, e), n, e)),
        )
        return IfThenElse(n < used, take, self._drop(n))

    def _step(self, n: Var, used: Expr) -> Stmt:
        """Keep a box unless it was dropped, and drop those that it overlaps."""
        how, soft = self.how, self.how.sigma > 0
        valid = [self._score(n) > self._number(how.score_threshold if soft else 0.0)]
        if how.most > 0:
            valid.append(load(self.found, 0) < const(how.most, "int32"))
        keep = seq(
            store(self.found, load(self.found, 0) + const(1, "int32"), 0),
            loop("m", used, lambda m: self._suppress(n, m)),
        )
        step = IfThenElse(and_(*valid), keep, self._drop(n))
        return seq(self._bring_best(n, used), step) if soft else step

    def _suppress(self, n: Var, m: Var) -> Stmt:
        same = [m > n, self._score(m) > self._number(0)]
        if not self.how.all_classes:
            classes = (load(self.rows, k, self.how.id_index) for k in (n, m))
            same.append(compare(EQ, *classes))
        share = _overlap(self._box(n), self._box(m))
        hit = share >= self._number(self.how.overlap)
        if self.how.sigma <= 0:
            return IfThenElse(and_(*same, hit), self._drop(m), None)
        decay = call("exp", self._number(-0.5 / self.how.sigma) * share * share)
        weaker = store(self.rows, self._score(m) * decay, m, self.how.score_index)
        return IfThenElse(and_(*same), IfThenElse(hit, self._drop(m), weaker), None)

    def _bring_best(self, n: Var, used: Expr) -> Stmt:
        """Swap the best of the boxes from ``n`` on to its place."""
        at = cast(load(self.best, 0), "int64")

        def look(m: Var) -> Stmt:
            better = and_(m > n, self._score(m) > self._score(at))
            return IfThenElse(better, store(self.best, cast(m, "int32"), 0), None)

        def swap(e: Var) -> Stmt:
            return seq(
                store(self.spare, load(self.rows, n, e), 0),
                store(self.rows, load(self.rows, at, e), n, e),
                store(self.rows, load(self.spare, 0), at, e),
            )

        return seq(
            store(self.best, cast(n, "int32"), 0),
            loop("m", used, look),
            store(self.spare_place, load(self.places, n), 0),
            store(self.places, load(self.places, at), n),
            store(self.places, load(self.spare_place, 0), at),
            self._each(swap),
        )

    def _gather(self, n: Var) -> Stmt:
        """Move a box that is kept to the front."""
        at = cast(load(self.found, 0), "int64")
        there = load(self.places, n) >= const(0, "int32")
        move = seq(
            store(self.places, load(self.places, n), at),
            self._each(lambda e: store(self.rows, load(self.rows, n, e), at, e)),
            self._drop(n),
        )
        after = store(self.found, load(self.found, 0) + const(1, "int32"), 0)
        return IfThenElse(there, seq(IfThenElse(at < n, move, None), after), None)


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
        left = iter(numbers)
        most, overlap, least = (
            _number(limit, [next(left)] if isinstance(limit, Tensor) else [], dtype)
            for limit, dtype in zip(limits, ("int64", boxes.dtype, scores.dtype))
        )
        is_free = decl_buffer((1,), "int32", "is_free", scope="local")
        found = decl_buffer((1,), "int64", "found", scope="local")
        taken = decl_buffer((count,), "int64", "taken")

        def one(b: Var, c: Var) -> Stmt:
            def box(index: Expr) -> list[Expr]:
                return [load(corners, b, index, axis) for axis in range(4)]

            def look(n: Var) -> Stmt:
                index = load(ranks, b, c, n)

                def against(m: Var) -> Stmt:
                    hit = _overlap(box(index), box(load(taken, m))) > overlap
                    return IfThenElse(hit, store(is_free, const(0, "int32"), 0), None)

                number = load(found, 0)
                add = seq(store(taken, index, number), store(found, number + const(1, "int64"), 0))
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
                store(found, const(0, "int64"), 0),
                loop("z", count, lambda n: store(taken, const(0, "int64"), n)),
                loop("n", count, look),
                loop("n", count, lambda n: store(results[0], load(taken, n), b, c, n)),
                store(results[1], load(found, 0), b, c),
            )

        return block(
            "suppress", [Axis("b", batch), Axis("c", classes)], one, [is_free, found, taken]
        )

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
