"""The interface of builders."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tilewright.ir import IRModule
from tilewright.meta_schedule.time_limit import TimeLimited
from tilewright.runtime import LibraryModule, Module, load_module
from tilewright.support.errors import TilewrightError, TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target


@dataclass(frozen=True)
class BuilderInput:
    """A scheduled module and the target to compile it for.

    ``params`` are constants for builders that bind them; tuning gives none. Code of more than
    ``max_lines`` lines of LLVM IR is refused before LLVM sees it.
    """

    mod: IRModule
    target: Target
    params: Mapping[str, Any] | None = None
    max_lines: int | None = None


@dataclass(frozen=True)
class BuilderResult:
    """A compiled module, or the reason why there is none.

    ``artifact_path`` is a file or folder that the builder left, which ``RemoveBuildArtifact``
    removes; without a ``module`` it is a library, which is loaded. ``reason`` is ``"build"``
    (refused by a pass or LLVM), ``"build-timeout"`` or ``"build-crash"``.
    """

    artifact_path: str | None = None
    error_msg: str | None = None
    reason: str | None = None
    seconds: float = 0.0
    module: Module | LibraryModule | None = None

    @property
    def error(self) -> str | None:
        """The same as ``error_msg``."""
        return self.error_msg

    def loaded(self) -> BuilderResult:
        """Return the result with its library loaded, or why that can't be."""
        if self.module is not None or self.error_msg is not None or self.artifact_path is None:
            return self
        try:
            return replace(self, module=load_module(self.artifact_path))
        except TilewrightError as error:
            return replace(self, error_msg=error.message, reason="build")


class Builder(TimeLimited):
    """Base of all builders; ``BUILDERS`` has those that can be asked for by name."""

    BuilderType: ClassVar[Any]  # a union, for annotations

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Compile all inputs; one result each, in order. Never raises for a single candidate."""
        raise NotImplementedError(f"{type(self).__name__} must define build")

    def build_each(self, inputs: Iterable[BuilderInput]) -> Generator[BuilderResult, None, None]:
        """Compile all inputs; yield one result each, in order.

        Inputs may be made one by one: all are taken before the first result is given. All results
        are there before that, too, unless a kind of builder goes on meanwhile.
        """
        some = list(inputs)
        results = list(self.build(some))
        if len(results) != len(some) or not all(isinstance(x, BuilderResult) for x in results):
            kinds = ", ".join(sorted({type(x).__name__ for x in results})) or "nothing"
            raise TuneError(
                f"{type(self).__name__} must give a BuilderResult for each of {len(some)} inputs, "
                f"got {len(results)} of {kinds}"
            )
        for result in results:
            yield result.loaded()

    @property
    def is_building(self) -> bool:
        """Whether inputs are being compiled while more of them are made."""
        return False

    def close(self) -> None:
        """Release processes and machines; the builder takes them again when used."""

    @staticmethod
    def create(kind: str = "local", *args: object, **kwargs: object) -> Builder:
        """Make a builder by name, with options of its own."""
        return BUILDERS.get(kind)(*args, **kwargs)


Builder.BuilderType = Builder | Literal["local"]

PyBuilder = Builder
"""The name under which TVM's users derive from it."""

BUILDERS: Registry[Callable[..., Builder]] = Registry("builder", TuneError)
"""Builders by name."""
