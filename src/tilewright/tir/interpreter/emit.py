"""Translates a TensorIR function to Python source text."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from tilewright.arith import holds_data
from tilewright.ir import (
    INDEX,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Not,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    Visitor,
    as_int,
    contains,
    dtypes,
    free_vars,
    is_const,
)
from tilewright.ir.op import UNARY_NUMBER
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.empty_reduction import initial_values, may_be_empty
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter.emit_threads import COLLECTIVES, ThreadEmitter
from tilewright.tir.interpreter.lanes import by_lanes
from tilewright.tir.interpreter.values import is_view_dtype
from tilewright.tir.rewrite import split_size_checks
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)

# CPython refuses more than 20 nested loops in a function; deeper nests go into inner functions.
_NEST_LIMIT = 12

_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*"}
_may_hold_data = contains(BufferLoad, Call, Cast, Let)
_DIVISIONS = {"FloorDiv": ("//", "floor_divide"), "FloorMod": ("%", "floor_modulo")}
_TRUTH_CALLS = {
    "bitwise_and": "({} & {})",
    "bitwise_or": "({} | {})",
    "bitwise_xor": "({} ^ {})",
    "bitwise_not": "(True ^ {})",
}
_INTEGER_CALLS = {
    "bitwise_and": "({} & {})",
    "bitwise_or": "({} | {})",
    "bitwise_xor": "({} ^ {})",
    "bitwise_not": "(~{})",
    "truncdiv": "trunc_divide({}, {})",
    "truncmod": "trunc_modulo({}, {})",
    "indexdiv": "({} // {})",
    "indexmod": "({} % {})",
    "abs": "abs({})",
    "fabs": "abs({})",
}


def python_source(
    func: PrimFunc, *, functions: Container[str] = (), check_races: bool = False
) -> tuple[str, list[str]]:
    """Return the text of ``def program(memory, symbols)`` and the names it needs.

    ``memory`` maps parameter number to flat memory, ``symbols`` maps names of scalars and symbolic
    extents to numbers. ``functions`` are those that it may call. ``check_races`` notes what
    threads access.
    """
    return Emitter(func, functions, check_races).emit()


class Emitter(Visitor):
    """Writes a function as Python, one statement per statement."""

    def __init__(self, func: PrimFunc, functions: Container[str], check_races: bool) -> None:
        self.func = func
        self.functions = functions
        self.lines: list[str] = []
        self.depth = 0
        self.nest = 0
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.layouts: dict[Buffer, tuple[str, list[str], str]] = {}
        # Where the pointers of parameters with strides point to, in elements of their own.
        self.bases: dict[Var, str] = {}
        self.owners: dict[Var, str] = {}  # dtype of the memory behind a pointer
        self.intrinsics: dict[str, None] = {}
        self.data_vars: set[Var] = set()
        self.threads = ThreadEmitter(self, check_races)

    # ---- text ---------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Write a line of Python at the present depth."""
        self.lines.append("    " * self.depth + text)

    def name(self, symbol: Any) -> str:
        """The Python name of a variable or buffer, one of its own."""
        found = self.names.get(symbol)
        if found is None:
            # ASCII only: Python takes other letters that look alike for the same name.
            base = re.sub(r"\W|^(?=\d)", "_", symbol.name, flags=re.ASCII)
            found, number = f"{base}_", 0
            while found in self.taken:
                number += 1
                found = f"{base}_{number}"
            self.taken.add(found)
            self.names[symbol] = found
        return found

    def expr(self, expr: Expr) -> str:
        """Python text of an expression."""
        text: str = self.visit(expr)
        return text

    # ---- functions ----------------------------------------------------------------------
    def emit(self) -> tuple[str, list[str]]:
        """The program's text, and the names of the intrinsics that it calls."""
        func = self.func
        self.line("def program(memory, symbols):")
        self.depth += 1
        symbols = [var for var in func.params if var not in func.buffer_map]
        for var in (*symbols, *func.symbolic_vars()):
            self.line(f"{self.name(var)} = symbols[{id(var)}]")
        bound = {*symbols, *func.symbolic_vars()}
        parts = [var for buffer in func.buffers for part in buffer.shape for var in free_vars(part)]
        for var in dict.fromkeys(parts):  # of formulas like ``n * 4`` only
            if var not in bound:
                self.line(f"{self.name(var)} = symbols.get({id(var)})")
        for number, var in enumerate(func.params):
            buffer = func.buffer_map.get(var)
            if buffer is not None:
                memory = self.name(buffer.data)
                self.line(f"{memory}, {memory}_np = memory[{number}]")
                if buffer.strides:
                    # With negative strides, its pointer points into the middle of memory.
                    self.bases[buffer.data] = f"{memory}_base"
                    self.line(f"{memory}_base = symbols[{id(buffer)}]")
                self.declare(buffer)
        self.visit(func.body)
        self.depth -= 1
        return "\n".join(self.lines) + "\n", list(self.intrinsics)

    def declare(
        self, buffer: Buffer, offset: str | None = None, strides: list[str] | None = None
    ) -> None:
        """Note how ``buffer[indices]`` becomes a place in flat memory."""
        memory = self.name(buffer.data)
        element = dtypes.element_of(buffer.dtype)
        if self.owners.setdefault(buffer.data, element) != element:
            # Other elements in the same bytes.
            source, memory = memory, f"{memory}{element}"
            self.line(f"{memory}_np = recast({source}_np, {element!r})")
            self.line(f"{memory} = view({memory}_np, {element!r})")
        if strides is None:
            if buffer.strides:
                strides = [self.expr(stride) for stride in buffer.strides]
            else:
                strides, running = [], "1"
                for extent in reversed(buffer.shape):
                    strides.append(running)
                    text = self.expr(extent)
                    running = text if running == "1" else f"{text} * {running}"
                strides.reverse()
                strides = [f"({stride})" if "*" in stride else stride for stride in strides]
        if offset is None:
            offset = "0" if buffer.elem_offset is None else self.expr(buffer.elem_offset)
            base = self.bases.get(buffer.data)
            if base is not None:
                own, other = dtypes.bits_of(self.owners[buffer.data]), dtypes.bits_of(element)
                base = base if own == other else f"{base} * {own} // {other}"
                offset = base if offset == "0" else f"{base} + {offset}"
        self.layouts[buffer] = (memory, strides, offset)

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Flat place of an element; every index is checked against its dimension."""
        if buffer not in self.layouts:
            raise VerifyError(f"buffer {buffer.name} is used but never defined")
        memory, strides, offset = self.layouts[buffer]
        if buffer.data in self.bases and not buffer.strides and buffer.ndim == 1:
            return self.flat_address(buffer, indices, f"len({memory}_np)", offset)
        terms = [] if offset == "0" else [offset]
        for axis, (index, extent, stride) in enumerate(zip(indices, buffer.shape, strides)):
            text = self.expr(index)
            if (
                as_int(index) is None
                or as_int(extent) is None
                or not (
                    0 <= as_int(index) < as_int(extent)  # type: ignore[operator]
                )
            ):
                limit = self.expr(extent)
                if dtypes.lanes_of(index.dtype) > 1:
                    text = f"check_vector({buffer.name!r}, {axis}, {text}, {limit})"
                else:
                    text = (
                        f"(_i if 0 <= (_i := {text}) < {limit} "
                        f"else out_of_bounds({buffer.name!r}, {axis}, _i, {limit}))"
                    )
            terms.append(text if stride == "1" else f"{text} * {stride}")
        return " + ".join(terms) or "0"

    def flat_address(
        self, buffer: Buffer, indices: tuple[Expr, ...], size: str, offset: str
    ) -> str:
        """Place in the memory of a parameter with strides, of which the shape says nothing."""
        (index,) = indices
        check = "check_vector" if dtypes.lanes_of(index.dtype) > 1 else "check_index"
        return f"{check}({buffer.name!r}, 0, {self.expr(index)} + {offset}, {size})"

    def memory(self, buffer: Buffer) -> str:
        """Name of the flat memory that a buffer is a view of."""
        return self.layouts[buffer][0]

    # ---- statements ---------------------------------------------------------------------
    def generic_visit(self, node: Any) -> Any:
        """Refuse what has no meaning here."""
        raise VerifyError(f"the interpreter doesn't know {type(node).__name__}")

    def visit_SeqStmt(self, node: SeqStmt) -> None:
        """One statement after the other."""
        for stmt in node.stmts:
            self.visit(stmt)

    def nested(self, stmt: Stmt) -> None:
        """Emit the body of a compound statement."""
        self.depth += 1
        self.nest += 1
        if self.nest % _NEST_LIMIT == 0:
            self.line("def inner():")
            self.depth += 1
            self.line("pass")
            self.visit(stmt)
            self.depth -= 1
            waits = self.threads.lockstep and self.threads.is_collective(stmt)
            self.line("yield from inner()" if waits else "inner()")
        else:
            self.line("pass")
            self.visit(stmt)
        self.nest -= 1
        self.depth -= 1

    def visit_For(self, node: For) -> None:
        """A loop; one over threads is run as its kind asks."""
        if node.thread is None or not self.threads.loop(node):
            self.serial_loop(node, node.body)

    def serial_loop(self, node: For, body: Stmt | None) -> None:
        """Emit a loop that runs one iteration after the other (``None``: its header only)."""
        initial = initial_values(node, set()) if may_be_empty(node) else None
        if initial is not None:
            self.line(f"if {self.expr(node.extent)} <= 0:")
            self.nested(initial)
        var = self.name(node.loop_var)
        if is_const(node.min, 0):
            self.line(f"for {var} in range({self.expr(node.extent)}):")
        else:
            low = self.expr(node.min)
            self.line(f"for {var} in range({low}, {low} + {self.expr(node.extent)}):")
        if body is not None:
            self.nested(body)

    def visit_While(self, node: While) -> None:
        """A loop whose condition is asked before each iteration."""
        self.line(f"while {self.expr(node.condition)}:")
        self.nested(node.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        """A branch; one with a condition for each lane goes lane by lane."""
        if dtypes.lanes_of(node.condition.dtype) > 1:
            self.visit(by_lanes(node))
            return
        self.line(f"if {self.expr(node.condition)}:")
        self.nested(node.then_case)
        if node.else_case is not None:
            self.line("else:")
            self.nested(node.else_case)

    def visit_LetStmt(self, node: LetStmt) -> None:
        """An assignment, which the body follows."""
        self.line(f"{self.name(node.var)} = {self.bound(node)}")
        self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        """The body; what is asynchronous waits until it is committed."""
        if not self.threads.asynchronous(node):
            self.visit(node.body)

    def visit_AssertStmt(self, node: AssertStmt) -> None:
        """A check that fails with the message and its values."""
        values = "".join(f", {self.expr(value)}" for value in node.values)
        self.line(f"if not ({self.expr(node.condition)}): fail({node.message!r}{values})")

    def visit_Evaluate(self, node: Evaluate) -> None:
        """An expression for its effect; hints have none."""
        value = node.value
        if isinstance(value, Call) and value.op.name in ("prefetch", "assume"):
            return
        if isinstance(value, Call) and value.op.name == "storage_sync":
            self.threads.barrier(value)
        elif isinstance(value, Call) and value.op.name == "thread_allreduce":
            self.threads.all_reduce(value)
        elif as_int(value) is None:
            self.line(self.expr(value))

    def allocate(self, buffer: Buffer) -> None:
        """Fresh memory with room for all elements, strides counted."""
        memory = self.name(buffer.data)
        size = " * ".join(f"({self.expr(extent)})" for extent in buffer.shape) or "1"
        if buffer.strides:
            size = (
                " + ".join(
                    f"({self.expr(extent)} - 1) * ({self.expr(stride)})"
                    for extent, stride in zip(buffer.shape, buffer.strides)
                )
                + " + 1"
            )
        lanes = dtypes.lanes_of(buffer.dtype)
        if lanes > 1:
            raise VerifyError(f"the interpreter allocates scalar elements, not {buffer.dtype}")
        self.line(f"{memory}_np = {self.threads.allocation(buffer, size)}")
        self.line(f"{memory} = view({memory}_np, {buffer.dtype!r})")
        self.declare(buffer, offset="0")

    def visit_Allocate(self, node: Allocate) -> None:
        self.allocate(node.buffer)
        self.visit(node.body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.declare(node.buffer)
        self.visit(node.body)

    def visit_BufferStore(self, node: BufferStore) -> None:
        """A write of one element, or of a vector's, in the order of the lanes."""
        buffer: Buffer = node.buffer
        value = self.expr(node.value)
        place = self.address(buffer, node.indices)
        memory = self.layouts[buffer][0]
        vector = dtypes.lanes_of(node.value.dtype) > 1
        if node.value.dtype != "bool" and dtypes.is_bool(buffer.dtype) and not vector:
            value = f"bool({value})"
        if self.threads.issuing:
            self.threads.issue(buffer, place, value, vector)
            return
        noted = self.threads.noted(buffer, place, "write", "stored")
        if noted != place:
            self.line(f"stored = {value}")
            place, value = noted, "stored"
        self.line(f"{memory}{'_np' if vector else ''}[{place}] = {value}")

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        """A block: its axes are bound, and it runs where its predicate holds."""
        block = node.block
        for iter_var, value in zip(block.iter_vars, node.iter_values):
            self.line(f"{self.name(iter_var.var)} = {self.expr(value)}")
        conditional = not is_const(node.predicate, 1)
        if conditional:
            self.line(f"if {self.expr(node.predicate)}:")
            self.depth += 1
            self.line("pass")
        checks: list[Stmt] = []
        body = block.body
        if block.init is None and not block.match_buffers:
            checks, body = split_size_checks(body)
        for check in checks:
            self.visit(check)
        for buffer in block.alloc_buffers:
            self.allocate(buffer)
        for match in block.match_buffers:
            self.match_buffer(match)
        if block.init is not None:
            first = [
                f"{self.name(iter_var.var)} == {self.expr(iter_var.dom.min)}"
                for iter_var in block.iter_vars
                if iter_var.kind == "reduce"
            ]
            self.line(f"if {' and '.join(first) or 'True'}:")
            self.nested(block.init)
        self.visit(body)
        if conditional:
            self.depth -= 1

    def match_buffer(self, match: Any) -> None:
        """A view: where it begins and how far its elements lie apart."""
        source, buffer = match.source.buffer, match.buffer
        place = self.address(source, tuple(r.min for r in match.source.region))
        memory, strides, _ = self.layouts[source]
        kept = strides[len(strides) - buffer.ndim :]
        if len(kept) != buffer.ndim:
            raise VerifyError(f"{buffer.name} has more dimensions than what it matches")
        target = self.name(buffer.data)
        self.line(f"{target}, {target}_np = {memory}, {memory}_np")
        self.owners[buffer.data] = self.owners[source.data]
        if source.data in self.threads.private:
            self.threads.private.add(buffer.data)
        start = f"{target}_start"
        self.line(f"{start} = {place}")
        if type(buffer.elem_offset) is Var:
            self.line(f"{self.name(buffer.elem_offset)} = {start}")
        for stride, axis in match.stride_variables():
            self.line(f"{self.name(stride)} = {kept[axis]}")
        self.declare(buffer, start, kept)

    # ---- expressions --------------------------------------------------------------------
    def visit_Var(self, node: Var) -> str:
        """The variable's name."""
        return self.name(node)

    def visit_IntImm(self, node: IntImm) -> str:
        """The number, as its dtype holds it."""
        if node.dtype == "bool":
            return "True" if node.value else "False"
        return str(node.value) if node.value >= 0 else f"({node.value})"

    def visit_FloatImm(self, node: FloatImm) -> str:
        """The number, rounded to its dtype."""
        # The constant has the precision of its dtype, like a value loaded from memory.
        return (
            f"convert({_float_text(node.value)}, 'float64', {node.dtype!r})"
            if (node.dtype != "float64" and node.value not in (0.0, 1.0, -1.0, 0.5, 2.0))
            else _float_text(node.value)
        )

    def visit_StringImm(self, node: StringImm) -> str:
        """The text as a literal."""
        return repr(node.value)

    def visit_Cast(self, node: Cast) -> str:
        """A conversion, rounded and wrapped as the compiled program does."""
        # As what is stored, or another whole number comes out where code has rounded up to it.
        whole = dtypes.kind_of(node.dtype) != "float"
        value = self.rounded(node.value) if whole else self.expr(node.value)
        return f"convert({value}, {node.value.dtype!r}, {node.dtype!r})"

    def rounded(self, node: Expr) -> str:
        """An expression as code has it: in the precision of its dtype."""
        value = self.expr(node)
        if isinstance(node, (BufferLoad, FloatImm)) or dtypes.element_of(node.dtype) != "float32":
            return value
        return f"convert({value}, 'float64', 'float32')"

    def is_data(self, expr: Expr) -> bool:
        """Whether integers wrap at 64 bits; indices don't get there, and it would take time."""
        if expr.dtype != INDEX or not (self.data_vars or _may_hold_data(expr)):
            return False
        return holds_data(expr, self.data_vars)

    def bound(self, node: Any) -> str:
        """Text of a let's value."""
        if holds_data(node.value, self.data_vars):
            self.data_vars.add(node.var)
        return self.expr(node.value)

    def wrapped(self, text: str, dtype: str, *, always: bool = False) -> str:
        """Wrap integers narrower than 64 bits, and unsigned ones; others if asked.

        Floats below 32 bits are rounded.
        """
        kind, bits = dtypes.kind_of(dtype), dtypes.bits_of(dtype)
        if kind == "float" and bits < 32:
            return f"convert({text}, 'float64', {dtype!r})"
        if kind == "uint" or (kind == "int" and (bits < 64 or always)):
            return f"wrap({text}, {bits}, {kind == 'int'})"
        return text

    def visit_BinaryExpr(self, node: BinaryExpr) -> str:
        """An operation; integers of data wrap, floats are rounded to their dtype."""
        a, b = self.expr(node.a), self.expr(node.b)
        name = type(node).__name__
        if name in _ARITHMETIC:
            text = f"({a} {_ARITHMETIC[name]} {b})"
            return self.wrapped(text, node.dtype, always=self.is_data(node))
        if name == "Div":
            return self.wrapped(f"divide({a}, {b})", node.dtype)
        if name in _DIVISIONS:
            symbol, function = _DIVISIONS[name]
            if as_int(node.b) and as_int(node.b) != -1:
                return f"({a} {symbol} {b})"
            return self.wrapped(f"{function}({a}, {b})", node.dtype, always=True)
        return f"{'minimum' if name == 'Min' else 'maximum'}({a}, {b})"

    def visit_CompareExpr(self, node: CompareExpr) -> str:
        """A comparison; what was stored before must equal what is computed again."""
        a, b = self.rounded(node.a), self.rounded(node.b)
        vector = dtypes.lanes_of(node.dtype) > 1
        symbol = {"and": "&", "or": "|"}.get(node.symbol, node.symbol) if vector else node.symbol
        return f"({a} {symbol} {b})"

    def visit_Not(self, node: Not) -> str:
        text = self.expr(node.a)
        return f"(~{text})" if dtypes.lanes_of(node.dtype) > 1 else f"(not {text})"

    def visit_Select(self, node: Select) -> str:
        parts = map(self.expr, (node.condition, node.true_value, node.false_value))
        return f"select({', '.join(parts)})"

    def visit_Ramp(self, node: Ramp) -> str:
        return f"({self.expr(node.base)} + {self.expr(node.stride)} * np.arange({node.lanes}))"

    def visit_Broadcast(self, node: Broadcast) -> str:
        # NumPy shifts no unsigned numbers by signed ones.
        kind = ", np.uint64" if dtypes.kind_of(node.dtype) == "uint" else ""
        return f"np.full({node.lanes}, {self.expr(node.value)}{kind})"

    def visit_Shuffle(self, node: Shuffle) -> str:
        parts = ", ".join(f"np.atleast_1d({self.expr(vector)})" for vector in node.vectors)
        picked = f"np.concatenate([{parts}])[{list(node.indices)}]"
        return picked if len(node.indices) > 1 else f"{picked}[0].item()"

    def visit_Let(self, node: Let) -> str:
        return f"(({self.name(node.var)} := {self.bound(node)}), {self.expr(node.body)})[1]"

    def visit_BufferLoad(self, node: BufferLoad) -> str:
        place = self.address(node.buffer, node.indices)
        memory = self.layouts[node.buffer][0]
        place = self.threads.noted(node.buffer, place, "read")
        if dtypes.lanes_of(node.dtype) > 1:
            wide = ".astype(np.float64)" if dtypes.is_float(node.dtype) else ""
            return f"{memory}_np[{place}]{wide}"
        if is_view_dtype(node.buffer.dtype):
            return f"{memory}[{place}]"
        return f"{'float' if dtypes.is_float(node.dtype) else 'int'}({memory}[{place}])"

    def visit_Call(self, node: Call) -> str:
        name = node.op.name
        if name == "if_then_else":
            condition, true_value, false_value = map(self.expr, node.args)
            return f"({true_value} if {condition} else {false_value})"
        if name == "likely":
            return self.expr(node.args[0])
        if name in COLLECTIVES:
            return self.threads.exchange(node)
        if name in _MEMORY_CALLS:
            return _MEMORY_CALLS[name](self, node)
        args = [self.expr(arg) for arg in node.args]
        if name == "reinterpret":
            return f"reinterpret({args[0]}, {node.args[0].dtype!r}, {node.dtype!r})"
        if name == "dot_accumulate":
            width = dtypes.bits_of(node.dtype) // dtypes.bits_of(node.args[1].dtype)
            return self.wrapped(f"dot_accumulate({', '.join(args)}, {width})", node.dtype)
        if name.startswith("vector_reduce_"):
            # Kept in the type's own meaning: sums are of Python numbers.
            function = {"add": "sum", "max": "max", "min": "min"}[name.rpartition("_")[2]]
            return self.wrapped(f"{function}({args[0]}.tolist())", node.dtype, always=True)
        if dtypes.is_bool(dtypes.element_of(node.dtype)) and name in _TRUTH_CALLS:
            return _TRUTH_CALLS[name].format(*args)
        if dtypes.is_integer(node.dtype):
            if name in ("shift_left", "shift_right"):
                made = f"shift({name!r}, {args[0]}, {args[1]}, {dtypes.element_of(node.dtype)!r})"
                return self.wrapped(made, node.dtype, always=True)
            if name == "popcount":  # of the bits: a negative number has leading ones
                bits = dtypes.bits_of(node.args[0].dtype)
                return f"wrap({args[0]}, {bits}, False).bit_count()"
            if name == "clz":
                bits = dtypes.bits_of(node.args[0].dtype)
                return f"({bits} - wrap({args[0]}, {bits}, False).bit_length())"
            if name in UNARY_NUMBER and name not in _INTEGER_CALLS:  # whole numbers as they are
                return args[0]
            if name in _INTEGER_CALLS:
                made = _INTEGER_CALLS[name].format(*args)
                return self.wrapped(made, node.dtype, always=not name.startswith("index"))
        elif (
            node.op.effect == "pure"
            and node.op.arity is not None
            and (dtypes.is_float(node.dtype) or node.op.result == "bool")
        ):
            self.intrinsics[name] = None
            return self.wrapped(f"intrinsic_{name}({', '.join(args)})", node.dtype)
        raise VerifyError(f"the interpreter doesn't know the intrinsic {name} on {node.dtype}")


