"""Tuning and applying as ``IRModule -> IRModule`` passes."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import IRModule, Pass, structural_hash
from tilewright.meta_schedule.adapted import NONE_FITS, adapted_schedules
from tilewright.meta_schedule.adapted_race import best_adapted
from tilewright.meta_schedule.arg_info import scalar_names
from tilewright.meta_schedule.builder import LocalBuilder
from tilewright.meta_schedule.database import Database, JSONDatabase, TuningRecord, open_place
from tilewright.meta_schedule.database.base import suits
from tilewright.meta_schedule.database.record import normalized
from tilewright.meta_schedule.extracted_task import contexts_of, extract_tasks
from tilewright.meta_schedule.runner import LocalRunner
from tilewright.meta_schedule.size_family import SHARE, compare_sizes
from tilewright.meta_schedule.sizes import Symbols, check_names, spread
from tilewright.meta_schedule.tune import builder_and_runner, check_options, deadline, tune_tasks
from tilewright.support.errors import TuneError
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule

logger = logging.getLogger("tilewright.meta_schedule")

ADAPT = ("never", "measure", "always")
"""When records of similar functions are adapted."""


def current_target(target: Target | str | None) -> Target:
    """Return the target given, else the current one, else this machine's CPU."""
    if target is not None:
        return Target(target)
    return Target.current() or Target("native")


def is_meta_schedule_enabled() -> bool:
    """Whether there is a current database (``with database:``), which passes then use."""
    return Database.current() is not None


