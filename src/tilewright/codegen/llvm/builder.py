"""Functions of LLVM IR, written as one writes C: the code that kernels need besides themselves.

The thread pool, the argument binder and its messages, the workspace and the wrappers of kernels are
Python functions that build an LLVM function each. Such a body gets a :class:`Function` and its
parameters as :class:`Value`, and reads like the C it stands for::

    @exported("tw_count", I32, array=PTR, size=I64)
    def _count(f: Function, array: Value, size: Value) -> None:
        sum = f.variable(I32, 0)
        with f.for_(size) as i:
            with f.if_(array.at(PAIR, i)["first"] < 0):
                f.break_()
            sum += 1
        f.ret(sum)

Types and operators are those of :mod:`values`. Variables are memory of the stack, which LLVM's
first pass turns into registers.

:func:`module_text` gives the text of a module of some functions: whatever they use of others,
globals, structs and texts comes with them. Names and blocks are the kernel emitter's
(:mod:`writer`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.llvm.types import c_string, global_name
from tilewright.codegen.llvm.values import (
    BOOL,
    I8,
    I64,
    PTR,
    VOID,
    Operand,
    Operators,
    Place,
    Struct,
    Type,
    Value,
    ValueWriter,
    array,
)
from tilewright.support.errors import CodegenError


@dataclass(frozen=True)
class Global:
    """A variable of a module, zero unless ``initial`` says otherwise."""

    name: str
    type: Type
    align: int
    initial: str = "zeroinitializer"
    constant: bool = False

    @property
    def declaration(self) -> str:
        """The line that defines it."""
        name, kind = global_name(self.name), self.type.text
        linkage = "private constant" if self.constant else "internal global"
        return f"{name} = {linkage} {kind} {self.initial}, align {self.align}"


@dataclass(frozen=True, eq=False)
class Callee:
    """A function that can be called: one with a body, or one from elsewhere."""

    name: str
    result: Type
    parameters: dict[str, Type]
    attributes: str = ""
    linkage: str = ""
    variadic: bool = False
    body: Callable[..., None] | None = None

    @property
    def symbol(self) -> str:
        """The name as LLVM writes it."""
        return global_name(self.name)

    @property
    def declaration(self) -> str:
        """The line that declares it."""
        kinds = [kind.passed for kind in self.parameters.values()] + ["..."] * self.variadic
        return f"declare {self.linkage}{self.result.text} {self.symbol}({', '.join(kinds)})"


def function(
    result: Type, attributes: str = "nounwind", /, **parameters: Type
) -> Callable[[Callable[..., None]], Callee]:
    """Make a function, the module's own, of a Python function that writes its body."""

    def made(body: Callable[..., None]) -> Callee:
        name = "tw." + body.__name__.lstrip("_")
        return Callee(name, result, parameters, attributes, "internal ", body=body)

    return made


def exported(
    name: str, result: Type, attributes: str = "nounwind", /, **parameters: Type
) -> Callable[[Callable[..., None]], Callee]:
    """Make a function that others see by a name."""
    return lambda body: Callee(name, result, parameters, attributes, body=body)


def external(
    result: Type, name: str, *kinds: Type, variadic: bool = False, weak: bool = False
) -> Callee:
    """Return a function from elsewhere; a weak one is null where nobody has it."""
    parameters = {f"a{index}": kind for index, kind in enumerate(kinds)}
    linkage = "extern_weak " if weak else ""
    return Callee(name, result, parameters, linkage=linkage, variadic=variadic)


_MEMSET = external(VOID, "llvm.memset.p0.i64", PTR, I8, I64, BOOL)


