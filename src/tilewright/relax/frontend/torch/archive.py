"""What a ``.pt2`` file may hold: it is looked through before PyTorch reads it.

PyTorch unpickles, evaluates formulas of sizes and looks up operators by name, all as the file says,
so reading a file may run whatever its author likes. Here a file passes only if it holds tensors,
formulas of arithmetic and names of operators, which is all that an exported model needs.

The file is looked through with PyTorch's own reader: others may find other members in it, for one
because it takes names in upper and lower case for the same.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import math
import re
from collections.abc import Iterator
from typing import IO, Any

from tilewright.support.errors import ImportModelError

_MOST_JSON = 1 << 30
#: Longer formulas of sizes are none of a model's.
_LONGEST = 20_000
#: Numbers in formulas are shorter, in bits, also those that powers of others come to.
_MOST_BITS = 1 << 17
#: PyTorch stores members as they are; only members packed again are smaller in the file.
_MOST_UNPACKED = 200
#: Operators: those of PyTorch's own tables, and Python's on sizes.
_OPERATOR = re.compile(
    r"torch(?P<op>\.ops\.\w+\.\w+(\.\w+)?)|torch\._?sym_\w+"
    r"|math\.(trunc|floor|ceil|sqrt|pow|log|log2|exp|cos|sin|tan|cosh|sinh|tanh|acos|asin|atan)"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|lshift|rshift|and_|or_|xor|not_"
    r"|invert|eq|ne|lt|le|gt|ge|getitem|index|truth)"
)
_OF_FILES = re.compile(r"\.(from_file|save|aoti\w*|run_const_graph)\b")
#: Python's ``^`` isn't among them: sympy reads it as a power.
_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Load,
    ast.Constant, ast.Tuple, ast.unaryop, ast.boolop, ast.cmpop, ast.Add, ast.Sub, ast.Mult,
    ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr,
)  # fmt: skip
_POWERS = frozenset("Pow PowByNatural FloatPow LShift".split())
#: What formulas call: functions of sympy and of torch.utils._sympy.functions.
_FUNCTIONS = frozenset(
    "FloorDiv ModularIndexing Where PythonMod Mod CleanDiv CeilToInt FloorToInt CeilDiv LShift "
    "RShift PowByNatural FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator "
    "TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity Max Min Abs Add Mul Pow Eq "
    "Ne Lt Le Gt Ge And Or Not Piecewise floor ceiling sqrt "
    "StrictGreaterThan GreaterThan LessThan StrictLessThan Equality Unequality ExprCondPair "
    "OpaqueUnaryFn_sqrt OpaqueUnaryFn_log2 OpaqueUnaryFn_exp OpaqueUnaryFn_log "
    "max min abs round int float".split()
)
#: What stands for symbols and numbers, by their text.
_LITERALS = frozenset("Symbol Float Integer Rational".split())
_ATTRIBUTES = frozenset(
    "size stride storage_offset numel shape math torch trunc floor ceil sqrt log2 sym_float "
    "sym_int sym_max sym_min sym_not sym_sqrt".split()
)


def check_archive(file: IO[bytes], torch: Any) -> None:
    """Look through an open file before PyTorch reads it.

    Raises ``ImportModelError`` for one that holds more than a model, ``RuntimeError`` or
    ``ValueError`` for a damaged one.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        _check_members(torch._C.PyTorchFileReader(file), size, torch)
    except RecursionError:
        raise _refused("it is nested too deeply for a model") from None
    finally:
        file.seek(0)


def registered_classes(torch: Any) -> list[Any]:
    """Classes of inputs that the caller has registered with PyTorch: they are no stranger's."""
    types = torch.utils._pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.values()
    return [t for t in types if dataclasses.is_dataclass(t) or hasattr(t, "_fields")]


def _check_members(archive: Any, size: int, torch: Any) -> None:
    names: list[str] = archive.get_all_records()
    if len({name.lower() for name in names}) != len(names):
        raise _refused("it has two members of one name")
    if sum(map(archive.get_record_size, names)) > _MOST_UNPACKED * size:
        raise _refused("it is much larger unpacked")
    for name in names:
        lower = name.lower()
        if "aotinductor" in lower or lower.endswith((".so", ".cpp", ".cubin", ".ptx")):
            raise _refused(f"{name} is compiled code: export the model with torch.export.save")
        # PyTorch reads whatever is in this folder as a model.
        if lower.startswith("models/") or lower.endswith(".json"):
            if archive.get_record_size(name) > _MOST_JSON:
                raise _refused(f"{name} is too large")
            value = json.loads(archive.get_record(name).decode())
            _check_text(value, torch)
            for payload in _payloads(value):
                _require_tensors(archive, names, payload, torch)
        elif lower.endswith(".pt"):
            _load(archive, name, torch)


def _payloads(value: Any) -> Iterator[str]:
    """Names of the members that PyTorch unpickles, by a table of weights or constants."""
    config = value.get("config") if isinstance(value, dict) else None
    for entry in config.values() if isinstance(config, dict) else ():
        if isinstance(entry, dict):
            payload = str(entry.get("path_name")).lower()
            if entry.get("use_pickle") or payload.startswith(("custom_obj", "opaque_obj")):
                yield payload


