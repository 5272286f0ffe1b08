"""What several tests of ``torch.compile`` look at."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.torch.program import Program


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the programs that are made."""
    found: list[str] = []
    make = Program.function

    def function(self: Program) -> Any:
        made = make(self)
        found.append(str(made.__doc__))
        return made

    monkeypatch.setattr(Program, "function", function)
    return found
