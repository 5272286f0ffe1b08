"""``Task``: a function, a target and a design space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tilewright.ir import IRModule, structural_hash
from tilewright.meta_schedule.arg_info import ArgInfo, arg_infos, size_names, size_values
from tilewright.meta_schedule.database.record import normalized
from tilewright.meta_schedule.space_generator import SpaceGenerator
from tilewright.support.errors import TuneError, VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import estimate_flops
from tilewright.tir.schedule import Schedule


def known_flops(func: PrimFunc) -> float:
    """Floating-point operations of one call; 0 if they depend on symbols or on data."""
    try:
        return float(estimate_flops(func))
    except VerifyError:
        return 0.0


class Task:
    """A module of one function, a target and a design space; see ``TuneContext``."""

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        *,
        target: Target | str,
        space_generator: SpaceGenerator | str | Callable[[Schedule], object],
        task_name: str,
        rand_state: int,
        symbols: Mapping[str, int] | None = None,
    ) -> None:
        self.mod = normalized(mod)
        if "main" not in self.mod or not isinstance(self.mod["main"], PrimFunc):
            raise TuneError("a task is a module of one TensorIR function")
        self.target = Target(target)
        self.task_name = task_name
        self.rand_state = rand_state
        self.space_generator = SpaceGenerator.create(space_generator, target=self.target)
        self.hash = structural_hash(self.mod)
        self.args_info: tuple[ArgInfo, ...] = arg_infos(self.mod["main"], symbols)
        self.sizes = size_values(self.mod["main"], symbols)
        """What symbolic sizes are measured at; schedules are rated for these."""
        self.assumed = [n for n in size_names(self.mod["main"]) if n not in (symbols or {})]
        """Sizes that nobody knows: they are measured at ``ASSUMED_SIZE``."""
        self.flops = known_flops(self.mod["main"])
        self.rejected: Counter[str] = Counter()
        """Candidates that did not become records, by reason."""
