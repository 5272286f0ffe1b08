"""Arguments that are words of a fixed vocabulary are checked at once, in replayed traces too."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
from schedule_cases import chain

from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import PRIMITIVES, Schedule, Trace

VOCABULARIES = ("StorageScope", "ElementType", "ThreadAxis", "AccessKind", "Tail")
ANY_TEXT = {
    "calculate.op",  # checked by the primitive
    "annotate.ann_key",
    "unannotate.ann_key",
    "use_kernel.kernel",  # looked up in a registry, like the next
    "tensorize.tensor_intrin",
    "size_variants.symbol",
    "get_block.name",
    "get_block.func_name",
    "has_block.name",
    "has_block.func_name",
}


def parameters():
    for name, primitive in PRIMITIVES.items():
        for item in list(inspect.signature(primitive.function).parameters.values())[1:]:
            yield name, item.name, str(item.annotation)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [(name, parameter) for name, parameter, kind in parameters() if kind in VOCABULARIES],
)
def test_words_are_checked_before_anything_else(name, parameter):
    primitive = PRIMITIVES.get(name)
    convert = {known: convert for _, known, convert in primitive.converters}[parameter]
    for word in ("nonsense", "", "Global", "float32x4", "threadIdx.w", 3, None, b"read"):
        with pytest.raises((TypeError, ValueError)):
            convert(word)


def test_what_takes_any_text_is_known():
    found = {
        f"{name}.{parameter}"
        for name, parameter, kind in parameters()
        if kind in ("str", "str | None")
    }
    assert found == ANY_TEXT, "text of a fixed vocabulary has a converter in schedule/vocabulary.py"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda s, b: s.cache_read(b, 0, "nonsense"), "cache_read: argument 'storage_scope'"),
        (lambda s, b: s.cache_write(b, 0, "nonsense"), "unknown storage scope 'nonsense'"),
        (lambda s, b: s.set_scope(b, 0, "nonsense"), "unknown storage scope 'nonsense'"),
        (lambda s, b: s.read_at(s.get_loops(b)[0], b, 0, "nonsense"), "unknown storage scope"),
        (lambda s, b: s.write_at(s.get_loops(b)[0], b, 0, "nonsense"), "unknown storage scope"),
        (lambda s, b: s.reindex_cache_read(b, 0, "", lambda i: i), "is no name of a memory"),
        (lambda s, b: s.unsafe_set_dtype(b, 0, "float99"), "is no element type"),
        (lambda s, b: s.bind(s.get_loops(b)[0], "threadIdx.w"), "unknown thread axis"),
        (lambda s, b: s.split(s.get_loops(b)[0], [None, 5], tail="guard"), "unknown tail 'guard'"),
        (lambda s, b: s.split(s.get_loops(b)[0], [None, 1 << 70]), "does not fit 64 bits"),
        (lambda s, b: s.storage_align(b, 0, 0, 1 << 40, 0), "'buffer_dim_align' takes"),
        (lambda s, b: s.transform_layout(b, "B", lambda i, j: [i, None]), "gives expressions"),
    ],
)
def test_methods_refuse(act, message):
    sch = Schedule(chain())
    block, before = sch.get_block("B"), sch.mod
    with pytest.raises(ScheduleError, match=message):
        act(sch, block)
    assert sch.mod is before


@pytest.mark.parametrize("scope", ["metal.simdgroup", "global.texture-weight", "shared.dyn"])
def test_memories_of_other_devices_are_known(scope):
    sch = Schedule(chain())
    copy = sch.cache_read("B", 0, scope)
    assert sch.get(copy).writes[0].buffer.scope == scope


def test_probabilities_may_be_of_numpy():
    sch = Schedule(chain())
    chosen = sch.sample_categorical(np.array([1, 4]), np.array([0.0, 1.0], "float32"))
    assert sch.get(chosen) == 4
    json.dumps(sch.trace.as_json())


def test_padding_by_a_function_of_nothing_is_a_number():
    made, same = Schedule(chain()), Schedule(chain())
    made.transform_layout("B", "B", lambda i, j: (i // 5, i % 5, j), pad_value=lambda: 0.0)
    same.transform_layout("B", "B", lambda i, j: (i // 5, i % 5, j), pad_value=0.0)
    assert made.mod.script() == same.mod.script()


def test_replay_refuses_unknown_words():
    sch = Schedule(chain())
    sch.cache_read(sch.get_block("B"), 0, "local")
    text = json.dumps(sch.trace.as_json()).replace("local", "nonsense")
    with pytest.raises(ScheduleError, match="unknown storage scope 'nonsense'"):
        Trace.from_json(json.loads(text))
