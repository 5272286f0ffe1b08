"""Texts that hostile scripts are made from: printed programs, and expressions that attack."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright import relax, te, topi
from tilewright.dlight import default_schedule
from tilewright.driver import lower
from tilewright.ir import IRModule, Var
from tilewright.relax import TensorStructInfo
from tilewright.script import to_text
from tilewright.target import Target
from tilewright.tir import PrimFunc

_TARGET = "llvm -mcpu=znver4 -num-cores=2"

ATTACKS = (
    # code
    "T.macro(T.serial).captured['__builtins__']['eval']('1')",
    "'{0.__globals__[Any].__module__}'.format(T.serial)",
    "T.prim_func.decorate(T.serial, 2)",
    "T.prim_func(T.serial)",
    "I.ir_module(T.serial)",
    "T.ScalarType.__init__.__globals__",
    "[].__class__.__base__.__subclasses__()",
    "(lambda: 1).__globals__",
    "(lambda f: f(f))(lambda f: f(f))",
    "__import__('os').system('true')",
    "open('/etc/passwd').read()",
    "eval('1')",
    "getattr(T, 'macro')",
    "R.operator('hostile')(lambda: 1)",
    "R.OPERATORS",
    "T.call_extern('system', 'true', dtype='int32')",
    "T.call_packed('ffi.ModuleLoadFromFile', 'x.so')",
    "R.call_packed('ffi.ModuleLoadFromFile', R.string('x.so'))",
    "R.extern('x', packed=True).attrs.__class__",
    "T.target('native').options",
    "T.Op('exp').__class__",
    "cls.functions",
    # time and memory
    "[0 for i in range(10**12)]",
    "[[0 for j in range(10**5)] for i in range(10**5)]",
    "pow(3, 10**8)",
    "3 ** 10 ** 8",
    "1 << 10**9",
    "'a' * 10**10",
    "f'{1:>9999999999}'",
    "round(5, -10**9)",
    "sum([[0]] * 10**5, [])",
    "{i * (2**61 - 1) for i in range(10**5)}",
    "-" * 400 + "1",
    "(" * 150 + "1" + ")" * 150,
    "T.float32x1000000000(1)",
    "T.Broadcast(1, 10**12)",
    "T.grid(*[2] * 1000)",
    "R.split(x, 10**9)",
    "R.Tensor(ndim=10**9)",
    "R.zeros([10**9] * 100, 'float32')",
    # odd values
    "None", "True", "...", "''", "'x'", "b'x'", "1j", "()", "[]", "{}", "{'a': None}", "[[]]",
    "0", "-1", "1", "300", "2**31", "2**63", "-2**63 - 1", "2**64", "0.5", "-0.0", "1e400",
    "float('nan')", "'int8'", "'float99'", "'int32x0'", "'handle'", "'void'", "'float32x4'",
    "slice", "lambda a: a", "lambda: [1]", "T.axis", "T.let", "T.float32", "T.handle", "cls",
    "T.int8(300)", "T.int64()", "T.float32('nan')", "T.bool(2)", "T.Var('v', 'void')",
    "T.IntImm('int8', 300)", "T.IntImm('int32', 'x')", "T.IntImm('float32', 1)", "T.StringImm(3)",
    "T.Cast('float99', 1)", "T.Ramp(0, 1, 4)", "T.Broadcast(T.float32(1), 4)", "T.Shuffle([], [])",
    "T.Shuffle([T.Ramp(0, 1, 4)], [9])", "T.Let(1, {T.int32(): 2})", "T.block('b')", "T.init()",
    "T.grid(2, 2)", "T.serial(-4)", "T.thread_binding(4, thread='nowhere')", "T.serial(0.5)",
    "T.Buffer((4,), 'float32', strides=(0,))", "T.alloc_buffer((-4,), 'int8', scope='nowhere')",
    "T.match_buffer(A, (2, 2), strides=(1, 1))", "T.decl_buffer((4,), data=A.data)", "A.data", "A",
    "A[0]", "A[0:2, 0:4]", "A[-1, 10**9]", "T.index_map(lambda i: [i // 0])", "T.region(A)",
    "T.comm_reducer(lambda x, y: [x], [1])", "T.iter_var(T.int64(), (0, 4), 'nothing')",
    "T.Call('exp', 1, 2, 3, dtype='int8')", "T.min_value('handle')", "T.reads(A)", "T.where(1)",
    "T.axis.spatial(4, 0)", "T.axis.remap('SR', [0])", "T.attr(A, 'x', 1)", "T.evaluate(A)",
    "R.const([1, 'a'])", "R.const(float('nan'))", "R.shape([-1])", "R.prim_value('n')",
    "R.Tensor(('n', 'n * 2'), 'int99')", "R.Tuple()", "R.call_tir(cls.main, (), R.Tensor((4,)))",
    "R.match_cast(x, R.Tensor(('m',)))", "I.GlobalVar('main')", "I.module_attrs({'a': 1})",
)  # fmt: skip


def _graph(body: Callable[..., Any], *infos: Any) -> IRModule:
    params = [relax.Var(name, info) for name, info in zip("xyzw", infos)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(*params))
        builder.emit_func_output(out)
    return builder.get()


def _tensor(*shape: Any, dtype: str = "float32") -> TensorStructInfo:
    return relax.TensorStructInfo(shape, dtype)


def _tensor_programs() -> list[PrimFunc]:
    n = Var("n")
    A = te.placeholder((8, 16), name="A")
    B = te.placeholder((16, 12), name="B")
    S = te.placeholder((n, 16), name="S")
    Q = te.placeholder((8, 16), "int8", name="Q")
    made = [
        [A, topi.nn.softmax(A)],
        [A, B, topi.matmul(A, B)],
        [S, topi.sum(topi.exp(S), axis=1)],
        [A, topi.transpose(topi.nn.relu(A), (1, 0))],
        [Q, topi.cast(topi.max(Q, axis=0), "int32")],
        [A, topi.concatenate([A, A], axis=1)],
    ]
    return [te.create_prim_func(tensors) for tensors in made]


def _graphs() -> list[IRModule]:
    op = relax.op
    dense = _graph(
        lambda x, w, b: op.nn.softmax(op.nn.relu(op.linear(x, w, b)), axis=-1),
        _tensor(Var("n"), 4), _tensor(6, 4), _tensor(6),
    )  # fmt: skip
    several = _graph(lambda x: op.concat(op.split(op.reshape(x, (4, 6)), 2, 1), 0), _tensor(24))
    return [dense, several, relax.get_pipeline("zero")(dense)]


@cache
def programs() -> tuple[str, ...]:
    """Texts of valid programs: as declared, scheduled, lowered, and graphs."""
    made: list[Any] = []
    schedule = default_schedule()
    with Target(_TARGET):
        for func in _tensor_programs():
            mod = IRModule({"main": func})
            scheduled = schedule(mod)
            made += [func, mod, scheduled, lower(scheduled, _TARGET)]
        made += _graphs()
    return tuple(to_text(item) for item in made)
