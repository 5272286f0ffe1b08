"""A sequence once more with symbolic tiles: factors are variables, and then any numbers.

``Schedule(symbolic=True)`` gives variables where tiles are sampled. What comes out must compute the
same for all factors that the sampling allows, not just for those that the sequence has drawn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import Var, as_int, const, substitute
from tilewright.support.errors import ScheduleError
from tilewright.testing.fuzz.session import Fault, Session
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import compile_function
from tilewright.tir.schedule import Schedule

_TILES = ("sample_perfect_tile", "sample_tile")
_TRIES = 3


def check_symbolic(session: Session, rng: random.Random) -> bool:
    """Compare for some factors; says whether the sequence has a symbolic form."""
    insts = session.sch.trace.insts
    if len(session.mod.functions) > 1 or not any(inst.name in _TILES for inst in insts):
        return False
    sch = Schedule(session.mod, symbolic=True, record=False)
    handles: dict[object, object] = {}
    try:
        for inst in insts:
            decision = None if inst.name in _TILES else inst.decision
            result = inst.primitive.run(sch, _mapped(inst.args, handles), decision)
            made = result if isinstance(result, (list, tuple)) else (result,)
            handles.update(zip(inst.outputs, made))
    except ScheduleError:
        return False  # variables can't be seen to fit where numbers did
    except Exception as error:
        raise Fault("symbolic tiles", inst.name, f"{type(error).__name__}: {error}") from error
    func = sch.mod[sch.working_func]
    assert isinstance(func, PrimFunc)
    variables = [var for tile in sch.state.symbolic for var in tile.variables]
    try:
        program = compile_function(func.replace(params=(*func.params, *variables)))
    except Exception as error:
        raise Fault("symbolic tiles", inst.name, f"{type(error).__name__}: {error}") from error
    for _ in range(_TRIES):
        values = _factors(sch, rng)
        if values is None:
            return False
        _compare(session, program, [values[var] for var in variables], inst.name)
    return True


def _mapped(value: object, handles: Mapping[Any, object]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, handles) for item in value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, handles) for key, item in value.items()}
    try:
        return handles.get(value, value)
    except TypeError:  # what can't be hashed is no handle
        return value


def _factors(sch: Schedule, rng: random.Random) -> dict[Var, int] | None:
    """Draw numbers for all tile variables, as sampling might have."""
    values: dict[Var, int] = {}
    for tile in sch.state.symbolic:
        known = {var: const(number) for var, number in values.items()}
        extent = as_int(simplify(substitute(tile.extent, known)))
        if extent is None or extent < 1:
            return None
        inner: list[int] = []
        left = extent
        for place, _ in enumerate(tile.variables[1:]):
            options = [n for n in range(1, left + 1) if not tile.exact or left % n == 0]
            if place == 0 and tile.max_innermost > 0:
                options = [n for n in options if n <= tile.max_innermost]
            inner.insert(0, rng.choice(options))
            left = left // inner[0] if tile.exact else -(-left // inner[0])
        outer = extent // prod(inner) if tile.exact else -(-extent // prod(inner))
        values.update(zip(tile.variables, [outer, *inner]))
    return values


def _compare(session: Session, program: Any, factors: list[int], primitive: str) -> None:
    """Run with the factors as further arguments."""
    for which in range(len(session.sizes)):
        actual = session.arrays(which)
        try:
            program(*actual, *factors)
        except Exception as error:
            detail = f"factors {factors}: {type(error).__name__}: {error}"
            raise Fault("symbolic tiles", primitive, detail) from error
        session.agree(
            "symbolic tiles", primitive, session.reference(which), actual, f"factors {factors}, "
        )
