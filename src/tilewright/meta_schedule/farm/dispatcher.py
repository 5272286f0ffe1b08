"""Who works on what: jobs, workers that may be lost, and one job at a time for each of them.

Knows nothing of Ray. What starts jobs and tells what became of them are the *hands*: those of a
cluster, those of a simulation, or a test's.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from tilewright.support.errors import TuneError

logger = logging.getLogger("tilewright.meta_schedule")

Message = TypeVar("Message", contravariant=True)
Result = TypeVar("Result")

# A job that so many workers were lost with isn't tried on another.
MOST_LOSSES = 2
# If so many jobs in a row end like that, it isn't them.
_MOST_GIVEN_UP = 8
# Seconds between looks at what doesn't announce itself: deadlines, workers that never come.
_LOOK = 1.0


@dataclass(frozen=True)
class Joined:
    """A worker is ready. Workers of one ``place`` may be lost together; ``about`` describes it."""

    worker: str
    place: str = ""
    about: object = None


@dataclass(frozen=True)
class Lost:
    """A worker is gone, and with it whatever it was doing."""

    worker: str
    why: str


@dataclass(frozen=True)
class Done:
    """A worker has answered, and is free."""

    worker: str
    result: object


Event = Joined | Lost | Done


@dataclass(frozen=True)
class GivenUp:
    """What a job comes to that workers are lost with: why each of them was."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.reasons)} workers were lost with it: {'; '.join(self.reasons)}"


class Hands(Protocol[Message]):
    """What reaches the workers."""

    def now(self) -> float:
        """Return the time in seconds."""

    def start(self, worker: str, message: Message) -> None:
        """Have an idle worker work on a message."""

    def wait(self, seconds: float) -> Iterable[Event]:
        """Return what has happened, once something has or the time is over."""

    def discard(self, worker: str, *, replace: bool) -> None:
        """End a worker, which has announced itself; with ``replace`` another may come."""

    def close(self) -> None:
        """End all workers."""


@dataclass
class _Job(Generic[Message]):
    number: int
    message: Callable[[str], Message]
    limit: float
    places: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


@dataclass
class _Worker(Generic[Message]):
    place: str
    job: _Job[Message] | None = None
    since: float = 0.0
    forgotten: bool = False


class Dispatcher(Generic[Message]):
    """Gives jobs to idle workers and hears what became of them.

    ``fits`` says why a worker is refused, from its description. ``finished`` is called once for
    each job that wasn't withdrawn, with its number and its result or ``GivenUp``.
    """

    def __init__(
        self,
        hands: Hands[Message],
        finished: Callable[[int, object], None],
        fits: Callable[[object], str | None] = lambda about: None,
    ) -> None:
        self.hands = hands
        self.lost: list[str] = []
        self._finished = finished
        self._fits = fits
        self._workers: dict[str, _Worker[Message]] = {}
        self._idle: dict[str, None] = {}  # those of them without a job, longest first
        self._looked = hands.now()
        self._waiting: deque[_Job[Message]] = deque()
        self._count = 0

    @property
    def workers(self) -> list[str]:
        """The names of the workers there are."""
        return list(self._workers)

    @property
    def busy(self) -> int:
        """The number of workers that have a job."""
        return len(self._workers) - len(self._idle)

    @property
    def waiting(self) -> int:
        """The number of jobs that no worker has."""
        return len(self._waiting)

    def submit(self, message: Callable[[str], Message], limit: float) -> int:
        """Add a job; returns its number.

        ``message`` makes what the worker of that name is sent, when it is its turn. A worker that
        hasn't answered after ``limit`` seconds counts as lost.
        """
        self._count += 1
        self._waiting.append(_Job(self._count, message, limit))
        return self._count

    def withdraw(self, numbers: Collection[int]) -> None:
        """Forget jobs. Workers that have one of them are busy until they answer."""
        self._waiting = deque(job for job in self._waiting if job.number not in numbers)
        for worker in self._workers.values():
            if worker.job is not None and worker.job.number in numbers:
                worker.forgotten = True

    def handle(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, Joined):
            self._join(event)
        elif event.worker not in self._workers:
            return  # it was given up before
        elif isinstance(event, Lost):
            self._lose(event.worker, event.why)
        else:
            worker = self._workers[event.worker]
            job, forgotten = worker.job, worker.forgotten
            worker.job, worker.forgotten = None, False
            self._idle[event.worker] = None
            if job is not None and not forgotten:
                self._finished(job.number, event.result)

    def give(self) -> None:
        """Start what can be started, and give up workers that take too long."""
        now = self.hands.now()
        if now - self._looked >= _LOOK:
            self._looked = now
            for name, worker in list(self._workers.items()):
                if worker.job is not None and now - worker.since > worker.job.limit:
                    self.hands.discard(name, replace=True)
                    self._lose(name, f"no answer within {worker.job.limit:g} s")
        for name in list(self._idle):
            if not self._waiting:
                break
            worker = self._workers[name]
            if (job := self._next(worker.place)) is not None:
                worker.job, worker.since = job, now
                del self._idle[name]
                self.hands.start(name, job.message(name))

    def tell_idle(self, message: Callable[[str], Message], limit: float) -> None:
        """Send each idle worker a message whose answer doesn't matter."""
        for name in list(self._idle):
            job = _Job(0, message, limit)
            self._workers[name].job, self._workers[name].since = job, self.hands.now()
            self._workers[name].forgotten = True
            del self._idle[name]
            self.hands.start(name, message(name))

    def dismiss(self) -> None:
        """Forget all workers and jobs."""
        self._workers.clear()
        self._idle.clear()
        self._waiting.clear()

    def _join(self, event: Joined) -> None:
        why = self._fits(event.about)
        if why is None:
            self._workers[event.worker] = _Worker(event.place)
            self._idle[event.worker] = None
            return
        logger.warning("farm: %s is not used: %s", event.worker, why)
        self.lost.append(why)
        self.hands.discard(event.worker, replace=False)

    def _lose(self, name: str, why: str) -> None:
        logger.warning("farm: %s is lost: %s", name, why)
        self.lost.append(why)
        worker = self._workers.pop(name)
        self._idle.pop(name, None)
        job = worker.job
        if job is None or worker.forgotten:
            return
        job.places.append(worker.place)
        job.reasons.append(why)
        if len(job.reasons) >= MOST_LOSSES:
            self._finished(job.number, GivenUp(tuple(job.reasons)))
        else:
            self._waiting.appendleft(job)

    def _next(self, place: str) -> _Job[Message] | None:
        """Take the first job for a worker: not one that was lost at its place, if there are others.

        What was lost with a machine isn't to blame on a second loss of the same machine.
        """
        for job in self._waiting:
            if place not in job.places or self._only_at(job.places):
                self._waiting.remove(job)
                return job
        return None

    def _only_at(self, places: Collection[str]) -> bool:
        return all(worker.place in places for worker in self._workers.values())


