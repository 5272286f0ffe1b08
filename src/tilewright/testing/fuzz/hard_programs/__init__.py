"""The texts of whole programs that schedules rarely meet, by what makes them hard.

Each has a label. Its first line gives the parameters (name, shape, dtype and, for indices, into
what extent), the rest is the body in the dialect ``T``; ``d0``, ``d1``, ... are extents to draw.
"""

from tilewright.testing.fuzz.hard_programs import aliases, control, data_driven, updates

__all__ = ["PROGRAMS"]

PROGRAMS: dict[str, str] = {
    **aliases.PROGRAMS,
    **control.PROGRAMS,
    **data_driven.PROGRAMS,
    **updates.PROGRAMS,
}
