"""What tests of lowering passes share: parsing, running, and the first steps of lowering."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import IRModule, Pass
from tilewright.script import parse
from tilewright.tir import transform
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run


def module(text: str) -> IRModule:
    """Parse one function into a module."""
    return IRModule({"main": parse(text)})


def program(*lines: str) -> str:
    """A function of vectors ``A`` and ``C`` and a number ``n`` with the given body."""
    text = "".join(f"    {line}\n" for line in lines)
    return (
        "@T.prim_func\n"
        'def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), n: T.int64):\n'
        f"{text}"
    )


def lowered(text: str) -> IRModule:
    """A script without blocks, with flat buffers."""
    mod = transform.LowerOpaqueBlock()(module(text))
    return transform.FlattenBuffer()(mod)


def body(mod: IRModule) -> str:
    """The script text of ``main``."""
    return mod["main"].script()


def same(before: IRModule, after: IRModule, *arrays: Any, exact: bool = True) -> None:
    """Verify, and run both on the interpreter."""
    verify(after)
    first = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    second = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    run(before, *first)
    run(after, *second)
    for a, b in zip(first, second):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5)


def applied(item: Pass, mod: IRModule, *arrays: Any, exact: bool = True) -> str:
    """Run a pass, compare before and after on arrays; return the text after."""
    made = item(mod)
    same(mod, made, *arrays, exact=exact)
    return body(made)


def unchanged(item: Pass, mod: IRModule) -> bool:
    """Whether a pass leaves the very same function."""
    return item(mod)["main"] is mod["main"]
