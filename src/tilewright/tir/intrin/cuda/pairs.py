"""How a pair of description and implementation is written: two bodies under one signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.script import parse
from tilewright.tir.function import PrimFunc
from tilewright.tir.tensor_intrin import TensorIntrin

SHORT = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "s8", "uint8": "u8",
    "int32": "s32",
}  # fmt: skip
"""What names call dtypes."""


@dataclass(frozen=True)
class Operand:
    """A parameter: name, shape, dtype and scope; ``access`` is ``r``, ``w`` or ``rw``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    access: str

    @property
    def declaration(self) -> str:
        """The parameter in a signature."""
        return f'{self.name}: T.Buffer({self.shape}, "{self.dtype}", scope="{self.scope}")'

    @property
    def region(self) -> str:
        """All of it."""
        return f"{self.name}[{', '.join(f'0:{extent}' for extent in self.shape)}]"

    @property
    def tile(self) -> str:
        """The operand of an operator that takes a tile."""
        rows, columns = self.shape
        return f"T.tile_of({self.name}[T.Ramp(0, 1, {rows}), 0], {self.name}[0, 0:{columns}])"


def parsed(operands: Sequence[Operand], body: str) -> PrimFunc:
    """Parse a function of these parameters with a body, whose lines are indented from zero."""
    parameters = ", ".join(item.declaration for item in operands)
    reads = ", ".join(item.region for item in operands if "r" in item.access)
    writes = ", ".join(item.region for item in operands if "w" in item.access)
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    made: PrimFunc = parse(f"""
from tilewright.script import tir as T

@T.prim_func
def main({parameters}):
    with T.block("root"):
        T.reads({reads})
        T.writes({writes})
{lines}
""")
    return made


def nest(extents: Mapping[str, int], kinds: str, block: str, statement: str) -> str:
    """Text of loops around one block; axes are named ``v`` and the loop's name."""
    names = ", ".join(extents)
    axes = ", ".join(f"v{name}" for name in extents)
    sizes = ", ".join(map(str, extents.values()))
    return f"""
for {names} in T.grid({sizes}):
    with T.block("{block}"):
        {axes} = T.axis.remap("{kinds}", [{names}])
        {statement}"""


def register(
    name: str, operands: Sequence[Operand], description: str, body: str, *, check: bool = True
) -> str:
    """Register a pair, which is parsed when it is first used; return its name.

    Without ``check`` the interpreter doesn't compare them then.
    """
    make: Callable[[], tuple[PrimFunc, PrimFunc]] = lambda: (
        parsed(operands, description),
        parsed(operands, body),
    )
    TensorIntrin.register_later(name, make, check=check)
    return name
