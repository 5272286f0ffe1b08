"""Nests of loops around a block, written out from one line.

``nest B(i: d0, k: R d1):`` before lines that are indented stands for loops over ``i`` and ``k``
around a block ``B`` with the axes ``vi`` and, for a reduction, ``vk``. A nest has no nest inside.
"""

from __future__ import annotations

import re

_HEADER = re.compile(r"( *)nest (\w+)\((.*)\):$")


def written_out(text: str) -> str:
    """Return a text with each ``nest`` as loops and a block."""
    made: list[str] = []
    depth: int | None = None  # of the header whose lines follow
    for line in text.split("\n"):
        margin = len(line) - len(line.lstrip())
        if depth is not None and margin <= depth:
            depth = None
        header = _HEADER.match(line)
        if header is not None:
            depth = len(header[1])
            made += [header[1] + item for item in _opening(header[2], header[3])]
        else:
            made.append(line if depth is None or not line else f"    {line}")
    return "\n".join(made)


def _opening(block: str, axes: str) -> list[str]:
    loops = [tuple(part.strip() for part in item.split(":", 1)) for item in _split(axes)]
    names = [name for name, _ in loops]
    kinds = ["R" if extent.startswith("R ") else "S" for _, extent in loops]
    extents = [extent.removeprefix("R ") for _, extent in loops]
    if len(loops) == 1:
        kind = "reduce" if kinds == ["R"] else "spatial"
        loop = f"for {names[0]} in T.serial({extents[0]}):"
        bindings = f"v{names[0]} = T.axis.{kind}({extents[0]}, {names[0]})"
    else:
        loop = f"for {', '.join(names)} in T.grid({', '.join(extents)}):"
        axis_names = ", ".join(f"v{name}" for name in names)
        bindings = f'{axis_names} = T.axis.remap("{"".join(kinds)}", [{", ".join(names)}])'
    return [loop, f'    with T.block("{block}"):', f"        {bindings}"]


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    made, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            made.append("")
        else:
            made[-1] += char
    return made
