"""Grey-scale dilation: the maximum of pixels plus a structuring element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.ir import Expr
from tilewright.ir import cast as cast_expr
from tilewright.support.naming import named
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.layout import layout_of
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import Convolution, Padding, compute_image
from tilewright.topi.utils import require_ndim


@with_conditions
def _dilation2d(
    data: Tensor, kernel: Tensor, layouts: tuple[str, str], form: Convolution, out_dtype: str | None
) -> Tensor:
    x, w = map(layout_of, layouts)
    image, window = x.extents(data.shape), w.extents(kernel.shape)
    require_equal("dilation2d: channels", image["C"], window["C"])
    first = x.name.index("H")
    lead, rest = (0,) * first, (0,) * (2 - first)
    source = data
    if any((*form.before, *form.after)):
        around = (*lead, *form.before, *rest), (*lead, *form.after, *rest)
        source = pad(data, *around, name="pad_temp")
    steps = [te.reduce_axis((0, window[axis]), f"r{axis.lower()}") for axis in "HW"]

    def formula(n: Expr, c: Expr, *place: Expr) -> Expr:
        at, tap = {"N": n, "C": c}, {"C": c}
        for a, axis in enumerate("HW"):
            at[axis] = place[a] * form.stride[a] + steps[a].var * form.dilation[a]
            tap[axis] = steps[a].var
        made: Expr = te.max(source(*x.indices(at)) + kernel(*w.indices(tap)), axis=steps)
        return made

    extents = {"N": image["N"], "C": image["C"]}
    for a, axis in enumerate("HW"):
        padded = image[axis] + form.before[a] + form.after[a]
        extents[axis] = (padded - (window[axis] - 1) * form.dilation[a] - 1) // form.stride[a] + 1
    name = f"dilation2d_{x.name.lower()}"
    made = compute_image(x.shape(extents), "c", formula, "dilation2d", name, layout=x.name)
    if out_dtype in (None, made.dtype):
        return made
    cast: Tensor = compute(made.shape, lambda *i: cast_expr(made(*i), out_dtype), "dilation2d_cast")
    return cast


def _form(
    data: Tensor, kernel: Tensor, options: tuple[int | Sequence[int], Padding, int | Sequence[int]],
    window: Sequence[Expr],
) -> Convolution:  # fmt: skip
    require_ndim("dilation2d", data, 4)
    require_ndim("dilation2d", kernel, 3)
    stride, padding, dilations = options
    return Convolution.over(2, stride, padding, dilations, 1, window)


def _dilation2d_in(layout: str, filter_layout: str, doc: str) -> Callable[..., Tensor]:
    rows = filter_layout.index("H")

    def dilation2d(
        input: Tensor,
        filter: Tensor,
        stride: int | Sequence[int],
        padding: Padding,
        dilations: int | Sequence[int],
        out_dtype: str | None = None,
    ) -> Tensor:
        form = _form(input, filter, (stride, padding, dilations), filter.shape[rows : rows + 2])
        return _dilation2d(input, filter, (layout, filter_layout), form, out_dtype)

    return named(dilation2d, f"dilation2d_{layout.lower()}", doc)


dilation2d_nchw = _dilation2d_in(
    "NCHW",
    "CHW",
    """Give the maximum of ``input [N, C, H, W] + filter [C, KH, KW]`` over windows.

    Padding counts as zeros. Options are those of a convolution.
    """,
)
dilation2d_nhwc = _dilation2d_in(
    "NHWC",
    "HWC",
    "Give the maximum of ``input [N, H, W, C] + filter [KH, KW, C]`` over windows.",
)
