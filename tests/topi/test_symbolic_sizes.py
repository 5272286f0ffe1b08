"""Operators on symbolic sizes, called with sizes that fit or don't: right, or an error.

Each extent of an operand is a number, the variable that all of its letter share, twice a variable,
or a variable that only the call shows to be the others' size.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest

from tests.topi.symbolic_cases import CASES, Case
from tilewright import driver, relax, te
from tilewright.ir import Var
from tilewright.support.errors import TilewrightError

SIZES = (0, 1, 2, 3, 4, 5, 6, 8)
Shape = tuple[Any, ...]


def draw(rng: random.Random, case: Case, kinds: str) -> tuple[list[Shape], list[list[int]]]:
    """Shapes of the operands as they are declared, and sizes that fit."""
    sizes = {letter: rng.choice(SIZES[1:]) for letter in "bcfkmnstw"}
    shared: dict[str, Var] = {}
    declared: list[Shape] = []
    for number, letters in enumerate(case.shapes):
        shape: list[Any] = []
        for axis, letter in enumerate(letters):
            kind = "number" if letter.isdigit() else rng.choice(kinds.split())
            if kind == "twice" and sizes[letter] % 2 == 0:
                shape.append(shared.setdefault(f"{letter}_half", te.var(f"{letter}_half")) * 2)
            elif kind == "number":
                shape.append(int(sizes.get(letter, letter)))
            elif kind == "shared":
                shape.append(shared.setdefault(letter, te.var(letter)))
            else:
                shape.append(te.var(f"{letter}{number}{axis}"))
        declared.append(tuple(shape))
    return declared, [[int(sizes.get(x, x)) for x in letters] for letters in case.shapes]


def operands(rng: random.Random, case: Case, shapes: list[list[int]]) -> list[Any]:
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    return [
        numbers.integers(0, 4, shape) if n in case.integers else numbers.random(shape, np.float32)
        for n, shape in enumerate(shapes)
    ]


def expected(case: Case, arrays: list[Any]) -> Any:
    """NumPy's result; ``None`` where it refuses."""
    try:
        return np.asarray(case.numpy(*arrays))
    except (ValueError, IndexError):
        return None


def tries(
    rng: random.Random, declared: list[Shape], fitting: list[list[int]]
) -> list[list[list[int]]]:
    """Sizes that fit, and some of which one or two symbolic ones are others."""
    spots = [(i, j) for i, shape in enumerate(declared) for j, e in enumerate(shape)
             if not isinstance(e, int)]  # fmt: skip
    made = [fitting]
    for count in (1, 1, 2):
        sizes = [list(shape) for shape in fitting]
        for i, j in rng.sample(spots, min(count, len(spots))):
            sizes[i][j] = rng.choice(SIZES)
        made.append(sizes)
    return made


def check(run: Any, case: Case, rng: random.Random, declared: Any, fitting: Any) -> int:
    """Compare each call with NumPy; return how many were computed."""
    computed = 0
    for sizes in tries(rng, declared, fitting):
        arrays = operands(rng, case, sizes)
        wanted = expected(case, arrays)
        try:
            result = run(arrays, wanted)
        except (ValueError, RuntimeError, TilewrightError):
            assert wanted is None or sizes is not fitting, (declared, sizes)
            continue
        assert wanted is not None, f"{declared} took {sizes}"
        np.testing.assert_allclose(result, wanted, 1e-3, 1e-4, err_msg=f"{declared} {sizes}")
        computed += 1
    return computed


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_or_refuses(name: str) -> None:
    case, computed = CASES[name], 0
    rng = random.Random(zlib.crc32(name.encode()))
    while not computed:
        declared, fitting = draw(rng, case, "number shared twice own own")
        usual = expected(case, operands(rng, case, fitting))
        if usual is None:
            continue  # such as an odd size to be split in two
        dtypes = ["int64" if n in case.integers else "float32" for n in range(len(declared))]
        inputs = [te.placeholder(*item, f"x{n}") for n, item in enumerate(zip(declared, dtypes))]
        made = case.define(*inputs)
        compiled = driver.compile(te.create_prim_func([*inputs, made], name="f"), "llvm")["f"]

        def run(arrays: Any, wanted: Any, compiled=compiled, made=made, usual=usual) -> Any:
            result = np.full((usual if wanted is None else wanted).shape, 1, made.dtype)
            compiled(*arrays, result)
            return result

        computed += check(run, case, rng, declared, fitting)


@pytest.mark.parametrize("name", ["add", "where", "matmul", "reshape", "take", "split", "dense",
                                  "concatenate", "layer_norm", "strided_slice"])  # fmt: skip
@pytest.mark.parametrize("fused", [False, True])
def test_a_graph_computes_or_refuses(name: str, fused: bool) -> None:
    case, computed = CASES[name], 0
    rng = random.Random(zlib.crc32(name.encode()) + fused)
    while not computed:
        declared, fitting = draw(rng, case, "number shared own own")
        if expected(case, operands(rng, case, fitting)) is None:
            continue
        params = [
            relax.Var(f"x{n}", relax.TensorStructInfo(shape, "int64" if n in case.integers
                                                      else "float32"))
            for n, shape in enumerate(declared)
        ]  # fmt: skip
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                made = builder.emit_te(lambda *t: case.define(*t), *params)
                if fused:
                    made = builder.emit(relax.op.negative(made))
                out = builder.emit_output(made)
            builder.emit_func_output(out)
        compiled = relax.build(builder.get())

        def run(arrays: Any, wanted: Any, compiled=compiled) -> Any:
            result = np.asarray(compiled(*arrays))
            return -result if fused else result

        computed += check(run, case, rng, declared, fitting)