class Crew(Generic[Message]):
    """Workers that several jobs are given to, for a caller that waits for the results.

    ``patience`` is how long to wait for a worker while there is none, ``what`` names them in
    messages.
    """

    def __init__(
        self,
        hands: Hands[Message],
        what: str,
        *,
        patience: float = 60.0,
        fits: Callable[[object], str | None] = lambda about: None,
    ) -> None:
        self.hands = hands
        self.what = what
        self.patience = patience
        self._results: dict[int, object] = {}
        self._heard: dict[int, Callable[[object], None]] = {}
        self._given_up = 0
        self.dispatcher: Dispatcher[Message] = Dispatcher(hands, self._finished, fits)

    def run(
        self,
        messages: Sequence[Callable[[str], Message]],
        limit: Callable[[int], float],
        heard: Callable[[int, object], None] = lambda position, result: None,
    ) -> Iterator[object]:
        """Yield the result of each message, or ``GivenUp``, in order.

        ``limit`` gives the seconds that a message may take. ``heard`` is told of each result at
        once, in any order. Raises ``TuneError`` if there are no workers and
        none come, or if they are lost whatever they do.
        """
        dispatcher = self.dispatcher
        numbers = [dispatcher.submit(item, limit(n)) for n, item in enumerate(messages)]
        for position, number in enumerate(numbers):
            self._heard[number] = partial(heard, position)
        try:
            dispatcher.give()
            for number in numbers:
                while number not in self._results:
                    self._wait()
                    dispatcher.give()
                yield self._results.pop(number)
        finally:
            dispatcher.withdraw(set(numbers))
            for number in numbers:
                self._results.pop(number, None)
                self._heard.pop(number, None)

    def tell_idle(self, message: Callable[[str], Message], limit: float) -> None:
        """Send each worker that is there and has nothing to do a message, without waiting."""
        for event in self.hands.wait(0.0):
            self.dispatcher.handle(event)
        self.dispatcher.tell_idle(message, limit)

    def ready(self) -> list[str]:
        """Wait until there is a worker; returns those that there are."""
        while not self.dispatcher.workers:
            self._wait()
        return self.dispatcher.workers

    def close(self) -> None:
        """End all workers; others come when they are needed."""
        self.dispatcher.dismiss()
        self.hands.close()

    def _finished(self, number: int, result: object) -> None:
        self._given_up = self._given_up + 1 if isinstance(result, GivenUp) else 0
        if self._given_up >= _MOST_GIVEN_UP:
            last = self.dispatcher.lost[-1]
            raise TuneError(f"each {self.what} is lost again and again; the last one: {last}")
        self._results[number] = result
        self._heard[number](result)

    def _wait(self) -> None:
        """Hear what happens; with no worker at all only as long as the patience lasts."""
        hands, dispatcher = self.hands, self.dispatcher
        end = hands.now() + self.patience
        while True:
            events = list(hands.wait(_LOOK))
            for event in events:
                dispatcher.handle(event)
            if events or dispatcher.workers:
                return
            if hands.now() > end:
                last = f"; the last was lost: {dispatcher.lost[-1]}" if dispatcher.lost else ""
                raise TuneError(
                    f"there is no {self.what}, and none came within {self.patience:g} s{last}"
                )
