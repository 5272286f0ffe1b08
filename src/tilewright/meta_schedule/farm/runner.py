"""Measures candidates on the devices of a farm."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.meta_schedule.farm.cluster import (
    DEVICE,
    LOCAL,
    RayHands,
    check_version,
    choose_label,
    connect,
    look,
    own_count,
)
from tilewright.meta_schedule.farm.dispatcher import Crew, GivenUp, Hands
from tilewright.meta_schedule.farm.workers import (
    About,
    Bare,
    DeviceWorker,
    Measurement,
    NoReference,
)
from tilewright.meta_schedule.runner import (
    TUNING,
    EvaluatorConfig,
    NoReferenceError,
    Reference,
    Runner,
    RunnerInput,
    RunnerResult,
    is_usual,
    passing_bytes,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target

# Seconds beyond those of its candidates that a device may take to answer.
_GRACE = 60.0


class _DeviceActor(DeviceWorker):
    """A device that asks its machine how many there are of it."""

    def __init__(self, label: str, *arguments: Any) -> None:
        super().__init__(label, own_count(DEVICE + label), *arguments)


class DeviceRunner(Runner):
    """Measures on all devices that ``hands`` reach, each used by one candidate at a time.

    A candidate whose device is lost is measured on another; one that two devices are lost with has
    the reason ``"crash"``. Only devices with the same native target are used, so their times can be
    compared; a race happens on one of them. ``evaluator_config`` is how they measure.
    """

    def __init__(
        self,
        hands: Hands[Measurement],
        what: str,
        *,
        timeout_sec: float = 30.0,
        reference_timeout_sec: float = 300.0,
        patience: float = 60.0,
        evaluator_config: EvaluatorConfig = TUNING,
    ) -> None:
        if timeout_sec <= 0 or reference_timeout_sec <= 0:
            raise TuneError("a runner needs positive timeouts")
        self.timeout_sec = timeout_sec
        self.reference_timeout_sec = reference_timeout_sec
        self.any_threads = False
        self.evaluator_config = evaluator_config
        self._constant_bytes = 0
        self._targets: list[str] = []  # that of the devices, once there is one
        self._sent: dict[str, set[str]] = {}
        self._crew: Crew[Measurement] = Crew(hands, what, patience=patience, fits=self._fits)

    def target(self) -> Target:
        """Return the native target of the devices, once there is one.

        Raises ``TuneError`` if none comes.
        """
        self._crew.ready()
        return Target(self._targets[0])

    def in_graph(self, constant_bytes: int) -> DeviceRunner:
        """Return one on the same devices, for functions of a graph with so many bytes of constants.

        Each device knows how large its caches are.
        """
        if not is_usual(self.evaluator_config):
            return self
        made = copy.copy(self)
        made._constant_bytes = constant_bytes
        return made

    @property
    def cold(self) -> bool:
        """Whether candidates find cold caches."""
        if self.evaluator_config.flush_cache_bytes:
            return True
        return self._constant_bytes > 0 and passing_bytes(self._constant_bytes, self.target()) > 0

    def prepare(self, reference: Reference) -> None:
        """Have idle devices run a task's unscheduled program, while candidates are made."""
        message = partial(self._measurement, (), references=(reference,))
        self._crew.tell_idle(message, self.timeout_sec + _GRACE)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> Iterator[RunnerResult]:
        """Check and measure the inputs, several at a time; yield each result in order.

        Raises ``TuneError`` if the farm has no devices left.
        """
        inputs = list(runner_inputs)
        self._check_threads(inputs)
        best: dict[str, float] = {}

        def heard(position: int, found: object) -> None:
            key = inputs[position].reference.key
            for result in found if isinstance(found, list) else ():
                if result.run_secs:
                    best[key] = min(best.get(key, result.run_secs[0]), *result.run_secs)

        def message(item: RunnerInput, worker: str) -> Measurement:
            known = [item.best_seconds, best.get(item.reference.key)]
            fastest = min((time for time in known if time is not None), default=None)
            return self._measurement([item.replaced(best_seconds=fastest)], worker)

        limit = self.timeout_sec + self.reference_timeout_sec + _GRACE
        messages = [partial(message, item) for item in inputs]
        for found in self._crew.run(messages, lambda n: limit, heard):
            yield self._results(found, 1)[0]

    def run_each(self, inputs: Iterable[RunnerInput]) -> Iterator[RunnerResult]:
        """Do as ``run`` does with inputs that may still be built: all are built before."""
        if type(self).run is DeviceRunner.run:
            return self.run(list(inputs))  # as many results as inputs, in their order
        return super().run_each(inputs)  # a subclass says how inputs are run

    def race(self, inputs: Sequence[RunnerInput], rounds: int) -> list[RunnerResult]:
        """Check inputs and measure them in turn, all on one device; on another if that is lost.

        Raises ``TuneError`` if the farm has no devices left, or for candidates of too many tasks.
        """
        if not inputs:
            return []
        self._check_threads(inputs)
        tasks = len({item.reference.key for item in inputs})
        # Where one ends the race, each is run on its own and then the others again.
        limit = 3 * self.timeout_sec * len(inputs) + self.reference_timeout_sec * tasks + _GRACE
        message = partial(self._measurement, inputs, rounds=rounds)
        (found,) = self._crew.run([message], lambda n: limit)
        return self._results(found, len(inputs))

    def close(self) -> None:
        """Leave the devices to others; they are taken again when used."""
        self._sent.clear()
        self._crew.close()

    def _measurement(
        self,
        inputs: Sequence[RunnerInput],
        worker: str,
        rounds: int = 0,
        references: Sequence[Reference] = (),
    ) -> Measurement:
        """Return what a worker is sent: no texts, and no reference that it has."""
        has = self._sent.setdefault(worker, set())
        wanted = {item.key: item for item in (*references, *(item.reference for item in inputs))}
        new = [
            replace(item, module=item.module.with_sources({}))
            for key, item in wanted.items()
            if key not in has
        ]
        has.update(wanted)
        bare = tuple(
            Bare(item.module.with_sources({}), item.best_seconds, item.packed, item.varies)
            for item in inputs
        )
        keys = tuple(item.reference.key for item in inputs)
        return Measurement(bare, keys, tuple(new), rounds, self._constant_bytes)

    def _results(self, found: object, count: int) -> list[RunnerResult]:
        if isinstance(found, GivenUp):
            return [RunnerResult(None, str(found), "crash")] * count
        if isinstance(found, NoReference):
            raise NoReferenceError(found.message)
        if not isinstance(found, list):
            raise TuneError(f"a device failed: {found}")
        return found

    def _fits(self, about: object) -> str | None:
        assert isinstance(about, About)
        if (why := check_version(about)) is not None:
            return why
        if not self._targets:
            self._targets.append(about.target)
        if about.target != self._targets[0]:
            return (
                f"{about.host} is {about.target!r}, other devices are {self._targets[0]!r}: their "
                "times can't be compared; give them another label"
            )
        return None

    def _check_threads(self, inputs: Sequence[RunnerInput]) -> None:
        """Refuse candidates for more cores than the devices have."""
        if self.any_threads:
            return
        for text in {item.reference.module.target for item in inputs} - {""}:
            wanted, there = Target(text).num_cores, self.target().num_cores
            if wanted > there:
                raise TuneError(
                    f"candidates for {wanted} cores can't be measured on devices of {there}; "
                    f"the farm's target is {str(self.target())!r}"
                )


