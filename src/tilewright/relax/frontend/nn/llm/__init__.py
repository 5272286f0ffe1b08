"""Parts of language models: the memory of attention."""

from __future__ import annotations

from tilewright.relax.frontend.nn.llm import kv_cache

__all__ = ["kv_cache"]
