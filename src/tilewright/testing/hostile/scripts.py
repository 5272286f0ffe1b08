"""Hostile script texts: a program, or an error that says what is wrong, and nothing else."""

from __future__ import annotations

from random import Random

from tilewright import script
from tilewright.ir import structural_equal
from tilewright.support.errors import TilewrightError
from tilewright.testing.hostile.kind import Case, Fault, Kind, Limits

_MATMUL = """@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j, k in T.grid(16, 16, 16):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + A[vi, vk]
"""


def make(rng: Random) -> Case:
    """Draw a text."""
    text = list(_MATMUL)
    for _ in range(rng.randint(1, 4)):
        text[rng.randrange(len(text))] = rng.choice("()[]{}:,.*+-'\"0123456789 \nxTI=")
    return Case("characters", "".join(text))


def check(text: str) -> str:
    """Parse a text; what parses must print and parse again."""
    try:
        program = script.parse(text)
    except TilewrightError as error:
        str(error)
        return type(error).__name__
    again = script.parse(script.to_text(program))
    if not structural_equal(program, again):
        raise Fault("the printed form parses to another program")
    return "program"


def prepare() -> None:
    """Load the dialects, whose modules are imported on first use."""
    for name in script.DIALECTS:
        script.scope.load_dialect(name)
    script.parse(_MATMUL)


# The Python parser looks for the text's file when it reports an error.
_HARMLESS = ("open ('<unknown>', 'rb'",)
KIND = Kind(make, check, Limits(seconds=5.0, memory=1 << 30, harmless=_HARMLESS), prepare)
