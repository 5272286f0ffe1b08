"""One architecture through one way, in a process of its own."""

from __future__ import annotations

import logging
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.worker import run_for
from benchmarks.zoo.build import build
from benchmarks.zoo.families import Entry

#: Largest difference over the largest value for which a result counts as right.
LIMIT = 1e-4

#: Seconds of calls that are timed, and how much longer quiet cores are waited for.
_TIMED, _PATIENCE = 0.4, 0.6

Forward = Callable[..., Sequence[Tensor]]
Inputs = tuple[Tensor, ...]


def _eager(model: nn.Module, inputs: Inputs) -> Forward:
    return model


def _export(model: nn.Module, inputs: Inputs) -> Forward:
    import tilewright

    compiled: Forward = tilewright.compile(model, example_inputs=inputs)
    return compiled


def _compile(model: nn.Module, inputs: Inputs) -> Forward:
    import tilewright

    torch._dynamo.reset()
    compiled: Forward = tilewright.torch.compile(model)
    return compiled


def _frozen(model: nn.Module, inputs: Inputs) -> Forward:
    import tilewright

    torch._dynamo.reset()
    compiled: Forward = tilewright.torch.compile(model, freezing=True)
    return compiled


def _inductor(model: nn.Module, inputs: Inputs) -> Forward:
    import torch._inductor.config as inductor

    torch._dynamo.reset()
    inductor.freezing = True
    compiled: Forward = torch.compile(model)
    return compiled


WAYS: dict[str, Callable[[nn.Module, Inputs], Forward]] = {
    "eager": _eager,
    "export": _export,
    "compile": _compile,
    "inductor": _inductor,
    "frozen": _frozen,
}

USUAL = tuple(way for way in WAYS if way != "frozen")
"""The ways of a run that doesn't say which."""

SYMBOLIC = "symbolic"
"""The way of models whose batch and length, or height and width, come with the call."""


def judge(entry: Entry, way: str, threads: int, seconds: float, timed: bool) -> dict[str, Any]:
    """Return what a way makes of an architecture: difference, seconds to build, seconds a call.

    The difference is the largest one over the largest value, over all results, from what PyTorch
    computes; where that is too far away, from what it computes in float64. ``error`` is there
    instead when it fails or takes more than so many ``seconds``.
    """
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(send, entry, way, threads, timed))
    child.start()
    send.close()
    try:
        if not receive.poll(seconds):
            return {"error": f"took more than {seconds:.0f} s"}
        answer: dict[str, Any] = receive.recv()
        return answer
    except EOFError:
        child.join()
        return {"error": f"the process ended (code {child.exitcode})"}
    finally:
        child.kill()
        child.join()


def _child(send: Any, entry: Entry, way: str, threads: int, timed: bool) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    try:
        send.send(_answer(entry, way, threads, timed))
    except Exception as error:  # told to the parent, which puts it into the table
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}".strip()
        send.send({"error": text[:600], "at": f"{place.filename}:{place.lineno}"})


def _answer(entry: Entry, way: str, threads: int, timed: bool) -> dict[str, Any]:
    from tilewright.runtime import set_num_threads

    set_num_threads(threads)
    model, inputs = build(entry)
    weights = sum(value.nbytes for value in (*model.parameters(), *model.buffers()))
    if way == SYMBOLIC:
        with torch.no_grad():
            return _symbolic(model, inputs, timed)
    with torch.no_grad():
        expected = [result.clone() for result in model(*inputs)]
        start = time.perf_counter()
        forward = WAYS[way](model, inputs)
        found = forward(*inputs)
        answer: dict[str, Any] = {
            "build_seconds": round(time.perf_counter() - start, 2),
            "difference": _difference(found, expected),
            "weights": weights,
        }
        if timed:
            ran = run_for(lambda: forward(*inputs), _TIMED, _PATIENCE, float("inf"))
            answer["seconds"] = float(f"{ran['seconds']:.4g}")
        if answer["difference"] > LIMIT:  # PyTorch's own rounding may be what is off
            exact = _in_float64(model, inputs, expected)
            answer["difference"] = min(answer["difference"], _difference(found, exact))
    return answer


def _in_float64(model: nn.Module, inputs: Inputs, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the results as PyTorch computes them in float64, in the types of others."""
    wide = (item.double() if item.is_floating_point() else item for item in inputs)
    return [result.to(own.dtype) for result, own in zip(model.double()(*wide), like)]


def _symbolic(model: nn.Module, inputs: Inputs, timed: bool) -> dict[str, Any]:
    """Compile for symbolic and for known sizes; also called with other sizes than were exported.

    PyTorch takes a batch of one for a constant, so that everything has a batch of two.
    """
    import tilewright

    auto = torch.export.Dim.AUTO
    inputs = tuple(torch.cat([tensor, tensor]) for tensor in inputs)
    dims = tuple(
        dict.fromkeys((0, *range(min(2, item.ndim - 1), item.ndim)), auto) for item in inputs
    )
    known = tilewright.compile(model, example_inputs=inputs)
    start = time.perf_counter()
    forward = tilewright.compile(model, example_inputs=inputs, dynamic_shapes=(dims,))
    answer: dict[str, Any] = {
        "build_seconds": round(time.perf_counter() - start, 2),
        "difference": max(
            _difference(forward(*given), [item.clone() for item in model(*given)])
            for given in (inputs, tuple(torch.cat([item, item[:1]]) for item in inputs))
        ),
    }
    if timed:
        for name, call in (("static_seconds", known), ("seconds", forward)):
            ran = run_for(partial(call, *inputs), _TIMED, _PATIENCE, float("inf"))
            answer[name] = float(f"{ran['seconds']:.4g}")
    return answer


def _difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    if len(found) != len(expected):
        return float("inf")
    return max(map(_apart, found, expected), default=0.0)


def _apart(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference over the largest value; infinite where types differ."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    a, b = found.to(torch.complex128), expected.to(torch.complex128)
    if not torch.equal(torch.isfinite(a.abs()), torch.isfinite(b.abs())):
        return float("inf")
    finite = torch.isfinite(b.abs())
    worst = (a - b)[finite].abs().amax() if finite.any() else torch.zeros(())
    scale = b[finite].abs().amax() if finite.any() else torch.ones(())
    return float(f"{float(worst / scale.clamp_min(1e-30)):.3g}")
