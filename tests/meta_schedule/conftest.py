"""Small tasks that the tests of search share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.ir import maximum
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.meta_schedule.database import Database, JSONDatabase, MemoryDatabase, SQLDatabase
from tilewright.target import Target
from tilewright.testing import postgresql
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run


def matmul(n: int, m: int, k: int, *, epilogue: bool = False, transposed: bool = False) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((m, k) if transposed else (k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, axis] * (b[j, axis] if transposed else b[axis, j]), axis=axis),
        name="C",
    )
    if not epilogue:
        return te.create_prim_func([a, b, c])
    bias = te.placeholder((m,), name="bias")
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="D")
    e = te.compute((n, m), lambda i, j: maximum(d[i, j], 0.0), name="E")
    return te.create_prim_func([a, b, bias, e])


def conv2d(channels: int, size: int, filters: int, stride: int = 1) -> PrimFunc:
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((filters, channels, 3, 3), name="weight")
    out = topi.nn.relu(topi.nn.conv2d(data, weight, strides=stride, padding=1))
    return te.create_prim_func([data, weight, out])


def softmax(n: int, m: int) -> PrimFunc:
    x = te.placeholder((n, m), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


TASKS: dict[str, Callable[[], PrimFunc]] = {
    "matmul": lambda: matmul(24, 32, 16),
    "matmul-epilogue": lambda: matmul(16, 32, 12, epilogue=True),
    "matmul-transposed": lambda: matmul(16, 32, 24, transposed=True),
    "matmul-primes": lambda: matmul(37, 71, 19),
    "conv2d": lambda: conv2d(4, 8, 16),
    "conv2d-stride": lambda: conv2d(3, 14, 16, 2),
    "softmax": lambda: softmax(6, 48),
}


@pytest.fixture(params=list(TASKS))
def task(request: pytest.FixtureRequest) -> PrimFunc:
    """Each of the tasks in turn."""
    return TASKS[request.param]()


@pytest.fixture
def target() -> Target:
    """A machine with two cores and 32 vector registers of 512 bits, whatever runs the tests."""
    return Target("llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu -num-cores=2")


@pytest.fixture
def same_result() -> Callable[[PrimFunc, object], None]:
    """Return a check that a scheduled module computes what the function computes."""

    def check(func: PrimFunc, scheduled: object) -> None:
        arguments = random_arguments(arg_infos(func))
        expected = [np.array(item) for item in arguments]
        found = [np.array(item) for item in arguments]
        run(func, *expected)
        run(scheduled, *found)
        for a, b in zip(expected, found):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)

    return check


# ---- databases -----------------------------------------------------------------------------------

_SCHEMAS = count()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a server that is there while tests run."""
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    reason = postgresql.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgresql.server() as url:
        yield url


@pytest.fixture
def postgresql_url(postgresql_server: str) -> str:
    """The URL of an empty database."""
    import psycopg

    name = f"test{next(_SCHEMAS)}"
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgresql_server}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgresql_url")
        return found
    pytest.importorskip("sqlalchemy")
    return f"sqlite:///{tmp_path / 'records.db'}"


def _opener(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Database]:
    if kind == "memory":
        return MemoryDatabase
    if kind == "json":
        return lambda **options: JSONDatabase(work_dir=tmp_path, **options)
    if kind == "postgresql":
        place: str = request.getfixturevalue("postgresql_url")
    else:
        pytest.importorskip("sqlalchemy")
        place = f"sqlite:///{tmp_path / 'records.db'}"
    return lambda **options: SQLDatabase(place, **options)


@pytest.fixture(params=["json", "sqlite", "postgresql"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Database]:
    """Return what opens a database, always the same one, of each kind that keeps its records."""
    return _opener(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "json", "sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Database]:
    """Return what opens a database of each kind."""
    return _opener(request.param, request, tmp_path)