class RayRunner(DeviceRunner):
    """The devices with a ``label`` of the farm at ``address``; see ``DeviceRunner``.

    ``"local"`` is a farm of this machine alone, within this process. The label may be left out if
    all devices have the same. ``max_devices`` leaves the others to other runs. The other options
    are those of ``LocalRunner``, which each device measures with. Raises ``MissingExtraError``
    without Ray, ``TuneError`` if there is no farm or no such device.
    """

    def __init__(
        self,
        address: str = LOCAL,
        label: str | None = None,
        evaluator_config: EvaluatorConfig | None = None,
        *,
        max_devices: int | None = None,
        timeout_sec: float = 30.0,
        reference_timeout_sec: float = 300.0,
        num_threads: int | None = None,
        patience: float = 60.0,
    ) -> None:
        if max_devices is not None and max_devices < 1:
            raise TuneError(f"RayRunner needs at least one device, got {max_devices}")
        ray = connect(address)
        self.label = choose_label(look(ray), label)
        options = (evaluator_config, timeout_sec, reference_timeout_sec, num_threads)
        super().__init__(
            RayHands(ray, DEVICE + self.label, _DeviceActor, (self.label, *options), max_devices),
            f"device {self.label!r}",
            timeout_sec=timeout_sec,
            reference_timeout_sec=reference_timeout_sec,
            patience=patience,
            evaluator_config=evaluator_config or TUNING,
        )
        self.any_threads = num_threads is not None
        self._how = (self.label, self.evaluator_config, timeout_sec, num_threads)

    def settings(self) -> str:
        """Return what devices measure, and how."""
        constants = f", {self._constant_bytes} bytes of constants" if self._constant_bytes else ""
        return f"{type(self).__name__}{self._how}{constants}"


RPCRunner = RayRunner
"""The name of TVM's remote runner."""
