"""Compares compiled functions with eager mode: values, strides, and what they write."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

import tilewright.torch


def leaves(value: Any) -> Iterator[Any]:
    """Tensors and numbers in nested results."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A function compiled afresh."""
    torch._dynamo.reset()
    made: Callable[..., Any] = tilewright.torch.compile(function, **options)
    return made


def same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Require equal structure, values and strides."""
    found, expected = list(leaves(got)), list(leaves(want))
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
            assert a.stride() == b.stride()
        else:
            assert a == b


def agree(
    function: Callable[..., Any], *calls: tuple[Any, ...], tolerance: float = 1e-5, **options: Any
) -> None:
    """Require that a function means the same compiled as eager, for each tuple of arguments."""
    run = compiled(function, **options)
    for args in calls:
        theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
        with torch.no_grad():
            want, got = function(*theirs), run(*ours)
        same(got, want, tolerance)
        same(ours, theirs, tolerance)
