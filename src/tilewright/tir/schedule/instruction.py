"""What a schedule primitive is: a function, and everything that derives from its signature.

::

    @primitive
    def split(sch: Schedule, loop: LoopRV, factors: Sequence[Factor], *, ...) -> list[LoopRV]:
        ...

registers ``split`` and makes it a method of ``Schedule``. The signature is the contract: parameters
that hold handles are inputs of the recorded instruction, the others its attributes, and
``decision`` is the choice that replay repeats. Argument checks, the trace, its JSON and its Python
text are derived from it. The decorated function itself is unchanged: a primitive that calls another
one as a function does not record it.

The method form is a transaction: if the function raises, the schedule is as it was before.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from tilewright.support.errors import ScheduleError
from tilewright.support.registry import Registry
from tilewright.tir.schedule.arguments import (
    MANY_HANDLES,
    NO_HANDLE,
    ONE_HANDLE,
    as_block,
    as_block_or_loop,
    as_blocks,
    calculated,
    converter,
    has_formula,
    how_many_handles,
)
from tilewright.tir.schedule.at_once import refuse_races
from tilewright.tir.schedule.enclosing import widen_enclosing
from tilewright.tir.schedule.error import schedule_error
from tilewright.tir.schedule.handles import RV_TYPES
from tilewright.tir.schedule.running import Running

F = TypeVar("F", bound=Callable[..., Any])

PRIMITIVES: Registry[Primitive] = Registry("schedule primitive", ScheduleError)
"""All primitives by name."""

_receivers: list[type] = []


@dataclass(frozen=True)
class InstructionKind:
    """The kind of an instruction by TVM's name, such as ``SamplePerfectTile``.

    Pure ones leave the program as it is.
    """

    name: str
    _is_pure: bool

    @property
    def is_pure(self) -> bool:
        """Whether instructions of the kind leave the program as it is."""
        return self._is_pure

    @property
    def primitive(self) -> Primitive:
        """The primitive that they call."""
        return PRIMITIVES.get(_primitive_name(self.name))

    @staticmethod
    def get(name: str) -> InstructionKind:
        """Return a kind by name; ``ScheduleError`` if there is none."""
        found = PRIMITIVES.get(_primitive_name(name))
        return InstructionKind(_kind_name(found.name), found.pure)


_KIND_NAMES = {
    "get_block": "GetSBlock",
    "reindex": "ReIndex",
    "rfactor": "RFactor",
    "unsafe_set_dtype": "UnsafeSetDType",
}
_PRIMITIVE_NAMES = {kind: name for name, kind in _KIND_NAMES.items()}


def _kind_name(name: str) -> str:
    return _KIND_NAMES.get(name) or "".join(part.capitalize() for part in name.split("_"))


def _primitive_name(kind: str) -> str:
    return _PRIMITIVE_NAMES.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()


class Instruction:
    """One recorded call: a primitive, its arguments, its decision and the handles it returned.

    ``inputs`` are the values of parameters that take handles, one after another; ``attrs`` those of
    the others. Where several handles make one argument, it gets those that the others leave.
    """

    __slots__ = ("args", "decision", "outputs", "primitive")

    def __init__(
        self,
        kind: InstructionKind | Primitive,
        inputs: Sequence[Any],
        attrs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        decision: Any = None,
    ) -> None:
        self.primitive: Primitive = kind if isinstance(kind, Primitive) else kind.primitive
        self.args = self.primitive.joined(inputs, attrs)
        self.decision = decision
        self.outputs = tuple(outputs)

    @classmethod
    def of(
        cls, primitive: Primitive, args: tuple[Any, ...], decision: Any, outputs: tuple[Any, ...]
    ) -> Instruction:
        """Return an instruction of arguments in the order of the primitive's parameters."""
        made = cls.__new__(cls)
        made.primitive = primitive
        made.args = args
        made.decision = decision
        made.outputs = outputs
        return made

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.primitive.name

    @property
    def kind(self) -> InstructionKind:
        """The kind of instruction, by TVM's name."""
        return InstructionKind(_kind_name(self.name), self.primitive.pure)

    @property
    def inputs(self) -> list[Any]:
        """The values of parameters that take handles, in order."""
        return self.primitive.divided(self.args)[0]

    @property
    def attrs(self) -> list[Any]:
        """The values of the other parameters, in order."""
        return self.primitive.divided(self.args)[1]

    @property
    def handles(self) -> list[Any]:
        """All handles among the arguments, in order."""
        return handles_in(self.args)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments by parameter name."""
        return dict(zip(self.primitive.parameters, self.args))

    def with_decision(self, decision: Any) -> Instruction:
        """Return a copy with another decision; handles are shared."""
        return Instruction.of(self.primitive, self.args, decision, self.outputs)

    def is_call(self, other: Instruction) -> bool:
        """Whether another one is the same call, perhaps with another decision."""
        return other is self or (
            self.primitive is other.primitive
            and bool(self.outputs)
            and self.outputs == other.outputs
        )

    def __repr__(self) -> str:
        return f"Instruction({self.name}, {self.args!r}, decision={self.decision!r})"


def handles_in(value: object) -> list[Any]:
    """Return all handles inside a value, in order."""
    found: list[Any] = []
    _collect_handles(value, found)
    return found


def _collect_handles(value: Any, found: list[Any]) -> None:
    if isinstance(value, RV_TYPES):
        found.append(value)
    elif type(value) in (tuple, list):
        for item in value:
            _collect_handles(item, found)
    elif type(value) is dict:
        for item in value.values():
            _collect_handles(item, found)


class Primitive:
    """A registered primitive; see the module's docstring.

    ``pure`` primitives don't change the program, so a trace may drop them when nothing uses their
    results. ``recorded`` is false for queries whose result is not a handle. A primitive with
    ``marks`` only marks loops, blocks or buffers: the checks made after others are skipped.
    """

    def __init__(
        self, function: Callable[..., Any], pure: bool, recorded: bool, marks: bool = False
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.pure = pure
        self.marks = marks
        self.recorded = recorded
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1:]
        self.samples = any(item.name == "decision" for item in parameters)
        self.signature = signature.replace(
            parameters=[item.replace(annotation=inspect.Parameter.empty) for item in parameters]
        )
        own = [item for item in parameters if item.name != "decision"]
        self.parameters = tuple(item.name for item in own)
        self.variadic = next(
            (n for n, item in enumerate(own) if item.kind is inspect.Parameter.VAR_POSITIONAL), None
        )
        self.defaults = tuple(item.default for item in own)
        self._takes = [
            how_many_handles(str(item.annotation), n == self.variadic) for n, item in enumerate(own)
        ]
        self.converters = [
            (n, item.name, convert)
            for n, item in enumerate(own)
            if (convert := converter(str(item.annotation), n == self.variadic)) is not None
        ]
        chosen = next((item for item in parameters if item.name == "decision"), None)
        self._decision = None if chosen is None else converter(str(chosen.annotation), False)
        self.bind, self.invoke = self._generate(parameters, own)

    def _generate(self, parameters: list[Any], own: list[Any]) -> tuple[Any, Any]:
        """Make ``bind(sch, ...) -> (args, decision)`` and ``invoke(sch, args, decision)``."""
        scope: dict[str, Any] = {"function": self.function}
        declared, passed, keyword_only = [], [], False
        for item in parameters:
            text = item.name
            if item.kind is inspect.Parameter.VAR_POSITIONAL:
                text, keyword_only = f"*{item.name}", True
            elif item.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
                declared.append("*")
                keyword_only = True
            if item.default is not inspect.Parameter.empty:
                scope[f"_default_{item.name}"] = item.default
                text += f"=_default_{item.name}"
            declared.append(text)
            value = "decision" if item.name == "decision" else f"args[{own.index(item)}]"
            if item.kind is inspect.Parameter.VAR_POSITIONAL:
                passed.append(f"*{value}")
            elif item.kind is inspect.Parameter.KEYWORD_ONLY:
                passed.append(f"{item.name}={value}")
            else:
                passed.append(value)
        names = "".join(f"{item.name}, " for item in own)
        chosen = "decision" if self.samples else "None"
        scope_text = (
            f"def {self.name}({', '.join(declared)}):\n    return ({names}), {chosen}\n"
            f"def invoke(sch, args, decision):\n    return function(sch, {', '.join(passed)})\n"
        )
        exec(scope_text, scope)
        return scope[self.name], scope["invoke"]

    def divided(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return what parameters that take handles got, one after another, and the others."""
        inputs: list[Any] = []
        attrs: list[Any] = []
        for takes, value in zip(self._takes, args):
            if takes == MANY_HANDLES:
                inputs.extend(value or ())
            else:
                (attrs if takes == NO_HANDLE else inputs).append(value)
        return inputs, attrs

    def joined(self, inputs: Sequence[Any], attrs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments of which ``divided`` makes inputs and attributes.

        Raises ``ScheduleError`` if there are too few or too many.
        """
        given, others = list(inputs), list(attrs)
        left = self._takes.count(ONE_HANDLE)
        made: list[Any] = []
        for takes, default in zip(self._takes, self.defaults):
            if takes == MANY_HANDLES:
                count = max(0, len(given) - left)
                made.append(given[:count] if count or default is not None else None)
                del given[:count]
                continue
            source = others if takes == NO_HANDLE else given
            left -= takes == ONE_HANDLE
            if not source:
                break
            made.append(source.pop(0))
        if len(made) < len(self._takes) or given or others:
            raise ScheduleError(
                f"{self.name}{self.signature} doesn't fit {len(inputs)} inputs and {len(attrs)} "
                "attributes"
            )
        return self.checked_args(made)

    def call(self, sch: Running, *args: object, **kwargs: object) -> Any:
        """Check and convert arguments, then run and record.

        Raises ``ScheduleError`` if they don't fit the signature, or the primitive refuses.
        """
        try:
            values, decision = self.bind(*args, **kwargs)
        except TypeError as error:
            # Python's own text says which argument is missing or unknown.
            raise ScheduleError(f"{error}; the signature is {self.name}{self.signature}") from None
        decision = self.checked_decision(decision)
        if not any(type(value) is str or has_formula(value) for value in values):
            return self.run(sch, self._converted(sch, values), decision)
        # Names of blocks are looked up, and formulas calculated, which is recorded; not so if the
        # primitive then refuses.
        recorded, past = len(sch.trace or ()), sch.history.past
        try:
            return self.run(sch, self._converted(sch, values), decision)
        except BaseException:
            if sch.trace is not None:
                del sch.trace.insts[recorded:]
            sch.history.past = past
            raise

    def _converted(self, sch: Running, values: tuple[Any, ...]) -> tuple[Any, ...]:
        made = [calculated(sch, value) if has_formula(value) else value for value in values]
        for position, _, convert in self.converters:
            value = made[position]
            if type(value) is str and (convert is as_block or convert is as_block_or_loop):
                made[position] = sch.get_block(value)
            elif convert is as_blocks and isinstance(value, (list, tuple)):
                made[position] = [
                    sch.get_block(item) if type(item) is str else item for item in value
                ]
        return self.checked_args(made)

    def checked_args(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Check and convert arguments in parameter order; handles are resolved already."""
        made = list(values)
        for position, name, convert in self.converters:
            value = made[position]
            if value is not None or self.defaults[position] is not None:
                made[position] = self._checked(name, convert, value)
        return tuple(made)

    def checked_decision(self, decision: object) -> Any:
        """Check and convert a decision.

        Raises ``ScheduleError`` if the primitive makes none.
        """
        if decision is None:
            return None
        if not self.samples:
            raise ScheduleError(f"{self.name} makes no decision")
        return self._checked("decision", self._decision, decision) if self._decision else decision

    def _checked(self, name: str, convert: Callable[[Any], Any], value: object) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ScheduleError(f"{self.name}: argument {name!r}: {error}") from None

    def run(self, sch: Running, args: tuple[Any, ...], decision: object) -> Any:
        """Run with arguments in order of the parameters, and record; undo everything on error."""
        state, history = sch.state, sch.history
        saved, drawn, past = state.snapshot(), sch.rng.state, history.past
        outer, state.active = state.active, self.name
        sch.notes = None
        try:
            if history.dead:
                history.check_alive(args, self.name)
            result = self.invoke(sch, args, decision)
            if not self.marks:
                widen_enclosing(state, saved)
                refuse_races(state, saved)
            if sch.checked:
                sch.verify()
        except BaseException:
            state.restore(saved)
            sch.rng.state = drawn
            raise
        finally:
            state.active = outer
        if self.recorded and sch.trace is not None:
            notes = sch.notes
            if notes is not None:
                decision = notes.pop("decision", decision)
                if notes:
                    args = tuple(
                        [notes.get(name, value) for name, value in zip(self.parameters, args)]
                    )
            if result is None:
                outputs: tuple[Any, ...] = ()
            elif type(result) in (list, tuple):
                outputs = tuple(result)
            else:
                outputs = (result,)
            inst = Instruction.of(self, args, decision, outputs)
            sch.trace.append(inst)
            history.remember(inst, saved, drawn, past)
        return result

    def method(self) -> Callable[..., Any]:
        """Return the primitive as a method of ``Schedule``."""
        call = self.call

        def method(sch: Any, *args: Any, **kwargs: Any) -> Any:
            return call(sch, *args, **kwargs)

        method.__name__ = self.name
        method.__qualname__ = f"Schedule.{self.name}"
        method.__doc__ = self.function.__doc__
        method.__wrapped__ = self.function  # type: ignore[attr-defined]  # for inspect and docs
        return method

    def __repr__(self) -> str:
        return f"Primitive({self.name}{self.signature})"


@overload
def primitive(function: F) -> F: ...


@overload
def primitive(
    *, pure: bool = False, recorded: bool = True, marks: bool = False
) -> Callable[[F], F]: ...


def primitive(
    function: Callable[..., Any] | None = None,
    *,
    pure: bool = False,
    recorded: bool = True,
    marks: bool = False,
) -> Any:
    """Register a function ``(sch, ...)`` as a schedule primitive; see the module's docstring."""

    def register(target: Callable[..., Any]) -> Callable[..., Any]:
        made = Primitive(target, pure, recorded, marks)
        PRIMITIVES.register(made.name, made)
        for receiver in _receivers:
            setattr(receiver, made.name, made.method())
        return target

    return register if function is None else register(function)


def receive_primitives(cls: type) -> type:
    """Make all primitives, present and future, methods of a class."""
    _receivers.append(cls)
    for name, item in PRIMITIVES.items():
        setattr(cls, name, item.method())
    return cls


def refuse_argument(name: str, message: str) -> ScheduleError:
    """Make the error for an argument that doesn't fit."""
    return schedule_error(None, f"argument {name!r}: {message}")
