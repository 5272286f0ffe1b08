"""The primitives, by family. Importing a family registers its primitives.

Add a family by adding its module here.
"""

from __future__ import annotations

from tilewright.tir.schedule.primitives import (
    annotate,
    block,
    cache,
    compute_at,
    inline,
    layout,
    lookup,
    loop_kinds,
    loops,
    reduction,
    sampling,
)
