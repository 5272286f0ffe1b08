"""What follows transposed tiles of dot products: along columns if it can be, exact either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import compile, te, topi
from tilewright.dlight.cpu import DotProductTile
from tilewright.dlight.cpu.contraction.dot_epilogue import tiles_together
from tilewright.dlight.cpu.contraction.register_tile import Tile
from tilewright.ir import IRModule
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import LoopRV, Schedule

NATIVE = Target("native").with_options(num_cores=1)
WIDE = Target("llvm -mcpu=icelake-server")
SCALE = 2.0**-9


def requantised(
    image: tuple[int, int], filters: int, kernel: int, out: str, *, residual: bool = False
) -> PrimFunc:
    """A convolution of bytes with bias, scales per channel and clipping."""
    x = te.placeholder((1, 8, *image), "uint8", "x")
    w = te.placeholder((filters, 8, kernel, kernel), "int8", "w")
    scale = te.placeholder((filters,), "float32", "scale")
    bias = te.placeholder((filters,), "int32", "bias")
    total: Any = topi.nn.conv2d_int8(x, w, 1, kernel // 2, bias=bias)
    args = [x, w, scale, bias]
    if residual:
        args.append(te.placeholder(total.shape, "int32", "other"))
        total = topi.add(total, args[-1])
    if out == "float32":
        made = topi.nn.dequantize(total, scale, axis=1)
    else:
        made = topi.nn.requantize(total, scale, 3, out, axis=1)
    return te.create_prim_func([*args, made]).with_attr(LAYOUT_FREE, [1])


def scheduled(func: PrimFunc, cores: int = 1, target: Target = NATIVE) -> PrimFunc:
    chosen = target.with_options(num_cores=cores)
    found = DotProductTile().apply_to(Schedule(IRModule({"main": func})), chosen)
    assert isinstance(found, Schedule), found
    made: PrimFunc = found.mod["main"]
    return made


def operands(image: tuple[int, int], filters: int, kernel: int, residual: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    made = [
        rng.integers(0, 256, (1, 8, *image), "uint8"),
        rng.integers(-128, 128, (filters, 8, kernel, kernel), "int8"),
        (SCALE * rng.integers(1, 9, filters)).astype("float32"),
        rng.integers(-9999, 9999, filters, "int32"),
    ]
    if residual:
        made.append(rng.integers(-9999, 9999, (1, filters, *image), "int32"))
    return made


def expected(args: list[np.ndarray], kernel: int, out: str) -> np.ndarray:
    x, w, scale, bias, *others = args
    pad = kernel // 2
    wide = np.pad(x[0].astype("int64"), ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (1, 2))
    total = np.einsum("chwrs,fcrs->fhw", windows, w.astype("int64"))[None]
    total = total + bias[None, :, None, None] + (others[0] if others else 0)
    value = total.astype("float32") * scale[None, :, None, None]
    if out == "float32":
        return value
    info = np.iinfo(out)
    return np.clip(np.rint(value) + 3, info.min, info.max).astype(out)


def result(func: PrimFunc, args: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    main, packers = split_layout_rewrite(func)
    given = list(args)
    for position, packer in packers.items():
        packed = packer.buffers[1]
        out = np.zeros([int(str(e)) for e in packed.shape], packed.dtype)
        compile(packer, NATIVE)(args[position], out)
        given[position] = out
    made = np.empty(like.shape, like.dtype)
    compile(main, NATIVE)(*given, made)
    return made


@few(
    ("image", "filters", "kernel"),
    [
        ((14, 14), 32, 1),
        ((7, 7), 64, 1),
        ((16, 28), 48, 1),
        ((5, 9), 33, 1),
        ((1, 6), 40, 1),
        ((6, 12), 32, 3),
        ((5, 7), 20, 3),
    ],
    every=2,
)
@pytest.mark.parametrize("out", ["uint8", "int16", "float32"])
def test_epilogues_are_exact(image: tuple[int, int], filters: int, kernel: int, out: str) -> None:
    args = operands(image, filters, kernel, False)
    wanted = expected(args, kernel, out)
    made = result(scheduled(requantised(image, filters, kernel, out)), args, wanted)
    np.testing.assert_array_equal(made, wanted)


def vectorised_blocks(func: PrimFunc) -> dict[str, int]:
    """Blocks and the extents of their vectors."""
    sch = Schedule(IRModule({"main": func}))
    found = {}
    for rv in sch.get_child_blocks(sch.get_block("root")):
        loops: list[LoopRV] = sch.get_loops(rv)
        last = sch.get(loops[-1])
        if last.kind == "vectorized":
            found[rv.name] = int(str(last.extent))
    return found


def test_channels_are_computed_in_whole_vectors_and_pixels_written_together() -> None:
    vectors = vectorised_blocks(scheduled(requantised((14, 14), 64, 1, "uint8"), target=WIDE))
    lanes = WIDE.vector_lanes(32)
    assert vectors["requantize"] % lanes == 0
    assert vectors["requantize_global"] == 196


def test_what_reads_along_pixels_is_computed_there() -> None:
    func = scheduled(requantised((6, 14), 32, 1, "int8", residual=True))
    assert "requantize_global" not in vectorised_blocks(func)
    args = operands((6, 14), 32, 1, True)
    wanted = expected(args, 1, "int8")
    np.testing.assert_array_equal(result(func, args, wanted), wanted)


def test_results_in_another_order() -> None:
    x, w = te.placeholder((1, 8, 6, 7), "uint8", "x"), te.placeholder((32, 8, 1, 1), "int8", "w")
    bias = te.placeholder((32,), "int32", "bias")
    total = topi.nn.conv2d(x, w, out_dtype="int32")
    out = te.compute((1, 32, 7, 6), lambda n, f, v, u: total(n, f, u, v) + bias(f))
    func = te.create_prim_func([x, w, bias, out]).with_attr(LAYOUT_FREE, [1])
    data, filters, _, added = operands((6, 7), 32, 1, False)
    wanted = np.einsum("nchw,fc->nfwh", data.astype("int32"), filters[:, :, 0, 0].astype("int32"))
    wanted = wanted + added[None, :, None, None]
    made = result(scheduled(func), [data, filters, added], wanted)
    np.testing.assert_array_equal(made, wanted)


def test_interpreter_agrees() -> None:
    func = scheduled(requantised((4, 7), 32, 1, "uint8"), cores=2)
    args = operands((4, 7), 32, 1, False)
    wanted = expected(args, 1, "uint8")
    made = np.empty_like(wanted)
    run(func, *args, made)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("rows", "height", "dtype", "together"),
    [
        (196, 14, "uint8", 14),  # 3 pieces of 64 bytes and one of 4
        (3136, 14, "uint8", 16),
        (56, 14, "uint8", 4),
        (50, 14, "uint8", 1),  # the last tile is cut off
        (128, 8, "float32", 2),
    ],
)
def test_as_many_tiles_as_make_few_pieces(
    rows: int, height: int, dtype: str, together: int
) -> None:
    assert tiles_together(rows, Tile(height, 32), dtype) == together


def test_tiles_of_symbolic_rows_stay_apart() -> None:
    assert tiles_together(None, Tile(14, 32), "uint8") == 1
