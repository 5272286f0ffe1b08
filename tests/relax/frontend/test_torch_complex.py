"""Complex numbers in PyTorch models, against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relax
from tilewright.support.errors import ImportModelError

torch = pytest.importorskip("torch")

from torch.export import Dim, export  # noqa: E402
from torch_families import Family, check, complexes, integers, tensor  # noqa: E402

from tilewright.relax.frontend.torch import CONVERTERS, from_exported_program  # noqa: E402
from tilewright.relax.frontend.torch.converters.complex_parts import known_parts  # noqa: E402


def same(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    found = found if isinstance(found, torch.Tensor) else torch.as_tensor(np.asarray(found))
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def compiled_agrees(function: Any, *inputs: Any, dynamic_shapes: Any = None) -> None:
    model = Family([function])
    run = tilewright.compile(model, example_inputs=inputs, dynamic_shapes=dynamic_shapes)
    for found, wanted in zip(run(*inputs), model(*inputs)):
        same(found, wanted)


def rotate(x: Any, turns: Any) -> Any:
    """Rotary embedding as Llama's own code has it."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


TURNS = torch.polar(torch.ones(5, 1, 4), tensor(5, 1, 4, seed=3))


# ---- converters ---------------------------------------------------------------------------------


def test_tables_name_converters() -> None:
    assert not [name for name in known_parts() if name not in CONVERTERS]


def test_making_and_taking_apart() -> None:
    check(
        {
            "complex": lambda x, p, z: torch.complex(x, p[:1]),
            "polar": lambda x, p, z: torch.polar(p, x),
            "pairs": lambda x, p, z: torch.view_as_complex(torch.stack([x, p], -1)),
            "apart": lambda x, p, z: (torch.view_as_real(z), z.real, z.imag, abs(z), z.angle()),
            "conjugates": lambda x, p, z: (z.conj(), z.conj().imag, z.conj_physical(), z.mH),
            "real ones": lambda x, p, z: (x.conj() * 2, torch.real(x) + 1, x.mH, x.sgn()),
            "rows": lambda x, p, z: (z.view(torch.float32), x.view(torch.complex64)),
            "kinds": lambda x, p, z: (z.to(torch.complex128), x.to(torch.complex64), z.bool()),
            "real": lambda x, p, z: torch.ones_like(z, dtype=torch.float32) + z.real,
            "filled": lambda x, p, z: (
                torch.full((2,), 1 + 2j), torch.zeros_like(z), torch.ones_like(z),
                torch.full_like(z, 3j),
            ),
        },
        tensor(3, 4), tensor(3, 4, seed=1, positive=True), complexes(3, 4),
    )  # fmt: skip


def test_moving_elements() -> None:
    check(
        {
            "shapes": lambda z, w, i: (z.reshape(6, 2), z.flatten(), z[None].squeeze(0)),
            "orders": lambda z, w, i: (z.T, z.transpose(0, 1).contiguous(), z.flip(0), z.roll(1)),
            "cuts": lambda z, w, i: (z[1:], z[:, -1], z[::2], z.split(2, 1), z.unbind(0)),
            "joined": lambda z, w, i: (torch.cat([z, w.real]), torch.stack([z, w], 2)),
            "expanded": lambda z, w, i: (z[0].expand(2, 4), z.repeat(2, 1)),
            "padded": lambda z, w, i: torch.nn.functional.pad(z, (1, 2)),
            "chosen": lambda z, w, i: (z[i], z.index_select(0, i), torch.where(w.real > 0, z, 1j)),
            "triangles": lambda z, w, i: (z.tril(), z.triu(1), z.diagonal()),
            "written": lambda z, w, i: (z.index_add(0, i, w[:2]), z.masked_fill(w.real > 0, 2j)),
        },
        complexes(3, 4), complexes(3, 4, seed=1), integers(2, below=3),
    )  # fmt: skip


