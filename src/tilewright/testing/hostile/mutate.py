"""Ways to damage bytes and JSON values, from a generator of random numbers alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

ODD_VALUES: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "$",
    "$b0",
    "$l1",
    "$$",
    "C",
    "main",
    "\ud800",
    "\x00",
    "\u00b2",
    "float32x\u00b2",
    "lambda i: (i,)",
    "lambda i, j: (i // 0, j % 0)",
    "__import__('os').system('true')",
    "x" * 5000,
    [],
    [[]],
    [[[]]],
    [None],
    ["read", 0],
    ["write", None],
    {},
    {"": 0},
    {"$dict": []},
    {"$dict": [["map", "lambda i: (i,)"], ["inverse", 1]]},
    {"$dict": 5},
    {"$none": []},
    {"kind": "llvm"},
)
"""What stands where something else should."""


def nested(depth: int) -> list[object]:
    """Return lists inside one another."""
    made: list[object] = []
    for _ in range(depth):
        made = [made]
    return made


def odd_value(rng: Random) -> object:
    """Draw a value that fits nowhere in particular."""
    if rng.random() < 0.05:
        return nested(rng.choice((10, 40, 100)))
    return copy.deepcopy(rng.choice(ODD_VALUES))


def damaged_bytes(rng: Random, data: bytes, most: int = 4) -> bytes:
    """Flip, insert, remove, repeat and cut bytes."""
    made = bytearray(data)
    for _ in range(rng.randint(1, most)):
        place = rng.randrange(len(made) + 1)
        length = min(int(rng.expovariate(0.1)) + 1, len(made) - place)
        kind = rng.randrange(6)
        if kind == 0 and place < len(made):
            made[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[place:place] = rng.randbytes(length + 1)
        elif kind == 2:
            del made[place : place + length]
        elif kind == 3:
            made[place:place] = made[place : place + length]
        elif kind == 4:
            made[place:place] = rng.choice((b"\x00", b"\xff\xfe", b"\r", b"[", b"]", b'"', b","))
        elif rng.random() < 0.3:
            del made[place:]
    return bytes(made)


def _places(value: object, path: tuple[object, ...], found: list[tuple[object, ...]]) -> None:
    found.append(path)
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, list):
        items = enumerate(value)
    elif isinstance(value, dict):
        items = value.items()
    for key, item in items:
        _places(item, (*path, key), found)


def damaged_value(rng: Random, value: Any, most: int = 3) -> Any:
    """Replace, remove, repeat and exchange parts of a JSON value."""
    made = copy.deepcopy(value)
    for _ in range(rng.randint(1, most)):
        found: list[tuple[object, ...]] = []
        _places(made, (), found)
        path = rng.choice(found)
        if not path:
            if rng.random() < 0.1:
                return odd_value(rng)
            continue
        parent = made
        for key in path[:-1]:
            parent = parent[key]
        _change(rng, parent, path[-1], [_at(made, other) for other in rng.choices(found, k=3)])
    return made


def _at(value: Any, path: Sequence[object]) -> object:
    for key in path:
        value = value[key]
    return copy.deepcopy(value)


def _change(rng: Random, parent: Any, key: Any, others: Sequence[Any]) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        parent[key] = rng.choice(others)  # something from elsewhere, of a type that occurs
    elif kind == 1 and isinstance(parent, list):
        del parent[key]
    elif kind == 2 and isinstance(parent, list):
        parent.insert(key, rng.choice([odd_value(rng), parent[key]]))
    elif kind == 3 and isinstance(parent, list):
        other = rng.randrange(len(parent))
        parent[key], parent[other] = parent[other], parent[key]
    else:
        parent[key] = odd_value(rng)


def as_line(value: object) -> bytes:
    """Return a JSON value as a line without its end."""
    return json.dumps(value, separators=(",", ":")).encode()
