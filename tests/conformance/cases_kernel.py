"""Cases of the primitive that puts in a kernel written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance_cases import Accept, Example, Refuse, chain, symbolic_chain

from tilewright.ir import pre_order
from tilewright.tir import Block, BufferLoad, BufferStore, For, PrimFunc
from tilewright.tir.schedule import KERNELS


@KERNELS.decorator("double_by_sum")
def double_by_sum(func: PrimFunc, options: Mapping[str, Any]) -> Block | str:
    """``A + A`` in place of ``A * 2``, for the example; marked if the options say so."""
    blocks = [item for item in pre_order(func.root.body) if isinstance(item, Block)]
    root = func.root
    if len(blocks) != 1 or not isinstance(root.body, For):
        return "there is more than one block"
    store = blocks[0].body
    assert isinstance(store, BufferStore)
    load = next(item for item in pre_order(store.value) if isinstance(item, BufferLoad))
    made = blocks[0].replace(
        name="sum", body=store.replace(value=load + load), annotations=dict(options)
    )
    realize = root.body.body.replace(block=made)  # type: ignore[attr-defined]
    return root.replace(body=root.body.replace(body=realize))


@KERNELS.decorator("as_it_was")
def as_it_was(func: PrimFunc, options: Mapping[str, Any]) -> Block | str:
    """Any program, computed the same way, with a mark."""
    return func.root.replace(annotations={"kernel": dict(options)})


CASES = [
    Accept("use_kernel", chain, lambda s: s.use_kernel("root", "as_it_was")),
    Accept("use_kernel", chain, lambda s: s.use_kernel("root", "as_it_was", {"tile": [4, 8]})),
    Accept(
        "use_kernel",
        symbolic_chain,
        lambda s: s.use_kernel("root", "as_it_was", {"tile": 4}),
        sizes=({"n": 5},),
    ),
    Refuse(
        "use_kernel",
        "is the root block",
        chain,
        lambda s: s.use_kernel("C", "as_it_was"),
        "'C' is not the root block",
    ),
    Refuse(
        "use_kernel",
        "kernel is registered",
        chain,
        lambda s: s.use_kernel("root", "as_it_wass"),
        "no kernel 'as_it_wass'; registered are: .*as_it_was",
    ),
    Refuse(
        "use_kernel",
        "one that the kernel is for",
        chain,
        lambda s: s.use_kernel("root", "double_by_sum"),
        "not for this program: there is more than one block",
    ),
    Refuse(
        "use_kernel",
        "a dict or left out",
        chain,
        lambda s: s.use_kernel("root", "as_it_was", [4]),
        "options must be a dict, got list",
    ),
    Example(
        "use_kernel",
        lambda s: s.use_kernel("root", "double_by_sum"),
        {"A": "(16,)", "B": "(16,)"},
    ),
]