def test_arithmetic() -> None:
    check(
        {
            "complex ones": lambda z, w, x: (z + w, z - w, z * w, z / w, torch.sub(z, w, alpha=2)),
            "real ones": lambda z, w, x: (z + x, x - z, z * x, z / x, x / z),
            "numbers": lambda z, w, x: (z + 2, 3 - z, z * 2j, (1 + 2j) / z, z / 2, x * (1 - 1j)),
            "powers": lambda z, w, x: (z**2, z**3, z**-1, z**0, z**0.5, z**w, 2**z, z**1.5),
            "unary": lambda z, w, x: (-z, z.reciprocal(), z.square(), z.sgn(), +z),
            "with others": lambda z, w, x: torch.addcmul(z, w, w, value=2),
            "compared": lambda z, w, x: (z == w, z != z, z == 1, torch.isfinite(z), z.isnan()),
            "truth": lambda z, w, x: (z.any(), (z * 0).any(1), z.all(0), torch.logical_not(z)),
        },
        complexes(3, 4), complexes(3, 4, seed=1, dtype=torch.complex128), tensor(3, 4, seed=2),
        decomposed=False,
    )  # fmt: skip


def test_functions() -> None:
    check(
        {
            name: lambda z, name=name: getattr(torch, name)(z)
            for name in (
                "exp", "log", "log2", "log10", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan",
                "sinh", "cosh", "tanh",
            )
        },
        complexes(5, 4), decomposed=False,
    )  # fmt: skip


def test_functions_at_odd_places() -> None:
    """Zeros, cuts, large numbers."""
    odd = torch.tensor([0, -4, 4, -4j, 3e-30 + 1e-30j, -2 - 1e-6j, 40 + 3j, -90 + 1j])
    check(
        {
            "root": lambda z: torch.sqrt(z),
            "sign": lambda z: z.sgn(),
            "size": lambda z: abs(z),
            "angle": lambda z: z.angle(),
            "tangent": lambda z: torch.tanh(z),
            "exponential": lambda z: torch.exp(z - 100),
            "quotient": lambda z: 1e-20 / (z * 1e18 + 1e19),
        },
        odd,
    )  # fmt: skip
    check({"exponential": lambda z: torch.exp(z)}, torch.tensor([math.inf + 0j, -math.inf + 0j]))


def test_reductions() -> None:
    check(
        {
            "sums": lambda z: (z.sum(), z.sum(1), z.sum(0, keepdim=True), z.cumsum(0)),
            "means": lambda z: (z.mean(), z.mean((0, 1))),
            "of real numbers": lambda z: z.real.sum(dtype=torch.complex64),
            "norms": lambda z: (torch.linalg.vector_norm(z), torch.linalg.vector_norm(z, 1, 1)),
        },
        complexes(3, 4),
    )  # fmt: skip


def test_products_of_matrices() -> None:
    check(
        {
            "complex": lambda a, b, x: (a @ b, a[0] @ b[0], a[0] @ b[0, :, 0]),
            "real": lambda a, b, x: (torch.matmul(a[0], x.to(a.dtype)), torch.mv(b[0], b[0, 0])),
            "scaled": lambda a, b, x: torch.addmm(a[0, :, :3], a[0], b[0], beta=2, alpha=1j),
            "batched": lambda a, b, x: torch.baddbmm(a @ b, a, b, beta=0.5),
            "linear": lambda a, b, x: torch.nn.functional.linear(a, b[0].T, b[0, 0]),
            "vectors": lambda a, b, x: (torch.dot(a[0, 0], a[0, 1]), torch.vdot(a[0, 0], a[0, 1])),
            "einsum": lambda a, b, x: torch.einsum("bij,bjk->ik", a, b),
        },
        complexes(2, 3, 4), complexes(2, 4, 3, seed=1)[:, :, :3].contiguous(), tensor(4, 5),
    )  # fmt: skip


def test_half_parts() -> None:
    x = tensor(3, 4).half()
    model = Family([lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(3, 2, 2)) * 2)])
    (found,) = tilewright.compile(model, example_inputs=(x,))(x)
    assert found.dtype == torch.float16
    same(found, model(x)[0])


