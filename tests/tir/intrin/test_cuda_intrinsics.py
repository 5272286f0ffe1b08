"""Tensor intrinsics of NVIDIA GPUs: each pair agrees, and names are those that TVM's users know."""

from __future__ import annotations

import random

import pytest

from tilewright.ir import assert_structural_equal
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import TensorIntrin
from tilewright.tir.intrin.cuda import (
    DP4A_NAMES,
    MMA_NAMES,
    WMMA_NAMES,
    mma_group,
    wmma_group,
)

# Pairs whose bodies differ in more than a memory scope or a name; a few others at random.
_DISTINCT = [
    name
    for name in (*WMMA_NAMES, *MMA_NAMES)
    if not name.endswith(("_dyn", "_dyn_", "_global", "_global_"))
    and not (name.startswith("mma_") and "32_trans" in name)
]
_CHOSEN = random.Random(0).sample(_DISTINCT, 40)


_WGMMA = (
    "wgmma_64x8x64_f16f16f32", "wgmma_64x8x128_e4m3e4m3f32", "wgmma_64x16x128_s8s8s32",
    "wgmma_64x8x64_f16f16f32_trans_a", "wgmma_64x64x64_bf16bf16f32_trans_a_trans_b",
)  # fmt: skip


@pytest.mark.parametrize("name", sorted({*_CHOSEN, *DP4A_NAMES, *_WGMMA}))
def test_description_and_implementation_agree(name: str) -> None:
    known = TensorIntrin.get(name)
    intrin = TensorIntrin(known.desc, known.impl, name=name)  # large ones aren't compared when used
    intrin.verify()
    assert intrin.checked


@pytest.mark.parametrize(
    "name",
    [
        "wmma_load_16x16x16_f16_a_shared", "wmma_load_16x16x16_f16_b_trans_shared_dyn",
        "wmma_sync_16x16x16_f16f16f32", "wmma_sync_16x16x16_f16f16f16_trans",
        "wmma_sync_16x16x16_s8s8s32", "wmma_fill_16x16x16_f32", "wmma_store_16x16x16_f32_global",
        "wmma_store_16x16x16_s32_shared_dyn", "mma_ldmatrix_f16_a", "mma_ldmatrix_f16_b_trans_dyn",
        "mma_ldmatrix_i8_b", "mma_f16f16f32_trans_a_trans_b", "mma_f16f16f16", "mma_i8i8i32",
        "mma_fill_16x16_i32", "mma_store_16x16_f32_shared_dyn_", "mma_store_16x16_f16_global_",
        "dp4a",
    ],
)  # fmt: skip
def test_names_of_tvm_are_there(name: str) -> None:
    intrin = TensorIntrin.get(name)
    assert_structural_equal(parse(intrin.impl.script()), intrin.impl)
    assert_structural_equal(parse(intrin.desc.script()), intrin.desc)


def test_groups_name_what_is_registered() -> None:
    known = set(TensorIntrin.names())
    for trans in (False, True):
        for scope in ("shared", "shared.dyn"):
            assert known >= set(
                wmma_group("int8", "int32", b_trans=trans, load_scope=scope).values()
            )
            assert known >= set(
                mma_group("float16", "float16", a_trans=trans, load_scope=scope).values()
            )


def test_an_unknown_name_answers_with_near_matches() -> None:
    with pytest.raises(ScheduleError, match="did you mean 'wmma_sync_16x16x16_f16f16f32'"):
        TensorIntrin.get("wmma_sync_16x16x16_f16f16f33")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ScheduleError, match="registered already"):
        TensorIntrin.register_later("mma_f16f16f32", lambda: None)  # type: ignore[arg-type,return-value]
