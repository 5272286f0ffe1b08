"""Compiles candidates on the builders of a farm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tilewright.meta_schedule.builder import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.builder.local import BuildFunction, default_build, with_texts
from tilewright.meta_schedule.farm.cluster import (
    BUILDER,
    LOCAL,
    RayHands,
    check_version,
    connect,
)
from tilewright.meta_schedule.farm.dispatcher import Crew, GivenUp
from tilewright.meta_schedule.farm.workers import BuildWorker, Built
from tilewright.runtime import Module
from tilewright.support.errors import TuneError

_Message = tuple[tuple[BuilderInput, ...], float]

# A builder is sent at most so many candidates at once: one that takes long holds up the others.
_MOST_TOGETHER = 4
# Seconds beyond those of its candidates that a builder may take to answer.
_GRACE = 30.0


class RayBuilder(Builder):
    """The builders of the farm at ``address`` (``"local"``: this machine, within this process).

    ``timeout_sec`` limits a candidate. ``f_build`` compiles one; by default what ``LocalBuilder``
    does. A candidate whose builder is lost goes to another; one that two builders are lost with has
    the reason ``"build-crash"``. ``max_workers`` limits how many builders are used. Raises
    ``MissingExtraError`` without Ray, ``TuneError`` if there is no farm.
    """

    def __init__(
        self,
        address: str = LOCAL,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: BuildFunction | None = None,
        patience: float = 60.0,
    ) -> None:
        if timeout_sec <= 0 or (max_workers is not None and max_workers < 1):
            raise TuneError("RayBuilder needs at least one worker and a positive timeout")
        self.timeout_sec = timeout_sec
        self.f_build = f_build
        hands = RayHands(connect(address), BUILDER, BuildWorker, (f_build,), max_workers)
        self._crew: Crew[_Message] = Crew(hands, "builder", patience=patience, fits=check_version)
        self._hands = hands

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Compile all inputs; one result each, in order.

        Raises ``TuneError`` if the farm has no builders left.
        """
        if not build_inputs:
            return []
        shares = in_shares(build_inputs, len(self._crew.ready()), _MOST_TOGETHER)
        messages = [partial(self._message, share) for share in shares]
        results = self._crew.run(messages, lambda n: self.timeout_sec * len(shares[n]) + _GRACE)
        return [
            result
            for share, found in zip(shares, results)
            for result in self._results(share, found)
        ]

    def close(self) -> None:
        """Leave the builders to others; they are taken again when used."""
        self._crew.close()

    def _message(self, share: Sequence[BuilderInput], worker: str) -> _Message:
        return tuple(share), self.timeout_sec

    def _results(self, share: Sequence[BuilderInput], found: object) -> list[BuilderResult]:
        if isinstance(found, GivenUp):
            return [BuilderResult(None, str(found), "build-crash")] * len(share)
        if not isinstance(found, list):
            raise TuneError(f"a builder failed: {found}")
        return [self._result(candidate, built) for candidate, built in zip(share, found)]

    def _result(self, candidate: BuilderInput, built: Built) -> BuilderResult:
        module = built.result.module
        if not (isinstance(module, Module) and built.kinds):
            return built.result
        module = with_texts(module, built.kinds, self.f_build or default_build, candidate)
        return replace(built.result, module=module)


def in_shares(
    inputs: Sequence[BuilderInput], workers: int, most: int
) -> list[Sequence[BuilderInput]]:
    """Divide inputs so that each worker gets several shares, of at most so many."""
    size = max(1, min(most, len(inputs) // (4 * workers)))
    return [inputs[start : start + size] for start in range(0, len(inputs), size)]