# ---- compiled -----------------------------------------------------------------------------------


def test_rotary_embedding_is_one_kernel() -> None:
    x = tensor(2, 5, 3, 8)
    mod = from_exported_program(export(Family([rotate]), (x, TURNS)))
    fused = relax.get_pipeline("zero")(mod)
    kernels = [
        item for item in fused.functions.values() if isinstance(item, tilewright.tir.PrimFunc)
    ]
    assert len(kernels) == 1
    compiled_agrees(rotate, x, TURNS)


def test_symbolic_sizes() -> None:
    n = Dim("n", min=2)
    model = Family([lambda x, z: (torch.view_as_complex(x) * z, z.abs().sum(), z.conj())])
    inputs = (tensor(6, 2), complexes(6))
    run = tilewright.compile(model, example_inputs=inputs, dynamic_shapes=(({0: n}, {0: n}),))
    for size in (2, 5, 6):
        given = (tensor(size, 2, seed=size), complexes(size, seed=size))
        for found, wanted in zip(run(*given), model(*given)):
            same(found, wanted)


def test_empty_and_zero_dimensional() -> None:
    compiled_agrees(lambda z: (z * 2, z.sum(), z + 1j), complexes(0, 3))
    compiled_agrees(lambda z: (z * 2j, z.abs(), torch.view_as_real(z)), complexes())


def test_real_numbers_of_a_wider_shape() -> None:
    compiled_agrees(
        lambda z: torch.addcmul(torch.arange(3.0)[:, None], z, z, value=1.5), complexes(4)
    )


def test_inputs_in_any_memory() -> None:
    z = complexes(4, 6)
    model = Family([lambda z: (z * 1j, z.real)])
    run = tilewright.compile(model, example_inputs=(z,))
    for given in (z.conj(), complexes(6, 4).T, complexes(4, 12)[:, ::2], complexes(6, 4).mH):
        for found, wanted in zip(run(given), model(given)):
            same(found, wanted)
    for found, wanted in zip(run(z.numpy().T.copy().T), model(z)):
        assert isinstance(np.asarray(found), np.ndarray)
        same(found, wanted)


def test_negated_memory() -> None:
    negated = complexes(1).conj().imag
    assert negated.is_neg() and negated.is_contiguous()
    model = Family([lambda x: x * 2 + model.shift])
    model.register_buffer("shift", negated)
    for x in (negated.resolve_neg(), negated):
        run = tilewright.compile(model, example_inputs=(x,))
        for given in (negated, negated.resolve_neg()):
            same(run(given)[0], model(given)[0])


def test_other_numbers_are_refused() -> None:
    run = tilewright.compile(Family([lambda z: z * 2]), example_inputs=(complexes(3),))
    for given in (tensor(3), complexes(3, dtype=torch.complex128), np.zeros(3)):
        with pytest.raises(TypeError, match=r"takes complex64 numbers, got (float|complex128)"):
            run(given)


def test_buffers() -> None:
    class Turning(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turns", complexes(4).conj())
            self.register_buffer("state", complexes(4, seed=1))

        def forward(self, x: Any) -> Any:
            self.state.mul_(self.turns)
            return self.state * x

    model = Turning()
    run = tilewright.compile(Turning(), example_inputs=(tensor(4),))
    for _ in range(2):
        same(run(tensor(4)), model(tensor(4)))


def test_branches() -> None:
    def choose(p: Any, z: Any) -> Any:
        return torch.cond(p, lambda z: z * 2j, lambda z: z.conj() + 1, (z,))

    model = Family([choose])
    run = tilewright.compile(model, example_inputs=(torch.tensor(True), complexes(4)))
    for p in (torch.tensor(True), torch.tensor(False)):
        same(run(p, complexes(4))[0], model(p, complexes(4))[0])


def test_what_is_missing_is_named() -> None:
    exported = export(Family([lambda z: z.cumprod(0)]), (complexes(3),))
    with pytest.raises(ImportModelError, match=r"aten\.cumprod.*\n    of complex numbers"):
        from_exported_program(exported)
