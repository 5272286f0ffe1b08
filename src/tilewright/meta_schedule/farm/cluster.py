"""The Ray cluster of a farm: connecting to it, what it has, and hands that reach its workers.

A machine's builders and devices are custom resources: ``tilewright-builder``, and
``tilewright-device:LABEL`` for devices that are alike. A worker is an actor that holds one of them,
so Ray gives no device to two at a time. Ray is imported when it is used.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewright.meta_schedule.farm.dispatcher import Done, Event, Joined, Lost
from tilewright.meta_schedule.farm.workers import About
from tilewright.support.errors import MissingExtraError, TuneError
from tilewright.support.version import __version__
from tilewright.target import Target, host

logger = logging.getLogger("tilewright.meta_schedule")

LOCAL = "local"
"""The address of a farm of this machine alone, within this process."""

BUILDER = "tilewright-builder"
"""The resource of builders."""

DEVICE = "tilewright-device:"
"""What the resources of devices begin with; the label follows."""

_LABEL = re.compile(r"[A-Za-z0-9._-]+")
# Seconds between looks at what the cluster has: machines come and go.
_LOOK = 2.0
# So many workers in a row may fail to start, then no more are tried.
_MOST_FAILURES = 5
# Bytes of shared memory for objects between processes: candidates are some kilobytes each.
_STORE = 100 << 20

# Ray's own names: it must not report to its makers, nor have workers give way to other processes
# while they measure, and on a machine alone nothing may listen to others (a setting that it has for
# other operating systems, but heeds on all).
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# Only who has the cluster's token may use it, unless the user says otherwise.
_TOKEN = {"RAY_AUTH_MODE": "token"}


def default_label() -> str:
    """Return the label of this machine's devices: its CPU and number of cores."""
    target = Target("native")
    return f"{target.mcpu or target.kind}-{target.num_cores}"


def check_label(label: str) -> str:
    """Return a label of devices; ``TuneError`` if it is none."""
    if not _LABEL.fullmatch(label):
        raise TuneError(f"a label consists of letters, digits, '.', '_' and '-'; got {label!r}")
    return label


def resources(builders: int, devices: int, label: str) -> dict[str, float]:
    """Return a machine's resources, as Ray takes them."""
    made = {BUILDER: float(builders), DEVICE + check_label(label): float(devices)}
    return {name: number for name, number in made.items() if number}


def is_alone(address: str) -> bool:
    """Whether an address, with or without a port, is one of this machine only."""
    name = address.rpartition(":")[0] or address
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name in (LOCAL, "localhost")


def environment(alone: bool) -> dict[str, str]:
    """Return what Ray's processes find in their environment, beside what the user has set."""
    return {**_TOKEN, **os.environ, **_QUIET, **(_ALONE if alone else {})}


