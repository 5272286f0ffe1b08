"""The trace: the list of instructions that made a schedule.

It prints as Python (``str``), is stored as JSON (``as_json`` / ``from_json``), replays on any
structurally equal module (``apply_to_schedule``), optionally with other decisions, and can be
pruned of instructions without effect (``simplified``).

JSON form: a list of instructions ``[name, [arguments], [outputs], decision?]``; arguments in order
of the primitive's parameters with defaults at the end left out. A handle is written ``"$b0"``;
other text that starts with ``$`` has it doubled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.ir import Mul, ScalableLanes, found_lanes, vscale
from tilewright.script.highlight import show_text
from tilewright.script.notebook import code, fragment, shortened
from tilewright.support.collector import few_collections
from tilewright.support.errors import ScheduleError, TilewrightError
from tilewright.tir.schedule.handles import RV_TYPES, BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import PRIMITIVES, Instruction, Primitive
from tilewright.tir.schedule.running import Running

DecisionProvider = Callable[[Instruction, Sequence[Any], Any], Any]
"""Gets an instruction, its arguments and its recorded decision; returns the decision to use."""


def _scalable(value: Mul) -> int:
    """The number that ``vscale`` is multiplied by in a factor of ``split``."""
    lanes = found_lanes(value)
    if not isinstance(lanes, ScalableLanes):
        raise ScheduleError(f"of expressions, a saved trace holds T.vscale() * n, not {value!r}")
    return lanes.factor


CODECS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], str]]] = {
    "vscale": (
        Mul,
        _scalable,
        lambda number: vscale() * number,
        lambda value: f"T.vscale() * {_scalable(value)}",
    )
}
"""Argument types beyond JSON data: ``name: (class, to JSON, from JSON, to Python)``."""

POSTPROC = "enter_postproc"


class Trace:
    """Instructions in order. ``decisions`` replace those that instructions have themselves."""

    __slots__ = ("insts",)

    def __init__(
        self,
        insts: Sequence[Instruction] = (),
        decisions: Mapping[Instruction, Any] | None = None,
    ) -> None:
        given = decisions or {}
        self.insts = [_decided(inst, given[inst]) if inst in given else inst for inst in insts]

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Add an instruction at the end, with a decision of its own if one is given."""
        self.insts.append(inst if decision is None else _decided(inst, decision))

    def pop(self) -> Instruction | None:
        """Remove and return the last instruction; ``None`` if there is none."""
        return self.insts.pop() if self.insts else None

    def get_decision(self, inst: Instruction) -> Any:
        """Return the recorded choice of an instruction; ``None`` if it made none."""
        return next((item.decision for item in self.insts if inst.is_call(item)), None)

    def copy(self) -> Trace:
        """Return an independent copy; instructions are shared."""
        made = Trace.__new__(Trace)
        made.insts = self.insts.copy()
        return made

    def __len__(self) -> int:
        return len(self.insts)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.insts)

    @property
    def decisions(self) -> dict[Instruction, Any]:
        """The recorded choices of the sampling instructions."""
        return {
            inst: inst.decision
            for inst in self.insts
            if inst.primitive.samples and inst.decision is not None
        }

    def with_decision(
        self, inst: Instruction, decision: Any, remove_postproc: bool = False
    ) -> Trace:
        """Return a trace in which one sampling instruction has another decision.

        With ``remove_postproc`` it ends where post-processing begins. Raises ``ScheduleError`` if
        the instruction samples nothing, isn't in the trace, or makes decisions of another kind.
        """
        if not inst.primitive.samples:
            raise ScheduleError(f"{inst.name} makes no decision that could be changed")
        kept = self._before_postproc() if remove_postproc else self.insts
        for position, item in enumerate(kept):
            if inst.is_call(item):
                insts = kept.copy()
                insts[position] = _decided(inst, decision)
                return Trace(insts)
        raise ScheduleError(f"this {inst.name} instruction is not part of the trace")

    # ---- replay -------------------------------------------------------------------------------

    def apply_to_schedule(
        self,
        sch: Running,
        remove_postproc: bool = False,
        decision_provider: DecisionProvider | None = None,
    ) -> dict[Any, Any]:
        """Run all instructions on a schedule; returns the new handle for each recorded one.

        With ``remove_postproc`` it stops where post-processing began. An instruction that doesn't
        fit the program raises a ``ScheduleError`` that names it.
        """
        with few_collections():
            return self._apply(sch, remove_postproc, decision_provider)

    def _apply(
        self, sch: Running, remove_postproc: bool, decision_provider: DecisionProvider | None
    ) -> dict[Any, Any]:
        handles: dict[Any, Any] = {}
        for number, inst in enumerate(self.insts):
            primitive = inst.primitive
            if remove_postproc and primitive.name == POSTPROC:
                break
            decision = inst.decision
            try:
                args = mapped(inst.args, handles)
                if decision_provider is not None and primitive.samples:
                    decision = decision_provider(inst, args, decision)
                result = primitive.run(sch, args, decision)
            except TilewrightError as error:
                raise _replay_error(number, primitive.name, error) from error
            outputs = inst.outputs
            if outputs:
                made = result if type(result) in (list, tuple) else (result,)
                if len(made) != len(outputs):
                    raise ScheduleError(
                        f"replay failed at instruction {number} ({primitive.name}): it gives "
                        f"{len(made)} results on this program, {len(outputs)} were recorded; "
                        "the trace belongs to another program"
                    )
                for old, new in zip(outputs, made):
                    if type(old) is not type(new):
                        raise ScheduleError(
                            f"replay failed at instruction {number} ({primitive.name}): it gives "
                            f"a {type(new).__name__}, a {type(old).__name__} was recorded"
                        )
                    handles[old] = new
        return handles

    # ---- pruning ------------------------------------------------------------------------------

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """Return the trace without instructions that have no effect.

        Those are queries and samplings whose results are unused, and post-processing on request.
        """
        insts = self._before_postproc() if remove_postproc else self.insts
        used: set[Any] = set()
        kept = []
        for inst in reversed(insts):
            if inst.primitive.pure and not any(output in used for output in inst.outputs):
                continue
            used.update(inst.handles)
            kept.append(inst)
        kept.reverse()
        return Trace(kept)

    @property
    def has_postproc(self) -> bool:
        """Whether post-processing has begun."""
        return any(inst.name == POSTPROC for inst in self.insts)

    def _before_postproc(self) -> list[Instruction]:
        names = [inst.name for inst in self.insts]
        return self.insts[: names.index(POSTPROC)] if POSTPROC in names else self.insts

    # ---- text ---------------------------------------------------------------------------------

    def _names(self) -> dict[Any, str]:
        names: dict[Any, str] = {}
        for inst in self.insts:
            for output in inst.outputs:
                names.setdefault(output, f"{output.prefix}{len(names)}")
        return names

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """Return lines of Python text, a call of a schedule ``sch`` each.

        ``str(trace)`` is a function of them. With ``remove_postproc`` they end where
        post-processing begins.
        """
        names = self._names()
        lines = []
        for inst in self._before_postproc() if remove_postproc else self.insts:
            primitive = inst.primitive
            parts: list[str] = []
            for position, (name, value) in enumerate(zip(primitive.parameters, inst.args)):
                if position == primitive.variadic:
                    parts.extend(_python(item, names) for item in value)
                else:
                    parts.append(f"{name}={_python(value, names)}")
            if inst.decision is not None:
                parts.append(f"decision={_python(inst.decision, names)}")
            call = f"sch.{inst.name}({', '.join(parts)})"
            if inst.outputs:
                targets = ", ".join(names[output] for output in inst.outputs)
                if len(inst.outputs) == 1 and gives_list(inst.primitive):
                    targets = f"[{targets}]"
                call = f"{targets} = {call}"
            lines.append(call)
        return lines

    def __str__(self) -> str:
        """A function ``apply_trace(sch)``."""
        lines = ["def apply_trace(sch):", *(f"    {line}" for line in self.as_python() or ["pass"])]
        return "\n".join(lines) + "\n"

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Print the trace, on a terminal in the colours of a ``style`` (``"light"``, ``"dark"``).

        Raises ``ScheduleError`` for ``black_format``: lines are laid out once.
        """
        if black_format:
            raise ScheduleError("a trace isn't formatted again; give str(trace) to a formatter")
        show_text(str(self), style)

    def _repr_html_(self) -> str:
        return fragment(code(shortened(str(self))))

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """Return the trace as data for ``json.dumps``, on request without post-processing."""
        names = self._names()
        result = []
        for inst in self._before_postproc() if remove_postproc else self.insts:
            args, defaults = list(inst.args), inst.primitive.defaults
            while args and _same(args[-1], defaults[len(args) - 1]):
                args.pop()
            entry: list[Any] = [
                inst.name,
                [_to_json(value, names) for value in args],
                [names[output] for output in inst.outputs],
            ]
            if inst.decision is not None:
                entry.append(_to_json(inst.decision, names))
            result.append(entry)
        return result

    @staticmethod
    def apply_json_to_schedule(json_obj: object, sch: Running) -> None:
        """Run the instructions of a trace, as ``as_json`` gives it, on a schedule."""
        Trace.from_json(json_obj).apply_to_schedule(sch)

    @staticmethod
    def from_json(data: object, *, trusted: bool = True) -> Trace:
        """Rebuild a trace; ``ScheduleError`` says which entry is not an instruction.

        Arguments are checked and converted as the primitives' methods do it. A source that is not
        ``trusted`` may not use unsafe primitives, which keep the program's meaning only by their
        user's word.
        """
        if not isinstance(data, list):
            raise ScheduleError(f"a trace is a list of instructions, got {type(data).__name__}")
        handles: dict[str, Any] = {}
        insts = []
        for number, entry in enumerate(data):
            try:
                inst = _from_entry(entry, handles)
                if not trusted:
                    check_safe(inst)
            except RecursionError:
                raise ScheduleError(f"entry {number} of the trace is nested too deeply") from None
            except (ScheduleError, TypeError, ValueError, KeyError, IndexError) as error:
                text = repr(entry)
                raise ScheduleError(
                    f"entry {number} of the trace is not an instruction: "
                    f"{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'} ({error})"
                ) from None
            insts.append(inst)
        return Trace(insts)


def _decided(inst: Instruction, decision: Any) -> Instruction:
    """An instruction with another decision, checked as that of a call."""
    return inst.with_decision(inst.primitive.checked_decision(decision))


_SHOWN = 500

# Primitives and arguments that take something on trust. Rules skip padding on their own account:
# what that changes, products of zero and infinity, is no harm that a record could add.
_UNSAFE = "unsafe_"
_HARMLESS = frozenset({"unsafe_skip_padding"})
_UNSAFE_ARGUMENTS = frozenset({"assume_injective_transform"})


def check_safe(inst: Instruction) -> None:
    """Raise ``ScheduleError`` if an instruction keeps the program's meaning by its user's word."""
    if inst.name.startswith(_UNSAFE) and inst.name not in _HARMLESS:
        raise ScheduleError(f"{inst.name} takes its caller's word, which a record can't give")
    for name, value in inst.arguments.items():
        if name in _UNSAFE_ARGUMENTS and value:
            raise ScheduleError(f"{inst.name}: {name} takes its caller's word")


def gives_list(primitive: Primitive) -> bool:
    """Whether a primitive returns its handles as a list even if there is one."""
    return str(primitive.function.__annotations__.get("return", "")).startswith("list")


def _same(value: object, default: object) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return not value and not default
    return type(value) is type(default) and (
        value is default or (isinstance(value, (bool, int, str)) and value == default)
    )


def _replay_error(number: int, name: str, error: TilewrightError) -> ScheduleError:
    return ScheduleError(lambda: f"replay failed at instruction {number} ({name}): {error.message}")


def mapped(value: Any, handles: dict[Any, Any]) -> Any:
    """Replace recorded handles by those of another schedule, inside of arguments too."""
    kind = type(value)
    if kind is tuple:
        return tuple([mapped(item, handles) for item in value])
    if kind is list:
        return [mapped(item, handles) for item in value]
    if kind in RV_TYPES:
        try:
            return handles[value]
        except KeyError:
            raise ScheduleError(f"{value!r} is used before an instruction gives it") from None
    if kind is dict:
        return {key: mapped(item, handles) for key, item in value.items()}
    return value


def _codec(value: object) -> Any:
    for name, entry in CODECS.items():
        if isinstance(value, entry[0]):
            return name, entry
    raise ScheduleError(f"a {type(value).__name__} can't be part of a saved trace: {value!r}")


def _python(value: object, names: dict[Any, str]) -> str:
    if isinstance(value, RV_TYPES):
        return names.get(value) or repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_python(item, names) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_python(v, names)}" for k, v in value.items()) + "}"
    if value is None or isinstance(value, (bool, int, float, str)):
        if (isinstance(value, float) and value != value) or value in (float("inf"), -float("inf")):
            return f"float({str(value)!r})"
        return json.dumps(value) if isinstance(value, str) else repr(value)
    text: str = _codec(value)[1][3](value)
    return text


def _to_json(value: object, names: dict[Any, str]) -> Any:
    if isinstance(value, RV_TYPES):
        if value not in names:
            raise ScheduleError(f"{value!r} comes from outside the trace")
        return "$" + names[value]
    if isinstance(value, str):
        return "$" + value if value.startswith("$") else value
    if isinstance(value, (list, tuple)):
        return [_to_json(item, names) for item in value]
    if isinstance(value, dict):
        return {"$dict": [[key, _to_json(item, names)] for key, item in value.items()]}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    name, entry = _codec(value)
    return {"$" + name: entry[1](value)}


_DEPTH = 32


def _from_json(value: object, handles: dict[str, Any], depth: int = 0) -> Any:
    if depth > _DEPTH:
        raise ValueError("an argument is nested too deeply")
    if isinstance(value, str):
        if value.startswith("$$"):
            return value[1:]
        if not value.startswith("$"):
            return value
        if value[1:] not in handles:
            raise ValueError(f"no instruction before gives {value!r}")
        return handles[value[1:]]
    if isinstance(value, list):
        return [_from_json(item, handles, depth + 1) for item in value]
    if isinstance(value, dict):
        if len(value) != 1:
            raise ValueError("expected a dict of one kind")
        ((key, inner),) = value.items()
        if key == "$dict":
            return dict(_pair(item, handles, depth) for item in inner)
        if key[1:] not in CODECS:
            raise ValueError(f"no kind of arguments is called {key!r}")
        return CODECS[key[1:]][2](inner)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number that a trace may hold")
    return value


def _pair(item: object, handles: dict[str, Any], depth: int) -> tuple[str, Any]:
    if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
        raise ValueError("a dict is a list of pairs of a name and a value")
    return item[0], _from_json(item[1], handles, depth + 1)


_BLANK: dict[str, Callable[[], Any]] = {
    "b": BlockRV,
    "l": LoopRV,
    "v": lambda: ExprRV(0),
}


def _from_entry(entry: object, handles: dict[str, Any]) -> Instruction:
    if not (isinstance(entry, list) and 3 <= len(entry) <= 4):
        raise TypeError("expected [name, [arguments], [outputs], decision]")
    name, arguments, outputs = entry[:3]
    if not (isinstance(name, str) and isinstance(arguments, list) and isinstance(outputs, list)):
        raise TypeError("expected [name, [arguments], [outputs], decision]")
    primitive = PRIMITIVES.get(name)
    args = [_from_json(value, handles) for value in arguments]
    args.extend(primitive.defaults[len(args) :])
    if primitive.variadic is not None and len(args) > primitive.variadic:
        if not isinstance(args[primitive.variadic], list):
            raise TypeError(f"expected a list of {primitive.parameters[primitive.variadic]}")
        args[primitive.variadic] = tuple(args[primitive.variadic])
    if len(args) != len(primitive.parameters) or any(
        value is primitive.signature.empty for value in args
    ):
        raise TypeError(f"{name} takes {primitive.signature}")
    converted = primitive.checked_args(args)
    decision = _from_json(entry[3], handles) if len(entry) > 3 else None
    made = []
    for output in outputs:
        if not isinstance(output, str) or output[:1] not in _BLANK:
            raise ValueError(f"{output!r} is no name for a new handle")
        handle = handles.get(output)
        # A primitive may return a handle that it was given: ``tensorize`` that of a block.
        if handle is None:
            handle = handles[output] = _BLANK[output[0]]()
        elif all(handle is not value for value in converted):
            raise ValueError(f"{output!r} is no name for a new handle")
        made.append(handle)
    return Instruction.of(primitive, converted, primitive.checked_decision(decision), tuple(made))
