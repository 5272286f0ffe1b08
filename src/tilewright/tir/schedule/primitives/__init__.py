"""The primitives, by family. Importing a family registers its primitives.

Add a family by adding its module here.
"""

from __future__ import annotations

from tilewright.tir.schedule.primitives import (
    cache,
    compute_at,
    inline,
    layout,
    lookup,
    loops,
    reduction,
)
