"""The primitives, by family. Importing a family registers its primitives.

Add a family by adding its module here.
"""

from __future__ import annotations

from tilewright.tir.schedule.primitives import (
    annotate,
    blockize,
    buffer_access,
    cache,
    cache_index,
    cache_reindex,
    compute_at,
    data_movement,
    epilogue,
    inline,
    kernel,
    layout,
    lookup,
    loop_kinds,
    loops,
    pad_einsum,
    padding,
    partition,
    reduction,
    rfactor,
    rolling_buffer,
    sampling,
    skip_padding,
    storage,
    tensorize,
)
