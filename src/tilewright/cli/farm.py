"""``tilewright farm``: machines that build and measure together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any

import click
from rich.table import Table

from tilewright.cli.logs import log_options
from tilewright.cli.output import json_option, make_console, print_json
from tilewright.meta_schedule.farm import cluster
from tilewright.support.errors import RunError
from tilewright.target import host

_COUNT = click.IntRange(min=0)
_RAY = [sys.executable, "-m", "ray.scripts.scripts"]


@click.group("farm")
def farm_group() -> None:
    """Build and measure on several machines, by Ray (extra tilewright[ray]).

    A farm runs the code of whoever reaches it. Unless told otherwise it listens on this machine
    only; let it listen to others only within a network that you trust. Who connects needs the
    token of the first machine: the file ~/.ray/auth_token, or the variable RAY_AUTH_TOKEN.
    """


@farm_group.command("start", short_help="Bring this machine's builders and devices.")
@click.option("--head", is_flag=True, help="This is the first machine of the farm.")
@click.option("--address", metavar="HOST:PORT", help="Join the farm there.")
@click.option("--host", "host_name", default="127.0.0.1", show_default=True,
              help="With --head: the address of this machine that others reach it at.")  # fmt: skip
@click.option("--port", type=click.IntRange(1024, 65535), default=6379, show_default=True,
              help="With --head: the port to listen on.")  # fmt: skip
@click.option("--builders", type=_COUNT, metavar="N",
              help="Processes that compile candidates. By default one for each core.")  # fmt: skip
@click.option("--devices", type=_COUNT, default=1, show_default=True, metavar="N",
              help="Devices that measure candidates; several share the cores out.")  # fmt: skip
@click.option("--label", metavar="LABEL",
              help="What the devices are: those with one label must be alike. By default the "
                   "CPU's name and the number of its cores.")  # fmt: skip
@json_option
@log_options
def start_command(
    head: bool,
    address: str | None,
    host_name: str,
    port: int,
    builders: int | None,
    devices: int,
    label: str | None,
    as_json: bool,
) -> None:
    """Bring this machine's builders and devices into a farm, until Ctrl-C.

    Compiling disturbs measurements on the same machine: give devices machines of their own, with
    --builders 0, where you can.
    """
    cluster.check_ray()
    if head == (address is not None):
        raise click.UsageError(
            "say --head on the first machine, and --address HOST:PORT of that one on the others"
        )
    if address is not None and cluster.is_alone(address):
        raise click.UsageError(
            f"a farm at {address} is of that machine alone; start it with --head --host ADDRESS "
            "for others to join"
        )
    cores = host.core_count()
    builders = cores if builders is None else builders
    if devices > cores:
        raise click.UsageError(f"{devices} devices need {devices} cores, but there are {cores}")
    if not builders and not devices:
        raise click.UsageError("without builders and devices there is nothing to bring")
    label = cluster.default_label() if label is None else label
    brought = cluster.resources(builders, devices, label)
    there = f"{host_name}:{port}" if address is None else address
    console = make_console(stderr=as_json)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    say(
        f"{builders} builders, {devices} devices {label!r}; tune with: "
        f"tilewright tune MODEL --farm {there}"
    )
    if as_json:
        print_json({"address": there, "builders": builders, "devices": devices, "label": label})
    alone = address is None and cluster.is_alone(host_name)
    if address is None and not alone:
        say(f"other machines join with: tilewright farm start --address {there}")
    _become(
        [*_RAY, *ray_arguments(address, host_name, port), "--resources", json.dumps(brought)],
        cluster.environment(alone),
        make_token=head,
    )


def ray_arguments(address: str | None, host_name: str, port: int) -> list[str]:
    """Return how Ray is started: in the foreground, on one address, without extras."""
    common = ["start", "--block", "--disable-usage-stats", "--num-cpus=0"]
    if address is not None:
        return [*common, f"--address={address}"]
    return [
        *common,
        "--head",
        f"--node-ip-address={host_name}",
        f"--port={port}",
        "--include-dashboard=false",
    ]


def _become(arguments: list[str], environment: dict[str, str], *, make_token: bool) -> None:
    """Become the process of Ray, so that signals reach it; a new farm gets a token first."""
    if make_token and environment["RAY_AUTH_MODE"] == "token":
        # Its output is the token.
        made = subprocess.run(
            [*_RAY, "get-auth-token", "--generate"], capture_output=True, env=environment
        )
        if made.returncode != 0:
            raise RunError(f"Ray makes no token: {made.stderr.decode(errors='replace').strip()}")
    sys.stdout.flush()
    os.execve(arguments[0], arguments, environment)


@farm_group.command("status", short_help="Show what a farm has, and what is in use.")
@click.option("--address", required=True, metavar="HOST:PORT", help="Where the farm is.")
@json_option
@log_options
def status_command(address: str, as_json: bool) -> None:
    """Show the machines of a farm, their builders and devices, and how many are in use."""
    farm = cluster.look(cluster.connect(address))
    if as_json:
        print_json(describe(address, farm))
        return
    console = make_console()
    table = Table(title=f"farm at {address}")
    for column in ("machine", "address", "builders", "devices"):
        table.add_column(column, no_wrap=True)
    for item in farm.machines:
        table.add_row(item.host, item.address, str(item.builders), _devices(item.devices))
    console.print(table)
    console.print(f"builders in use: {farm.builders_in_use} of {farm.builders}", markup=False)
    for label, count in farm.devices.items():
        used = farm.devices_in_use[label]
        console.print(f"devices {label!r} in use: {used} of {count}", markup=False)


def _devices(found: Any) -> str:
    return ", ".join(f"{count} {label}" for label, count in found.items()) or "-"


def describe(address: str, farm: cluster.Farm) -> dict[str, Any]:
    """Return a farm as JSON data."""
    return {
        "address": address,
        "machines": [
            {
                "host": item.host,
                "address": item.address,
                "builders": item.builders,
                "devices": dict(item.devices),
            }
            for item in farm.machines
        ],
        "builders": {"total": farm.builders, "in_use": farm.builders_in_use},
        "devices": {
            label: {"total": count, "in_use": farm.devices_in_use[label]}
            for label, count in farm.devices.items()
        },
    }