class Function(ValueWriter):
    """Writes the body of one function."""

    def __init__(self, module: Module, callee: Callee) -> None:
        super().__init__()
        self.module = module
        self._result = callee.result
        self.architecture = module.architecture
        self._closed = False  # nothing gets here: the block has ended
        self._targets: set[str] = set()
        self._loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        self._else: tuple[int, int | None] | None = None

    # ---- values

    def need(self, kind: Type) -> None:
        """See to it that the module declares a struct."""
        self.module.need(kind)

    def clear(self, place: Place) -> None:
        """Fill memory with zeros."""
        self.fill(place, 0)

    def fill(self, place: Place, byte: int) -> None:
        """Set each byte of memory of a known size."""
        if not place.type.bytes:
            raise CodegenError(f"the bytes of {place.type.text} aren't known")
        self.call(_MEMSET, place.address, byte, place.type.bytes, False)

    def string(self, text: str) -> Value:
        """Return the address of a constant text, ended by a zero."""
        return Value(self, PTR, self.module.string(text))

    def name_of(
        self, table: str, number: Value, names: Mapping[int, str], gap: str, beyond: str
    ) -> Value:
        """Return the text of a number, by a table of that name.

        Numbers between those that have one are called ``gap``, greater ones ``beyond``.
        """
        size = max(names) + 1
        cells = [*(names.get(index, gap) for index in range(size)), beyond]
        initial = f"[{', '.join(f'ptr {self.module.string(text)}' for text in cells)}]"
        texts = self.use(Global(table, array(size + 1, PTR), 8, initial, constant=True))
        return texts[self.select(number < size, number, size)].get()

    def use(self, variable: Global) -> Place:
        """Return the place of a global."""
        return Place(self, variable.type, self.module.use(variable))

    def local(self, kind: Type, align: int = 8) -> Place:
        """Return room on the stack."""
        name = self.fresh("s")
        self.entry.append(f"  {name} = alloca {kind.text}, align {align}")
        return Place(self, kind, name)

    def variable(self, kind: Type, initial: Operand) -> Place:
        """Return a variable; LLVM makes it a register."""
        made = self.local(kind, max(kind.bytes, 1))
        made.set(initial)
        return made

    # ---- calls

    def address_of(self, callee: Callee) -> Value:
        """Return where a function is."""
        return Value(self, PTR, self.module.refer(callee))

    def call(self, callee: Callee, *arguments: Operand) -> Value:
        """Call a function; arguments beyond its parameters must have types of their own."""
        symbol = self.module.refer(callee)
        kinds = list(callee.parameters.values())
        result = callee.result.text
        if callee.variadic:
            result += f" ({', '.join([*(kind.passed for kind in kinds), '...'])})"
            kinds += [item.type for item in arguments[len(kinds) :] if isinstance(item, Operators)]
        if len(kinds) != len(arguments):
            raise CodegenError(
                f"{callee.name} takes {len(kinds)} arguments, but is called with {len(arguments)}"
            )
        return self._call(callee.result, f"{result} {symbol}", zip(kinds, arguments))

    def call_pointer(self, pointer: Operand, result: Type, *arguments: Value) -> Value:
        """Call the function at an address."""
        target = f"{result.text} {self.operand(pointer, PTR)}"
        return self._call(result, target, ((item.type, item) for item in arguments))

    def _call(self, result: Type, target: str, arguments: Any) -> Value:
        actual = (f"{kind.passed} {self.operand(item, kind)}" for kind, item in arguments)
        text = f"call {target}({', '.join(actual)})"
        if result is VOID:
            self.effect(text)
            return Value(self, VOID, "")
        return Value(self, result, self.here(text))

    # ---- control

    def _jump(self, label: str) -> None:
        """End the block, unless it has ended, and go on elsewhere."""
        if not self._closed:
            self._targets.add(label)
            self.branch(label)
            self._closed = True

    def _begin(self, label: str) -> None:
        """Begin a block; what stands before it goes on here. Nothing does so if none jumps here."""
        self._jump(label)
        if label in self._targets:
            self.start_block(label)
            self._closed = False

    def _test(self, condition: Operand, yes: str, no: str) -> None:
        self._targets |= {yes, no}
        self.branch_if(self.operand(condition, BOOL), yes, no)
        self._closed = True
        self._begin(yes)

    @contextmanager
    def if_(self, condition: Operand) -> Iterator[None]:
        """Do what follows if a condition holds."""
        no = self.label("no")
        self._test(condition, self.label("yes"), no)
        yield
        # That it goes on here is changed by an `else`.
        end = None if self._closed else len(self.lines)
        self._begin(no)
        self._else = len(self.lines), end

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Do what follows if the condition of the ``if`` just before doesn't hold."""
        if self._else is None or self._else[0] != len(self.lines):
            raise CodegenError("an `else` stands just after its `if`")
        join, end = self.label("join"), self._else[1]
        if end is not None:
            self._targets.add(join)
            self.lines[end] = f"  br label %{join}"
        yield
        self._begin(join)

    @contextmanager
    def while_(self, condition: Callable[[], Operand] | None = None) -> Iterator[None]:
        """Repeat what follows: while a condition holds, or until something leaves it."""
        head, done = self.label("while"), self.label("done")
        self._begin(head)
        if condition is not None:
            self._test(condition(), self.label("body"), done)
        self._loops.append((head, done))
        yield
        self._loops.pop()
        self._jump(head)
        self._begin(done)

    @contextmanager
    def for_(self, end: Operand, begin: Operand = 0) -> Iterator[Value]:
        """Repeat what follows for each number from ``begin`` up to ``end``, which isn't one."""
        kind = end.type if isinstance(end, Operators) else I64
        count = self.variable(kind, begin)
        head, step, done = self.label("for"), self.label("next"), self.label("done")
        self._begin(head)
        value = count.get()
        self._test(value < end, self.label("body"), done)
        self._loops.append((step, done))
        yield value
        self._loops.pop()
        self._begin(step)
        if not self._closed:
            count.set(value + 1)
        self._jump(head)
        self._begin(done)

    def break_(self) -> None:
        """Leave the innermost loop."""
        self._jump(self._loops[-1][1])

    def continue_(self) -> None:
        """Go on with the next iteration of the innermost loop."""
        self._jump(self._loops[-1][0])

    def ret(self, value: Operand | None = None) -> None:
        """Return, with the function's result if it has one."""
        kind = self._result
        if (value is None) != (kind is VOID):
            raise CodegenError(f"a function of type {kind.text} returns {value!r}")
        self.effect("ret void" if value is None else f"ret {kind.text} {self.operand(value, kind)}")
        self._closed = True

    def finish(self) -> None:
        """End the body: only a function without a result may just end."""
        if not self._closed:
            self.ret()


