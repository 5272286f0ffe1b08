"""Names of devices."""

from __future__ import annotations

import pytest

from tilewright.runtime import Device, cpu, cuda, device
from tilewright.support.errors import RunError


def test_names_round_trip() -> None:
    assert device("cpu") == cpu() == Device("cpu", 0)
    assert device("cuda:1") == cuda(1)
    assert str(cuda(1)) == "cuda:1"
    assert device(cuda(2)) is not None and device(cuda(2)).index == 2


def test_type_codes_are_those_of_dlpack() -> None:
    assert (cpu().type_code, cuda().type_code) == (1, 2)


@pytest.mark.parametrize("text", ["tpu", "cuda:", "cuda:x", "cuda:-1"])
def test_bad_names_are_refused(text: str) -> None:
    with pytest.raises(RunError):
        device(text)