def _atomic_add(emitter: Emitter, node: Call) -> str:
    address, value = node.args
    if not (isinstance(address, Call) and address.op.name == "address_of"):
        raise VerifyError(f"atomic_add takes address_of(buffer[...]), got {address!r}")
    load: Any = address.args[0]
    place = emitter.address(load.buffer, load.indices)
    place = emitter.threads.noted(load.buffer, place, "write")
    memory = emitter.memory(load.buffer)
    return f"fetch_add({memory}, {place}, {emitter.expr(value)}, {load.buffer.dtype!r})"


def _call_function(emitter: Emitter, node: Call) -> str:
    """A call of another function of the module: pointers first, then scalars."""
    name, *args = node.args
    if not isinstance(name, StringImm):
        raise VerifyError(f"{node.op.name} takes the function's name first, got {name!r}")
    if name.value not in emitter.functions:
        raise VerifyError(
            f"the interpreter doesn't know the intrinsic {node.op.name} of {name.value!r}: it "
            "calls functions of the module that it runs only"
        )
    pointers, scalars = [], []
    for arg in args:
        if type(arg) is Var and arg.dtype == "handle":
            if arg not in emitter.owners:
                raise VerifyError(f"{name.value}: no buffer has the pointer {arg.name}")
            pointers.append(f"{emitter.name(arg)}_np")
        elif isinstance(arg, Call) and arg.op.name == "address_of":
            load: Any = arg.args[0]
            place = emitter.address(load.buffer, load.indices)
            pointers.append(f"{emitter.memory(load.buffer)}_np[{place}:]")
        else:
            scalars.append(emitter.expr(arg))
    return f"call_function({name.value!r}, [{', '.join(pointers)}], [{', '.join(scalars)}])"


def _misalignment(emitter: Emitter, node: Call) -> str:
    address, size = node.args
    if not (isinstance(address, Call) and address.op.name == "address_of"):
        raise VerifyError(f"misalignment takes address_of(buffer[...]), got {address!r}")
    load: Any = address.args[0]
    place = emitter.address(load.buffer, load.indices)
    return f"misalignment({emitter.memory(load.buffer)}_np, {place}, {emitter.expr(size)})"


_MEMORY_CALLS = {
    "atomic_add": _atomic_add,
    "misalignment": _misalignment,
    "call_extern": _call_function,
    "call_pure_extern": _call_function,
}


def _float_text(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "(-inf)"
    return repr(value) if value >= 0 else f"({value!r})"
