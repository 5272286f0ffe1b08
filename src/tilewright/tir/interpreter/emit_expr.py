"""Translates expressions, and the places of elements, to Python source text."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Any

from tilewright.arith import holds_data
from tilewright.ir import (
    INDEX,
    VSCALE,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    FloatImm,
    IntImm,
    IRModule,
    Let,
    Not,
    Ramp,
    ScalableLanes,
    Select,
    Shuffle,
    StringImm,
    Var,
    Visitor,
    as_int,
    contains,
    dtypes,
    is_const,
)
from tilewright.ir.op import UNARY_NUMBER
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.formulas import FORMULAS, in_simpler_operators
from tilewright.tir.gpu_checks import check_call
from tilewright.tir.gpu_ops import GPU_OPS
from tilewright.tir.interpreter.emit_gpu import gpu_call
from tilewright.tir.interpreter.emit_threads import CALLS, COLLECTIVES, ThreadEmitter
from tilewright.tir.interpreter.lanes import LaneOf, in_lane
from tilewright.tir.interpreter.values import (
    FLOAT_INTRINSICS,
    PLACES,
    is_view_dtype,
    numpy_dtype,
)
from tilewright.tir.returned_values import returned_dtype
from tilewright.tir.rewrite import fresh_name

_USUAL_FLOATS = ("float16", "bfloat16", "float32")
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


class ExprEmitter(Visitor):
    """Writes expressions as Python."""

    threads: ThreadEmitter

    def __init__(self, functions: Container[str]) -> None:
        self.functions = functions
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.ending = "_g"  # of names: those of all pieces, and those of one, never meet
        self.shared: frozenset[Buffer] = frozenset()  # buffers that the first piece declares
        self.checks: dict[str, tuple[str, int, int]] = {}
        self.open_checks: dict[str, str] = {}  # the same for extents that arguments tell
        self.layouts: dict[Buffer, tuple[str, list[str], str]] = {}
        # Where the pointers of parameters with strides point to, in elements of their own.
        self.bases: dict[Var, str] = {}
        self.owners: dict[Var, str] = {}  # dtype of the memory behind a pointer
        self.intrinsics: dict[str, None] = {}
        self.data_vars: set[Var] = set()

    # ---- text ---------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Write a line of Python at the present depth."""
        self.lines.append("    " * self.depth + text)

    def name(self, symbol: Any) -> str:
        """The Python name of a variable or buffer, one of its own."""
        found = self.names.get(symbol)
        if found is None:
            # ASCII only: Python takes other letters that look alike for the same name.
            base = re.sub(r"\W|^(?=\d)", "_", symbol.name, flags=re.ASCII) + self.ending
            found = self.names[symbol] = fresh_name(base, self.taken, "")
        return found

    def expr(self, expr: Expr) -> str:
        """Python text of an expression."""
        text: str = self.visit(expr)
        return text

    # ---- where elements lie --------------------------------------------------------------
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
            place, limit = as_int(index), as_int(extent)
            if place is None or limit is None or not 0 <= place < limit:
                text = self.checked(buffer, axis, text, dtypes.lanes_of(index.dtype) > 1)
            terms.append(text if stride == "1" else f"{text} * {stride}")
        return " + ".join(terms) or "0"

    def checked(self, buffer: Buffer, axis: int, text: str, vector: bool) -> str:
        """Text of an index that is checked against its dimension.

        Looking it up in a table of the places that were found to be inside takes the least code.
        """
        extent = buffer.shape[axis]
        known, limit = as_int(extent), self.expr(extent)
        if vector:
            return f"check_vector({buffer.name!r}, {axis}, {text}, {limit})"
        name = re.sub(r"[^a-zA-Z0-9]", lambda match: f"_{ord(match[0]):x}_", buffer.name)
        if known is not None and 0 <= known <= PLACES:
            table = f"{name}_{axis}_{known}_c"
            self.checks[table] = (buffer.name, axis, known)
        elif type(extent) is Var and buffer in self.shared:
            table = f"{name}_{axis}_{limit}_c"
            self.open_checks[table] = f"{buffer.name!r}, {axis}, {limit}"
        else:
            return (
                f"(_i if 0 <= (_i := {text}) < {limit} "
                f"else out_of_bounds({buffer.name!r}, {axis}, _i, {limit}))"
            )
        return f"{table}[{text}]"

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
        exact = node.value in (0.0, 1.0, -1.0, 0.5, 2.0) and node.dtype in _USUAL_FLOATS
        if exact or node.dtype == "float64":
            return _float_text(node.value)
        return f"convert({_float_text(node.value)}, 'float64', {node.dtype!r})"

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
        return f"({self.expr(node.base)} + {self.expr(node.stride)} * np.arange({_count(node)}))"

    def visit_Broadcast(self, node: Broadcast) -> str:
        # NumPy shifts no unsigned numbers by signed ones.
        kind = ", np.uint64" if dtypes.kind_of(node.dtype) == "uint" else ""
        return f"np.full({_count(node)}, {self.expr(node.value)}{kind})"

    def visit_Shuffle(self, node: Shuffle) -> str:
        parts = ", ".join(f"np.atleast_1d({self.expr(vector)})" for vector in node.vectors)
        picked = f"np.concatenate([{parts}])[{list(node.indices)}]"
        return picked if len(node.indices) > 1 else f"{picked}[0].item()"

    def visit_LaneOf(self, node: LaneOf) -> str:
        return f"{self.expr(node.vector)}.item({self.expr(node.lane)})"

    def visit_Let(self, node: Let) -> str:
        return f"(({self.name(node.var)} := {self.bound(node)}), {self.expr(node.body)})[1]"

    def visit_BufferLoad(self, node: BufferLoad) -> str:
        place = self.address(node.buffer, node.indices)
        memory = self.layouts[node.buffer][0]
        self.threads.indices = node.indices
        place = self.threads.noted(node.buffer, place, "read")
        if dtypes.lanes_of(node.dtype) > 1:
            wide = ".astype(np.float64)" if dtypes.is_float(node.dtype) else ""
            return f"{memory}_np[{place}]{wide}"
        if is_view_dtype(node.buffer.dtype):
            return f"{memory}[{place}]"
        return f"{'float' if dtypes.is_float(node.dtype) else 'int'}({memory}[{place}])"

    def _chosen_by_lane(self, node: Call) -> str:
        """A choice with a condition for each lane: of what isn't chosen nothing is read."""
        lane = Var("lane")
        name = self.name(lane)
        value = self.expr(in_lane(node, lane))
        floats = dtypes.is_float(node.dtype)
        kind = "float64" if floats else numpy_dtype(node.dtype).name
        return f"np.array([{value} for {name} in range({_count(node)})], {kind!r})"

    def visit_Call(self, node: Call) -> str:
        name = node.op.name
        if name == "if_then_else" and dtypes.lanes_of(node.args[0].dtype) > 1:
            return self._chosen_by_lane(node)
        if name == "if_then_else":
            condition, true_value, false_value = map(self.expr, node.args)
            return f"({true_value} if {condition} else {false_value})"
        if name in ("likely", "ignore_loop_partition"):
            return self.expr(node.args[0])
        if name in COLLECTIVES:
            return self.threads.exchange(node)
        if name in GPU_OPS:
            check_call(node)
            return gpu_call(self, node)
        if name in _MEMORY_CALLS:
            return _MEMORY_CALLS[name](self, node)
        if name in FORMULAS and (dtypes.is_integer(node.dtype) or name not in FLOAT_INTRINSICS):
            return self.expr(in_simpler_operators(node))
        if name == "isnullptr":
            return f"({self.expr(node.args[0])} == 0)" if is_const(node.args[0]) else "False"
        if name == "undef":
            lane = f"undefined({dtypes.element_of(node.dtype)!r})"
            return f"np.full({_count(node)}, {lane})" if _is_vector(node) else lane
        if node.op is VSCALE:
            return "vscale"
        args = [self.expr(arg) for arg in node.args]
        if name == "reinterpret":
            return f"reinterpret({args[0]}, {node.args[0].dtype!r}, {node.dtype!r})"
        if name == "dot_accumulate":
            width = dtypes.bits_of(node.dtype) // dtypes.bits_of(node.args[1].dtype)
            return self.wrapped(f"dot_accumulate({', '.join(args)}, {width})", node.dtype)
        if name in ("vector_low", "vector_high"):
            count = dtypes.lanes_of(node.dtype)
            return f"lanes_from({args[0]}, {count if name == 'vector_high' else 0}, {count})"
        if name == "vector_combine":
            return f"joined({args[0]}, {args[1]})"
        if name.startswith("vector_reduce_"):
            # Kept in the type's own meaning: sums are of Python numbers.
            function = {"add": "sum", "max": "max", "min": "min"}[name.rpartition("_")[2]]
            if dtypes.is_float(node.dtype) and function != "sum":
                return f"float(np.{function}({args[0]}))"  # NaN if any lane is
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


