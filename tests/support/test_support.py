from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tilewright.support import settings
from tilewright.support.collector import RAISED_THRESHOLD, few_collections
from tilewright.support.errors import MissingExtraError, ScheduleError, TilewrightError
from tilewright.support.registry import Registry
from tilewright.support.settings import setting
from tilewright.support.text import caret_excerpt, human_time


def test_messages_render_lazily() -> None:
    calls = []

    def render() -> str:
        calls.append(1)
        return "what went wrong"

    error = ScheduleError(render)
    assert not calls
    assert str(error) == "what went wrong" and str(error) == "what went wrong"
    assert calls == [1]


def test_summaries_render_nothing() -> None:
    def render() -> str:
        raise AssertionError

    assert ScheduleError(render, lambda: "the rule\nand more").summary == "the rule"
    assert ScheduleError(lambda: "the rule\nthe program").summary == "the rule"


def test_errors_survive_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(ScheduleError(lambda: "text")))) == "text"


def test_missing_extra_names_the_command() -> None:
    message = str(MissingExtraError("torch", "torch", "importing models"))
    assert "torch is needed for importing models" in message
    assert "pip install 'tilewright[torch]'" in message
    assert isinstance(MissingExtraError("a", "b"), TilewrightError)


@pytest.fixture
def threshold() -> Iterator[int]:
    """A threshold of this test's own, while the collector is on."""
    before = gc.get_threshold()
    assert gc.isenabled()
    gc.set_threshold(600, 9, 8)
    yield 600
    gc.set_threshold(*before)


def test_few_collections_restores_the_threshold_when_the_last_ends(threshold: int) -> None:
    with few_collections():
        with pytest.raises(ScheduleError), few_collections():
            raise ScheduleError("inside")
        assert gc.get_threshold() == (RAISED_THRESHOLD, 9, 8)
    assert gc.get_threshold() == (threshold, 9, 8)


def test_few_collections_leaves_what_others_set(threshold: int) -> None:
    with few_collections():
        gc.set_threshold(100)
    assert gc.get_threshold()[0] == 100
    gc.set_threshold(2 * RAISED_THRESHOLD)
    with few_collections():
        assert gc.get_threshold()[0] == 2 * RAISED_THRESHOLD
    assert gc.get_threshold()[0] == 2 * RAISED_THRESHOLD
    gc.set_threshold(0)  # off
    with few_collections():
        assert gc.get_threshold()[0] == 0


def test_few_collections_decorates_functions(threshold: int) -> None:
    @few_collections()
    def inside(depth: int) -> tuple[int, ...]:
        return inside(depth - 1) if depth else gc.get_threshold()

    assert inside(2) == (RAISED_THRESHOLD, 9, 8)
    assert gc.get_threshold() == (threshold, 9, 8)


@pytest.mark.parametrize("inside", [False, True])
def test_few_collections_of_other_threads_end_in_a_forked_process(
    threshold: int, inside: bool
) -> None:
    begun, done = threading.Event(), threading.Event()

    def other() -> None:
        with few_collections():
            begun.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    try:
        with few_collections() if inside else nullcontext():
            pid = os.fork()
            if pid == 0:
                right = gc.get_threshold()[0] == (RAISED_THRESHOLD if inside else threshold)
                if not inside:
                    with few_collections():
                        right = right and gc.get_threshold()[0] == RAISED_THRESHOLD
                    right = right and gc.get_threshold()[0] == threshold
                os._exit(0 if right else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        done.set()
        thread.join()
    assert gc.get_threshold()[0] == threshold


def test_registry() -> None:
    registry: Registry[int] = Registry("number")
    registry.register("one", 1)
    assert registry.get("one") == 1 and "one" in registry and list(registry) == ["one"]
    with pytest.raises(TilewrightError, match="number 'one' is registered twice"):
        registry.register("one", 2)
    with pytest.raises(TilewrightError, match="unknown number 'onn'; did you mean 'one'"):
        registry.get("onn")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    assert setting("num_threads") == 3
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "three")
    with pytest.raises(TilewrightError, match="TILEWRIGHT_NUM_THREADS='three' is not valid"):
        setting("num_threads")


def test_a_user_without_a_home_has_a_folder_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert not settings._home().exists()


def test_carets_stand_below_the_culprit() -> None:
    text = caret_excerpt("a = 1\nb = foo(a)\n", 2, 4, 7, name="f.py")
    assert "f.py:2:5" in text
    source, carets = text.splitlines()[-2:]
    assert source.index("foo") == carets.index("^") and carets.count("^") == 3


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 us"), (7e-9, "7 ns")]
)
def test_human_time(seconds: float, text: str) -> None:
    assert human_time(seconds) == text
