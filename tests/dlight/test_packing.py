"""Where elements of operands lie in panels."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.dlight.cpu.contraction.packing import Panels


@pytest.mark.parametrize(
    ("panels", "place"),
    [
        (Panels(1, 4), (2, 5, 7, 1)),
        (Panels(1, 4, first=(2,)), (2, 7, 5, 1)),
        (Panels(1, 4, parts={2: 2}), (2, 1, 5, 3, 1)),
        (Panels(1, 4, deep=0, word=2), (2, 2, 7, 1, 1)),
        (Panels(None, deep=0, word=2), (2, 9, 7, 1)),
    ],
    ids=["panels", "one dimension first", "parts", "words", "words alone"],
)
def test_where_an_element_lies(panels: Panels, place: tuple[int, ...]) -> None:
    indices: Any = (5, 9, 7)
    assert panels.layout(*indices) == place