def _require_tensors(archive: Any, names: list[str], payload: str, torch: Any) -> None:
    if payload.startswith(("custom_obj", "opaque_obj")):
        raise _refused(f"{payload} is an object of a class: models may hold tensors only")
    if not re.fullmatch(r"[\w.-]+", payload):
        raise _refused(f"{payload!r} is no name of a weight")
    for name in names:
        if name.lower().rpartition("/")[2] == payload:
            _load(archive, name, torch)


def _load(archive: Any, name: str, torch: Any) -> None:
    """Load what PyTorch would unpickle, in a way that makes nothing but tensors and containers."""
    import pickle

    data = archive.get_record(name)
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        lines = [line for line in str(error).splitlines() if "GLOBAL" in line or "class" in line]
        why = (lines or str(error).splitlines() or [""])[0].strip()
        raise _refused(f"{name} holds more than tensors: {why[:200]}") from None


def _check_text(value: Any, torch: Any) -> None:
    """Check what PyTorch evaluates or looks up, wherever it is in a description."""
    pending = [("", value)]
    while pending:
        key, item = pending.pop()
        if isinstance(item, dict):
            if "__enum__" in item or "default_factory_module" in item:
                raise _refused("the structure of its inputs or outputs names classes of modules")
            pending += item.items()
        elif isinstance(item, list):
            pending += [(key, v) for v in item]
        elif isinstance(item, str):
            _check_string(key, item, torch)
            if item.lstrip()[:1] in ("{", "[", '"'):  # structures are descriptions in texts
                try:
                    pending.append((key, json.loads(item)))
                except ValueError:
                    continue


def _check_string(key: str, text: str, torch: Any) -> None:
    if key == "target" and text.startswith(("torch", "_operator", "math", "#")):
        # Of inputs and outputs, targets are names of parameters, looked up in a table.
        match = _OPERATOR.fullmatch(text)
        if not match or "__" in text.replace("__is__", "") or not _is_operator(match["op"], torch):
            raise _refused(f"{text!r} is no operator of a model")
        if _OF_FILES.search(text):
            raise _refused(f"the operator {text!r} reads or writes files")
    elif key in ("expr_str", "guards_code"):
        _check_formula(text)


def _is_operator(name: str | None, torch: Any) -> bool:
    """Whether the name is an operator's, or nothing's, rather than a method of PyTorch's tables."""
    found = torch
    for part in (name or "").split(".")[1:]:
        found = getattr(found, part, None)
    operators = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    return not name or found is None or isinstance(found, operators)


def _check_formula(text: str) -> None:
    """Let formulas of sizes pass: arithmetic, and guards such as ``L['x'].size()[0] >= 2``."""
    if len(text) > _LONGEST:
        raise _refused("a formula of sizes is too long")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError):
        raise _refused(f"{text[:80]!r} is no formula of sizes") from None
    fine = set()  # texts in their places: inputs by name, names of symbols, digits
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and _is_key(node.slice):
            fine.add(id(node.slice))
        elif not _is_arithmetic(node, fine):
            raise _refused(f"{text[:80]!r} is no formula of sizes")
    if not _bits(tree) <= _MOST_BITS:
        raise _refused(f"the numbers of {text[:80]!r} are too large for sizes")


def _is_key(node: ast.AST) -> bool:
    """Whether it names an input: PyTorch puts its text between double quotes in a program."""
    return isinstance(node, ast.Constant) and not re.search(r'["\\\x00-\x1f]', str(node.value))


def _is_arithmetic(node: ast.AST, fine: set[int]) -> bool:
    if isinstance(node, ast.keyword):  # Symbol("n", positive=True)
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Attribute):
        return node.attr in _ATTRIBUTES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) or id(node) in fine
    if not isinstance(node, _ARITHMETIC):
        return False
    if not isinstance(node, ast.Call) or isinstance(node.func, ast.Attribute):
        return True
    if not isinstance(node.func, ast.Name):
        return False
    if node.func.id in _LITERALS:
        fine.update(id(item) for item in node.args if _is_plain_text(item))
        return True
    return node.func.id in _FUNCTIONS


def _is_plain_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[\w.+-]{1,200}", node.value) is not None
    )


def _bits(node: ast.AST) -> float:
    """A bound of how long the numbers are that evaluating a formula makes, in bits.

    Sizes in it are no numbers yet, so a formula of them is as small as its own numbers.
    """
    if isinstance(node, ast.Constant):
        return math.log2(2 + abs(node.value)) if isinstance(node.value, (int, float)) else 1.0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("Float", "Integer", "Rational"):
            return sum(_bits_of_text(item) for item in node.args)
        if node.func.id in _POWERS and len(node.args) == 2:
            return _bits(node.args[0]) * _most(node.args[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return _bits(node.left) * _most(node.right)
    return sum(map(_bits, ast.iter_child_nodes(node)))


def _bits_of_text(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return math.log2(2 + abs(float(node.value)))
        except ValueError:
            return math.inf  # not a number
    return _bits(node)


def _most(power: ast.expr) -> float:
    """A bound of a power's value; sizes in it are taken for one."""
    bits = _bits(power)
    return 2.0**bits if bits < 64 else math.inf


def _refused(why: str) -> ImportModelError:
    return ImportModelError(f"the file can't be trusted: {why}")
