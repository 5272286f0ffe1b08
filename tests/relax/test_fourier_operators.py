"""Graph operators that transform along an axis, and frames: values, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tests.relax.test_gradients import check_with_torch
from tilewright import relax
from tilewright.relax import op
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")


def both(made: Any) -> Any:
    """Both parts, of different weight."""
    return op.add(relax.TupleGetItem(made, 0), op.multiply(relax.TupleGetItem(made, 1), 2.0))


def weighed(z: Any) -> Any:
    return z.real + 2 * z.imag


def test_gradients() -> None:
    rows, columns = random(2, 5), random(6, 3, seed=1)
    cases = [
        (
            lambda a, b: both(op.fft(a, b, 0, True, 0.5)),
            lambda a, b: weighed(torch.fft.ifft(torch.complex(a, b), dim=0) * 3),
            [columns, random(6, 3, seed=2)],
        ),
        (lambda x: both(op.rfft(x, 1)), lambda x: weighed(torch.fft.rfft(x)), [rows]),
        (lambda x: both(op.rfft(x, 0)), lambda x: weighed(torch.fft.rfft(x, dim=0)), [columns]),
        (
            lambda a, b: op.irfft(a, b, 8),
            lambda a, b: torch.fft.irfft(torch.complex(a, b), 8) * 8,
            [rows, random(2, 5, seed=3)],
        ),
        (
            lambda a, b: op.irfft(a, b, 7, 0),
            lambda a, b: torch.fft.irfft(torch.complex(a, b), 7, dim=0) * 7,
            [columns, random(6, 3, seed=4)],
        ),
    ]
    for body, reference, arrays in cases:
        check_with_torch(body, reference, arrays)


@pytest.mark.parametrize("onesided", [True, False])
def test_gradients_of_frames(onesided: bool) -> None:
    def reference(x: Any, window: Any) -> Any:
        return torch.stft(
            x, 4, 3, window=window, center=False, normalized=True, onesided=onesided,
            return_complex=True,
        )  # fmt: skip

    check_with_torch(
        lambda x, w: op.stft(x, w, 3, True, onesided),
        lambda x, w: torch.view_as_real(reference(x, w)),
        [random(2, 14), random(4, seed=1)],
    )


def added(frames: np.ndarray, hop: int) -> np.ndarray:
    made = np.zeros((len(frames), (frames.shape[1] - 1) * hop + frames.shape[2]), frames.dtype)
    for number in range(frames.shape[1]):
        made[:, number * hop : number * hop + frames.shape[2]] += frames[:, number]
    return made


@pytest.mark.parametrize("hop", [2, 5, 7])
def test_overlapping_frames_are_added(hop: int) -> None:
    """Frames that overlap, that fit no whole number of hops, and that don't touch."""
    frames = random(2, 4, 5)
    made = relax.build(graph(lambda x: op.overlap_add(x, hop), tensor((2, 4, 5))))(frames)
    np.testing.assert_allclose(made.numpy(), added(frames, hop), rtol=1e-6, atol=1e-6)


def test_gradient_of_overlapping_frames() -> None:
    def reference(x: Any) -> Any:
        made = torch.zeros(2, 11)
        for number in range(4):
            made = made + torch.nn.functional.pad(x[:, number], (2 * number, 6 - 2 * number))
        return made

    check_with_torch(lambda x: op.overlap_add(x, 2), reference, [random(2, 4, 5)])


def test_refusals() -> None:
    x, n = tensor((2, 8)), tensor((symbol("b"), symbol("n")))
    for build, message in [
        (lambda: op.rfft(relax.Var("x", n)), "extent of axis -1 must be known"),
        (lambda: op.fft(relax.Var("x", x), relax.Var("y", tensor((2, 8), "float64"))), "one shape"),
        (lambda: op.irfft(relax.Var("x", x), relax.Var("y", x), 16), "there are 8"),
        (lambda: op.rfft(relax.Var("x", tensor((2, 8), "int32"))), "floating-point"),
        (lambda: op.stft(relax.Var("x", x), relax.Var("w", tensor((9,))), 2), "the signal 8"),
    ]:
        with pytest.raises(VerifyError, match=message):
            build()
