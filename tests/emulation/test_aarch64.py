"""AArch64 code is run: libraries for NEON and SVE under emulation, one process for each call.

What runs is what users ship: functions by rule, exported with thread pool, binder and vector math.
It needs ``qemu-aarch64`` and a C compiler for AArch64 (Debian: ``qemu-user``,
``gcc-aarch64-linux-gnu``), and fails without them: ``make slow`` runs it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import driver, te, tir, topi
from tilewright.codegen.llvm.math import MATH_FUNCTIONS, max_ulp, oracle
from tilewright.dlight import default_schedule
from tilewright.ir import IRModule, as_int
from tilewright.runtime.dlpack import dlpack_dtype
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc, interpreter

pytestmark = pytest.mark.slow

LINUX = "llvm -mtriple=aarch64-unknown-linux-gnu"
#: CPUs, and what is emulated for them: vectors of the length that the code is for.
CPUS = {
    "neoverse-n1": "max,sve=off",
    "neoverse-v1": "max,sve-default-vector-length=32",
    "a64fx": "max,sve-default-vector-length=64",
    "neoverse-v2": "max,sve-default-vector-length=16",
}
CORES = 3
Array = NDArray[Any]


@pytest.fixture(scope="session")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that calls libraries."""
    made = tmp_path_factory.mktemp("caller") / "call"
    source = Path(__file__).with_name("call.c")
    command = ["aarch64-linux-gnu-gcc", "-O1", "-Wall", "-Werror", str(source), "-o", str(made)]
    subprocess.run([*command, "-ldl", "-lm"], check=True)
    return made


@dataclass
class Emulated:
    """An exported library, whose functions run on a CPU as ``qemu`` describes it."""

    cpu: str
    library: Path
    caller: Path
    threads: list[int] = field(default_factory=list)
    """How many threads there were after each call."""

    def __call__(self, name: str, *arrays: Array) -> list[Array]:
        """Call a function; return the tensors as it left them."""
        described, paths = [], []
        for number, array in enumerate(arrays):
            code, bits, _ = dlpack_dtype(array.dtype.name)
            path = self.library.with_name(f"{name}-{number}.bin")
            path.write_bytes(np.ascontiguousarray(array).tobytes())
            shape = ",".join(map(str, array.shape))
            described.append(f"{code},{bits}:{shape}:{path}")
            paths.append(path)
        emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", self.cpu]
        command = [*emulator, str(self.caller), str(self.library), f"__tvm_ffi_{name}", *described]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (done.returncode, done.stderr)
        self.threads.append(int(done.stdout))
        return [
            np.frombuffer(path.read_bytes(), array.dtype).reshape(array.shape)
            for path, array in zip(paths, arrays)
        ]


def exported(functions: dict[str, PrimFunc], cpu: str, folder: Path, caller: Path) -> Emulated:
    """Schedule functions by rule, build and export them."""
    target = Target(f"{LINUX} -mcpu={cpu} -num-cores={CORES}")
    mod = default_schedule(target)(IRModule(functions))
    path = folder / "library.so"
    driver.compile(mod, target).export_library(path)
    return Emulated(CPUS[cpu], path, caller)


# ---- operators ----------------------------------------------------------------------------------


def _inputs(*shapes: tuple[int, ...], dtype: str = "float32") -> list[te.Tensor]:
    return [te.placeholder(shape, dtype, name=f"x{at}") for at, shape in enumerate(shapes)]


def _product(dtype: str, out_dtype: str) -> list[te.Tensor]:
    a, b = _inputs((67, 96), (96, 130), dtype=dtype)
    return [a, b, topi.nn.matmul(a, b, out_dtype=out_dtype)]


def _convolution() -> list[te.Tensor]:
    x, w = _inputs((1, 16, 19, 17), (40, 16, 3, 3))
    return [x, w, topi.nn.conv2d(x, w, 1, 1)]


def _depthwise() -> list[te.Tensor]:
    x, w = _inputs((1, 24, 17, 17), (24, 1, 3, 3))
    return [x, w, topi.nn.conv2d(x, w, 2, 1, groups=24)]


def _layer_norm() -> list[te.Tensor]:
    x, gamma, beta = _inputs((33, 391), (391,), (391,))
    return [x, gamma, beta, topi.nn.layer_norm(x, gamma, beta)]


