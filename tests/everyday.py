"""How many cases a test has: a few of them every day, all of them in ``make slow``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def few(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *everyday: Any,
    every: int = 0,
    **options: Any,
) -> pytest.MarkDecorator:
    """Parametrize a test, and mark its cases ``slow`` but for those named and one of ``every``.

    For tests that are sure to be right in most cases if they are in some: seeds of a fuzzer, sizes
    of a kernel that is simulated. A name that isn't among the cases is an error, as who renames a
    case would lose it unseen.
    """
    cases = list(cases)
    unknown = [name for name in everyday if name not in cases]
    if unknown:
        raise ValueError(f"no such cases: {unknown}")
    several = len(names.split(",")) > 1 if isinstance(names, str) else len(names) > 1

    def slow(case: Any) -> Any:
        return pytest.param(*(case if several else (case,)), marks=pytest.mark.slow)

    chosen = [
        case if (every and place % every == every // 2) or case in everyday else slow(case)
        for place, case in enumerate(cases)
    ]
    return pytest.mark.parametrize(names, chosen, **options)
