"""Compiled graphs that are found before anything is scheduled."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import relax
from tilewright.ir import PassContext, PassInstrument
from tilewright.relax.execution import executable, graph_cache
from tilewright.relax.execution.graph_cache import GraphKey
from tilewright.relax.registry import OPERATORS
from tilewright.support.errors import RunError
from tilewright.support.registry import Registry
from tilewright.target import Target


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_GRAPHS", "1")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    for item in graph_cache._OPEN:
        monkeypatch.setattr(item, "extended", False)
    graph_cache._sources.cache_clear()
    monkeypatch.setattr(graph_cache, "_STARTED", float("inf"))
    yield
    graph_cache._sources.cache_clear()


def _weights(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((24, 40), "f4"), rng.standard_normal(40, "f4")


def _graph(weights, bias, name="x"):
    x = relax.Var(name, relax.TensorStructInfo((5, 24), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        made = builder.emit(relax.op.matmul(x, relax.const(weights)) + relax.const(bias))
        builder.emit_func_output(builder.emit(relax.op.nn.relu(made)))
    return builder.get()


def _check(compiled, weights, bias):
    x = np.random.default_rng(9).standard_normal((5, 24), "f4")
    want = np.maximum(x @ weights + bias, 0)
    np.testing.assert_allclose(relax.as_numpy(compiled(x)), want, rtol=1e-4, atol=1e-4)


def _refuse(*_):
    raise AssertionError("nothing should be scheduled")


def test_other_weights_find_the_graph_and_schedule_nothing(monkeypatch):
    first = relax.build(_graph(*_weights(0)))
    with monkeypatch.context() as patched:
        patched.setattr(executable, "default_schedule", _refuse)
        found = relax.build(_graph(*_weights(1)))
        _check(found, *_weights(1))
    _check(first, *_weights(0))
    assert found.signatures == first.signatures
    assert found.module.function_names == first.module.function_names


def test_what_was_found_tells_as_much_as_what_was_built(tmp_path):
    first, found = (relax.build(_graph(*_weights(0))) for _ in range(2))
    assert isinstance(found._planned, graph_cache.Later)
    for name in ("ll", "tir"):
        assert found.module.get_source(name) == first.module.get_source(name)
    assert found.planned.script() == first.planned.script()
    assert set(found.module.code.constants) == set(first.module.code.constants)
    copied = pickle.loads(pickle.dumps(found))
    _check(copied, *_weights(0))
    with pytest.raises(RunError, match="has no texts"):
        copied.module.get_source("ll")
    path = found.export_library(tmp_path / "made.so")
    _check(relax.load_executable(path), *_weights(0))


def test_damaged_entries_are_made_again(tmp_path):
    relax.build(_graph(*_weights(0)))
    for path in (tmp_path / "objects").glob("*.o"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    made = relax.build(_graph(*_weights(0)))
    assert not isinstance(made._planned, graph_cache.Later)
    _check(made, *_weights(0))


def _key(mod=None, target="llvm -mcpu=x86-64-v3", **options):
    with PassContext(**options):
        return GraphKey(mod or _graph(*_weights(0)), Target(target)).text


def test_the_key_has_all_that_a_build_goes_by():
    weights, bias = _weights(0)
    same = [_key(), _key(_graph(*_weights(1)))]
    others = [
        _key(_graph(weights, bias, name="y")),
        _key(_graph(weights, bias[None])),
        _key(target="llvm -mcpu=x86-64-v4"),
        _key(target="llvm -mcpu=x86-64-v3 -num-cores=3"),
        _key(config={"tir.cse": True}),
        _key(disabled_pass=["LoopPartition"]),
    ]
    assert None not in same and len(set(same)) == 1
    assert None not in others and len({*same, *others}) == 1 + len(others)


def test_the_key_goes_by_the_sources_of_the_whole_package(monkeypatch):
    read, original = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or original(path))
    assert graph_cache._sources() is not None
    root = Path(tilewright.__file__).parent
    assert {path for path in read if path.suffix == ".py"} == set(root.rglob("*.py"))


def test_sources_are_read_once_and_again_after_each_change(monkeypatch, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    file = package / "a.py"
    file.write_text("x = 1")
    read, original = [], Path.read_bytes
    monkeypatch.setattr(graph_cache, "files", lambda _: package)
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: (path == file and read.append(path)) or original(path)
    )

    def sources():
        graph_cache._sources.cache_clear()
        return graph_cache._sources()

    first = sources()
    assert sources() == first and len(read) == 1
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_text("x = 2")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as an unpacker sets it
    assert sources() != first and len(read) == 2
    file.write_text("x = 1")
    assert sources() == first  # the contents count, not the times
    file.rename(package / "b.py")
    assert sources() != first


def test_sources_that_cannot_be_looked_at_have_no_hash(monkeypatch, tmp_path):
    """In an archive; or replaced, while the process runs, by files with times of before."""
    archive = tmp_path / "package.zip" / "package"
    monkeypatch.setattr(graph_cache, "files", lambda _: archive)
    graph_cache._sources.cache_clear()
    assert graph_cache._sources() is None and _key() is None
    monkeypatch.setattr(graph_cache, "files", lambda _: tmp_path)
    monkeypatch.setattr(graph_cache, "_STARTED", time.time() - 60)
    (tmp_path / "a.py").write_text("x = 2")
    os.utime(tmp_path / "a.py", (1e9, 1e9))
    graph_cache._sources.cache_clear()
    assert graph_cache._sources() is None


def test_numbers_that_may_be_sizes_are_part_of_the_key():
    def mod(first, second):
        x = relax.Var("x", relax.TensorStructInfo((2,), "int64"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            total = builder.emit(x + relax.const(first))
            builder.emit_func_output(builder.emit(total + relax.const(second)))
        return builder.get()

    one, two = np.array([1, 2]), np.array([2, 2])
    assert _key(mod(one, two)) == _key(mod(one.copy(), two.copy()))
    assert _key(mod(one, two)) != _key(mod(two, one))


def test_one_constant_used_twice_is_not_two():
    weights, _ = _weights(0)
    shared, apart = (relax.const(weights), relax.const(weights)), relax.const(weights)

    def mod(first, second):
        x = relax.Var("x", relax.TensorStructInfo((24, 40), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(builder.emit(x + first) * second))
        return builder.get()

    assert _key(mod(*shared)) != _key(mod(apart, apart))


def test_nothing_is_kept_where_others_have_a_say(monkeypatch):
    assert _key(instruments=[PassInstrument()]) is None
    monkeypatch.setattr(graph_cache, "_STARTED", 0.0)
    graph_cache._sources.cache_clear()
    assert _key() is None  # the source is newer than the process
    monkeypatch.setenv("TILEWRIGHT_CACHE_GRAPHS", "0")
    assert _key() is None


def test_what_third_parties_register_is_noticed(monkeypatch):
    import tilewright.relax.ops  # noqa: F401 - registers for this package

    things = Registry("thing")
    assert not things.extended and not OPERATORS.extended
    things.register("a", 1)
    monkeypatch.setattr(graph_cache, "_OPEN", (things,))
    assert things.extended and _key() is None
