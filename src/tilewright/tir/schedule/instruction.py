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
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from numbers import Real
from typing import Any, TypeVar, overload

from tilewright.ir import Expr
from tilewright.support.errors import ScheduleError
from tilewright.support.registry import Registry
from tilewright.tir.schedule.at_once import refuse_races
from tilewright.tir.schedule.enclosing import widen_enclosing
from tilewright.tir.schedule.error import schedule_error
from tilewright.tir.schedule.handles import RV_TYPES, BlockRV, ExprRV, Formula, LoopRV
from tilewright.tir.schedule.running import Running

F = TypeVar("F", bound=Callable[..., Any])

PRIMITIVES: Registry[Primitive] = Registry("schedule primitive", ScheduleError)
"""All primitives by name."""

CONVERTERS: dict[str, Callable[[Any], Any]] = {}
"""How an argument becomes what its annotation (the key, as written) says; may raise TypeError."""

_receivers: list[type] = []


class Instruction:
    """One recorded call: a primitive, its arguments, its decision and the handles it returned."""

    __slots__ = ("args", "decision", "outputs", "primitive")

    def __init__(
        self, primitive: Primitive, args: tuple[Any, ...], decision: Any, outputs: tuple[Any, ...]
    ) -> None:
        self.primitive = primitive
        self.args = args
        self.decision = decision
        self.outputs = outputs

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.primitive.name

    @property
    def inputs(self) -> list[Any]:
        """All handles among the arguments, in order."""
        return handles_in(self.args)

    @property
    def attrs(self) -> dict[str, Any]:
        """Arguments by parameter name."""
        return dict(zip(self.primitive.parameters, self.args))

    def with_decision(self, decision: int) -> Instruction:
        """Return a copy with another decision; handles are shared."""
        return Instruction(self.primitive, self.args, decision, self.outputs)

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
        self.converters = [
            (n, item.name, convert)
            for n, item in enumerate(own)
            if (convert := _converter(str(item.annotation), n == self.variadic)) is not None
        ]
        chosen = next((item for item in parameters if item.name == "decision"), None)
        self._decision = None if chosen is None else _converter(str(chosen.annotation), False)
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
        if not any(type(value) is str or _has_formula(value) for value in values):
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
        made = [_calculated(sch, value) if _has_formula(value) else value for value in values]
        for position, _, convert in self.converters:
            value = made[position]
            if type(value) is str and (convert is _block or convert is _block_or_loop):
                made[position] = sch.get_block(value)
            elif convert is _blocks and isinstance(value, (list, tuple)):
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
            inst = Instruction(self, args, decision, outputs)
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


# ---- arguments ------------------------------------------------------------------------------


def _named(value: object) -> str:
    return f"{type(value).__name__} {value!r}"


def _block(value: object) -> BlockRV:
    if type(value) is not BlockRV:
        raise TypeError(f"expected a BlockRV or a block's name, got {_named(value)}")
    return value


def _loop(value: object) -> LoopRV:
    if type(value) is not LoopRV:
        raise TypeError(f"expected a LoopRV (from get_loops, split, ...), got {_named(value)}")
    return value


def _block_or_loop(value: object) -> BlockRV | LoopRV:
    if type(value) is not LoopRV and type(value) is not BlockRV:
        raise TypeError(f"expected a BlockRV or a LoopRV, got {_named(value)}")
    return value


def _loops(value: object) -> list[LoopRV]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list of LoopRV, got {_named(value)}")
    return [_loop(item) for item in value]


def _blocks(value: object) -> list[BlockRV]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list of BlockRV, got {_named(value)}")
    return [_block(item) for item in value]


def _int(value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected an integer, got {_named(value)}")
    number: int = value.__index__()
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("the integer does not fit 64 bits")
    return number


def _float(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's are, too
    if not is_number or not isfinite(value):
        raise TypeError(f"expected a finite number, got {_named(value)}")
    return float(value)


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: object) -> Any:
        if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
            raise TypeError(f"expected a list, got {_named(value)}")
        return [convert(item) for item in value]

    return converted


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected True or False, got {_named(value)}")
    return value


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {_named(value)}")
    return value


def _int_or_handle(value: object) -> int | ExprRV:
    return value if type(value) is ExprRV else _int(value)


def _has_formula(value: object) -> bool:
    if type(value) is list or type(value) is tuple:
        return any(map(_has_formula, value))
    return type(value) is Formula


def _calculated(sch: Any, value: Any) -> Any:
    """A value with what ``calculate`` gives in the place of formulas."""
    if isinstance(value, (list, tuple)):
        return type(value)(_calculated(sch, item) for item in value)
    if type(value) is not Formula:
        return value
    return sch.calculate(value.symbol, _calculated(sch, value.a), _calculated(sch, value.b))


def annotation_value(value: object) -> Any:
    """Copy an annotation value as JSON data; handles and expressions are kept.

    Raises ``TypeError`` for values that a trace can't hold.
    """
    if value is None or isinstance(value, (bool, int, float, str, Expr)) or type(value) is ExprRV:
        return value
    if isinstance(value, (list, tuple)):
        return [annotation_value(item) for item in value]
    if isinstance(value, dict):
        for key in value:
            _str(key)
        return {key: annotation_value(item) for key, item in value.items()}
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()  # a NumPy scalar
    raise TypeError(f"expected numbers, text, lists or dicts of them, got {_named(value)}")


def _factors(value: object) -> Any:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list of factors, got {_named(value)}")
    return [
        item if item is None or isinstance(item, Expr) else _int_or_handle(item) for item in value
    ]


CONVERTERS.update(
    {
        "BlockRV": _block,
        "LoopRV": _loop,
        "BlockRV | LoopRV": _block_or_loop,
        "Sequence[BlockRV]": _blocks,
        "Sequence[LoopRV]": _loops,
        "list[LoopRV]": _loops,
        "int": _int,
        "bool": _bool,
        "str": _str,
        "int | ExprRV": _int_or_handle,
        "int | str": lambda value: value if isinstance(value, str) else _int(value),
        "Sequence[Factor]": _factors,
        "Annotation": annotation_value,
        "Sequence[int]": _list_of(_int),
        "Sequence[str]": _list_of(_str),
        "Sequence[float]": _list_of(_float),
    }
)


def _converter(annotation: str, variadic: bool) -> Callable[[Any], Any] | None:
    annotation = annotation.removesuffix(" | None")
    if variadic:
        return CONVERTERS.get(f"Sequence[{annotation}]")
    return CONVERTERS.get(annotation)


def refuse_argument(name: str, message: str) -> ScheduleError:
    """Make the error for an argument that doesn't fit."""
    return schedule_error(None, f"argument {name!r}: {message}")
