"""Operators of several tensors with the letters of their extents, and NumPy's results.

Extents of one letter must agree. An operand's extent may be given to ``te`` as a number, as the
letter's variable or as a variable of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.topi import nn


@dataclass(frozen=True)
class Case:
    """An operator over operands whose dimensions are letters or numbers, and its NumPy form."""

    shapes: tuple[str, ...]
    define: Callable[..., Any]
    numpy: Callable[..., Any]
    integers: tuple[int, ...] = ()
    """Operands that are indices."""


def _strict(*pairs: tuple[int, int]) -> None:
    for a, b in pairs:
        if a != b:
            raise ValueError(f"{a} is not {b}")


def _softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _attention(q: Any, k: Any, v: Any, *mask: Any) -> Any:
    _strict(*zip(k.shape[:3], v.shape[:3]), (q.shape[0], k.shape[0]), (q.shape[1], k.shape[1]))
    scores = q @ k.transpose(0, 1, 3, 2) * 0.5
    return _softmax(np.broadcast_to(mask[0], scores.shape) + scores if mask else scores) @ v


def _conv1d(x: Any, w: Any, groups: int = 1) -> Any:
    _strict((x.shape[1], w.shape[1] * groups), (w.shape[0] % groups, 0))
    out = x.shape[2] - w.shape[2] + 1
    filters, channels = w.shape[0] // groups, w.shape[1]
    made = np.zeros((x.shape[0], w.shape[0], out), x.dtype)
    for f in range(w.shape[0]):
        start = f // filters * channels
        for place in range(out):
            window = x[:, start : start + channels, place : place + w.shape[2]]
            made[:, f, place] = (window * w[f]).sum((1, 2))
    return made


def _conv1d_transpose(x: Any, w: Any) -> Any:
    _strict((x.shape[1], w.shape[0]))
    made = np.zeros((x.shape[0], w.shape[1], x.shape[2] + w.shape[2] - 1), x.dtype)
    for place in range(x.shape[2]):
        made[:, :, place : place + w.shape[2]] += np.einsum("nc,cfk->nfk", x[:, :, place], w)
    return made


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    _strict((gamma.shape[0], x.shape[-1]), (beta.shape[0], x.shape[-1]))
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def _rms_norm(x: Any, weight: Any) -> Any:
    _strict((weight.shape[0], x.shape[-1]))
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def _batch_norm(x: Any, *each: Any) -> Any:
    _strict(*((item.shape[0], x.shape[1]) for item in each))
    gamma, beta, mean, var = (item[:, None] for item in each)
    return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta


def _group_norm(x: Any, gamma: Any, beta: Any) -> Any:
    _strict((gamma.shape[0], x.shape[1]), (beta.shape[0], x.shape[1]), (x.shape[1] % 2, 0))
    grouped = x.reshape(x.shape[0], 2, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    made = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return made.reshape(x.shape) * gamma[:, None] + beta[:, None]


def _gather(x: Any, at: Any) -> Any:
    if at.shape[1] > x.shape[1] or (at.size and not x.shape[0]):
        raise ValueError("more indices than elements")
    return np.take_along_axis(x[:, : at.shape[1]], np.minimum(at, x.shape[0] - 1), 0)


def _quantized(x: Any, scale: Any) -> Any:
    _strict((scale.shape[0], x.shape[-1]))
    return np.clip(np.rint(x / (scale + 1)), -128, 127).astype("int8")


def _take(x: Any, at: Any) -> Any:
    return np.take(x, at, 0, mode="clip")


def _sliced(x: Any, y: Any) -> Any:
    if x.shape[0] < 4:
        raise ValueError("not inside")
    return x[1:4] + y


def _joined(x: Any, y: Any) -> Any:
    return np.concatenate([x, y], 0)


def _split(x: Any, y: Any) -> Any:
    _strict((x.shape[0] % 2, 0))
    return np.split(x, 2)[1] + y


def _top(x: Any, y: Any) -> Any:
    if x.shape[-1] < 2:
        raise ValueError("too few")
    return -np.sort(-x, -1)[:, :2] + y


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "less": np.less, "equal": np.equal,
    "greater_equal": np.greater_equal, "power": np.power, "floor_mod": np.mod, "mod": np.fmod,
}  # fmt: skip

CASES: dict[str, Case] = {
    **{
        name: Case(("nm", "nm"), getattr(topi, name), function) for name, function in BINARY.items()
    },
    "add of a row": Case(("nm", "m"), topi.add, np.add),
    "add of a column": Case(("nm", "n1"), topi.add, np.add),
    "three summands": Case(("n", "n", "n"), lambda a, b, c: topi.add(topi.add(a, b), c),
                           lambda a, b, c: a + b + c),
    "where": Case(("nm", "nm", "m"), lambda c, x, y: topi.where(topi.less(c, 0.5), x, y),
                  lambda c, x, y: np.where(c < 0.5, x, y)),
    "matmul": Case(("nk", "km"), topi.matmul, np.matmul),
    "matmul transposed": Case(("kn", "mk"), lambda a, b: topi.matmul(a, b, True, True),
                              lambda a, b: a.T @ b.T),
    "matmul vectors": Case(("k", "k"), topi.matmul, np.matmul),
    "matmul batches": Case(("bnk", "bkm"), topi.matmul, np.matmul),
    "batch_matmul": Case(("bnk", "bmk"), nn.batch_matmul,
                         lambda a, b: a @ b.transpose(0, 2, 1)),
    "dense": Case(("nk", "mk", "m"), nn.dense,
                  lambda a, b, c: a @ b.T + np.broadcast_to(c, (b.shape[0],))),
    "conv1d": Case(("ncw", "fc2"), nn.conv1d, _conv1d),
    "conv1d groups": Case(("n4w", "f22"), lambda x, w: nn.conv1d(x, w, groups=2),
                          lambda x, w: _conv1d(x, w, 2)),
    "conv1d kernel": Case(("ncw", "fck"), nn.conv1d, _conv1d),
    "conv1d_transpose": Case(("ncw", "cf2"), nn.conv1d_transpose, _conv1d_transpose),
    "attention": Case(("b2s4", "b2t4", "b2t3"),
                      lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, scale=0.5),
                      _attention),
    "attention mask": Case(("b2s4", "b2t4", "b2t4", "st"),
                           lambda *t: nn.scaled_dot_product_attention(*t, scale=0.5), _attention),
    "layer_norm": Case(("nm", "m", "m"), nn.layer_norm, _layer_norm),
    "rms_norm": Case(("nm", "m"), nn.rms_norm, _rms_norm),
    "batch_norm": Case(("ncw", *"cccc"), lambda *t: nn.batch_norm(*t)[0], _batch_norm),
    "group_norm": Case(("ncw", "c", "c"), lambda *t: nn.group_norm(*t, 2), _group_norm),
    "concatenate": Case(("nm", "km"), lambda *t: topi.concatenate(t), _joined),
    "stack": Case(("nm", "nm"), lambda *t: topi.stack(t, 1), lambda *t: np.stack(t, 1)),
    "take": Case(("nm", "k"), lambda x, i: topi.take(x, i, 0), _take, (1,)),
    "gather": Case(("nm", "km"), lambda x, i: topi.gather(x, 0, i), _gather, (1,)),
    "reshape": Case(("nm", "k4"), lambda x, y: topi.add(topi.reshape(x, y.shape), y),
                    lambda x, y: x.reshape(y.shape) + y),
    "flatten": Case(("nm", "nm"), lambda x, y: topi.add(topi.flatten(x), topi.flatten(y)),
                    np.add),
    "squeeze": Case(("k", "n"), lambda x, y: topi.add(topi.squeeze(x, 0), y),
                    lambda x, y: np.squeeze(x, 0) + y),
    "broadcast_to": Case(("m", "nm"), lambda x, y: topi.add(topi.broadcast_to(x, y.shape), y),
                         lambda x, y: np.broadcast_to(x, y.shape) + y),
    "strided_slice": Case(("n", "3"), lambda x, y: topi.add(topi.strided_slice(x, [1], [4]), y),
                          _sliced),
    "split": Case(("nm", "m"), lambda x, y: topi.add(topi.split(x, 2)[1], y), _split),
    "topk": Case(("nm", "n2"), lambda x, y: topi.add(topi.topk(x, 2, ret_type="values"), y), _top),
    "quantize": Case(("nm", "m"), lambda x, s: nn.quantize(x, topi.add(s, 1.0)), _quantized),
}  # fmt: skip
