"""The primitives, by family. Importing a family registers its primitives.

Add a family by adding its module here.
"""

from __future__ import annotations

from tilewright.tir.schedule.primitives import (
    annotate,
    block,
    buffer_access,
    cache,
    cache_reindex,
    compute_at,
    epilogue,
    inline,
    layout,
    lookup,
    loop_kinds,
    loops,
    partition,
    reduction,
    rfactor,
    sampling,
    storage,
)