def _attention(dtype: str) -> list[te.Tensor]:
    q, k, v = _inputs(*[(1, 2, 40, 32)] * 3, dtype=dtype)
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)]


def _of_one(function: Callable[[te.Tensor], te.Tensor], *shape: int, dtype: str = "float32") -> Any:
    def make() -> list[te.Tensor]:
        (x,) = _inputs(shape, dtype=dtype)
        return [x, function(x)]

    return make


SEVEN = te.const(7, "int32")
#: Operators, and how far results may be from those of this machine's plain code.
OPERATORS: dict[str, tuple[Callable[[], list[te.Tensor]], float]] = {
    "product": (lambda: _product("float32", "float32"), 1e-5),
    "product_int8": (lambda: _product("int8", "int32"), 0),
    "product_fp16": (lambda: _product("float16", "float32"), 1e-4),
    "product_bf16": (lambda: _product("bfloat16", "float32"), 1e-4),
    "convolution": (_convolution, 1e-5),
    "depthwise": (_depthwise, 1e-5),
    "layer_norm": (_layer_norm, 1e-5),
    "attention": (lambda: _attention("float32"), 1e-5),
    "attention_fp16": (lambda: _attention("float16"), 4e-3),
    "softmax": (_of_one(topi.nn.softmax, 35, 517), 1e-5),
    "gelu": (_of_one(topi.nn.gelu, 64, 1030), 1e-5),
    "total": (_of_one(lambda x: topi.sum(x), 300, 513), 1e-4),
    "greatest": (_of_one(lambda x: topi.argmax(x, axis=-1), 19, 1300), 0),
    "transposed": (_of_one(lambda x: topi.transpose(x, (1, 0)), 200, 301), 0),
    "sorted": (_of_one(lambda x: topi.sort(x, axis=-1), 7, 300), 0),
    "summed": (_of_one(lambda x: topi.cumsum(x, axis=1), 40, 333), 1e-4),
    "halves": (_of_one(lambda x: topi.cast(x, "float16"), 40, 333), 0),
    "shortened": (_of_one(lambda x: topi.cast(x, "int8"), 40, 333, dtype="int32"), 0),
    "quotients": (
        _of_one(lambda x: topi.floor_divide(x, te.const(7, "int32")), 40, 333, dtype="int32"),
        0,
    ),
}


def _shape(tensor: te.Tensor) -> tuple[int, ...]:
    extents = [as_int(extent) for extent in tensor.shape]
    return tuple(extent for extent in extents if extent is not None)


def _values(tensor: te.Tensor, rng: np.random.Generator) -> Array:
    shape = _shape(tensor)
    if "int" in tensor.dtype:
        return rng.integers(-100, 100, shape).astype(tensor.dtype)
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if tensor.dtype == "bfloat16" else tensor.dtype
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("cpu", list(CPUS))
def test_operators_by_rule(cpu: str, tmp_path: Path, caller: Path) -> None:
    made = {name: make() for name, (make, _) in OPERATORS.items()}
    functions = {name: te.create_prim_func(tensors) for name, tensors in made.items()}
    emulated = exported(functions, cpu, tmp_path, caller)
    here = driver.compile(IRModule(functions), "native")
    rng = np.random.default_rng(5)
    for name, tensors in made.items():
        arrays = [_values(tensor, rng) for tensor in tensors[:-1]]
        out = np.zeros(_shape(tensors[-1]), tensors[-1].dtype)
        *_, found = emulated(name, *arrays, out)
        here[name](*arrays, out)
        scale = float(np.abs(out.astype("float64")).max())
        limit = OPERATORS[name][1] * scale
        np.testing.assert_allclose(
            found.astype("float64"), out.astype("float64"), rtol=0, atol=limit, err_msg=name
        )
    # Large ones were shared among threads, small ones not: those sleep, or were never made.
    assert max(emulated.threads) == CORES and set(emulated.threads) <= set(range(1, CORES + 1))


# ---- scalable vectors ---------------------------------------------------------------------------

#: What a function does with ``LANES`` lanes from ``i`` on, where ``m`` says which are inside.
SCALABLE = {
    "arithmetic": "x * y - T.max(x, y)",
    "chosen": "T.Select(x < y, x + y, x - y)",
    "apart": "x + A[T.Ramp(2 * i, 3, LANES)]",
    "backwards": "y - B[T.Ramp(700 - i, -1, LANES)]",
    "shared": "x * T.Broadcast(A[i], LANES)",
    "masked": "T.if_then_else(m, x, y)",
}
ELEMENTS = {
    "int8": 16,
    "uint16": 8,
    "int32": 4,
    "int64": 2,
    "float16": 8,
    "float32": 4,
    "float64": 2,
}
SIZE = 77


