"""Programs written for TVM run after their import is replaced."""

import linecache

import numpy as np
import pytest

import tilewright
from tests.script.tvm_programs import PROGRAMS
from tilewright import script
from tilewright.ir import assert_structural_equal
from tilewright.support.errors import ScheduleError
from tilewright.tir import Schedule, interpreter
from tilewright.tir.transform import LowerLoopExits

GPU = {"thread", "thread with"}
FOREIGN = {"extern"}  # calls of C's library: compiled programs have it, the interpreter has not
RETURNS = {"return value"}
COMPILED = [
    "break blocks",
    "break continue",
    "step",
    "while break",
    "scalar",
    "alloc flat",
    "extern",
]


def read(name):
    """Run the text of a program as Python, and return its function."""
    text = PROGRAMS[name].text.replace("from tvm.", "from tilewright.")
    file = f"<program {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {}
    exec(compile(text, file, "exec"), names)
    return names["main"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_read_and_printed(name):
    main = read(name)
    assert_structural_equal(main, script.parse(main.script()))
    text = PROGRAMS[name].text.replace("from tvm.", "from tilewright.")
    assert_structural_equal(main, script.parse(text))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in FOREIGN])
def test_it_is_interpreted(name):
    arguments, output, expected = PROGRAMS[name].arguments()
    result = interpreter.run(read(name), *arguments)
    if expected is None:
        assert result == 10
    else:
        np.testing.assert_allclose(output, expected, rtol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", COMPILED)
def test_it_is_compiled(name, target):
    arguments, output, expected = PROGRAMS[name].arguments()
    tilewright.compile(read(name), target)["main"](*arguments)
    np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_exits_of_loops_are_lowered_to_conditions():
    for name in ("break blocks", "break continue", "while break"):
        mod = LowerLoopExits()(tilewright.IRModule({"main": read(name)}))
        assert "break" not in mod.script() and "continue" not in mod.script()
        arguments, output, expected = PROGRAMS[name].arguments()
        interpreter.run(mod, *arguments)
        np.testing.assert_array_equal(output, expected)


def test_schedules_ask_for_that():
    with pytest.raises(ScheduleError, match="LowerLoopExits"):
        Schedule(read("break blocks")).get_block("B")


HEAD = 'def main(A: T.Buffer((16,), "float32"), n: T.int32):\n'


@pytest.mark.parametrize(
    "body, message",
    [
        ("break", "break stands inside a loop"),
        ("for i in range(4):\n        with T.block('B'):\n            continue", "inside a loop"),
        ("for i in T.parallel(4):\n        break", "break leaves serial loops only"),
        ("for i in range(0, 8, 0):\n        pass", "step of a loop is a positive"),
        ("for i in T.serial(8, unroll=4):\n        pass", "unroll= of T.serial is True or False"),
        ("for *a, *b in T.grid(2, 2):\n        pass", "2 variables for 2 loops|starred"),
        ("return n", None),
        ("T.launch_thread('threadIdx.q', 4)", "unknown thread tag"),
        ("tx = T.env_thread('threadIdx.x')\n    T.launch_thread(tx, 4)\n    T.launch_thread(tx, 4)",
         "is launched already"),
        ("T.tvm_thread_allreduce(T.uint32(1), A[0], True, A[0], n)", "reduce_scope"),
        ("T.tvm_storage_sync('shared', True, 4)", "barriers of a whole grid"),
        ("with T.If(n > 1):\n        A[0] = 1.0", "T.If holds one T.Then"),
        ("x = T.alloc_buffer((4,), 'float32', buffer_type='auto_broadcast')", "buffer_type"),
        ("x = T.alloc_buffer((4,), 'float32', scoped='local')", "no 'scoped'; did you mean"),
        ("A[0] = T.call_intrin('float32', 'tirx.nothing', A[0])", "nothing"),
        ("x: T.let[T.int32]", "needs a value"),
    ],
)  # fmt: skip
def test_errors(body, message):
    text = f"@T.prim_func\n{HEAD}    {body}\n"
    if message is None:
        script.parse(text)
        return
    with pytest.raises(script.ScriptError, match=message):
        script.parse(text)


def test_a_thread_joins_values_by_the_reducer_around_it():
    text = f"""
@T.prim_func
{HEAD}    tx = T.launch_thread("threadIdx.x", 16)
    with T.attr(
        T.comm_reducer(lambda x, y: x + y, [T.float32(0)]),
        "reduce_scope",
        T.reinterpret("handle", T.uint64(0)),
    ):
        total = T.alloc_buffer((1,), "float32", scope="local")
        T.tvm_thread_allreduce(T.uint32(1), A[tx], True, total[0], tx)
        A[tx] = total[0]
"""
    main = script.parse(text)
    given = np.arange(16, dtype="float32")
    interpreter.run(main, given, 1)
    np.testing.assert_array_equal(given, np.full(16, 120, "float32"))