def _parameter(f: Function, name: str, kind: Type) -> Operand:
    operand = f"%{name}"
    return Place(f, kind, operand) if isinstance(kind, Struct) else Value(f, kind, operand)


class Module:
    """Collects functions, and what they use; the names of its texts begin with ``texts``."""

    def __init__(self, architecture: str = "", texts: str = "tw.s") -> None:
        self.architecture = architecture
        self._texts = texts
        self._structs: dict[str, Struct] = {}
        self._globals: dict[str, Global] = {}
        self._callees: dict[str, Callee] = {}
        self._strings: dict[str, str] = {}
        self._waiting: list[Callee] = []

    def need(self, kind: Type) -> None:
        """Declare a struct, and those in it."""
        if kind.element is not None:
            self.need(kind.element)
        elif isinstance(kind, Struct) and kind.text not in self._structs:
            self._structs[kind.text] = kind
            for field in kind.fields.values():
                self.need(field)

    def string(self, text: str) -> str:
        """Return the name of a constant text, ended by a zero."""
        return self._strings.setdefault(text, f"@{self._texts}{len(self._strings)}")

    def use(self, variable: Global) -> str:
        """Define a global; return its name."""
        if self._globals.setdefault(variable.name, variable) != variable:
            raise CodegenError(f"two globals of a module have the name {variable.name!r}")
        return global_name(variable.name)

    def refer(self, callee: Callee) -> str:
        """Define a function, or declare one from elsewhere; return its name."""
        known = self._callees.get(callee.name)
        if known is None:
            self._callees[callee.name] = callee
            self._waiting.append(callee)
        elif known is not callee and (callee.body or known.declaration != callee.declaration):
            raise CodegenError(f"two functions of a module have the name {callee.name!r}")
        return callee.symbol

    def written(self, callee: Callee) -> Iterator[str]:
        """Return the lines of a function, or of its declaration."""
        if callee.body is None:
            yield callee.declaration
            return
        f = Function(self, callee)
        callee.body(f, *(_parameter(f, name, kind) for name, kind in callee.parameters.items()))
        f.finish()
        params = ", ".join(f"{kind.passed} %{name}" for name, kind in callee.parameters.items())
        head = f"define {callee.linkage}{callee.result.text} {callee.symbol}({params})"
        yield f"{head} {callee.attributes} {{"
        yield "entry:"
        yield from f.text_lines()
        yield "}"

    def text(self, *, defined: Collection[str] = ()) -> str:
        """Return the module's text, without declarations of what is ``defined`` beside it."""
        functions: list[str] = []
        while self._waiting:
            callee = self._waiting.pop(0)
            if callee.name not in defined:
                functions += self.written(callee)
        strings = [f"{name} = private constant {c_string(s)}" for s, name in self._strings.items()]
        lines = [
            *(struct.declaration for struct in self._structs.values() if struct.declaration),
            *(variable.declaration for variable in self._globals.values()),
            *strings,
            *functions,
        ]
        return "\n".join(lines) + "\n"


def function_text(callee: Callee) -> str:
    """Return the text of one function, for a module that holds whatever it calls."""
    return "\n".join(Module().written(callee))


def module_text(callees: Iterable[Callee], architecture: str = "") -> str:
    """Return the text of a module of some functions and of all that they use."""
    module = Module(architecture)
    for callee in callees:
        module.refer(callee)
    return module.text()