def _is_vector(node: Expr) -> bool:
    return dtypes.lanes_of(node.dtype) > 1


def _count(node: Expr) -> str:
    """Python text of the number of a vector's lanes: ``vscale`` is given where the program runs."""
    lanes = dtypes.lanes_of(node.dtype)
    return f"{lanes.factor} * vscale" if isinstance(lanes, ScalableLanes) else str(lanes)


def _addressed(node: Call) -> BufferLoad:
    """The element whose address is the first operand of a call."""
    address = node.args[0]
    if not (isinstance(address, Call) and address.op.name == "address_of"):
        raise VerifyError(f"{node.op.name} takes address_of(buffer[...]), got {address!r}")
    load = address.args[0]
    assert isinstance(load, BufferLoad)
    return load


def _atomic_add(emitter: ExprEmitter, node: Call) -> str:
    load = _addressed(node)
    place = emitter.address(load.buffer, load.indices)
    place = emitter.threads.noted(load.buffer, place, "write")
    memory = emitter.memory(load.buffer)
    return f"fetch_add({memory}, {place}, {emitter.expr(node.args[1])}, {load.buffer.dtype!r})"


def _call_function(emitter: ExprEmitter, node: Call) -> str:
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
    mod = emitter.functions
    returned = returned_dtype(mod[name.value]) if isinstance(mod, IRModule) else "void"
    if returned != "void" and node.dtype not in (returned, "void"):
        raise VerifyError(
            f"{node.op.name}({name.value!r}) is of {node.dtype}, the function returns {returned}"
        )
    given = f"[{', '.join(pointers)}], [{', '.join(scalars)}], {node.dtype != 'void'}"
    return f"call_function({name.value!r}, {given})"


def _misalignment(emitter: ExprEmitter, node: Call) -> str:
    load = _addressed(node)
    memory, place = emitter.memory(load.buffer), emitter.address(load.buffer, load.indices)
    return f"misalignment({memory}_np, {place}, {emitter.expr(node.args[1])})"


_MEMORY_CALLS: dict[str, Callable[[ExprEmitter, Call], str]] = {
    "atomic_add": _atomic_add,
    "misalignment": _misalignment,
    **dict.fromkeys(CALLS, _call_function),
}


def _float_text(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "(-inf)"
    return repr(value) if value >= 0 else f"({value!r})"
