"""Converters of PyTorch operators, family by family, against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_families import Case, check, integers, tensor  # noqa: E402

import tilewright  # noqa: E402

F = torch.nn.functional


def test_arithmetic() -> None:
    check(
        {
            "add": lambda a, b, p, i: a + b,
            "add alpha": lambda a, b, p, i: torch.add(a, b, alpha=0.5),
            "add number": lambda a, b, p, i: a + 1,
            "add int tensor": lambda a, b, p, i: a + i,
            "sub": lambda a, b, p, i: a - b,
            "rsub": lambda a, b, p, i: 1 - a,
            "mul": lambda a, b, p, i: a * b * 2,
            "div": lambda a, b, p, i: a / p,
            "div ints": lambda a, b, p, i: i / 2,
            "div floor": lambda a, b, p, i: torch.div(a, p, rounding_mode="floor"),
            "div trunc": lambda a, b, p, i: torch.div(a, p, rounding_mode="trunc"),
            "floor_divide ints": lambda a, b, p, i: (i - 3) // 2,
            "remainder": lambda a, b, p, i: a % p,
            "remainder ints": lambda a, b, p, i: (i - 3) % 3,
            "fmod": lambda a, b, p, i: torch.fmod(a, p),
            "fmod ints": lambda a, b, p, i: torch.fmod(i - 3, 3),
            "remainder of infinity": lambda a, b, p, i: a % float("inf"),
            "floor_divide": lambda a, b, p, i: a // 0.1,
            "square": lambda a, b, p, i: a**2,
            "cube": lambda a, b, p, i: a**3,
            "root": lambda a, b, p, i: p**0.5,
            "inverse root": lambda a, b, p, i: p**-0.5,
            "power": lambda a, b, p, i: p**1.7,
            "power tensor": lambda a, b, p, i: torch.pow(p, b),
            "power of number": lambda a, b, p, i: 2.0**a,
            "power ints": lambda a, b, p, i: i**2,
            "maximum": lambda a, b, p, i: torch.maximum(a, b),
            "minimum": lambda a, b, p, i: torch.minimum(a, b),
            "addcmul": lambda a, b, p, i: torch.addcmul(a, b, p, value=0.3),
            "lerp": lambda a, b, p, i: torch.lerp(a, b, 0.3),
        },
        tensor(3, 4), tensor(4, seed=1), tensor(3, 4, seed=2, positive=True),
        integers(3, 4, below=7),
    )  # fmt: skip


def test_unary() -> None:
    names = (
        "abs ceil cos cosh erf exp floor neg relu round sigmoid sign sin sinh square tanh trunc "
        "atan"
    )
    positive = "log log2 sqrt rsqrt reciprocal log1p expm1"
    cases: dict[str, Case] = {
        name: lambda a, p, i, name=name: getattr(torch, name)(a) for name in names.split()
    }
    cases.update(
        {name: lambda a, p, i, name=name: getattr(torch, name)(p) for name in positive.split()}
    )
    cases["log1p near zero"] = lambda a, p, i: torch.log1p(a * 1e-6) * 1e6
    cases["expm1 near zero"] = lambda a, p, i: torch.expm1(a * 1e-6) * 1e6
    cases["log1p far"] = lambda a, p, i: torch.log1p(p / 0.0)
    cases["exp of ints"] = lambda a, p, i: torch.exp(i)
    cases["floor of ints"] = lambda a, p, i: torch.floor(i)
    check(cases, tensor(3, 5), tensor(3, 5, seed=1, positive=True), integers(4, below=3))


def test_activations() -> None:
    check(
        {
            "relu": F.relu,
            "relu6": F.relu6,
            "gelu": F.gelu,
            "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
            "silu": F.silu,
            "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
            "elu": lambda x: F.elu(x, 0.7),
            "softplus": F.softplus,
            "mish": F.mish,
            "hardtanh": F.hardtanh,
            "hardswish": F.hardswish,
            "hardsigmoid": F.hardsigmoid,
            "logsigmoid": F.logsigmoid,
            "prelu": lambda x: F.prelu(x, torch.full((6,), 0.3)),
            "dropout": lambda x: F.dropout(x, 0.5, training=False),
        },
        tensor(5, 6) * 3,
    )


def test_comparison_logic_choice() -> None:
    check(
        {
            "eq": lambda a, b, i: i == 2,
            "ne": lambda a, b, i: i != 2.5,
            "lt": lambda a, b, i: a < b,
            "le": lambda a, b, i: a <= 0,
            "gt": lambda a, b, i: i > a,
            "ge": lambda a, b, i: a >= b,
            "eq of bools": lambda a, b, i: (a > 0) == (b > 0),
            "and": lambda a, b, i: (a > 0) & (b > 0),
            "or": lambda a, b, i: (a > 0) | (b > 0),
            "xor": lambda a, b, i: torch.logical_xor(a > 0, b > 0),
            "not": lambda a, b, i: ~(a > 0),
            "logical_and": lambda a, b, i: torch.logical_and(i, a),
            "logical_not": lambda a, b, i: torch.logical_not(i),
            "where": lambda a, b, i: torch.where(a > 0, a, b),
            "where number": lambda a, b, i: torch.where(a > 0, a, 0.0),
            "masked_fill": lambda a, b, i: a.masked_fill(b > 0, -1e9),
            "clamp": lambda a, b, i: a.clamp(-0.5, 0.5),
            "clamp min": lambda a, b, i: a.clamp(min=0.1),
            "clamp max": lambda a, b, i: i.clamp(max=2),
            "isnan": lambda a, b, i: torch.isnan(a),
            "isinf": lambda a, b, i: torch.isinf(a / 0.0),
            "count": lambda a, b, i: (a > 0).sum(),
        },
        tensor(3, 4), tensor(3, 4, seed=3), integers(3, 4, below=5),
    )  # fmt: skip


def test_conversion() -> None:
    check(
        {
            "to float": lambda a, i: i.float(),
            "to int": lambda a, i: (a * 3).to(torch.int32),
            "to bool": lambda a, i: i.to(torch.bool),
            "from bool": lambda a, i: (a > 0).to(torch.float32),
            "to double": lambda a, i: a.double(),
            "half": lambda a, i: a.half().float(),
            "type_as": lambda a, i: i.type_as(a),
            "same": lambda a, i: a.to("cpu").contiguous().clone() + 0,
        },
        tensor(3, 4), integers(3, 4, below=3),
    )  # fmt: skip


def test_reductions() -> None:
    check(
        {
            "sum": lambda x, i: x.sum(),
            "sum axis": lambda x, i: x.sum(1),
            "sum axes": lambda x, i: x.sum((0, -1), keepdim=True),
            "sum ints": lambda x, i: i.sum(0),
            "mean": lambda x, i: x.mean(-1, keepdim=True),
            "mean all": lambda x, i: x.mean(),
            "max": lambda x, i: x.max(),
            "max axis": lambda x, i: x.max(1),
            "min axis": lambda x, i: x.min(2, keepdim=True),
            "amax": lambda x, i: x.amax((1, 2)),
            "amin": lambda x, i: x.amin(-1),
            "prod": lambda x, i: x.prod(1),
            "var": lambda x, i: x.var(-1),
            "var biased": lambda x, i: x.var((1, 2), unbiased=False, keepdim=True),
            "std": lambda x, i: x.std(1),
            "argmax": lambda x, i: x.argmax(-1),
            "argmax all": lambda x, i: x.argmax(),
            "argmin": lambda x, i: x.argmin(1, keepdim=True),
            "any": lambda x, i: (x > 1).any(-1),
            "all": lambda x, i: (x > -2).all(),
            "norm": lambda x, i: F.normalize(x, dim=-1),
            "norm 1": lambda x, i: torch.linalg.vector_norm(x, 1, 0),
        },
        tensor(3, 4, 5), integers(3, 4, below=9),
    )  # fmt: skip


def test_scalars_along_their_only_axis() -> None:
    check(
        {
            "max": lambda x, i: x.max(0),
            "min": lambda x, i: i.min(-1, keepdim=True),
            "argmax": lambda x, i: x.argmax(),
            "argmin": lambda x, i: i.argmin(0),
            "softmax": lambda x, i: F.softmax(x, 0),
            "softmax of infinity": lambda x, i: F.softmax(x / 0, 0),
            "log_softmax": lambda x, i: F.log_softmax(x, -1),
            "topk": lambda x, i: x.topk(1),
        },
        tensor(1)[0], integers(1, below=9)[0],
    )  # fmt: skip


def test_sorting() -> None:
    check(
        {
            "sort": lambda x, i: x.sort(),
            "sort descending": lambda x, i: torch.sort(i, stable=True, dim=1, descending=True),
            "sort stable": lambda x, i: torch.sort(i, stable=True, dim=0),
            "argsort": lambda x, i: x.argsort(1),
            "argsort stable": lambda x, i: torch.argsort(i, stable=True, dim=0),
            "topk": lambda x, i: x.topk(3),
            "topk least": lambda x, i: x.topk(2, 1, largest=False),
            "msort": lambda x, i: x.msort(),
            "scalar": lambda x, i: x.sum().sort(),
            "experts": lambda x, i: x.softmax(-1).topk(2, sorted=False).indices,
        },
        tensor(3, 4, 5), integers(3, 4, below=9),
    )  # fmt: skip


def test_shapes() -> None:
    check(
        {
            "view": lambda x: x.view(6, 4),
            "reshape": lambda x: x.reshape(-1, 2),
            "flatten": lambda x: x.flatten(1),
            "unflatten": lambda x: x.unflatten(2, (2, 2)),
            "unsqueeze": lambda x: x.unsqueeze(-1),
            "squeeze": lambda x: x[:, :1].squeeze(1),
            "index by None": lambda x: x[:, None, :, None],
            "expand": lambda x: x[:1].expand(5, -1, 4),
            "repeat": lambda x: x.repeat(2, 1, 3),
            "repeat_interleave": lambda x: x.repeat_interleave(3, dim=1),
            "permute": lambda x: x.permute(2, 0, 1),
            "transpose": lambda x: x.transpose(1, -1),
            "t": lambda x: x[0].t(),
            "mT": lambda x: x.mT,
            "movedim": lambda x: x.movedim(0, -1),
            "flip": lambda x: x.flip(0, 2),
            "roll": lambda x: x.roll(1, 1),
            "cat": lambda x: torch.cat([x, x * 2], 1),
            "cat empty": lambda x: torch.cat([torch.zeros(0), x[0, 0]]),
            "stack": lambda x: torch.stack([x, -x], -1),
            "split": lambda x: x.split(3, 2),
            "split sizes": lambda x: x.split([1, 3], 2),
            "chunk": lambda x: x.chunk(2, -1),
            "unbind": lambda x: x.unbind(1),
            "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
            "pad negative": lambda x: F.pad(x, (-1, 1)),
            "pad reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
            "tril": lambda x: x.tril(),
            "triu": lambda x: x.triu(1),
            "tril of bool": lambda x: (x > 0).tril(-1),
        },
        tensor(2, 3, 4),
    )


def test_indexing() -> None:
    table = tensor(7, 3, seed=5)
    check(
        {
            "slice": lambda x, i, j: x[:, 1:3],
            "slice step": lambda x, i, j: x[..., ::2],
            "slice negative": lambda x, i, j: x[:, -2:-1],
            "select": lambda x, i, j: x[:, 0],
            "select last": lambda x, i, j: x[..., -1],
            "narrow": lambda x, i, j: x.narrow(1, 1, 2),
            "embedding": lambda x, i, j: F.embedding(i, table),
            "index_select": lambda x, i, j: x.index_select(1, i[0]),
            "index": lambda x, i, j: x[:, i],
            "index negative": lambda x, i, j: x[:, i - 4],
            "index two": lambda x, i, j: x[j[:, None], i],
            "index apart": lambda x, i, j: x[j, :, i[:, 0]],
            "gather": lambda x, i, j: torch.gather(x[:, :, :3], 1, i[:, None, :]),
            "write": _write,
        },
        tensor(2, 4, 5), integers(2, 3, below=4), integers(2, below=2, seed=3),
    )  # fmt: skip


def _write(x: Any, i: Any, j: Any) -> Any:
    made = x.clone()
    made[:, 1] = 3.0
    made[:, :, 1:3] += 1
    return made


def test_creation() -> None:
    check(
        {
            "full": lambda x: x + torch.full((2, 3), 1.5),
            "full_like": lambda x: torch.full_like(x, math.inf),
            "zeros": lambda x: torch.zeros(2, dtype=torch.int64),
            "ones_like": lambda x: torch.ones_like(x),
            "new_zeros": lambda x: x.new_zeros(3),
            "arange": lambda x: torch.arange(5) * x[0, 0],
            "arange step": lambda x: torch.arange(1, 9, 3),
            "arange float": lambda x: torch.arange(0, 1, 0.25),
            "arange rounded": lambda x: torch.arange(2.1, -2.9, -1.0, dtype=torch.int64),
            "full, bool": lambda x: torch.full((2,), 6, dtype=torch.bool),
            "full_like, bool": lambda x: torch.full_like(x, 0.0, dtype=torch.bool),
            "linspace": lambda x: torch.linspace(0, 1, 5) + 0 * x[0, 0],
            "eye": lambda x: torch.eye(3) + x[0],
            "constant": lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
        },
        tensor(2, 3),
    )


def test_linear_algebra() -> None:
    bias = tensor(5, seed=9)
    check(
        {
            "mm": lambda a, b, c: a @ b,
            "matmul batched": lambda a, b, c: c @ b,
            "bmm": lambda a, b, c: torch.bmm(c, c.transpose(1, 2)),
            "mv": lambda a, b, c: a @ b[:, 0],
            "dot": lambda a, b, c: torch.dot(a[0], b[:, 0]),
            "addmm": lambda a, b, c: torch.addmm(bias, a, b, beta=0.5, alpha=2),
            "linear": lambda a, b, c: F.linear(c, b.t(), bias),
            "einsum": lambda a, b, c: torch.einsum("bij,jk->bik", c, b),
            "baddbmm": lambda a, b, c: torch.baddbmm(c[:, :, :1], c, c.transpose(1, 2)),
        },
        tensor(3, 4), tensor(4, 5, seed=1), tensor(2, 3, 4, seed=2),
    )  # fmt: skip


def test_convolution_and_pooling() -> None:
    weight, depthwise = tensor(4, 3, 3, 3, seed=3), tensor(3, 1, 3, 3, seed=4)
    bias, up = tensor(4, seed=5), tensor(3, 2, 3, 3, seed=6)
    check(
        {
            "conv2d": lambda x: F.conv2d(x, weight, bias, stride=2, padding=1),
            "conv2d dilated": lambda x: F.conv2d(x, weight, padding=(2, 0), dilation=(2, 1)),
            "conv2d same": lambda x: F.conv2d(x, weight, padding="same"),
            "conv2d depthwise": lambda x: F.conv2d(x, depthwise, groups=3),
            "conv2d unbatched": lambda x: F.conv2d(x[0], weight),
            "conv1d": lambda x: F.conv1d(x[:, :, 0], weight[:, :, 0], bias, padding=1),
            "conv_transpose2d": lambda x: F.conv_transpose2d(x, up, stride=2, padding=1),
            "conv_transpose2d groups": lambda x: F.conv_transpose2d(x, up, bias[:2].repeat(3),
                                                                    3, 0, 1, 3, (2, 1)),
            "conv_transpose2d unbatched": lambda x: F.conv_transpose2d(x[0], up, stride=2),
            "conv_transpose1d": lambda x: F.conv_transpose1d(x[:, :, 0], up[:, :, 0], stride=3),
            "conv_transpose3d": lambda x: F.conv_transpose3d(x[:, :, None], up[:, :, None],
                                                             stride=2, padding=(0, 1, 1)),
            "conv3d": lambda x: F.conv3d(x[:, :, None], weight[:, :, None], stride=(1, 2, 1)),
            "max_pool1d": lambda x: F.max_pool1d(x[:, :, 0], 3, stride=2, padding=1),
            "max_pool3d": lambda x: F.max_pool3d(x, (2, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
            "avg_pool1d": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
            "avg_pool3d": lambda x: F.avg_pool3d(x, (3, 2, 2), 2, (1, 0, 0)),
            "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[0], 3),
            "adaptive_avg_pool2d 5": lambda x: F.adaptive_avg_pool2d(x, (5, None)),
            "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
            "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 7)),
            "max_pool2d": lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
            "max_pool2d ceil": lambda x: F.max_pool2d(x, 2, ceil_mode=True),
            "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
            "avg_pool2d padded": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1),
            "adaptive_avg_pool2d 3": lambda x: F.adaptive_avg_pool2d(x[:, :, :6, :6], (3, 2)),
            "upsample": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        },
        tensor(2, 3, 7, 7),
    )  # fmt: skip


def test_means_of_integers() -> None:
    check(
        {
            "whole": lambda i: F.avg_pool2d(i, 2),
            "padded": lambda i: F.avg_pool2d(i, 3, 2, 1, count_include_pad=False),
            "divisor": lambda i: F.avg_pool2d(i, 3, 2, 1, divisor_override=2),
        },
        integers(1, 2, 5, 6, below=9, low=-9),
    )  # fmt: skip


def test_half_floats_of_groups_are_rounded_once() -> None:
    x, gamma = tensor(2, 4, 8), tensor(4, seed=1) * 9
    beta = -gamma
    halves = [value.bfloat16() for value in (x, gamma, beta)]

    class Groups(torch.nn.Module):
        def forward(self, x: Any, gamma: Any, beta: Any) -> Any:
            return F.group_norm(x, 2, gamma, beta)

    found = tilewright.compile(Groups(), example_inputs=tuple(halves))(*halves)
    exact = Groups()(*(value.double() for value in halves))
    assert torch.allclose(found.double(), exact, rtol=2**-8, atol=1e-5)


def test_normalisation() -> None:
    gamma, beta = tensor(6, seed=3), tensor(6, seed=4)
    mean, var = tensor(6, seed=5), tensor(6, seed=6, positive=True)
    check(
        {
            "layer_norm": lambda x: F.layer_norm(x.mT, (6,), gamma, beta),
            "layer_norm plain": lambda x: F.layer_norm(x, (6, 4)),
            "rms_norm": lambda x: F.rms_norm(x.mT, (6,), gamma, 1e-6),
            "rms_norm written out": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6),
            "group_norm": lambda x: F.group_norm(x, 3, gamma, beta),
            "batch_norm": lambda x: F.batch_norm(x, mean, var, gamma, beta),
            "batch_norm plain": lambda x: F.batch_norm(x, mean, var),
            "softmax": lambda x: F.softmax(x, 1),
            "log_softmax": lambda x: F.log_softmax(x, -1),
        },
        tensor(2, 6, 4),
    )


def test_attention() -> None:
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    bias = torch.where(mask, 0.3, -math.inf)
    attend = F.scaled_dot_product_attention
    check(
        {
            "plain": lambda q, k, v: attend(q, k, v),
            "scaled": lambda q, k, v: attend(q, k, v, scale=0.2),
            "causal": lambda q, k, v: attend(k, k, v, is_causal=True),
            "bool mask": lambda q, k, v: attend(q, k, v, attn_mask=mask),
            "float mask": lambda q, k, v: attend(q, k, v, attn_mask=bias),
            "grouped": lambda q, k, v: attend(q, k[:, :1], v[:, :1], enable_gqa=True),
        },
        tensor(2, 2, 3, 8), tensor(2, 2, 4, 8, seed=1), tensor(2, 2, 4, 8, seed=2),
    )  # fmt: skip
    check(
        {
            "no heads": lambda q, k, v: attend(q, k, v),
            "no heads, mask": lambda q, k, v: attend(q, k, v, attn_mask=bias[None]),
        },
        tensor(2, 3, 8), tensor(2, 4, 8, seed=1), tensor(2, 4, 8, seed=2),
    )  # fmt: skip
    check(
        {
            "more axes": lambda q, k, v: attend(q, k, v),
            "broadcast": lambda q, k, v: attend(q, k[:1], v, attn_mask=mask),
            "double": lambda q, k, v: attend(q.double(), k.double(), v.double(), is_causal=True),
        },
        tensor(2, 2, 2, 3, 8), tensor(2, 2, 2, 4, 8, seed=1), tensor(2, 2, 2, 4, 8, seed=2),
    )  # fmt: skip
