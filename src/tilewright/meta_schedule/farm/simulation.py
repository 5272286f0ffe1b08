"""A farm whose time is computed: how many trials a second so many devices make.

Builders and devices are given jobs by the ``Dispatcher`` that also works with a cluster. Their
times are recorded ones, drawn at random. The process that tunes does one thing at a time: it
searches (for one candidate after the other, so that the rest need not wait for a whole batch),
sends, receives, writes records and learns.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.meta_schedule.farm.dispatcher import Dispatcher, Done, Joined, Lost
from tilewright.support.errors import TuneError

IN_TURN, OVERLAPPED, FLOWING = "in turn", "overlapped", "flowing"
"""How a run proceeds: batches one after the other; the next batch is searched for and built while
one is measured; or candidates go to the devices as they are built, and new ones are searched for as
soon as fewer than a batch wait."""


@dataclass(frozen=True)
class Recorded:
    """Seconds of a real run: what each candidate took (lists), or took in the mean.

    A simulated device takes what the recorded one took, so it measures functions with their
    constants in far caches if that did (``benchmarks.farm`` records a task that has none).
    ``latency`` are times of messages to a worker and back, beyond the work. ``search``, ``send``
    (to a builder and then to a device, with both answers), ``record`` and ``learn`` are seconds of
    the process that tunes, for each candidate. ``reference`` is what a device takes to run a task's
    unscheduled program, ``start`` what a worker takes to start.
    """

    build: Sequence[float]
    measure: Sequence[float]
    latency: Sequence[float]
    search: float
    send: float
    record: float
    learn: float
    reference: float
    start: float


@dataclass(frozen=True)
class Setup:
    """A farm, and how it is used. Each job ends its worker with the probability ``loss``."""

    devices: int
    builders: int
    batch: int = 64
    mode: str = OVERLAPPED
    loss: float = 0.0
    seed: int = 0


@dataclass
class Outcome:
    """What a simulated run came to: shares of the time that parts of the farm were busy."""

    seconds: float
    trials: int
    given_up: int
    lost: int
    driver: float
    builders: float
    devices: float

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.trials / self.seconds


class Clock:
    """What happens, in the order of its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        """Have something happen later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._count), happen))

    def run(self, finished: Callable[[], bool]) -> None:
        """Let things happen until it is finished; ``TuneError`` if nothing more happens."""
        while not finished():
            if not self._events:
                raise TuneError("the simulated farm stands still")
            self.now, _, happen = heapq.heappop(self._events)
            happen()


class Driver:
    """The process that tunes: one thing at a time, in the order in which it comes up."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.busy = 0.0
        self._free = 0.0

    def spend(self, seconds: float, then: Callable[[], None]) -> None:
        """Do something of that many seconds once there is time, and then the next."""
        self._free = max(self._free, self.clock.now) + seconds
        self.busy += seconds
        self.clock.after(self._free - self.clock.now, then)


class SimulatedHands:
    """Workers of recorded times. Sending and receiving takes the driver's time."""

    def __init__(
        self,
        driver: Driver,
        count: int,
        seconds: Callable[[], float],
        recorded: Recorded,
        loss: float,
        rng: random.Random,
        first: float = 0.0,
    ) -> None:
        self.clock, self.driver, self.rng = driver.clock, driver, rng
        self.seconds, self.recorded, self.loss, self.first = seconds, recorded, loss, first
        self.busy = 0.0
        self.lost = 0
        self._known: set[str] = set()
        self._names = itertools.count()
        self.handle: Callable[[Joined | Done | Lost], None] = lambda event: None
        for _ in range(count):
            self._start_worker(0.0)

    def _start_worker(self, seconds: float) -> None:
        name = str(next(self._names))
        self.clock.after(seconds, lambda: self.handle(Joined(name, name)))

    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self.clock.now

    def start(self, worker: str, message: object) -> None:
        """Have an idle worker work: its answer, or its loss, comes later."""
        took = self.seconds() + (0.0 if worker in self._known else self.first)
        self._known.add(worker)
        latency = self.rng.choice(self.recorded.latency)
        lost = self.rng.random() < self.loss
        if lost:
            took *= self.rng.random()
        self.busy += took

        def sent() -> None:
            self.clock.after(took + latency, back)

        def back() -> None:
            if lost:
                self.lost += 1
                self._start_worker(self.recorded.start)
                self.handle(Lost(worker, "it was lost"))
            else:
                self.driver.spend(self.recorded.send / 4, received)

        def received() -> None:
            self.handle(Done(worker, message))

        self.driver.spend(self.recorded.send / 4, sent)

    def wait(self, seconds: float) -> list[Joined | Done | Lost]:
        """Raise an error: the clock tells what happens."""
        raise NotImplementedError("the clock tells what happens")

    def discard(self, worker: str, *, replace: bool) -> None:
        """Start another worker in the place of one."""
        self._start_worker(self.recorded.start)

    def close(self) -> None:
        """Forget which workers have run the unscheduled program."""
        self._known.clear()


