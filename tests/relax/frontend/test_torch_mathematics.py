"""Converters of mathematical PyTorch operators, family by family, against PyTorch."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch_families import check, integers, tensor  # noqa: E402


def test_special_functions() -> None:
    check(
        {
            "acosh": lambda a, p, i: torch.acosh(p + 1),
            "asinh": lambda a, p, i: torch.asinh(a),
            "atanh": lambda a, p, i: torch.atanh(a / 5),
            "atan2": lambda a, p, i: torch.atan2(a, p),
            "hypot": lambda a, p, i: torch.hypot(a, p),
            "lgamma": lambda a, p, i: torch.lgamma(a),
            "digamma": lambda a, p, i: torch.digamma(p),
            "erfinv": lambda a, p, i: torch.erfinv(a / 5),
            "logaddexp": lambda a, p, i: torch.logaddexp(a, p),
            "copysign": lambda a, p, i: torch.copysign(p, a),
            "nextafter": lambda a, p, i: torch.nextafter(a, p),
            "log10": lambda a, p, i: torch.log10(p),
            "exp2 of integers": lambda a, p, i: torch.exp2(i),
            "nan_to_num": lambda a, p, i: torch.nan_to_num(p / (i - i), posinf=7.0),
            "signbit": lambda a, p, i: torch.signbit(a),
            "isfinite": lambda a, p, i: torch.isfinite(p / i),
            "fmax": lambda a, p, i: torch.fmax(a / 0 * 0, p),
        },
        tensor(2, 3), tensor(2, 3, seed=1, positive=True), integers(2, 3, below=5),
    )  # fmt: skip


def test_remainders_and_powers_of_far_numbers() -> None:
    check(
        {
            "remainder": lambda x, i: torch.remainder(x, 3.0),
            "remainder of infinity": lambda x, i: torch.remainder(x, math.inf),
            "fmod": lambda x, i: torch.fmod(x, -3.0),
            "integers to the fifth": lambda x, i: i**5,
            "integers to integers": lambda x, i: torch.pow(i, i.abs()),
        },
        torch.tensor([1e9, -1e9, 0.5, -7.0]), integers(4, below=5, low=-4),
    )  # fmt: skip


@pytest.mark.parametrize("decimals", [0, 2, -1])
def test_rounding_to_decimals(decimals: int) -> None:
    check({"round": lambda x: x.round(decimals=decimals)}, tensor(9) * 30)


def test_bits() -> None:
    check(
        {
            "and": lambda i, b: i & 6,
            "or": lambda i, b: torch.bitwise_or(i, i + 1),
            "xor": lambda i, b: (i ^ 5, b ^ True),
            "not": lambda i, b: (~i, ~b),
            "shifts": lambda i, b: (i << 2, i >> 1, torch.bitwise_left_shift(1, i.abs())),
        },
        integers(6, below=9, low=-9), integers(6, below=2) > 0,
    )  # fmt: skip


def test_norms_of_every_order() -> None:
    cases = {
        f"order {order}": lambda x, order=order: torch.linalg.vector_norm(x, order, (0, 2))
        for order in (0, 0.5, 1, 2, 3, math.inf, -math.inf, -1)
    }
    cases["kept"] = lambda x: torch.linalg.vector_norm(x, keepdim=True, dtype=torch.float64)
    check(cases, tensor(2, 3, 4))


def test_running_results() -> None:
    check(
        {
            "cummax": lambda x, i, s: torch.cummax(i, 0),
            "cummin": lambda x, i, s: torch.cummin(x, -1),
            "cummax of one": lambda x, i, s: torch.cummax(s, 0),
            "logcumsumexp": lambda x, i, s: torch.logcumsumexp(x, 1),
        },
        tensor(3, 4), integers(5, below=3), torch.tensor(2.0),
    )  # fmt: skip


def test_distances() -> None:
    check(
        {
            "cdist": lambda a, b: torch.cdist(a, b),
            "cdist 1": lambda a, b: torch.cdist(a, b, 1.0),
            "cdist inf": lambda a, b: torch.cdist(a, b[0], math.inf),
            "cdist by product": lambda a, b: torch.cdist(
                a, b, compute_mode="use_mm_for_euclid_dist"
            ),
            "pdist": lambda a, b: torch.pdist(a[0]),
            "pdist 3": lambda a, b: torch.pdist(a[0], 3.0),
        },
        tensor(2, 3, 4), tensor(2, 5, 4, seed=1),
    )  # fmt: skip


def test_products_of_groups() -> None:
    grouped = torch.ops.aten._grouped_mm.default
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    a, b = tensor(8, 16), tensor(3, 16, 8, seed=1)

    def rows(a, b, ends):  # type: ignore[no-untyped-def]
        return grouped(a.bfloat16(), b.bfloat16(), ends).float()

    check(
        {
            "rows": rows,
            "columns": lambda a, b, ends: rows(b.mT, a.mT, ends),
            "terms": lambda a, b, ends: rows(a.mT, a, ends),
            "addbmm": lambda a, b, ends: torch.addbmm(a[:, :8], b.mT, b, beta=2, alpha=0.5),
        },
        a, b, ends,
    )  # fmt: skip


@pytest.mark.parametrize("ends", [[3, 3, 8], [0, 2, 5]])
def test_products_of_experts_as_transformers_has_them(ends: list[int]) -> None:
    name = "transformers::grouped_mm_fallback"

    def products(x, weights, ends):  # type: ignore[no-untyped-def]
        made, start = torch.zeros(x.shape[0], weights.shape[2]), 0
        for number, end in enumerate(ends.tolist()):
            made[start:end], start = x[start:end] @ weights[number], end
        return made

    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        schema = "(Tensor input, Tensor weight, Tensor offs) -> Tensor"
        made = torch.library.custom_op(name, products, mutates_args=(), schema=schema)
        made.register_fake(lambda x, weights, ends: x.new_empty(x.shape[0], weights.shape[2]))
    check(
        {
            "experts": lambda x, weights, ends: torch.ops.transformers.grouped_mm_fallback(
                x, weights, ends
            ),
            "reshape_as": lambda x, weights, ends: x[:3].reshape_as(weights[:, :8, :2]),
        },
        tensor(8, 16), tensor(3, 16, 8, seed=1), torch.tensor(ends, dtype=torch.int32),
    )  # fmt: skip