def check_ray() -> None:
    """Raise ``MissingExtraError`` without Ray."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("ray", "ray", "a farm")


@contextmanager
def _environment(alone: bool) -> Iterator[None]:
    """Set what Ray reads when it is imported and started."""
    before = dict(os.environ)
    os.environ.update(environment(alone))
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def connect(address: str = LOCAL) -> Any:
    """Connect this process to a farm and return the module ``ray``.

    ``"local"`` starts one within this process: a builder for each core, and one device. A process
    that is connected to a cluster already stays with it. Raises ``MissingExtraError`` without Ray,
    ``TuneError`` if there is no farm at an address.
    """
    check_ray()
    with _environment(is_alone(address)):
        import ray

        if ray.is_initialized():
            return ray
        # It may have been imported before, and has then read another environment.
        ray._raylet.Config.initialize("")
        options: dict[str, Any] = {
            "namespace": "tilewright",
            "log_to_driver": False,
            "logging_level": logging.ERROR,
        }
        if address == LOCAL:
            options |= {
                "num_cpus": 0,  # else so many idle processes
                "include_dashboard": False,
                "object_store_memory": _STORE,
                "resources": resources(host.core_count(), 1, default_label()),
            }
        try:
            ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise TuneError(f"there is no farm at {address}: {error}") from error
    return ray


@dataclass(frozen=True)
class Machine:
    """A machine of a farm: what it brings."""

    host: str
    address: str
    builders: int
    devices: Mapping[str, int]


@dataclass(frozen=True)
class Farm:
    """What a farm has, and how much of it is in use (devices by label)."""

    machines: tuple[Machine, ...]
    builders: int = 0
    builders_in_use: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)
    devices_in_use: Mapping[str, int] = field(default_factory=dict)


def look(ray: Any) -> Farm:
    """Return what the farm has that this process is connected to."""
    machines = []
    for node in ray.nodes():
        found = node["Resources"]
        if node["Alive"] and any(name.startswith((BUILDER, DEVICE)) for name in found):
            builders, devices = _counted(found)
            name, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
            machines.append(Machine(name, address, builders, devices))
    builders, devices = _counted(ray.cluster_resources())
    free_builders, free_devices = _counted(ray.available_resources())
    used = {label: count - free_devices.get(label, 0) for label, count in devices.items()}
    return Farm(tuple(machines), builders, builders - free_builders, devices, used)


def _counted(found: Mapping[str, float]) -> tuple[int, dict[str, int]]:
    devices = {
        name.removeprefix(DEVICE): int(number)
        for name, number in sorted(found.items())
        if name.startswith(DEVICE)
    }
    return int(found.get(BUILDER, 0)), devices


def choose_label(farm: Farm, label: str | None) -> str:
    """Return the label of the devices to use: the one asked for, or the only one there is.

    Raises ``TuneError`` if that isn't one of the farm's.
    """
    known = ", ".join(farm.devices) or "none"
    if label is None:
        if len(farm.devices) != 1:
            raise TuneError(f"say which devices to measure on, by their label; there are: {known}")
        return next(iter(farm.devices))
    if label not in farm.devices:
        raise TuneError(f"the farm has no devices {label!r}; there are: {known}")
    return label


class RayHands:
    """Actors of a class that hold one ``resource`` each, as many as there are or ``most``.

    Raises ``TuneError`` if none can be started.
    """

    def __init__(
        self, ray: Any, resource: str, kind: type, arguments: tuple[Any, ...],
        most: int | None = None,
    ) -> None:  # fmt: skip
        self._ray = ray
        self._resource = resource
        self._kind = ray.remote(kind).options(num_cpus=0, resources={resource: 1})
        self._arguments = arguments
        self._most = most
        self._made = self._refused = self._failures = 0
        self._actors: dict[str, Any] = {}
        self._asked: dict[Any, tuple[str, bool]] = {}  # by reference: who, and whether it is new
        self._looked = -_LOOK

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def start(self, worker: str, message: object) -> None:
        """Have an idle worker work on a message."""
        self._asked[self._actors[worker].work.remote(message)] = worker, False

    def wait(self, seconds: float) -> list[Event]:
        """Return what has happened; workers are started as the cluster has resources for them."""
        if self.now() - self._looked >= _LOOK:
            self._looked = self.now()
            self._start_workers()
        if not self._asked:
            time.sleep(min(seconds, _LOOK))
            return []
        waiting = list(self._asked)
        ready, _ = self._ray.wait(waiting, timeout=seconds, fetch_local=True)
        if ready:  # and whatever else is there by now
            ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [event for reference in ready if (event := self._heard(reference)) is not None]

    def discard(self, worker: str, *, replace: bool) -> None:
        """End a worker; with ``replace`` another may come."""
        self._refused += not replace
        self._forget(worker)

    def close(self) -> None:
        """End all workers, and with that free their resources."""
        for worker in list(self._actors):
            self._forget(worker)
        self._looked = -_LOOK
        self._refused = self._failures = 0

    def _forget(self, worker: str) -> None:
        actor = self._actors.pop(worker)
        self._asked = {key: item for key, item in self._asked.items() if item[0] != worker}
        if self._ray.is_initialized():
            self._ray.kill(actor)

    def _heard(self, reference: Any) -> Event | None:
        worker, is_new = self._asked.pop(reference)
        errors = self._ray.exceptions
        try:
            result = self._ray.get(reference)
        except errors.RayTaskError as error:  # raised by the worker: its answer
            result = error
        except errors.RayError as error:
            self._forget(worker)
            if not is_new:
                return Lost(worker, _why(error))
            result = error
        if not is_new:
            return Done(worker, result)
        if isinstance(result, About):
            self._failures = 0
            return Joined(worker, result.host, result)
        why = _why(result)
        logger.warning("farm: %s could not be started: %s", worker, why)
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise TuneError(f"no worker for {self._resource} can be started: {why}")
        return None

    def _start_workers(self) -> None:
        """Start workers for what the cluster has; those that must wait for it start later."""
        wanted = int(self._ray.cluster_resources().get(self._resource, 0)) - self._refused
        if self._most is not None:
            wanted = min(wanted, self._most)
        for _ in range(wanted - len(self._actors)):
            name = f"{self._resource.removeprefix('tilewright-')} {self._made}"
            self._made += 1
            self._actors[name] = actor = self._kind.remote(*self._arguments)
            self._asked[actor.about.remote()] = name, True


def _why(error: Exception) -> str:
    """Return what a remote error says, without the remote stack."""
    cause = getattr(error, "cause", None)
    lines = str(cause if isinstance(cause, Exception) else error).strip().splitlines()
    # The stack of what failed while a worker started ends with the error.
    return lines[-1 if "creation task" in lines[0] else 0].strip()


def own_count(resource: str) -> int:
    """Return, within an actor, how many of a resource its machine has."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()
    return next(int(item["Resources"].get(resource, 0)) for item in nodes if item["NodeID"] == here)


def check_version(about: object) -> str | None:
    """Return why a worker can't be used: another version."""
    assert isinstance(about, About)
    if about.version != __version__:
        return (
            f"{about.host} has tilewright {about.version}, this is {__version__}; "
            "install the same everywhere"
        )
    return None
