"""Compiled graphs on disk, found by the graph as it is before its functions are scheduled.

A build that finds its graph here neither schedules nor plans nor lowers anything: it reads the
objects and makes the constants that they refer to. An entry has the objects, the functions' names
and arguments, and for each constant which one of the graph it is, and which function packs it; the
values themselves are no part of entry or key, so other weights find the same entry.

The key is all that the rest of a build goes by: the graph with the names in it, the target and its
costs, the pass options, this machine's CPU (on which constants are packed), LLVM, and the source of
this package. Where something else may have a say, nothing is looked up or kept: with instruments,
which want to see passes run; when a third party has registered an operator, kernel or the like; and
when the source has been edited since this process started. Entries are kept and checked as objects
are (``codegen.llvm.object_cache``).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilewright.codegen.llvm.jit import resolve_cpu
from tilewright.codegen.llvm.object_cache import read_entry, write_entry
from tilewright.codegen.llvm.package import link_library
from tilewright.driver import compile as compile_module
from tilewright.ir import OPS, IRModule, PassContext, exact_hash
from tilewright.kernels.cpu import CPU_KERNELS
from tilewright.kernels.gpu import GPU_KERNELS
from tilewright.relax.expr import Constant, ConstantData, Function, RelaxExpr, RelaxVar
from tilewright.relax.overwriting import Places
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.transform.layout_free import PackedData, packed_data
from tilewright.relax.values import numpy_dtype
from tilewright.runtime import FunctionInfo, Module, ModuleCode
from tilewright.runtime.huge_pages import huge_bytes
from tilewright.support.errors import RunError, VerifyError
from tilewright.support.registry import Registry
from tilewright.support.settings import setting
from tilewright.target import Target
from tilewright.tir import REDUCERS
from tilewright.tir.attrs import CONSTANTS
from tilewright.tir.schedule import KERNELS

_STARTED = time.time()
#: What the rest of a build goes by, and third parties may add to.
_OPEN: tuple[Registry[Any], ...] = (OPS, REDUCERS, KERNELS, CPU_KERNELS, GPU_KERNELS)
#: Whole numbers may be sizes, of which code is made; so many of them are part of the key.
_NUMBERS = 1 << 12
#: Bytes of a cache line, and of constants that are worth a huge page.
_LINE, _LARGE = 64, 1 << 18

Lower = Callable[[IRModule], tuple[IRModule, IRModule]]
"""Schedules a graph and plans its memory: gives the planned module and the lowered one."""


class GraphKey:
    """What a build goes by, before scheduling; ``text`` is ``None`` if that can't be told."""

    def __init__(self, mod: IRModule, target: Target) -> None:
        self.mod, self.target = mod, target
        self.numbers: dict[ConstantData, int] = {}
        self.text = self._made()

    def _made(self) -> str | None:
        context = PassContext.current()
        sources = _sources() if setting("cache_graphs") else None
        if sources is None or context.instruments or any(item.extended for item in _OPEN):
            return None
        try:
            graph = exact_hash(self.mod, self._content)
        except VerifyError:  # holds something that has no hash
            return None
        options = context.opt_level, sorted(context.config.items()), sorted(context.disabled_pass)
        native = str(Target("native")), resolve_cpu(None, None, None)
        machines = str(self.target), repr(self.target.costs), native
        order = list(self.mod.functions)
        return repr(("graph", sources, graph, order, options, machines))

    def _content(self, value: Any) -> str:
        if not isinstance(value, ConstantData):
            return str(value.content_key(False))
        number = self.numbers.setdefault(value, len(self.numbers))
        exact = value.dtype.kind in "iub" and value.size <= _NUMBERS
        return f"{value.content_key(not exact)}#{number}"


