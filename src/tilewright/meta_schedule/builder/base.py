"""The interface of builders."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from tilewright.ir import IRModule
from tilewright.runtime import Module
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target


@dataclass(frozen=True)
class BuilderInput:
    """A scheduled module and the target to compile it for.

    Code of more than ``max_lines`` lines of LLVM IR is refused before LLVM sees it.
    """

    mod: IRModule
    target: Target
    max_lines: int | None = None


@dataclass(frozen=True)
class BuilderResult:
    """A compiled module, or the reason why there is none.

    ``reason`` is ``"build"`` (refused by a pass or LLVM), ``"build-timeout"`` or ``"build-crash"``.
    ``artifact_path`` is a file or folder that the builder left, which ``RemoveBuildArtifact``
    removes.
    """

    module: Module | None
    error: str | None = None
    reason: str | None = None
    seconds: float = 0.0
    artifact_path: str | None = None


class Builder:
    """Base of all builders; ``BUILDERS`` has those that can be asked for by name."""

    def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Compile all inputs; one result each, in order. Never raises for a single candidate."""
        raise NotImplementedError(f"{type(self).__name__} must define build")

    def build_each(self, inputs: Sequence[BuilderInput]) -> Generator[BuilderResult, None, None]:
        """Compile all inputs; yield one result each, in order.

        All are there before the first is given, unless a kind of builder goes on meanwhile.
        """
        yield from self.build(inputs)

    def close(self) -> None:
        """Release processes and machines; the builder takes them again when used."""

    @staticmethod
    def create(kind: str = "local", *args: object, **kwargs: object) -> Builder:
        """Make a builder by name, with options of its own."""
        return BUILDERS.get(kind)(*args, **kwargs)


PyBuilder = Builder
"""The name under which TVM's users derive from it."""

BUILDERS: Registry[Callable[..., Builder]] = Registry("builder", TuneError)
"""Builders by name."""
