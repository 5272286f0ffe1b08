"""Intrinsic operators that a ``Call`` may name, as a table.

An operator has a number of arguments, a result dtype and effects. What it *means* is defined by the
reference interpreter (``tir/interpreter``) and by each backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tilewright.support.errors import VerifyError
from tilewright.support.registry import Registry


class ArgumentInfo(NamedTuple):
    """What is said of an argument of an operator."""

    name: str
    type_info: str
    description: str


EFFECTS = ("pure", "read", "update", "opaque")
"""What calls of an operator may do to memory, from nothing to anything."""


@dataclass(frozen=True, eq=False)
class Op:
    """An intrinsic operator.

    ``arity`` is ``None`` for any number of arguments. ``result`` is ``"same"`` (dtype of the first
    argument), ``"bool"`` (truth value with the first argument's lanes), ``"last"`` (dtype of the
    last argument), a dtype (``"handle"``, ``"void"``, ``"int32"``) or ``"given"`` (the call says).
    ``effect`` is ``"pure"``, ``"read"`` (reads memory), ``"update"`` (writes memory) or
    ``"opaque"`` (anything, ordering matters).
    ``operands`` says which kinds of numbers it takes: those of ``"float"``, ``"integer"`` or
    ``"number"`` (both), ``"bits"`` (integers and truth values), or ``"any"`` dtypes; several words
    are for one argument each, and for these the arguments aren't brought to one dtype.
    """

    name: str = ""
    arity: int | None = None
    result: str = "same"
    effect: str = "pure"
    doc: str = ""
    operands: str = "any"
    arguments: tuple[ArgumentInfo, ...] = field(default=(), init=False)
    support_level: int = field(default=10, init=False)
    attrs_type_key: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise VerifyError("operators aren't made but found: Op.get(name); see register_op")
        if self.effect not in EFFECTS:
            raise VerifyError(
                f"the effect of operator {self.name} is one of {', '.join(EFFECTS)}, "
                f"got {self.effect!r}"
            )

    @staticmethod
    def get(op_name: str) -> Op:
        """Return an operator by name, also ``"tirx.exp"`` or, of graphs, ``"relax.add"``.

        Raises an error that names similar ones if there is none.
        """
        package, _, name = op_name.partition(".")
        if op_name in OPS or package not in _TABLES:
            return OPS.get(op_name)
        found: Op = _TABLES[package].get(name)
        return found

    @property
    def num_inputs(self) -> int:
        """The number of arguments, -1 for any."""
        return -1 if self.arity is None else self.arity

    @property
    def description(self) -> str:
        """What the operator does."""
        return self.doc

    def set_num_inputs(self, n: int) -> None:
        """Set the number of arguments that calls have from now on, -1 for any."""
        object.__setattr__(self, "arity", None if n == -1 else n)

    def add_argument(self, name: str, type: str, description: str) -> None:
        """Describe the next argument, for readers of ``arguments``."""
        made = ArgumentInfo(name, type, description)
        object.__setattr__(self, "arguments", (*self.arguments, made))

    def set_support_level(self, level: int) -> None:
        """Set the level, for readers of ``support_level``."""
        object.__setattr__(self, "support_level", level)

    def set_attrs_type_key(self, key: str) -> None:
        """Set the name of the class of attributes, for readers of ``attrs_type_key``."""
        object.__setattr__(self, "attrs_type_key", key)

    @staticmethod
    def list_op_names() -> list[str]:
        """Return the names of all operators."""
        graphs = [table for table in _TABLES.values() if table is not OPS]
        return [*OPS, *(op.name for table in graphs for _, op in table.items())]

    def get_attr(self, attr_name: str) -> Any:
        """Return an attribute that somebody registered for the operator, or ``None``."""
        return _ATTRIBUTES.get((self.name, attr_name), (0, None))[1]

    def has_attr(self, attr_name: str) -> bool:
        """Whether somebody registered an attribute for the operator."""
        return (self.name, attr_name) in _ATTRIBUTES

    def set_attr(self, attr_name: str, value: object, plevel: int = 10) -> None:
        """Register an attribute, unless one of a higher level is there."""
        known = _ATTRIBUTES.get((self.name, attr_name))
        if known is None or known[0] <= plevel:
            _ATTRIBUTES[self.name, attr_name] = (plevel, value)

    def reset_attr(self, attr_name: str) -> None:
        """Forget an attribute."""
        _ATTRIBUTES.pop((self.name, attr_name), None)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return _op, (self.name,)


OPS: Registry[Op] = Registry("operator")

# By the first part of names.
_TABLES: dict[str, Registry[Any]] = {"tir": OPS, "tirx": OPS}


def register_operators(package: str, table: Registry[Any]) -> None:
    """Let ``Op.get`` find a table's operators by the package's name before their keys."""
    _TABLES[package] = table


#: Results that are dtypes themselves.
STATED_RESULTS = ("handle", "void", "int32")


# What users note about operators, by name and key: a level, and the value.
_ATTRIBUTES: dict[tuple[str, str], tuple[int, Any]] = {}


def register_op_attr(op_name: str, attr_key: str, value: object = None, level: int = 10) -> Any:
    """Note something about an operator: ``Op.get(op_name).get_attr(attr_key)`` returns it.

    Without a value, it is a decorator of a function. Of several, that of the highest level counts.
    """

    def register(noted: object) -> Any:
        Op.get(op_name).set_attr(attr_key, noted, level)
        return noted

    return register if value is None else register(value)


def _op(name: str) -> Op:
    """Find an operator again: a method of the registry would be pickled with all its entries."""
    return OPS.get(name)


def register_op(
    name: str,
    arity: int | None,
    result: str = "same",
    effect: str = "pure",
    doc: str = "",
    operands: str = "any",
) -> Op:
    """Add an operator to the table and return it."""
    return OPS.register(name, Op(name, arity, result, effect, doc, operands))


UNARY_FLOAT = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt tanh sigmoid silu erf gelu gelu_tanh sin "
    "cos tan sinh cosh asin acos atan asinh acosh atanh"
).split()
# Whole numbers are what rounding gives already.
UNARY_NUMBER = "floor ceil trunc round nearbyint fabs abs".split()
UNARY_INTEGER = "popcount clz".split()
UNARY_MATH = [*UNARY_FLOAT, *UNARY_NUMBER, *UNARY_INTEGER]
for _kind, _names in (
    ("float", UNARY_FLOAT),
    ("number", UNARY_NUMBER),
    ("integer", UNARY_INTEGER),
):
    for _name in _names:
        register_op(_name, 1, operands=_kind)
for _name in ("pow", "atan2", "fmod", "hypot", "copysign", "nextafter"):
    register_op(_name, 2, operands="float")
register_op("ldexp", 2, doc="(x, n): x * 2**n, rounded once", operands="float integer")
register_op("logaddexp", 2, doc="log(exp(a) + exp(b)) without overflow", operands="float")
register_op(
    "q_multiply_shift", 4, operands="integer",
    doc="(x, y, q, s): x * y * 2**(s - q) in 64 bits, rounded half up; s may be negative",
)  # fmt: skip
register_op(
    "q_multiply_shift_per_axis", 7, operands="bits",
    doc="(x, y, left, right, q, is_left, is_right): (x << left) * y / 2**(q + right), rounded "
    "half up; x is not shifted where is_left is false",
)  # fmt: skip
for _name in ("isnan", "isinf", "isfinite"):
    register_op(_name, 1, "bool", doc="integers are finite")
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    register_op(_name, 2, operands="bits")
register_op(
    "shift_left",
    2,
    doc="zeros come in; all bits go out for b outside [0, width)",
    operands="integer",
)
register_op(
    "shift_right",
    2,
    doc="copies of the sign come in; a negative b counts as too large",
    operands="integer",
)
register_op("truncdiv", 2, doc="quotient rounded towards zero; 0 if b is", operands="integer")
register_op(
    "truncmod", 2, doc="rest of truncdiv, with the sign of a; 0 if b is", operands="integer"
)
register_op(
    "indexdiv",
    2,
    doc="a // b where a >= 0 and b >= 1 are known: `LowerIntDiv` makes it",
    operands="integer",
)
register_op("indexmod", 2, doc="a % b where a >= 0 and b >= 1 are known", operands="integer")
register_op("bitwise_not", 1, operands="bits")
register_op("fma", 3, doc="a * b + c, rounded once", operands="float")
register_op(
    "dot_accumulate", 3,
    doc="(total, a, b): total plus the dot products of neighbours. Each lane of the 32-bit total "
    "takes as many neighbouring lanes of a and b as fit into 32 bits: 4 of int8, 2 of bfloat16; an "
    "operand with lanes for one result serves all",
)  # fmt: skip
register_op("if_then_else", 3, "last", doc="evaluates only the chosen branch")
register_op("likely", 1, doc="a condition that nearly always holds")
register_op("ignore_loop_partition", 1, doc="a condition at which no loop is to be cut")
register_op("reinterpret", 1, "given", doc="same bits, other dtype")
register_op("min_value", 0, "given")
register_op("max_value", 0, "given")
register_op("infinity", 0, "given")
register_op("vector_low", 1, "given", doc="lower half of a vector")
register_op("vector_high", 1, "given", doc="upper half of a vector")
register_op("vector_combine", 2, "given", doc="two vectors of equal lanes, joined")
register_op("vector_reduce_add", 1, "given", doc="sum of all lanes, any order")
register_op("vector_reduce_max", 1, "given")
register_op("vector_reduce_min", 1, "given")
register_op("vscale", 0, "int32", doc="what the lanes of scalable vectors are multiples of")
register_op("call_extern", None, "given", "opaque", "call_extern(name, *args)")
register_op("call_pure_extern", None, "given", "pure", "call_pure_extern(name, *args)")
register_op(
    "call_packed", None, "int32", "opaque",
    "call_packed(name, *args): a global function by name; args are scalars, texts, packed_tensors",
)  # fmt: skip
register_op(
    "packed_tensor", None, "handle", "opaque", "packed_tensor(pointer, dtype, *shape): an argument"
)
register_op("call_llvm_intrin", None, "given", "opaque", "call_llvm_intrin(name, *args)")
register_op("call_llvm_pure_intrin", None, "given", "pure", "call_llvm_pure_intrin(name, *args)")
register_op("isnullptr", 1, "bool", doc="whether a pointer is null")
register_op("undef", 0, "given", doc="a value that must not matter")
register_op("address_of", 1, "handle", "pure", "pointer to a buffer element")
register_op("misalignment", 2, "given", "pure", "(address, n): bytes from a multiple of n to it")
register_op(
    "access_ptr", None, "given", "opaque", "access_ptr(buffer_var, offset, extent, rw_mask)"
)
register_op("constant_data", 2, "given", "pure", "constant_data(symbol, bytes): address")
register_op("prefetch", None, "given", "opaque", "prefetch(address, rw, locality)")
register_op("storage_sync", 1, "given", "opaque", "barrier of the named scope: shared or warp")
# Exchange between threads. Lanes are those of a warp; `width` cuts warps into segments.
register_op("warp_shuffle", 4, "given", "opaque", "(mask, value, lane, width): lane's value")
register_op("warp_shuffle_up", 4, "given", "opaque", "(mask, value, delta, width)")
register_op("warp_shuffle_down", 4, "given", "opaque", "(mask, value, delta, width)")
register_op("warp_shuffle_xor", 4, "given", "opaque", "(mask, value, lane_mask, width)")
register_op("warp_activemask", 0, "given", "opaque", "bit mask of the lanes that are here")
register_op("warp_ballot", 2, "given", "opaque", "(mask, condition): bit mask where it holds")
register_op("warp_any", 2, "given", "opaque", "(mask, condition): whether it holds for a lane")
register_op("warp_all", 2, "given", "opaque", "(mask, condition): whether it holds for all lanes")
register_op(
    "thread_allreduce", None, "given", "opaque",
    "(reducer, values..., addresses..., thread tags...): joins values of the threads along the "
    "tags by a registered reducer; each of them gets the result",
)  # fmt: skip
register_op("atomic_add", 2, "last", "update", "(address, value): adds, gives the value before")
register_op("assume", 1, "given", "opaque", "promises that a condition holds")
register_op("ret", 1, "given", "opaque", "ends the function; its value is the function's")
register_op("break_loop", 0, "void", "opaque", "leaves the innermost loop")
register_op("continue_loop", 0, "void", "opaque", "goes on with the next iteration of the loop")