class MetaScheduleTuneIRMod(Pass):
    """Tune the TensorIR functions of a module into ``work_dir``; the module is unchanged.

    ``op_names`` limits it to functions with one of these words in their name; ``symbols`` are the
    sizes, by name, that functions with symbolic ones are measured at, one of which may have several
    values (see ``tune_tir``). Other options are those of
    :func:`tilewright.meta_schedule.tune_tasks`.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | None = None,
        work_dir: str | os.PathLike[str] | None = None,
        max_trials_global: int = 64,
        max_trials_per_task: int | None = None,
        op_names: Sequence[str] | None = None,
        *,
        target: Target | str | None = None,
        seed: int | None = 0,
        symbols: Symbols | None = None,
        **options: Any,
    ) -> None:
        if params:
            raise TuneError(
                "bind parameters before tuning (relax.transform.BindParams): "
                "they decide which functions there are"
            )
        if work_dir is None and Database.current() is None and "database" not in options:
            raise TuneError("tuning needs work_dir=, database=, or `with database:` around it")
        check_options(options)
        self.work_dir = work_dir
        self.max_trials_global = max_trials_global
        self.max_trials_per_task = max_trials_per_task
        self.op_names = op_names
        self.target = target
        self.seed = seed
        self.symbols = symbols
        self.options = options

    def transform(self, mod: IRModule) -> IRModule:
        """Tune; return the same module."""
        target = current_target(self.target)
        tasks = extract_tasks(mod, target, op_names=self.op_names)
        if not tasks:
            wanted = f" matching {list(self.op_names)}" if self.op_names is not None else ""
            logger.warning("the module has no TensorIR function%s to tune", wanted)
            return mod
        functions = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
        check_names(self.symbols, (name for func in functions for name in scalar_names(func)))
        contexts, weights = contexts_of(tasks, seed=self.seed, symbols=self.symbols)
        options = dict(self.options)
        if self.work_dir is None and "database" not in options:
            options["database"] = Database.current()
        symbol, values = spread(self.symbols)
        builder, runner = builder_and_runner(
            options.pop("builder", "local"),
            options.pop("runner", "local"),
            options.pop("num_tuning_cores", None),
        )
        end = deadline(options.get("time_budget"))
        if symbol is not None and options.get("time_budget") is not None:
            options["time_budget"] *= 1.0 - SHARE
        opened = tune_tasks(
            contexts,
            weights,
            work_dir=self.work_dir,
            max_trials_global=self.max_trials_global,
            max_trials_per_task=self.max_trials_per_task,
            builder=builder,
            runner=runner,
            **options,
        )
        if symbol is not None:
            progress = options.get("progress")
            compare_sizes(contexts, symbol, values, opened, builder, runner, progress, end)
        return mod


class MetaScheduleTuneTIR(MetaScheduleTuneIRMod):
    """Tune every TensorIR function of a module into ``work_dir``; the module is unchanged."""

    def __init__(
        self,
        work_dir: str | os.PathLike[str] | None = None,
        max_trials_global: int = 64,
        max_trials_per_task: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(None, work_dir, max_trials_global, max_trials_per_task, **options)


@dataclass(frozen=True)
class Applied:
    """What became of a function: ``"record"``, ``"adapted"``, ``"rule"`` or ``"kept"``, and why.

    ``digest`` is that of the record that was chosen for it, if one was; ``cold`` whether records
    with cold caches were preferred, or those with warm ones.
    """

    name: str
    outcome: str
    why: str
    digest: str | None = None
    cold: bool | None = None


class _Measuring:
    """What measures adapted schedules: processes that start when something is measured."""

    def __init__(self) -> None:
        self.builder, self.runner = LocalBuilder(), LocalRunner()


class MetaScheduleApplyDatabase(Pass):
    """Rewrite the functions that a database has records for, and leave the rest.

    The database is the one in ``work_dir``, the one given, or the current one (``with database:``).
    Workloads with a hash in ``leave`` are left to the rules; those with a hash in ``chosen`` get
    the record with the digest that it gives, whatever is best alone. ``cold`` says whether they
    will find cold caches, if that is known: records that were measured so are preferred.
    ``report`` says what was done with each function of the last module, and why.

    ``adapt`` says whether functions without a record get an adapted one, of another shape, fusion
    or target: ``"never"``; ``"measure"``, if a quick comparison on this machine shows that it is
    clearly faster than what the rules make, and the winner becomes a record; ``"always"``, the
    nearest one, unmeasured. Adapted schedules are correct by construction.
    """

    def __init__(
        self,
        work_dir: str | os.PathLike[str] | None = None,
        enable_warning: bool = False,
        *,
        database: Database | None = None,
        target: Target | str | None = None,
        leave: Collection[str] = (),
        chosen: Mapping[str, str] | None = None,
        adapt: str = "never",
        cold: bool | None = None,
    ) -> None:
        if adapt not in ADAPT:
            raise TuneError(f"adapt is one of {', '.join(ADAPT)}, got {adapt!r}")
        self.adapt, self.cold = adapt, cold
        self.work_dir = work_dir
        self.leave, self.chosen = leave, dict(chosen or {})
        self.report: list[Applied] = []
        self.enable_warning = enable_warning
        self.database = database
        self.target = target

    def _open(self) -> Database:
        if self.database is not None:
            return self.database
        if self.work_dir is not None:
            opened = open_place(self.work_dir)
            if isinstance(opened, JSONDatabase) and not opened.path_workload.exists():
                logger.warning("there is no database in %s, nothing is applied", self.work_dir)
            return opened
        current = Database.current()
        if current is None:
            raise TuneError(
                "MetaScheduleApplyDatabase needs work_dir=, database=, or `with database:` around "
                "it"
            )
        return current

    def transform(self, mod: IRModule) -> IRModule:
        """Apply the best records."""
        database, target = self._open(), current_target(self.target)
        self.report, measuring = [], _Measuring()

        def apply(name: str, func: PrimFunc) -> PrimFunc:
            if func.attrs.get(IS_SCHEDULED):
                self.report.append(Applied(name, "kept", "it is scheduled already"))
                return func
            known = structural_hash(normalized(func)) if self.leave or self.chosen else ""
            if known in self.leave:
                self.report.append(Applied(name, "rule", "the graph is not clearly faster"))
                return func
            digest = self.chosen.get(known)
            outcome, why, sch = self._schedule(database, func, target, measuring, digest)
            self.report.append(Applied(name, outcome, why, digest, self.cold))
            if sch is None:
                if self.enable_warning:
                    logger.warning("%s: %s", name, why)
                return func
            made: PrimFunc = sch.mod["main"]
            return made.replace(attrs={**func.attrs, **made.attrs, IS_SCHEDULED: 1})

        try:
            return mod.map_functions(apply, PrimFunc)
        finally:
            measuring.runner.close()
            measuring.builder.close()

    def _schedule(
        self,
        database: Database,
        func: PrimFunc,
        target: Target,
        measuring: _Measuring,
        digest: str | None,
    ) -> tuple[str, str, Schedule | None]:
        """Return what becomes of a function, why, and its schedule, if it isn't left to rules."""
        found = database.query_replayed(func, target, digest, cold=self.cold)
        if found is not None:
            if found.adapted:
                return "adapted", f"from another fusion ({_origin(found.record)})", found.schedule
            return "record", _origin(found.record), found.schedule
        why, best = _why_not(database, func, target), None
        if self.adapt == "measure":
            best, said = best_adapted(
                database, normalized(func), target, measuring.builder, measuring.runner
            )
            why = f"{why}; {said}"
        elif self.adapt == "always":
            best = next(iter(adapted_schedules(database, func, target, 1)), None)
            said = "not measured" if best else NONE_FITS
            why = f"{why}; {said}"
        return (
            ("rule", why, None)
            if best is None
            else ("adapted", f"{best.why}, {said}", best.schedule)
        )


def _why_not(database: Database, func: PrimFunc, target: Target) -> str:
    """Why a database has no schedule for a function."""
    workload = database.find_workload(func)
    known = [] if workload is None else database.get_top_k(workload, 2**31)
    if not known:
        return "the database has no record"
    if not any(suits(record, target) for record in known):
        return f"its {len(known)} records are for other targets, as {known[0].target}"
    return "none of its records fits"


def _origin(record: TuningRecord) -> str:
    """Where a record's schedule comes from."""
    if not record.is_valid():
        return "a schedule by hand"
    text = human_time(record.best_seconds)
    if record.beat:
        text += f", ahead of {len(record.beat)} others in a race"
    return text if record.verified else text + ", never checked"
