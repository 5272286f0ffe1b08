"""Fourier transforms in PyTorch models, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_families import Family, check, complexes, tensor  # noqa: E402

fft = torch.fft


def agrees(
    function: Any, *inputs: Any, tolerance: float = 1e-4, dynamic_shapes: Any = None
) -> None:
    model = Family([function])
    run = tilewright.compile(model, example_inputs=inputs, dynamic_shapes=dynamic_shapes)
    for found, wanted in zip(run(*inputs), model(*inputs)):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def test_every_kind() -> None:
    check(
        {
            "complex": lambda x, z: (fft.fft(z), fft.ifft(z), fft.fft(x), fft.ifft(x)),
            "half": lambda x, z: (fft.rfft(x), fft.irfft(z), fft.irfft(z, 9), fft.irfft(z, 4)),
            "of sizes": lambda x, z: (fft.fft(z, 4), fft.rfft(x, 9), fft.irfft(fft.rfft(x), 6)),
            "Hermitian": lambda x, z: (fft.hfft(z), fft.ihfft(x)),
            "other axes": lambda x, z: (fft.fft(z, dim=0), fft.rfft(x, dim=0), fft.irfft(z, dim=0)),
            "two axes": lambda x, z: (fft.fft2(x), fft.ifft2(z), fft.rfft2(x), fft.irfft2(z)),
            "all axes": lambda x, z: (fft.fftn(z, dim=(1, 0)), fft.irfftn(z, (4, 8))),
            "shifted": lambda x, z: (fft.fftshift(fft.fft(x)), fft.ifftshift(z)),
        },
        tensor(4, 6), complexes(4, 5),
        decomposed=False,
    )  # fmt: skip


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
def test_norms(norm: str) -> None:
    check(
        {
            "complex": lambda x, z: (fft.fft(z, norm=norm), fft.ifft2(z, norm=norm)),
            "half": lambda x, z: (fft.rfft2(x, norm=norm), fft.irfft2(z, norm=norm)),
        },
        tensor(3, 6), complexes(3, 4),
    )  # fmt: skip


def test_sizes() -> None:
    """Of one element, of one stage, of several, of large primes; even and odd ones."""
    for size in (1, 2, 34, 45):
        check(
            {"all": lambda x, z: (fft.ifft(z), fft.rfft(x), fft.irfft(z, size))},  # noqa: B023
            tensor(2, size) / size, complexes(2, size, seed=1),
            decomposed=False,
        )  # fmt: skip


def test_precision_of_doubles() -> None:
    z = complexes(3, 36, dtype=torch.complex128)
    agrees(lambda z: (fft.fft(z), fft.irfft(z)), z, tolerance=1e-11)


def test_symbolic_sizes() -> None:
    """A symbolic batch is computed as ever, a symbolic transform by the library."""
    n = Dim("n", min=2, max=600)
    for function, at in (
        (lambda x: (fft.rfft(x), fft.irfft(fft.rfft(x), 8)), 0),
        (lambda x: (fft.fft(x), fft.rfft(x), fft.irfft(torch.complex(x, x))), 1),
    ):
        model = Family([function])
        x = tensor(6, 8)
        run = tilewright.compile(model, example_inputs=(x,), dynamic_shapes=(({at: n},),))
        for size in (3, 8, 300):
            given = tensor(*((size, 8) if at == 0 else (6, size)))
            for found, wanted in zip(run(given), model(given)):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_empty_batches_and_odd_memory() -> None:
    model = Family([lambda x: (fft.rfft(x), fft.fft2(x[:, None]))])
    x = torch.empty(0, 6)  # which PyTorch's own library refuses
    assert [made.shape for made in tilewright.compile(model, example_inputs=(x,))(x)] == [
        (0, 4), (0, 1, 6),
    ]  # fmt: skip
    agrees(lambda z: (fft.fft(z.mT), fft.ifft(z[:, ::2].conj())), complexes(4, 6))


def test_spectrogram() -> None:
    window = torch.hann_window(16)

    def there_and_back(x: Any) -> Any:
        found = torch.stft(x, 16, 4, window=window, return_complex=True)
        return found.abs(), torch.istft(found, 16, 4, window=window)

    agrees(there_and_back, tensor(2, 64))


def test_frames() -> None:
    """Short windows, none, both sides, parts instead of complex numbers, complex signals."""
    window, x, z = torch.hann_window(9), tensor(2, 40), complexes(40)
    stft = torch.ops.aten.stft.default
    check(
        {
            "short": lambda x, z: stft(x, 16, 5, 9, window, False, True, True),
            "aligned": lambda x, z: stft(x, 16, 5, 9, window, False, True, True, True),
            "none": lambda x, z: stft(x[0], 12, 4, 7, None, True, False, True),
            "parts": lambda x, z: stft(x, 9, 9, None, window, False, True, False),
            "complex": lambda x, z: stft(z, 9, 3, None, window, True, False, True),
        },
        x, z,
    )  # fmt: skip


def test_signals_of_frames() -> None:
    window, z = torch.hann_window(9) + 0.1, complexes(2, 9, 7)
    both = complexes(2, 16, 7)
    check(
        {
            "middle": lambda z, both: torch.istft(z, 16, 5, 9, window, True, False, True),
            "all": lambda z, both: torch.istft(z, 16, 4, 16, None, False, True, True),
            "shorter": lambda z, both: torch.istft(z, 16, 4, None, None, length=11),
            "longer": lambda z, both: torch.istft(z, 16, 4, None, None, length=50),
            "complex": lambda z, both: torch.istft(
                both, 16, 4, onesided=False, return_complex=True
            ),
        },
        z, both,
    )  # fmt: skip


def test_frames_of_symbolic_signals() -> None:
    window = torch.hann_window(8)
    model = Family([lambda x: torch.stft(x, 8, 3, window=window, return_complex=True)])
    sizes = ({0: Dim("b", min=1, max=64), 1: Dim("n", min=16, max=4096)},)
    run = tilewright.compile(model, example_inputs=(tensor(2, 40),), dynamic_shapes=(sizes,))
    for shape in ((1, 16), (3, 101)):
        x = tensor(*shape)
        torch.testing.assert_close(run(x)[0], model(x)[0], rtol=1e-4, atol=1e-4)


def test_gradients() -> None:
    x = tensor(4, 12).requires_grad_()
    function = lambda x: (fft.rfft(x * 2).abs() ** 2).sum()
    (wanted,) = torch.autograd.grad(function(x), x)
    torch._dynamo.reset()
    (found,) = torch.autograd.grad(tilewright.torch.compile(function)(x), x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_what_llvm_breaks_is_compiled_without_the_pass_that_breaks_it() -> None:
    """``sroa`` used a vector of this graph before it was made: the process ended."""

    class Inverse(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.irfft(x)

    x = torch.randn(31, generator=torch.Generator().manual_seed(0))
    found = tilewright.compile(Inverse().eval(), example_inputs=(x,))(x)
    torch.testing.assert_close(found, torch.fft.irfft(x), rtol=1e-5, atol=1e-6)
