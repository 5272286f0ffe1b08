"""``ScheduleCore``: a module being rewritten by primitives, each recorded in a trace.

The primitives are functions in ``primitives/``; they become methods here through their registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

from tilewright.ir import Expr, IntImm, IRModule
from tilewright.script.notebook import code, folded, fragment, shortened
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc, Stmt
from tilewright.tir.analysis import verify
from tilewright.tir.schedule.choices import Choices
from tilewright.tir.schedule.error import Text
from tilewright.tir.schedule.handles import RV_TYPES, BlockRV, ExprRV, Formula, LoopRV
from tilewright.tir.schedule.instruction import Instruction
from tilewright.tir.schedule.methods import PrimitiveMethods
from tilewright.tir.schedule.sampling import Rng
from tilewright.tir.schedule.sref import StmtSRef
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.schedule.trace import Trace
from tilewright.tir.schedule.undo import History

if TYPE_CHECKING:
    from typing_extensions import Self


PrimAnnotationValueT = Union[str, int, float, Expr]
AnnotationValueT = Union[
    PrimAnnotationValueT,
    list[PrimAnnotationValueT],
    dict[str, Union[PrimAnnotationValueT, list[PrimAnnotationValueT]]],
]


class ScheduleCore(PrimitiveMethods):
    """A schedule without ``explain``."""

    PrimAnnotationValueT = PrimAnnotationValueT
    AnnotationValueT = AnnotationValueT

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
        check: bool = False,
        symbolic: bool = False,
        record: bool = True,
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = IRModule.from_expr(mod)
        if not isinstance(mod, IRModule):
            raise ScheduleError(
                f"Schedule takes an IRModule or a PrimFunc, got {type(mod).__name__}"
            )
        self.state = ScheduleState(
            mod,
            debug_mask=debug_mask,
            enable_check=enable_check,
            error_render_level=error_render_level,
        )
        self.trace: Trace = Trace() if record else None  # type: ignore[assignment]
        self.checked = check or bool(self.state.debug_mask)
        self.symbolic = symbolic
        self.seed(seed)
        self.history = History()
        self.choices = Choices()
        # What the running primitive wants recorded in place of the arguments it got.
        self.notes: dict[str, Any] | None = None
        self._working_func: str | None = None

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        return self.state.mod

    def copy(self, *, seed: int | None = None) -> Self:
        """Return an independent schedule with the same program, trace and history.

        Handles work in both; in either, ``undo`` also reaches what was done before the copy.
        Without ``seed`` both draw the same random numbers from here on. They share their choices.
        """
        made = type(self).__new__(type(self))
        made.state = self.state.copy()
        made.trace = self.trace if self.trace is None else self.trace.copy()
        made.checked = self.checked
        made.symbolic = self.symbolic
        made.rng = self.rng.copy() if seed is None else Rng(seed)
        made.history = self.history.copy()
        made.choices = self.choices
        made.notes = None
        made._working_func = self._working_func
        return made

    def become(self, other: ScheduleCore) -> None:
        """Take over the state of ``other``: its program, trace and history, not its choices."""
        for name, value in vars(other.copy()).items():
            if name != "choices":
                setattr(self, name, value)

    def seed(self, seed: int | None) -> None:
        """Seed the random generator; ``None`` or -1 takes a seed from the system.

        Raises ``ScheduleError`` for anything else.
        """
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < -1):
            raise ScheduleError(f"a seed is an integer of -1 or more, or None, got {seed!r}")
        self.rng = Rng(None if seed == -1 else seed)

    def fork_seed(self) -> int:
        """Draw a seed for another schedule."""
        return self.rng.fork()

    def work_on(self, func_name: str) -> None:
        """Make ``func_name`` the function in which ``get_block`` looks by default."""
        self.state.func(func_name)
        self._working_func = func_name

    @property
    def func_working_on(self) -> str | None:
        """The function that ``work_on`` has named, or the only one; ``None`` if none is meant."""
        names = self.state.func_names()
        if self._working_func is None and len(names) != 1 and "main" not in names:
            return None
        return self.working_func

    @property
    def working_func(self) -> str:
        """The default function: set by ``work_on``, else the only one, else ``main``.

        Raises ``ScheduleError`` if none of these exists.
        """
        if self._working_func is None:
            names = self.state.func_names()
            if len(names) == 1:
                return names[0]
            if "main" not in names:
                raise self.error(
                    f"say which function is meant (func_name= or work_on): the module has {names}"
                )
            return "main"
        return self._working_func

    def get(self, rand_var_or_sref: BlockRV | LoopRV | ExprRV | Formula | StmtSRef) -> Any:
        """Return what a handle refers to: a ``Block``, a ``For``, a number or an expression.

        For an sref it is the statement as it was when the sref was taken.

        Raises ``ScheduleError`` if that is no longer in the program.
        """
        if type(rand_var_or_sref) is StmtSRef:
            return rand_var_or_sref.stmt
        if self.history.dead:
            self.history.check_alive((rand_var_or_sref,))
        if type(rand_var_or_sref) is BlockRV:
            return self.state.get_block(rand_var_or_sref).block
        if type(rand_var_or_sref) is LoopRV:
            return self.state.get_loop(rand_var_or_sref)
        if type(rand_var_or_sref) is Formula:
            return int(rand_var_or_sref)
        if type(rand_var_or_sref) is ExprRV:
            value = rand_var_or_sref.value
            return value.value if type(value) is IntImm else value
        raise ScheduleError(f"expected a handle, got {type(rand_var_or_sref).__name__}")

    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Stmt) -> StmtSRef:
        """Return the sref of a block or loop (or of a ``Block`` or ``For`` of the program).

        Places to compute at that are no loops give ``StmtSRef.inline_mark()`` or ``root_mark()``.

        Raises ``ScheduleError`` if it isn't part of the program.
        """
        if isinstance(rand_var_or_stmt, Stmt):
            found = self.state.get_sref(rand_var_or_stmt)
            if found is None:
                raise self.error(
                    f"the {type(rand_var_or_stmt).__name__} is not part of the program as it is now"
                )
            return found
        if type(rand_var_or_stmt) is LoopRV and rand_var_or_stmt.place is not None:
            return StmtSRef.inline_mark() if rand_var_or_stmt.is_inline else StmtSRef.root_mark()
        if type(rand_var_or_stmt) not in (BlockRV, LoopRV):
            raise ScheduleError(
                "get_sref takes a BlockRV, a LoopRV or a statement, got "
                f"{type(rand_var_or_stmt).__name__}"
            )
        return self.get_sref(self.get(rand_var_or_stmt))

    def remove_rv(self, rand_var: BlockRV | LoopRV | ExprRV) -> None:
        """Drop a handle: using it from now on is an error. The program is unchanged."""
        if not isinstance(rand_var, RV_TYPES):
            raise ScheduleError(f"remove_rv takes a handle, got {type(rand_var).__name__}")
        self.history.check_alive((rand_var,), "remove_rv")
        self.history.kill((rand_var,), "remove_rv dropped it")

    def get_sblock(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return a block by name: ``get_block``, as TVM calls it now."""
        return self.get_block(name, func_name)

    def undo(self, steps: int = 1) -> list[Instruction]:
        """Undo the last primitive, or the last ``steps``; returns their instructions.

        Program, trace, random generator and handles are restored: handles returned by an undone
        primitive can't be used. Look-ups (``get_block``, ``get_loops``, …) don't count as steps;
        those after the primitive are undone with it. Calls that are not recorded are not undone:
        ``work_on``, ``remove_rv``. ``redo`` reverses ``undo``.
        """
        return self._travel(steps, self.history.undo)

    def redo(self, steps: int = 1) -> list[Instruction]:
        """Redo what ``undo`` undid; impossible once another primitive has run."""
        return self._travel(steps, self.history.redo)

    def _travel(
        self, steps: int, move: Callable[[ScheduleCore, int], list[Instruction]]
    ) -> list[Instruction]:
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ScheduleError(f"the number of primitives must be 1 or more, got {steps!r}")
        if self.trace is None:
            raise ScheduleError(
                "a schedule without a trace (record=False) remembers nothing: "
                "make it with record=True, or keep a copy()"
            )
        return move(self, steps)

    def note(self, **changes: object) -> None:
        """Called by a primitive: record these arguments (or ``decision``), not those given."""
        if self.notes is None:
            self.notes = changes
        else:
            self.notes.update(changes)

    def error(self, rule: Text, *culprits: Any, remedy: Text = "") -> ScheduleError:
        """Make the error of the running primitive, marking ``culprits`` in the program."""
        return self.state.error(rule, *culprits, remedy=remedy)

    def verify(self) -> None:
        """Raise ``VerifyError`` if the program is not well formed."""
        verify(self.mod)

    def show(self, **options: object) -> None:
        """Print the program and the trace."""
        self.mod.show(**options)
        if self.trace is not None:
            print(self.trace)

    def _repr_html_(self) -> str:
        parts = [code(shortened(self.mod.script()))]
        if self.trace is not None:
            parts.append(folded("trace", code(shortened(str(self.trace)))))
        return fragment(*parts)
