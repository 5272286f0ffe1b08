"""Translates calls of operators to Python source text.

An operator that means something of its own is in a table of functions, by name; what is left is
computed from the values of its arguments, by the dtype of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Protocol

from tilewright.ir import VSCALE, Call, IRModule, StringImm, Var, dtypes, is_const
from tilewright.ir.op import UNARY_NUMBER
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.formulas import FORMULAS, in_simpler_operators
from tilewright.tir.gpu_checks import check_call
from tilewright.tir.gpu_ops import GPU_OPS
from tilewright.tir.interpreter import emit_gpu
from tilewright.tir.interpreter.emit_threads import CALLS, COLLECTIVES
from tilewright.tir.interpreter.lanes import in_lane, lane_text
from tilewright.tir.interpreter.values import FLOAT_INTRINSICS, numpy_dtype
from tilewright.tir.returned_values import returned_dtype

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
    "shift_left": "shift('shift_left', {}, {}, {element!r})",
    "shift_right": "shift('shift_right', {}, {}, {element!r})",
    "abs": "abs({})",
    "fabs": "abs({})",
}
# Of the bits: a negative number has leading ones.
_BIT_COUNTS = {
    "popcount": "wrap({}, {bits}, False).bit_count()",
    "clz": "({bits} - wrap({}, {bits}, False).bit_length())",
}


class Emits(emit_gpu.Emits, Protocol):
    """What writes everything else, as this part sees it."""

    functions: Container[str]
    owners: dict[Var, str]
    intrinsics: dict[str, None]

    def name(self, symbol: Any) -> str: ...
    def wrapped(self, text: str, dtype: str, *, always: bool = False) -> str: ...


def call_text(emitter: Emits, node: Call) -> str:
    """Return the text of a call."""
    name = node.op.name
    own = _OWN.get(name)
    if own is not None:
        return own(emitter, node)
    if name in FORMULAS and (dtypes.is_integer(node.dtype) or name not in FLOAT_INTRINSICS):
        return emitter.expr(in_simpler_operators(node))
    args = [emitter.expr(arg) for arg in node.args]
    if dtypes.is_integer(node.dtype):
        text = _of_integers(emitter, node, args)
    elif dtypes.is_bool(dtypes.element_of(node.dtype)) and name in _TRUTH_CALLS:
        text = _TRUTH_CALLS[name].format(*args)
    else:
        text = _of_numpy(emitter, node, args)
    if text is None:
        raise VerifyError(f"the interpreter doesn't know the intrinsic {name} on {node.dtype}")
    return text


# ---- from the values of arguments -----------------------------------------------------------


def _of_integers(emitter: Emits, node: Call, args: list[str]) -> str | None:
    name = node.op.name
    if name in _BIT_COUNTS:
        return _BIT_COUNTS[name].format(*args, bits=dtypes.bits_of(node.args[0].dtype))
    if name in _INTEGER_CALLS:
        made = _INTEGER_CALLS[name].format(*args, element=dtypes.element_of(node.dtype))
        return emitter.wrapped(made, node.dtype, always=not name.startswith("index"))
    return args[0] if name in UNARY_NUMBER else None  # whole numbers as they are


def _of_numpy(emitter: Emits, node: Call, args: list[str]) -> str | None:
    if node.op.effect != "pure" or node.op.arity is None:
        return None
    if not (dtypes.is_float(node.dtype) or node.op.result == "bool"):
        return None
    emitter.intrinsics[node.op.name] = None
    return emitter.wrapped(f"intrinsic_{node.op.name}({', '.join(args)})", node.dtype)


# ---- operators with a meaning of their own --------------------------------------------------


def _if_then_else(emitter: Emits, node: Call) -> str:
    if dtypes.lanes_of(node.args[0].dtype) > 1:
        return _chosen_by_lane(emitter, node)
    condition, true_value, false_value = map(emitter.expr, node.args)
    return f"({true_value} if {condition} else {false_value})"


def _chosen_by_lane(emitter: Emits, node: Call) -> str:
    """A choice with a condition for each lane: of what isn't chosen nothing is read."""
    lane = Var("lane")
    name = emitter.name(lane)
    value = emitter.expr(in_lane(node, lane))
    kind = "float64" if dtypes.is_float(node.dtype) else numpy_dtype(node.dtype).name
    return f"np.array([{value} for {name} in range({lane_text(node)})], {kind!r})"


def _as_it_is(emitter: Emits, node: Call) -> str:
    return emitter.expr(node.args[0])