def _scalable(value: str, dtype: str) -> PrimFunc:
    lanes = f"{ELEMENTS[dtype]} * T.vscale()"
    return parse(f"""
@T.prim_func
def main(
    A: T.Buffer((1024,), "{dtype}"), B: T.Buffer((1024,), "{dtype}"),
    C: T.Buffer((1024,), "{dtype}"),
):
    for t in T.parallel(T.ceildiv({SIZE}, {lanes})):
        i = t * ({lanes})
        m = T.get_active_lane_mask("boolxvscalex{ELEMENTS[dtype]}", i, {SIZE})
        x = A[T.Ramp(i, 1, {lanes})]
        y = B[T.Ramp(i, 1, {lanes})]
        T.masked_store(C, {value.replace("LANES", lanes)}, T.Ramp(i, 1, {lanes}), m)
""")


def _split() -> PrimFunc:
    sch = tir.Schedule(_elementwise("exp", "float32", 1000))
    sch.vectorize(sch.split(sch.get_loops("y")[0], [None, 4 * tir.vscale()])[1])
    return sch.mod["main"]


def test_one_library_runs_at_any_length_of_vectors(tmp_path: Path, caller: Path) -> None:
    functions = {
        f"{name}_{dtype}": _scalable(value, dtype)
        for name, value in SCALABLE.items()
        for dtype in ELEMENTS
    }
    target = Target(f"{LINUX} -mattr=+sve -num-cores={CORES}")
    mod = IRModule({**functions, "split": _split()})
    path = tmp_path / "library.so"
    driver.compile(mod, target).export_library(path)
    rng = np.random.default_rng(7)
    x = rng.standard_normal(1000).astype("float32")
    for scale in (1, 2, 4, 16):
        emulated = Emulated(f"max,sve-default-vector-length={16 * scale}", path, caller)
        for name, func in functions.items():
            dtype = name.rpartition("_")[2]
            a, b = (rng.integers(0, 100, 1024).astype(dtype) for _ in range(2))
            c = np.zeros(1024, dtype)
            *_, found = emulated(name, a, b, c)
            interpreter.run(func, a, b, c, vscale=scale)
            np.testing.assert_array_equal(found, c, err_msg=f"{name}, {scale}")
        *_, found = emulated("split", x, np.zeros_like(x))
        np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)


# ---- elementary functions -----------------------------------------------------------------------

FUNCTIONS = [(name, dtype) for name in oracle.exact_functions() for dtype in ("float32", "float64")]


def _elementwise(name: str, dtype: str, count: int) -> PrimFunc:
    arity = MATH_FUNCTIONS[name].arity
    parameters = ", ".join(f'x{at}: T.Buffer(({count},), "{dtype}")' for at in range(arity))
    operands = ", ".join(f"x{at}[v]" for at in range(arity))
    return parse(f"""
@T.prim_func
def main({parameters}, y: T.Buffer(({count},), "{dtype}")):
    for i in range({count}):
        with T.block("y"):
            v = T.axis.spatial({count}, i)
            y[v] = T.{name}({operands})
""")


@dataclass
class _AsMath:
    """What the oracle asks of a compiled function."""

    name: str
    dtype: str
    call: Callable[..., Array]

    def __call__(self, *args: Array) -> Array:
        return self.call(*args)


@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-v1"])
def test_elementary_functions_are_as_exact_as_stated(
    cpu: str, tmp_path: Path, caller: Path
) -> None:
    points = {key: oracle.arguments(*key, 150) for key in FUNCTIONS}
    functions = {
        f"{name}_{dtype}": _elementwise(name, dtype, len(points[name, dtype][0]))
        for name, dtype in FUNCTIONS
    }
    emulated = exported(functions, cpu, tmp_path, caller)
    for name, dtype in FUNCTIONS:

        def call(*args: Array, name: str = name, dtype: str = dtype) -> Array:
            return emulated(f"{name}_{dtype}", *args, np.empty_like(args[0]))[-1]

        worst, where = oracle.worst_error(_AsMath(name, dtype, call), points[name, dtype])
        assert worst <= max_ulp(name, dtype), (name, dtype, where)
