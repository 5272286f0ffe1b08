"""The texts of whole programs that schedules rarely meet, by what makes them hard.

Each has a label. Lines that start with ``?`` name something to draw, with what it may be, one for a
program: ``? T int8|int16`` puts either in the place of ``{T}``. The next line gives the parameters
(name, shape, dtype and, for indices, into what extent; ``wide``: numbers from all of the dtype's
range), the rest is the body in the dialect ``T``, but that ``nest`` stands for loops around a block
(``nests.py``); ``d0``, ``d1``, ... are extents to draw. Other functions of the module follow after
a line ``---``.
"""

from tilewright.testing.fuzz.hard_programs import (
    aliases,
    carried,
    control,
    data_driven,
    halves,
    indirect,
    integers,
    kernels,
    modules,
    names,
    orders,
    quotients,
    sizes,
    updates,
)
from tilewright.testing.fuzz.hard_programs.nests import written_out

__all__ = ["FAMILIES", "PROGRAMS"]

_TEXTS = {
    "aliases": aliases.PROGRAMS,
    "carried": carried.PROGRAMS,
    "control": control.PROGRAMS,
    "data-driven": data_driven.PROGRAMS,
    "updates": updates.PROGRAMS,
    "integers": integers.PROGRAMS,
    "quotients": quotients.PROGRAMS,
    "orders": orders.PROGRAMS,
    "sizes": sizes.PROGRAMS,
    "halves": halves.PROGRAMS,
    "indirect": indirect.PROGRAMS,
    "modules": modules.PROGRAMS,
    "names": names.PROGRAMS,
    "kernels": kernels.PROGRAMS,
}
FAMILIES: dict[str, dict[str, str]] = {
    family: {label: written_out(text) for label, text in programs.items()}
    for family, programs in _TEXTS.items()
}
"""Programs by family, then by label."""

PROGRAMS: dict[str, str] = {
    label: text for family in FAMILIES.values() for label, text in family.items()
}
