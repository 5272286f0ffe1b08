"""Cases of primitives that choose."""

from __future__ import annotations

from typing import Any

from conformance_cases import (
    Accept,
    Refuse,
    chain,
    matmul,
    symbolic_chain,
    symbolic_matmul,
)

from tilewright.tir.schedule import Schedule

SIZES = ({"n": 5},)


def loop(sch: Schedule, position: int = 0, name: str = "C") -> object:
    return sch.get_loops(sch.get_block(name))[position]


def _tile(name: str, position: int, *more: object, **options: object) -> object:
    """Draw a tile for a loop of ``C`` and split it."""
    tail = {"tail": "peel"} if name == "sample_tile" else {}

    def apply(sch: Schedule) -> None:
        at = loop(sch, position)
        sch.split(at, getattr(sch, name)(at, *more, **options), **tail)

    return apply


def _of_tiles(name: str, more: tuple[object, ...], decision: list[int], wrong: str) -> list[object]:
    return [
        Accept(name, matmul, _tile(name, 0, *more)),
        Accept(name, matmul, _tile(name, 0, *more, decision=decision)),
        Accept(name, symbolic_matmul, _tile(name, 2, *more), SIZES),
        Refuse(
            name, "extent is constant", symbolic_matmul, _tile(name, 0, *more), "is not constant"
        ),
        Refuse(name, "a decision", matmul, _tile(name, 0, *more, decision=[5, 1]), wrong),
    ]


def _drawn(s: Any) -> Any:
    return s.sample_categorical([2, 3], [1.0, 0.0])


def _located(sch: Schedule) -> None:
    sch.compute_at("B", sch.sample_compute_location("B"))


CASES = [
    *_of_tiles("sample_perfect_tile", (2,), [3, 4], "not a tile of 2 factors with product 12"),
    Refuse(
        "sample_perfect_tile",
        "is positive",
        matmul,
        lambda s: s.sample_perfect_tile(loop(s), 0),
        "must be positive",
    ),
    *_of_tiles("sample_tile", (2,), [3, 5], "not a tile of 2 factors that cover 12"),
    Refuse(
        "sample_tile",
        "is positive",
        matmul,
        lambda s: s.sample_tile(loop(s), 0),
        "must be positive",
    ),
    *_of_tiles("sample_partitioned_tile", (2, 1, 2), [3, 4], "not a tile of 2 factors"),
    Refuse(
        "sample_partitioned_tile",
        "is a position",
        matmul,
        lambda s: s.sample_partitioned_tile(loop(s), 2, 2),
        "partition_pos must be within 0 .. 1, got 2",
    ),
    Refuse(
        "sample_partitioned_tile",
        "divides the extent",
        matmul,
        lambda s: s.sample_partitioned_tile(loop(s), 2, 1, 5),
        "does not divide the extent",
    ),
    Refuse(
        "sample_partitioned_tile",
        "divides the extent",
        matmul,
        lambda s: s.sample_partitioned_tile(loop(s), 2, 1, 0),
        "must be positive",
    ),
    Accept("calculate", matmul, lambda s: s.split(loop(s), [None, _drawn(s) * 2 + 1])),
    Accept("calculate", symbolic_matmul, lambda s: s.split(loop(s), [None, 9 % _drawn(s)]), SIZES),
    Refuse(
        "calculate",
        "operation is known",
        matmul,
        lambda s: s.calculate("**", 2, _drawn(s)),
        r"unknown operation",
    ),
    Refuse(
        "calculate",
        "divisor is not zero",
        matmul,
        lambda s: s.calculate("//", 8, s.calculate("-", _drawn(s), 2)),
        "has no value",
    ),
    Accept(
        "sample_categorical",
        matmul,
        lambda s: s.split(loop(s), [None, s.sample_categorical([2, 3], [0.5, 0.5])]),
    ),
    Accept(
        "sample_categorical",
        symbolic_matmul,
        lambda s: s.split(loop(s), [None, s.sample_categorical([2, 3], [0.0, 1.0])]),
        SIZES,
    ),
    Refuse(
        "sample_categorical",
        "as many probabilities",
        matmul,
        lambda s: s.sample_categorical([1, 2], [1.0]),
        "there must be as many",
    ),
    Refuse(
        "sample_categorical",
        "are not negative",
        matmul,
        lambda s: s.sample_categorical([1, 2], [0.0, 0.0]),
        "can't be negative, and not all zero",
    ),
    Refuse(
        "sample_categorical",
        "a decision",
        matmul,
        lambda s: s.sample_categorical([1, 2], [0.5, 0.5], decision=2),
        "not within 0 .. 1",
    ),
    Accept("sample_compute_location", chain, _located),
    Accept("sample_compute_location", symbolic_chain, _located, SIZES),
    Refuse(
        "sample_compute_location",
        "inside another block",
        chain,
        lambda s: s.sample_compute_location("root"),
        "the root block is in no other block",
    ),
    Refuse(
        "sample_compute_location",
        "a decision",
        chain,
        lambda s: s.sample_compute_location("B", decision=2),
        "or one of the 2 loops",
    ),
]