@dataclass
class _Batch:
    size: int
    built: int = 0
    measured: int = 0
    sent: int = 0


class _Run:
    """A tuning run of so many trials."""

    def __init__(self, setup: Setup, recorded: Recorded, trials: int) -> None:
        self.setup, self.recorded, self.left = setup, recorded, trials
        rng = random.Random(setup.seed)
        self.clock = Clock()
        self.driver = Driver(self.clock)
        self.done = self.given_up = 0
        self.batches: list[_Batch] = []
        self.owners: dict[tuple[bool, int], _Batch] = {}
        make = partial(SimulatedHands, self.driver, recorded=recorded, loss=setup.loss, rng=rng)
        self.builders = make(setup.builders, lambda: rng.choice(recorded.build))
        self.devices = make(
            setup.devices, lambda: rng.choice(recorded.measure), first=recorded.reference
        )
        self.building = self._dispatcher(self.builders, self._built)
        self.measuring = self._dispatcher(self.devices, self._measured)

    def _dispatcher(
        self, hands: SimulatedHands, finished: Callable[[int, object], None]
    ) -> Dispatcher[object]:
        dispatcher: Dispatcher[object] = Dispatcher(hands, finished)

        def handle(event: Joined | Done | Lost) -> None:
            dispatcher.handle(event)
            dispatcher.give()

        hands.handle = handle
        return dispatcher

    def search(self) -> None:
        """Find the candidates of a batch, then have them built."""
        size = min(self.setup.batch, self.left)
        if size == 0:
            return
        self.left -= size
        batch = _Batch(size)
        self.batches.append(batch)
        self._search_on(batch, size)

    def _search_on(self, batch: _Batch, left: int) -> None:
        """Search for so many more: in a thread of its own, so messages come in between."""
        if left == 0:
            self._build(batch)
        else:
            self.driver.spend(self.recorded.search, partial(self._search_on, batch, left - 1))

    def _build(self, batch: _Batch) -> None:
        for _ in range(batch.size):
            number = self.building.submit(lambda worker: None, 1e9)
            self.owners[True, number] = batch
        self.building.give()
        if self.setup.mode == FLOWING:
            self._fill()

    def _built(self, number: int, result: object) -> None:
        batch = self.owners.pop((True, number))
        batch.built += 1
        if self.setup.mode == FLOWING:
            self._measure(batch)
        else:
            self._next_batch()

    def _next_batch(self) -> None:
        """Measure the oldest batch, once all of it is built and the one before is done."""
        for batch in self.batches:
            if batch.sent:
                return
            if batch.built < batch.size:
                return
            if self.setup.mode == OVERLAPPED:
                self.search()
            self._measure(batch)
            return

    def _measure(self, batch: _Batch) -> None:
        """Send what is built and not yet sent."""
        for _ in range(batch.built - batch.sent):
            number = self.measuring.submit(lambda worker: None, 1e9)
            self.owners[False, number] = batch
        batch.sent = batch.built
        self.measuring.give()

    def _measured(self, number: int, result: object) -> None:
        batch = self.owners.pop((False, number))
        self.given_up += result is not None
        self.driver.spend(self.recorded.record, lambda: self._recorded(batch))

    def _recorded(self, batch: _Batch) -> None:
        self.done += 1
        batch.measured += 1
        if batch.measured == batch.size:
            self.batches.remove(batch)
            self.driver.spend(batch.size * self.recorded.learn, self._learned)
        if self.setup.mode == FLOWING:
            self._fill()

    def _fill(self) -> None:
        """Search for more, if less than what keeps all busy is on its way."""
        under_way = sum(batch.size - batch.measured for batch in self.batches)
        if under_way <= self.setup.batch + self.setup.devices:
            self.search()

    def _learned(self) -> None:
        if self.setup.mode == IN_TURN:
            self.search()
        elif self.setup.mode == OVERLAPPED:
            self._next_batch()


def simulate(setup: Setup, recorded: Recorded, trials: int) -> Outcome:
    """Return what a run of so many trials comes to. The same seed gives the same."""
    if setup.mode not in (IN_TURN, OVERLAPPED, FLOWING):
        raise TuneError(f"unknown mode {setup.mode!r}; known: {IN_TURN}, {OVERLAPPED}, {FLOWING}")
    if min(setup.devices, setup.builders, setup.batch, trials) < 1:
        raise TuneError("a simulation needs devices, builders, a batch and trials")
    run = _Run(setup, recorded, trials)
    run.search()
    run.clock.run(lambda: run.done == trials)
    seconds = run.clock.now
    return Outcome(
        seconds,
        trials,
        run.given_up,
        run.builders.lost + run.devices.lost,
        min(1.0, run.driver.busy / seconds),
        run.builders.busy / (seconds * setup.builders),
        run.devices.busy / (seconds * setup.devices),
    )
