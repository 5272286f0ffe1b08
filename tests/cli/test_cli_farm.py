"""The commands of farms, without a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tilewright.cli import farm
from tilewright.cli.tune import tune_command
from tilewright.meta_schedule.farm import cluster

FARM = cluster.Farm(
    (
        cluster.Machine("one", "10.0.0.1", 8, {}),
        cluster.Machine("two", "10.0.0.2", 0, {"znver5-8": 1, "lab": 2}),
    ),
    builders=8,
    builders_in_use=3,
    devices={"lab": 2, "znver5-8": 1},
    devices_in_use={"lab": 1, "znver5-8": 0},
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be started."""
    found: dict[str, Any] = {}

    def become(arguments: list[str], environment: dict[str, str], *, make_token: bool) -> None:
        found.update(arguments=arguments, environment=environment, make_token=make_token)

    monkeypatch.setattr(farm, "_become", become)
    monkeypatch.setattr(cluster, "check_ray", lambda: None)
    monkeypatch.setattr("tilewright.target.host.core_count", lambda: 4)
    return found


def start(*arguments: str) -> Any:
    return CliRunner().invoke(farm.farm_group, ["start", *arguments])


def test_a_farm_listens_on_this_machine_only(started: dict[str, Any]) -> None:
    done = start("--head", "--label", "lab")
    assert done.exit_code == 0, done.output
    assert "4 builders, 1 devices 'lab'" in done.output
    assert "--farm 127.0.0.1:6379" in done.output and "join" not in done.output
    assert "--node-ip-address=127.0.0.1" in started["arguments"]
    assert started["environment"]["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert started["environment"]["RAY_AUTH_MODE"] == "token" and started["make_token"]
    assert json.loads(started["arguments"][-1]) == {
        "tilewright-builder": 4.0,
        "tilewright-device:lab": 1.0,
    }


def test_a_farm_for_others_and_a_machine_that_joins(started: dict[str, Any]) -> None:
    done = start("--head", "--host", "10.0.0.1", "--port", "7000", "--devices", "0")
    assert "join with: tilewright farm start --address 10.0.0.1:7000" in done.output
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in started["environment"]
    done = start("--address", "10.0.0.1:7000", "--builders", "0", "--devices", "2", "--label", "x")
    assert done.exit_code == 0, done.output
    assert "--address=10.0.0.1:7000" in started["arguments"] and not started["make_token"]
    assert json.loads(started["arguments"][-1]) == {"tilewright-device:x": 2.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say --head on the first machine"),
        (["--head", "--address", "10.0.0.1:1"], "say --head on the first machine"),
        (["--address", "127.0.0.1:6379"], "is of that machine alone"),
        (["--head", "--devices", "9"], "9 devices need 9 cores, but there are 4"),
        (["--head", "--devices", "0", "--builders", "0"], "there is nothing to bring"),
    ],
)
def test_what_makes_no_farm(started: dict[str, Any], arguments: list[str], message: str) -> None:
    done = start(*arguments)
    assert done.exit_code == 2 and message in done.output
    assert not started


def test_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connect", lambda address: address)
    monkeypatch.setattr(cluster, "look", lambda ray: FARM)
    done = CliRunner().invoke(farm.farm_group, ["status", "--address", "10.0.0.1:1"])
    assert done.exit_code == 0, done.output
    assert "1 znver5-8, 2 lab" in done.output and "builders in use: 3 of 8" in done.output
    assert "devices 'lab' in use: 1 of 2" in done.output
    done = CliRunner().invoke(farm.farm_group, ["status", "--address", "10.0.0.1:1", "--json"])
    found = json.loads(done.output)
    assert found["devices"]["lab"] == {"total": 2, "in_use": 1}
    assert [item["builders"] for item in found["machines"]] == [8, 0]


def test_a_label_without_a_farm_is_wrong_usage() -> None:
    done = CliRunner().invoke(tune_command, ["model.py:make", "--farm-label", "x"])
    assert done.exit_code == 2 and "say --farm too" in done.output
