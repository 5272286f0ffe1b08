"""Write `src/tilewright/tir/schedule/methods.pyi`: the primitives as methods, for type checkers.

python tools/schedule_stub.py           # write the stub
python tools/schedule_stub.py --check   # exit status 1 if it is out of date
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

from tilewright.tir import schedule
from tilewright.tir.schedule import PRIMITIVES
from tilewright.tir.schedule.instruction import Primitive

STUB = Path(inspect.getfile(schedule)).with_name("methods.pyi")
HEAD = '''"""The primitives as methods of schedules; made by `tools/schedule_stub.py`.

A block can be given by its name.
"""
'''
BUILTINS = {"None", "bool", "dict", "float", "int", "list", "object", "str", "tuple"}


def stub() -> str:
    """Return the stub's text."""
    imports: dict[str, set[str]] = defaultdict(set)
    methods = []
    for _, item in sorted(PRIMITIVES.items()):
        methods.append(_method(item))
        known = _imported(inspect.getmodule(item.function))
        for name in re.findall(r"(?<![\w.\"])[A-Za-z_]\w*", " ".join(_annotations(item))):
            if name not in BUILTINS:
                imports[known[name]].add(name)
    lines = [f"from {module} import {', '.join(sorted(imports[module]))}" for module in imports]
    body = "\n".join(methods)
    return f"{HEAD}\n{chr(10).join(sorted(lines))}\n\nclass PrimitiveMethods:\n{body}"


def _annotations(item: Primitive) -> list[str]:
    signature = inspect.signature(item.function)
    parameters = list(signature.parameters.values())[1:]
    return [str(one.annotation) for one in parameters] + [str(signature.return_annotation)]


def _imported(module: ModuleType | None) -> dict[str, str]:
    """Where the names of a module come from: what it imports, and what it defines itself."""
    assert module is not None
    found = dict.fromkeys(vars(module), module.__name__)
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update({item.asname or item.name: node.module for item in node.names})
    return found


def _method(item: Primitive) -> str:
    signature = inspect.signature(item.function)
    parts, keyword_only = ["self"], False
    for one in list(signature.parameters.values())[1:]:
        star = "*" if one.kind is inspect.Parameter.VAR_POSITIONAL else ""
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(part.startswith("*") for part in parts):
                parts.append("*")
        annotation = re.sub(r"\bBlockRV\b", "BlockRV | str", str(one.annotation))
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        parts.append(f"{star}{one.name}: {annotation}{default}")
    told = (inspect.getdoc(item.function) or "").split("\n")[0]
    lines = ",\n        ".join(parts)
    return (
        f"    def {item.name}(\n        {lines},\n    ) -> {signature.return_annotation}:\n"
        f'        """{told}"""\n'
    )


def main() -> int:
    """Write or check the stub."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    made = stub()
    if parser.parse_args().check:
        if STUB.exists() and STUB.read_text() == made:
            return 0
        print(f"{STUB.name} is out of date: python tools/schedule_stub.py")
        return 1
    STUB.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
