"""What a ``.pt2`` file may hold: it is looked through before PyTorch reads it.

PyTorch unpickles, evaluates formulas of sizes and looks up operators by name, all as the file says,
so reading a file may run whatever its author likes. Here a file passes only if it holds tensors,
formulas of arithmetic and names of operators, which is all that an exported model needs.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.support.errors import ImportModelError

_MOST_JSON = 1 << 30
#: Longer formulas of sizes are none of a model's.
_LONGEST = 20_000
_LARGEST_POWER = 4096
#: Operators: those of PyTorch's own tables, Python's, and a few on sizes.
_OPERATOR = re.compile(
    r"torch\.ops\.(?!load_library|loaded_libraries)\w+\.\w+(\.\w+)?|_operator\.\w+|math\.\w+"
    r"|torch\._?sym_\w+|torch\.sym_\w+"
)
_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Load,
    ast.Constant, ast.Tuple, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
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


def check_archive(path: Path, torch: Any) -> None:
    """Look through a file before PyTorch reads it.

    Raises ``ImportModelError`` for one that holds more than a model, and for a damaged one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, torch)
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise ImportModelError(
            f"{str(path)!r} can't be read as an exported program ({type(error).__name__}: "
            f"{str(error)[:300]}); it may be damaged: export the model anew with torch.export.save"
        ) from error
    except RecursionError:
        raise ImportModelError(f"{str(path)!r} is nested too deeply for a model") from None


def _check_members(archive: zipfile.ZipFile, torch: Any) -> None:
    names = [item.filename for item in archive.infolist()]
    if len(set(names)) != len(names):
        raise _refused("it has two members of one name")
    for item in archive.infolist():
        name = item.filename
        # PyTorch's archives have everything in one folder.
        inner = name.partition("/")[2]
        if "aotinductor" in inner or name.endswith((".so", ".cpp", ".cubin", ".ptx")):
            raise _refused(f"{name} is compiled code: export the model with torch.export.save")
        if name.endswith(".json"):
            if item.file_size > _MOST_JSON:
                raise _refused(f"{name} is too large")
            value = json.loads(archive.read(item))
            _check_text(value)
            for payload in _payloads(value):
                _require_tensors(archive, names, payload, torch)
        elif name.endswith(".pt"):
            _load(archive, name, torch)


def _payloads(value: Any) -> Iterator[str]:
    """Names of the members that PyTorch unpickles, by a table of weights or constants."""
    config = value.get("config") if isinstance(value, dict) else None
    for entry in config.values() if isinstance(config, dict) else ():
        if isinstance(entry, dict) and entry.get("use_pickle"):
            yield str(entry.get("path_name"))


def _require_tensors(archive: zipfile.ZipFile, names: list[str], payload: str, torch: Any) -> None:
    if payload.startswith(("custom_obj", "opaque_obj")):
        raise _refused(f"{payload} is an object of a class: models may hold tensors only")
    for name in names:
        if name.endswith(f"/{payload}"):
            _load(archive, name, torch)


def _load(archive: zipfile.ZipFile, name: str, torch: Any) -> None:
    """Load what PyTorch would unpickle, in a way that makes nothing but tensors and containers."""
    import pickle

    data = archive.read(name)
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        lines = [line for line in str(error).splitlines() if "GLOBAL" in line or "class" in line]
        why = (lines or str(error).splitlines() or [""])[0].strip()
        raise _refused(f"{name} holds more than tensors: {why[:200]}") from None


def _check_text(value: Any) -> None:
    """Check what PyTorch evaluates or looks up, wherever it is in a description."""
    pending = [("", value)]
    while pending:
        key, item = pending.pop()
        if isinstance(item, dict):
            pending += [(str(k), v) for k, v in item.items()]
        elif isinstance(item, list):
            pending += [(key, v) for v in item]
        elif isinstance(item, str):
            _check_string(key, item)


def _check_string(key: str, text: str) -> None:
    if key == "target" and text.startswith(("torch", "_operator", "math", "#")):
        # Of inputs and outputs, targets are names of parameters, looked up in a table.
        if not _OPERATOR.fullmatch(text) or "__" in text.replace("__is__", ""):
            raise _refused(f"{text!r} is no operator of a model")
        if re.search(r"\.(from_file|aoti\w*|run_const_graph)\b", text):
            raise _refused(f"the operator {text!r} reads files")
    elif key in ("expr_str", "guards_code"):
        _check_formula(text)
    elif "__enum__" in text or "default_factory" in text:
        raise _refused("the structure of its inputs or outputs names classes of other modules")


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
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            fine.add(id(node.slice))
        elif not _is_arithmetic(node, fine):
            raise _refused(f"{text[:80]!r} is no formula of sizes")


def _is_arithmetic(node: ast.AST, fine: set[int]) -> bool:
    if isinstance(node, ast.keyword):  # Symbol("n", positive=True)
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Attribute):
        return node.attr in _ATTRIBUTES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) or id(node) in fine
    if not isinstance(node, _ARITHMETIC) or _is_large_power(node):
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


def _is_large_power(node: ast.AST) -> bool:
    """Whether evaluating a power may take for ever: one by a number that isn't small.

    Sizes in an exponent are no numbers yet, so a formula of them is as small as its own numbers.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        power: ast.AST = node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        if node.func.id not in ("Pow", "PowByNatural", "FloatPow", "LShift"):
            return False
        power = node.args[1]
    else:
        return False
    most = 1.0
    for item in ast.walk(power):
        nested = isinstance(item, ast.BinOp) and isinstance(item.op, (ast.Pow, ast.LShift))
        called = isinstance(item, ast.Name) and item.id in ("Pow", "PowByNatural", "LShift")
        if nested or called:
            return True
        if isinstance(item, ast.Constant) and isinstance(item.value, (int, float)):
            most *= max(1.0, float(abs(item.value)))
        elif isinstance(item, ast.Constant) and isinstance(item.value, str):
            most *= 10.0 ** (len(item.value) if item.value.isdecimal() else 0)
    return not most <= _LARGEST_POWER


def _refused(why: str) -> ImportModelError:
    return ImportModelError(f"the file can't be trusted: {why}")