@lru_cache(maxsize=1)
def _sources() -> str | None:
    """The hash of this package's source, unless it has been edited since this process started.

    Nor is there one if the files can't be looked at, because the package lies in an archive.

    The files are read once; later processes go by what the system says of them. Whatever writes or
    replaces a file also sets the time of its last change, which nobody can set back.
    """
    root = str(files("tilewright"))
    names = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".py")
    )
    found = {path: os.stat(path) for path in sorted(names)}
    # Files that are replaced by a package manager may have times of before.
    if not found or any(max(i.st_mtime, i.st_ctime) > _STARTED for i in found.values()):
        return None
    known = [
        (path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        for path, info in found.items()
    ]
    key = repr(("sources", known))
    kept = read_entry(key)
    if kept is not None:
        return kept.decode()
    digest = hashlib.sha256()
    for path, info in found.items():
        digest.update(f"{os.path.relpath(path, root)}\0{info.st_size}\0".encode())
        digest.update(Path(path).read_bytes())
    write_entry(key, digest.hexdigest().encode())
    return digest.hexdigest()


class Later:
    """The planned graph and the texts of a build that was found: made when somebody asks.

    Constants are left out of the graph that is kept, so that those which were packed are free.
    """

    def __init__(self, mod: IRModule, lower: Lower, constants: dict[str, ConstantData]) -> None:
        abstract = _Abstract(mod)
        for name, function in mod.functions.items():
            if isinstance(function, Function):
                abstract.builder.update_func(name, abstract.rewrite(function))
        self._mod = abstract.builder.get()
        self._lower, self._constants = lower, constants
        self._context = PassContext.current()
        self._made: tuple[IRModule, IRModule] | None = None

    def modules(self) -> tuple[IRModule, IRModule]:
        """The planned module and the lowered one."""
        if self._made is None:
            with self._context:
                planned, lowered = self._lower(self._mod)
            for symbol, data in lowered.attrs.get(CONSTANTS, {}).items():
                data.fill(self._constants[symbol].array)
            self._made = planned, lowered
        return self._made


class _Abstract(FunctionRewriter):
    """Replaces constants by others of the same types, without values."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.made: dict[ConstantData, Constant] = {}

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        made: RelaxExpr = self.without_values(value)
        return made

    def without_values(self, expr: Any) -> Any:
        if not isinstance(expr, Constant):
            return expr.map_children(
                lambda item: self.without_values(item) if isinstance(item, RelaxExpr) else item
            )
        data = expr.value
        if data.dtype.kind in "iub" and data.size <= _NUMBERS:
            return expr
        if data not in self.made:
            made = ConstantData.later(data.shape, data.dtype, _no_values)
            self.made[data] = Constant(made)
        return self.made[data]


def _no_values() -> Any:
    raise AssertionError("scheduling and lowering don't ask for the values of constants")


class _Text:
    """A text of a build that was found; not pickled, since making it takes as long as a build."""

    def __init__(self, make: Callable[[], str] | None = None) -> None:
        self._make = make

    def __call__(self) -> str:
        if self._make is None:
            raise RunError(
                "a module that was found in the cache and pickled has no texts: build it in this "
                "process, or with TILEWRIGHT_CACHE_GRAPHS=0"
            )
        return self._make()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Text, ()


# ---- entries ----------------------------------------------------------------------------------


Recipes = tuple[list[Any], Module | None]


def recipes_of(key: GraphKey, constants: Mapping[str, ConstantData]) -> Recipes | None:
    """How to make the constants of a lowered graph, not yet materialized, and with which module.

    ``None`` if some are none of the graph's own, or it has no key.
    """
    made: list[Any] = []
    packers: Module | None = None
    if key.text is None:
        return None
    for symbol, data in constants.items():
        source, packer = data, None
        if isinstance(data, PackedData):
            source, packer, packers = data.source, data.packer, data.module
        if source not in key.numbers:
            return None
        made.append([symbol, key.numbers[source], packer, data.shape, data.dtype.name])
    return made, packers


def materialize_all(constants: Iterable[ConstantData]) -> None:
    """Keep the values of constants, one after another, side by side on huge pages.

    The largest come first: the others fit where their intermediate values were.
    """
    waiting = [data for data in constants if not data.is_materialized]
    waiting.sort(key=lambda item: item.nbytes, reverse=True)
    sizes = [-(-data.nbytes // _LINE) * _LINE for data in waiting]
    memory = huge_bytes(sum(sizes)) if sum(sizes) >= _LARGE else None
    start = 0
    for data, size in zip(waiting, sizes):
        data.materialize(None if memory is None else memory[start : start + data.nbytes])
        start += size


def keep(
    key: GraphKey,
    recipes: Recipes,
    built: Module,
    overwritable: Mapping[str, Places],
    statistics: str,
) -> None:
    """Keep a build, which results of its functions may overwrite parameters, and what it runs."""
    constants, packers = recipes
    blobs = [*built.code.objects, *(packers.code.objects if packers else ())]
    head = {
        "functions": list(map(_described, built.code.functions)),
        "packers": list(map(_described, packers.code.functions)) if packers else [],
        "constants": constants,
        "overwritable": dict(overwritable),
        "statistics": statistics,
        "objects": len(built.code.objects),
        "sizes": list(map(len, blobs)),
    }
    text = json.dumps(head).encode()
    assert key.text is not None
    write_entry(key.text, b"".join([len(text).to_bytes(8, "little"), text, *blobs]))


def find(key: GraphKey, lower: Lower) -> tuple[Module, Later, dict[str, Places], str] | None:
    """Return the module of a graph that has been built before, if it is known, as it was kept."""
    data = read_entry(key.text) if key.text is not None else None
    if data is None:
        return None
    start = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:start])
    blobs = []
    for size in head["sizes"]:
        blobs.append(data[start : start + size])
        start += size
    count = head["objects"]
    packers = Module(ModuleCode(tuple(blobs[count:]), _infos(head["packers"])))
    sources = {number: source for source, number in key.numbers.items()}
    constants: dict[str, ConstantData] = {}
    for symbol, number, packer, shape, dtype in head["constants"]:
        made = sources[number]
        if packer is not None:
            made = packed_data(packers, packer, made, shape, numpy_dtype(dtype))
        constants[symbol] = made
    materialize_all(constants.values())
    later = Later(key.mod, lower, constants)
    target = str(key.target)
    texts = {name: _Text(partial(_text, later, key.target, name)) for name in ("ll", "asm", "tir")}
    code = ModuleCode(
        tuple(blobs[:count]),
        _infos(head["functions"]),
        target=target,
        sources=texts,
        linker=partial(link_library, triple=key.target.triple or None),
        constants={symbol: item.array for symbol, item in constants.items()},
    )
    places = {
        name: tuple((index, number) for index, number in pairs)
        for name, pairs in head["overwritable"].items()
    }
    return Module(code), later, places, head["statistics"]


def _text(later: Later, target: Target, name: str) -> str:
    return compile_module(later.modules()[1], target).get_source(name)


def _described(info: FunctionInfo) -> list[Any]:
    return [info.name, list(info.arg_names), list(info.written)]


def _infos(described: list[Any]) -> tuple[FunctionInfo, ...]:
    return tuple(
        FunctionInfo(name, tuple(arguments), tuple(written))
        for name, arguments, written in described
    )
