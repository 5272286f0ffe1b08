"""Which programs are alike: equal but for numbers, or with equal reductions but for numbers.

This works on scripts, so that a database need not parse its programs to find the likes of one.
Names are replaced by the order in which they first appear, numbers are taken out and compared
separately. That two programs are alike means that a schedule of one may be worth trying on the
other, no more.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import takewhile

from tilewright.ir import IRModule

Numbers = tuple[float, ...]

_TOKEN = re.compile(r'"[^"\n]*"|T\.\w+|[A-Za-z_]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\S')
_BLOCK = re.compile(r"with T\.s?block\(")
_REDUCES = re.compile(r'T\.axis\.(?:reduce\(|remap\("[A-Z]*R)')
# Longer texts aren't looked at, nor reductions of more lines, which are within each other.
_LONGEST, _MOST_LINES = 1 << 20, 1 << 16


def whole_program(text: str) -> tuple[str, Numbers]:
    """Return a hash of a script without its names and numbers, and the numbers."""
    return _skeleton(text.splitlines())


def reductions(text: str) -> tuple[str, Numbers]:
    """Return the same for the blocks that have reductions, with the loops around them.

    The hash is empty if there are none, or far too many.
    """
    lines = text.splitlines()
    depths = [len(line) - len(line.lstrip()) for line in lines]
    kept: list[str] = []
    around: list[int] = []  # what the line at hand is inside of, from the outermost
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        while around and depths[around[-1]] >= depths[number]:
            around.pop()
        if _BLOCK.match(line.lstrip()):
            first = end = number + 1
            while end < len(lines) and depths[end] > depths[number]:
                end += 1
            own = (lines[n] for n in range(first, end) if depths[n] == depths[first])
            if any(_REDUCES.search(item) for item in own):
                outer = (lines[n] for n in reversed(around))
                loops = takewhile(lambda item: item.lstrip().startswith("for "), outer)
                kept += [*list(loops)[::-1], *lines[first:end]]
        around.append(number)
        if len(kept) > _MOST_LINES:
            return "", ()
    return _skeleton(kept) if kept else ("", ())


KINDS: dict[str, Callable[[str], tuple[str, Numbers]]] = {
    "alike": whole_program,
    "alike-reductions": reductions,
}
"""Ways in which programs may be alike, the closest first. Indices of databases keep these keys."""


def key_of(kind: str, text: str) -> str:
    """Return what programs that are alike have in common."""
    return _described(kind, text)[0]


def key_of_module(kind: str, mod: IRModule) -> str:
    """Return the key of a module."""
    return key_of(kind, mod.script())


def distance(kind: str, a: str, b: str) -> float:
    """Return how far the numbers of two programs that are alike are apart, in factors of e.

    Each pair of numbers counts once, wherever it appears: one longer axis is one difference.
    """
    pairs = set(zip(_described(kind, a)[1], _described(kind, b)[1]))
    return sum(abs(math.log((1 + x) / (1 + y))) for x, y in pairs)


@lru_cache(maxsize=1024)
def _described(kind: str, text: str) -> tuple[str, Numbers]:
    return KINDS[kind](text) if len(text) <= _LONGEST else ("", ())


def _skeleton(lines: Iterable[str]) -> tuple[str, Numbers]:
    names: dict[str, str] = {}
    numbers: list[float] = []
    made: list[str] = []
    for line in lines:
        is_block = _BLOCK.match(line.lstrip()) is not None
        for token in _TOKEN.findall(line):
            if token[0].isdigit():
                value = float(token)
                if "." not in token and "e" not in token and math.isfinite(value):
                    numbers.append(value)  # others follow from these, or are no extents
                made.append("0")
            elif token[0] == '"':
                made.append('""' if is_block else token)
            elif token[0].isalpha() or token[0] == "_":
                made.append(
                    token if token[:2] == "T." else names.setdefault(token, f"n{len(names)}")
                )
            else:
                made.append(token)
    return hashlib.sha256(" ".join(made).encode()).hexdigest()[:32], tuple(numbers)
