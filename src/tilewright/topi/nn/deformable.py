"""Convolutions whose taps are moved by data, and correlations of two images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.ir import Expr, and_, as_int, call, cast, const, maximum, minimum, select
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.layout import layout_of
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import Convolution, Padding, compute_image
from tilewright.topi.utils import padding_of, require_groups, require_ndim, rounded, total_dtype


@with_conditions
def _deformable(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    layouts: tuple[str, str],
    form: Convolution,
    deformable_groups: int,
    out_dtype: str | None,
) -> Tensor:
    what = "deformable_conv2d"
    x, w = map(layout_of, layouts)
    for tensor in (data, offset, kernel):
        require_ndim(what, tensor, 4)
    image, window, moves = (
        layout.extents(tensor.shape) for layout, tensor in ((x, data), (w, kernel), (x, offset))
    )
    groups = form.groups
    require_equal(f"{what}: channels", image["C"], window["I"] * groups)
    require_groups(what, "filters", window["O"], groups)
    require_groups(what, "channels", image["C"], deformable_groups)
    rows, columns = (as_int(window[axis]) for axis in "HW")
    if rows is None or columns is None:
        raise VerifyError(f"{what}: windows have constant extents, got {list(kernel.shape)}")
    taken = form.taps([image["H"], image["W"]], [rows, columns])
    out = [taps.out for taps in taken]
    require_equal(f"{what}: offsets", moves["C"], deformable_groups * rows * columns * 2)
    for extent, axis in zip(out, "HW"):
        require_equal(f"{what}: offsets along {axis}", moves[axis], extent)
    wide = total_dtype(out_dtype or data.dtype, data.dtype, kernel.dtype)
    sampled = _sampled(data, offset, x.name, form, (rows, columns), out, deformable_groups, wide)
    rc = te.reduce_axis((0, window["I"]), "rc")
    rh, rw = te.reduce_axis((0, rows), "rh"), te.reduce_axis((0, columns), "rw")
    group_out = window["O"] // groups

    def formula(n: Expr, f: Expr, *place: Expr) -> Expr:
        channel: Expr = rc.var
        if groups > 1:
            channel = f // group_out * window["I"] + rc.var
        tap = w.indices({"O": f, "I": rc.var, "H": rh.var, "W": rw.var})
        left = sampled(n, channel, rh.var, rw.var, *place)
        made: Expr = te.sum(left * cast(kernel(*tap), wide), axis=[rc, rh, rw])
        return made

    extents = {"N": image["N"], "C": window["O"], "H": out[0], "W": out[1]}
    tag = f"{what}_{x.name.lower()}"
    made = compute_image(x.shape(extents), "f", formula, what, tag, layout=x.name)
    return rounded(made, out_dtype or data.dtype)


def _sampled(
    data: Tensor, offset: Tensor, layout: str, form: Convolution, window: tuple[int, int],
    out: Sequence[Expr], groups: int, wide: str,
) -> Tensor:  # fmt: skip
    """The image at the taps of each window: ``[N, C, KH, KW, OH, OW]``, linear between pixels."""
    x = layout_of(layout)
    image = x.extents(data.shape)
    number = "float64" if offset.dtype == "float64" else "float32"
    per_group, columns = image["C"] // groups, window[1]
    shape = (2, image["N"], groups, *window, *out)

    def place(axis: Expr, n: Expr, g: Expr, r: Expr, s: Expr, h: Expr, w: Expr) -> Expr:
        channel = ((g * window[0] + r) * columns + s) * 2 + axis
        moved = offset(*x.indices({"N": n, "C": channel, "H": h, "W": w}))
        rows = h * form.stride[0] - form.before[0] + r * form.dilation[0]
        cols = w * form.stride[1] - form.before[1] + s * form.dilation[1]
        return cast(select(axis == 0, rows, cols), number) + cast(moved, number)

    places = compute(shape, place, name="tap_places")

    def first(axis: Expr, *at: Expr) -> Expr:
        """The pixel before a place, of all channels; -1 for places outside of the image."""
        value, size = places(axis, *at), select(axis == 0, image["H"], image["W"])
        inside = and_(value >= const(0, number), value < cast(size, number))
        whole = cast(select(inside, call("floor", value), const(0, number)), "int32")
        return select(inside, whole, const(-1, "int32"))

    firsts = compute(shape, first, name="tap_pixels")
    parts = compute(
        shape, lambda *i: cast(places(*i) - call("floor", places(*i)), wide), name="tap_parts"
    )

    def sample(n: Expr, c: Expr, *at: Expr) -> Expr:
        g = c // per_group
        low = [cast(firsts(a, n, g, *at), "int64") for a in range(2)]
        part = [parts(a, n, g, *at) for a in range(2)]
        one = const(1, wide)

        def pixel(dy: int, dx: int) -> Expr:
            wanted = [first + step for first, step in zip(low, (dy, dx))]
            rows, cols = (
                maximum(minimum(at, image[axis] - 1), 0) for at, axis in zip(wanted, "HW")
            )
            value = cast(data(*x.indices({"N": n, "C": c, "H": rows, "W": cols})), wide)
            there = and_(*(at < image[axis] for at, axis in zip(wanted, "HW")))
            return select(there, value, const(0, wide)) if dy or dx else value

        top = pixel(0, 0) * (one - part[1]) + pixel(0, 1) * part[1]
        bottom = pixel(1, 0) * (one - part[1]) + pixel(1, 1) * part[1]
        mixed = top * (one - part[0]) + bottom * part[0]
        return select(and_(*(first >= 0 for first in low)), mixed, const(0, wide))

    made: Tensor = compute((image["N"], image["C"], *window, *out), sample, name="deformed")
    return made


def _deformable_conv2d_in(layout: str, filters: str, doc: str) -> Callable[..., Tensor]:
    rows = filters.index("H")

    def deformable_conv2d(
        data: Tensor,
        offset: Tensor,
        kernel: Tensor,
        strides: int | Sequence[int],
        padding: Padding,
        dilation: int | Sequence[int],
        deformable_groups: int,
        groups: int,
        out_dtype: str | None,
    ) -> Tensor:
        window = kernel.shape[rows : rows + 2]
        form = Convolution.over(2, strides, padding, dilation, groups, window)
        layouts = layout, filters
        return _deformable(data, offset, kernel, layouts, form, deformable_groups, out_dtype)

    return named(deformable_conv2d, f"deformable_conv2d_{layout.lower()}", doc)


deformable_conv2d_nchw = _deformable_conv2d_in(
    "NCHW",
    "OIHW",
    """Convolve ``data [N, C, H, W]`` at taps that ``offset`` moves.

    ``offset [N, deformable_groups * KH * KW * 2, OH, OW]`` has for each tap how far it moves down
    and to the right, in pixels. Between pixels the image is linear; it is zero above and
    left of the first pixels, and fades behind the last ones. Algorithm:
    Dai et al., Deformable Convolutional Networks (2017).

    Raises ``VerifyError`` if shapes and groups don't fit.
    """,
)
deformable_conv2d_nhwc = _deformable_conv2d_in(
    "NHWC",
    "HWIO",
    """Convolve ``data [N, H, W, C]`` with ``kernel [KH, KW, C / groups, F]`` at moved taps.

    ``offset`` has its channels last too; see :func:`deformable_conv2d_nchw`.
    """,
)


@with_conditions
def correlation_nchw(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: int | Sequence[int],
    is_multiply: bool,
) -> Tensor:
    """Compare patches of two images at all displacements of a neighbourhood.

    A result channel is a displacement by multiples of ``stride2`` up to ``max_displacement``, rows
    first; its pixels, ``stride1`` apart, are means over a patch of ``kernel_size`` and the channels
    of products, or with ``is_multiply=False`` of absolute differences. Algorithm: FlowNet (2015).

    Raises ``VerifyError`` for an even kernel, and images of different shapes.
    """
    what = "correlation_nchw"
    require_ndim(what, data1, 4)
    require_ndim(what, data2, 4)
    if kernel_size % 2 != 1:
        raise VerifyError(f"{what}: kernel_size must be odd, got {kernel_size}")
    for a, b in zip(data1.shape, data2.shape):
        require_equal(f"{what}: extents", a, b)
    before, after = padding_of(padding, 2)
    first, second = (
        pad(x, (0, 0, *before), (0, 0, *after), name="pad_temp") if any((*before, *after)) else x
        for x in (data1, data2)
    )
    radius = max_displacement // stride2
    count = 2 * radius + 1
    border = max_displacement + (kernel_size - 1) // 2
    batch, channels = data1.shape[:2]
    out = [
        (extent + low + high - 2 * border + stride1 - 1) // stride1
        for extent, low, high in zip(data1.shape[2:], before, after)
    ]
    rc = te.reduce_axis((0, channels), "rc")
    rh, rw = (te.reduce_axis((0, kernel_size), name) for name in ("rh", "rw"))
    wide = total_dtype(data1.dtype, data1.dtype)

    def formula(n: Expr, q: Expr, y: Expr, x: Expr) -> Expr:
        row = y * stride1 + max_displacement + rh.var
        column = x * stride1 + max_displacement + rw.var
        down, right = (q // count - radius) * stride2, (q % count - radius) * stride2
        a = cast(first(n, rc.var, row, column), wide)
        b = cast(second(n, rc.var, row + down, column + right), wide)
        both = a * b if is_multiply else call("fabs", a - b)
        made: Expr = te.sum(both, axis=[rc, rh, rw])
        return made

    total = compute((batch, count * count, *out), formula, name="correlation", tag=what)
    size = cast(channels * (kernel_size * kernel_size), wide)
    made: Tensor = compute(
        total.shape, lambda *i: cast(total(*i) / size, data1.dtype), name="correlation_mean"
    )
    return made