def _vscale(emitter: Emits, node: Call) -> str:
    return "vscale"


def _isnullptr(emitter: Emits, node: Call) -> str:
    return f"({emitter.expr(node.args[0])} == 0)" if is_const(node.args[0]) else "False"


def _undef(emitter: Emits, node: Call) -> str:
    lane = f"undefined({dtypes.element_of(node.dtype)!r})"
    vector = dtypes.lanes_of(node.dtype) > 1
    return f"np.full({lane_text(node)}, {lane})" if vector else lane


def _reinterpret(emitter: Emits, node: Call) -> str:
    (value,) = node.args
    return f"reinterpret({emitter.expr(value)}, {value.dtype!r}, {node.dtype!r})"


def _dot_accumulate(emitter: Emits, node: Call) -> str:
    args = ", ".join(map(emitter.expr, node.args))
    width = dtypes.bits_of(node.dtype) // dtypes.bits_of(node.args[1].dtype)
    return emitter.wrapped(f"dot_accumulate({args}, {width})", node.dtype)


def _vector_low(emitter: Emits, node: Call) -> str:
    return f"lanes_from({emitter.expr(node.args[0])}, 0, {dtypes.lanes_of(node.dtype)})"


def _vector_high(emitter: Emits, node: Call) -> str:
    count = dtypes.lanes_of(node.dtype)
    return f"lanes_from({emitter.expr(node.args[0])}, {count}, {count})"


def _vector_combine(emitter: Emits, node: Call) -> str:
    low, high = map(emitter.expr, node.args)
    return f"joined({low}, {high})"


def _vector_reduce(function: str) -> Callable[[Emits, Call], str]:
    def text(emitter: Emits, node: Call) -> str:
        vector = emitter.expr(node.args[0])
        if dtypes.is_float(node.dtype) and function != "sum":
            return f"float(np.{function}({vector}))"  # NaN if any lane is
        # Kept in the type's own meaning: sums are of Python numbers.
        return emitter.wrapped(f"{function}({vector}.tolist())", node.dtype, always=True)

    return text


# ---- threads and memory ---------------------------------------------------------------------


def _collective(emitter: Emits, node: Call) -> str:
    text: str = emitter.threads.exchange(node)
    return text


def _gpu_call(emitter: Emits, node: Call) -> str:
    check_call(node)
    return emit_gpu.gpu_call(emitter, node)


def _addressed(node: Call) -> BufferLoad:
    """The element whose address is the first operand of a call."""
    address = node.args[0]
    if not (isinstance(address, Call) and address.op.name == "address_of"):
        raise VerifyError(f"{node.op.name} takes address_of(buffer[...]), got {address!r}")
    load = address.args[0]
    assert isinstance(load, BufferLoad)
    return load


def _atomic_add(emitter: Emits, node: Call) -> str:
    load = _addressed(node)
    place = emitter.address(load.buffer, load.indices)
    place = emitter.threads.noted(load.buffer, place, "write")
    memory = emitter.memory(load.buffer)
    return f"fetch_add({memory}, {place}, {emitter.expr(node.args[1])}, {load.buffer.dtype!r})"


def _call_function(emitter: Emits, node: Call) -> str:
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


def _misalignment(emitter: Emits, node: Call) -> str:
    load = _addressed(node)
    memory, place = emitter.memory(load.buffer), emitter.address(load.buffer, load.indices)
    return f"misalignment({memory}_np, {place}, {emitter.expr(node.args[1])})"


_OWN: dict[str, Callable[[Emits, Call], str]] = {
    "if_then_else": _if_then_else,
    "likely": _as_it_is,
    "ignore_loop_partition": _as_it_is,
    "isnullptr": _isnullptr,
    "undef": _undef,
    VSCALE.name: _vscale,
    "reinterpret": _reinterpret,
    "dot_accumulate": _dot_accumulate,
    "vector_low": _vector_low,
    "vector_high": _vector_high,
    "vector_combine": _vector_combine,
    "vector_reduce_add": _vector_reduce("sum"),
    "vector_reduce_max": _vector_reduce("max"),
    "vector_reduce_min": _vector_reduce("min"),
    **dict.fromkeys(COLLECTIVES, _collective),
    **dict.fromkeys(GPU_OPS, _gpu_call),
    "atomic_add": _atomic_add,
    "misalignment": _misalignment,
    **dict.fromkeys(CALLS, _call_function),
}
