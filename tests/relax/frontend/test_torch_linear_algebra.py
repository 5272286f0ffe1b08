"""Dense linear algebra in PyTorch models, which compiled graphs leave to NumPy, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tests.everyday import few

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_families import Family, check, complexes, integers, tensor  # noqa: E402

linalg = torch.linalg


def square(*shape: int, dtype: Any = torch.float32) -> Any:
    """Matrices that are easy to invert."""
    made = tensor(*shape) if not dtype.is_complex else complexes(*shape, dtype=dtype)
    return made.to(dtype) + 3 * torch.eye(shape[-1], dtype=dtype)


def definite(*shape: int, dtype: Any = torch.float32) -> Any:
    made = square(*shape, dtype=dtype)
    return made @ made.mH + torch.eye(shape[-1], dtype=dtype)


DTYPES = [torch.float32, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
def test_solving(dtype: Any) -> None:
    check(
        {
            "inverse": lambda a, b: (linalg.inv(a), torch.inverse(a[0])),
            "solve": lambda a, b: (linalg.solve(a, b), linalg.solve(a[0], b[0, :, 0])),
            "of stacks": lambda a, b: linalg.solve(a, b[0]),
            "from the right": lambda a, b: linalg.solve(a, b.mT, left=False),
            "vectors": lambda a, b: linalg.solve(a, b[:, :, 0]),
            "triangles": lambda a, b: (
                linalg.solve_triangular(a, b, upper=True),
                linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
                torch.triangular_solve(b, a, transpose=True)[0],
            ),
            "determinants": lambda a, b: (linalg.det(a), *linalg.slogdet(a)),
            "factored": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b),
        },
        square(2, 4, 4, dtype=dtype), square(2, 4, 4, dtype=dtype)[:, :, :3].contiguous(),
    )  # fmt: skip


@few("dtype", DTYPES, torch.float32)
def test_decompositions(dtype: Any) -> None:
    """Those that are unique as they are, the others multiplied out."""

    def eigen(a: Any) -> Any:
        values, vectors = linalg.eig(a)
        return (vectors * values[..., None, :]) @ linalg.inv(vectors)

    def hermitian(s: Any) -> Any:
        values, vectors = linalg.eigh(s)
        return values, (vectors * values[..., None, :]) @ vectors.mH

    def singular(a: Any, full: bool) -> Any:
        u, s, v = linalg.svd(a[:, :3], full_matrices=full)
        return s, (u * s[..., None, :]) @ v[:, :3]

    def orthogonal(a: Any, mode: str) -> Any:
        q, r = linalg.qr(a[:, :, :3], mode)
        return q @ r, q.mH @ q

    check(
        {
            "cholesky": lambda a, s: (linalg.cholesky(s), linalg.cholesky(s, upper=True)),
            "older cholesky": lambda a, s: torch.cholesky(s[0]),
            "by cholesky": lambda a, s: (
                torch.cholesky_solve(a, linalg.cholesky(s)),
                torch.cholesky_inverse(linalg.cholesky(s[0])),
            ),
            "lu": lambda a, s: (*linalg.lu(a[:, :3]), *linalg.lu_factor(a)),
            "qr": lambda a, s: (*orthogonal(a, "reduced"), *orthogonal(a, "complete")),
            "singular": lambda a, s: (*singular(a, True), *singular(a, False), linalg.svdvals(a)),
            "hermitian": lambda a, s: (*hermitian(s), linalg.eigvalsh(s, UPLO="U")),
            "eigenvalues": lambda a, s: (eigen(a), linalg.eigvals(a).sum(-1)),
            "pseudoinverse": lambda a, s: (linalg.pinv(a[:, :3]), torch.pinverse(a[0] * 0)),
            "of a triangle": lambda a, s: (linalg.pinv(a, hermitian=True), linalg.diagonal(a)),
            "exponential": lambda a, s: linalg.matrix_exp(a / 8),
            "norms": lambda a, s: (linalg.norm(a[0], 2), linalg.matrix_norm(a, "nuc")),
        },
        square(2, 4, 4, dtype=dtype), definite(2, 4, 4, dtype=dtype), decomposed=dtype.is_complex,
    )  # fmt: skip


def test_symbolic_stacks_and_sizes() -> None:
    model = Family([lambda a, b: (linalg.inv(a), linalg.solve(a, b), linalg.det(a))])
    n, m = Dim("n", min=1), Dim("m", min=2)
    shapes = (({0: n, 1: m, 2: m}, {0: n, 1: m}),)
    inputs = (square(3, 4, 4), tensor(3, 4, 2))
    run = tilewright.compile(model, example_inputs=inputs, dynamic_shapes=shapes)
    for count, size in ((3, 4), (1, 2), (2, 7)):
        given = (square(count, size, size), tensor(count, size, 2))
        for found, wanted in zip(run(*given), model(*given)):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_empty_and_odd_memory() -> None:
    for a in (torch.empty(0, 3, 3), torch.empty(2, 0, 0), square(3, 3).T, square(6, 6)[::2, ::2]):
        model = Family([lambda a: (linalg.inv(a), linalg.det(a), linalg.qr(a)[0].abs())])
        run = tilewright.compile(model, example_inputs=(a,))
        for found, wanted in zip(run(a), model(a)):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_only_the_lower_triangle_counts() -> None:
    a = torch.tensor([[2.0, float("nan")], [1.0, 3.0]])
    model = Family([lambda a: linalg.pinv(a, hermitian=True)])
    (found,), (wanted,) = tilewright.compile(model, example_inputs=(a,))(a), model(a)
    torch.testing.assert_close(found, wanted)


def test_failures() -> None:
    """An error where PyTorch has one, else what ``info`` tells."""
    good, bad = square(1, 3, 3), torch.ones(1, 3, 3)
    both = torch.cat([good, bad])
    for function in (linalg.inv, linalg.cholesky, lambda a: linalg.solve(a, a)):
        run = tilewright.compile(Family([function]), example_inputs=(definite(2, 3, 3),))
        with pytest.raises(Exception, match=r"matrix \(1,\) of the stack .* in row \d"):
            run(both)
    told = Family([lambda a: (linalg.inv_ex(a)[1], linalg.cholesky_ex(a)[1])])
    run = tilewright.compile(told, example_inputs=(both,))
    symmetric = torch.cat([definite(1, 3, 3), bad])
    for found, wanted in zip(run(symmetric), told(symmetric)):
        torch.testing.assert_close(found, wanted)


def test_integers() -> None:
    a, b = integers(5, 4, below=60, low=-60), integers(4, below=60, low=-60, seed=2)
    check({"gcd": lambda a, b: torch.gcd(a, b), "lcm": lambda a, b: torch.lcm(a, b)}, a, b)


def test_pytorch_keeps_them_in_its_own_graphs() -> None:
    a = square(3, 3)
    torch._dynamo.reset()
    found = tilewright.torch.compile(lambda a: linalg.inv(a * 2) + 1)(a)
    torch.testing.assert_close(found, linalg.inv(a * 2) + 1)
