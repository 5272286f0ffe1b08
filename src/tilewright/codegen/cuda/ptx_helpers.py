"""Helper functions of generated code that hold one PTX instruction each.

A family's name says all about its instruction, so that the text of a helper is made from the name
alone when a kernel first calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from tilewright.codegen.c.dialect import Dialect, Helper, Maker
from tilewright.codegen.c.helpers import fill
from tilewright.ir import dtypes
from tilewright.tir.fragments import (
    BYTES,
    DTYPES,
    MMA_SHAPES,
    TURNED,
    TURNED_DEPTH,
    TURNED_WIDTH,
    WGMMA_TYPES,
    WMMA_SHAPES,
    sizes,
    wmma_registers,
)
from tilewright.tir.gpu_ops import TENSOR_RANK

_PTX_TYPES = {
    "fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp32": "f32", "int8": "s8", "uint8": "u8",
    "int32": "s32", "e4m3": "e4m3", "e5m2": "e5m2",
}  # fmt: skip
_WMMA_TYPES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "s8", "uint8": "u8",
    "int32": "s32",
}  # fmt: skip
PTX_HELPERS: dict[str, Maker] = {}
"""Makers of helpers by family."""


def _add(family: str, text: Callable[[], str] | str) -> str:
    def make(dialect: Dialect, element: str) -> Helper:
        body = text if isinstance(text, str) else text()
        return Helper(fill(dialect, element, body, name=f"tw_{family}_u32"))

    PTX_HELPERS[family] = make
    return family


class _Operands:
    """Numbers the operands of an ``asm`` statement, outputs first."""

    def __init__(self) -> None:
        self.numbers = count()
        self.outputs: list[str] = []
        self.inputs: list[str] = []

    def out(self, constraint: str, values: Sequence[str]) -> str:
        """Outputs, as they stand in the instruction's text."""
        self.outputs += [f'"{constraint}"({value})' for value in values]
        return self._list(len(values))

    def take(self, constraint: str, values: Sequence[str]) -> str:
        """Inputs, as they stand in the instruction's text."""
        self.inputs += [f'"{constraint}"({value})' for value in values]
        return self._list(len(values))

    def _list(self, size: int) -> str:
        names = [f"%{next(self.numbers)}" for _ in range(size)]
        return "{" + ", ".join(names) + "}"

    def text(self, instruction: str, memory: bool = True) -> str:
        """The statement."""
        end = ' : "memory"' if memory else ""
        return (
            f'asm volatile("{instruction};"\n      : {", ".join(self.outputs)}\n      '
            f": {', '.join(self.inputs)}{end});"
        )


def _array(name: str, size: int) -> list[str]:
    return [f"{name}[{index}]" for index in range(size)]


def _register(type_name: str) -> tuple[str, str]:
    """C type and constraint of a fragment's registers."""
    return ("float", "f") if type_name == "f32" else ("unsigned int", "r")


# ---- mma ----------------------------------------------------------------------------------------


def mma_family(shape: str, a: str, b: str, c: str, saturate: bool) -> str:
    """Name of the helper of ``ptx_mma``."""
    return f"mma_{shape}_{a}_{b}_{c}{'_sat' if saturate else ''}"


def _mma_text(shape: str, a: str, b: str, c: str, saturate: bool) -> str:
    m, n, k = sizes(shape)
    bits = dtypes.bits_of(DTYPES[a])
    counts = [m * k * bits // 1024, k * n * bits // 1024]
    kind, constraint = _register(_PTX_TYPES[c])
    total = m * n * dtypes.bits_of(DTYPES[c]) // 1024
    asm = _Operands()
    # Sums are in and out; PTX names them twice.
    sums = asm.out(f"+{constraint}", _array("c", total))
    left = asm.take("r", _array("a", counts[0]))
    right = asm.take("r", _array("b", counts[1]))
    types = ".".join(_PTX_TYPES[item] for item in (c, a, b, c))
    end = ".satfinite" if saturate else ""
    text = asm.text(
        f"mma.sync.aligned.{shape}.row.col{end}.{types} {sums}, {left}, {right}, {sums}", False
    )
    return f"""
$fn void $name({kind}* c, const unsigned int* a, const unsigned int* b) {{
  {text}
}}"""


def _add_mma() -> None:
    for item in MMA_SHAPES:
        for shape in item.shapes:
            for a in item.operands:
                for b in item.operands:
                    for c in item.accumulators:
                        for saturate in (False, True) if c == "int32" else (False,):
                            family = mma_family(shape, a, b, c, saturate)
                            _add(family, _later(_mma_text, shape, a, b, c, saturate))


def _later(function: Callable[..., str], *args: object) -> Callable[[], str]:
    return lambda: function(*args)


# ---- ldmatrix, stmatrix -------------------------------------------------------------------------


_PLACE = "unsigned int place = (unsigned int)__cvta_generic_to_shared(memory);"


def _add_matrices() -> None:
    for number in (1, 2, 4):
        for trans in ("", ".trans"):
            form = f"sync.aligned.m8n8.x{number}{trans}.shared.b16"
            end = f"x{number}{trans.replace('.', '_')}"
            asm = _Operands()
            own = asm.out("=r", _array("r", number))
            asm.take("r", ["place"])
            text = asm.text(f"ldmatrix.{form} {own}, [%{number}]")
            _add(
                f"ldmatrix_{end}",
                f"$fn void $name(unsigned int* r, const void* memory) {{\n  {_PLACE}\n  {text}\n}}",
            )
            asm = _Operands()
            asm.take("r", ["place"])
            own = asm.take("r", _array("r", number))
            text = asm.text(f"stmatrix.{form} [%0], {own}")
            _add(
                f"stmatrix_{end}",
                f"$fn void $name(const unsigned int* r, void* memory) {{\n  {_PLACE}\n  {text}\n}}",
            )


# ---- wmma ---------------------------------------------------------------------------------------


def _layout(layout: str) -> str:
    return layout.removesuffix("_major")


def wmma_load_family(part: str, shape: str, dtype: str, layout: str, space: str) -> str:
    """Name of the helper of ``tvm_load_matrix_sync``."""
    return f"wmma_load_{part}_{shape}_{_WMMA_TYPES[dtype]}_{_layout(layout)}_{space}"


def wmma_store_family(shape: str, dtype: str, layout: str, space: str) -> str:
    """Name of the helper of ``tvm_store_matrix_sync``."""
    return f"wmma_store_d_{shape}_{_WMMA_TYPES[dtype]}_{_layout(layout)}_{space}"


def wmma_mma_family(shape: str, dtype: str, total: str, a_layout: str, b_layout: str) -> str:
    """Name of the helper of ``tvm_mma_sync``."""
    kinds = f"{_WMMA_TYPES[dtype]}_{_WMMA_TYPES[total]}"
    return f"wmma_mma_{shape}_{kinds}_{_layout(a_layout)}_{_layout(b_layout)}"


def _wmma_copy(action: str, part: str, shape: str, dtype: str, layout: str, space: str) -> str:
    scope = {"a": "wmma.matrix_a", "b": "wmma.matrix_b"}.get(part, "wmma.accumulator")
    total = wmma_registers(dtype, scope, *sizes(shape))
    kind, constraint = ("unsigned int", "r") if part in "ab" else _register(_WMMA_TYPES[dtype])
    name = "tf32" if part in "ab" and dtype == "float32" else _WMMA_TYPES[dtype]
    form = f"wmma.{action}.{part}.sync.aligned.{layout}.{shape}.{space}.{name}"
    asm = _Operands()
    where = ("r", ["place"]) if space == "shared" else ("l", ["memory"])
    if action == "load":
        own = asm.out(f"={constraint}", _array("r", total))
        asm.take(*where)
        asm.take("r", ["stride"])
        text = asm.text(f"{form} {own}, [%{total}], %{total + 1}")
        signature = f"{kind}* r, const void* memory, int stride"
    else:
        asm.take(*where)
        own = asm.take(constraint, _array("r", total))
        asm.take("r", ["stride"])
        text = asm.text(f"{form} [%0], {own}, %{total + 1}")
        signature = f"void* memory, const {kind}* r, int stride"
    place = f"  {_PLACE}\n" if space == "shared" else ""
    return f"$fn void $name({signature}) {{\n{place}  {text}\n}}"


def _wmma_mma(shape: str, dtype: str, total: str, a_layout: str, b_layout: str) -> str:
    extents = sizes(shape)
    counts = {
        "a": wmma_registers(dtype, "wmma.matrix_a", *extents),
        "b": wmma_registers(dtype, "wmma.matrix_b", *extents),
        "c": wmma_registers(total, "wmma.accumulator", *extents),
    }
    kind, constraint = _register(_WMMA_TYPES[total])
    asm = _Operands()
    result = asm.out(f"={constraint}", _array("d", counts["c"]))
    left = asm.take("r", _array("a", counts["a"]))
    right = asm.take("r", _array("b", counts["b"]))
    sums = asm.take(constraint, _array("c", counts["c"]))
    own, out = ("tf32" if dtype == "float32" else _WMMA_TYPES[dtype]), _WMMA_TYPES[total]
    types = f"{out}.{out}" if dtype == "float16" else f"{out}.{own}.{own}.{out}"
    form = f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.{types}"
    text = asm.text(f"{form} {result}, {left}, {right}, {sums}", False)
    return f"""
$fn void $name({kind}* d, const unsigned int* a, const unsigned int* b, const {kind}* c) {{
  {text}
}}"""


_TOTALS = {
    "float16": ("float32", "float16"), "bfloat16": ("float32",), "float32": ("float32",),
    "int8": ("int32",), "uint8": ("int32",),
}  # fmt: skip
_MAJORS = ("row_major", "col_major")


def _wmma_shapes() -> Iterator[tuple[str, str]]:
    for dtype, shapes in WMMA_SHAPES.items():
        for m, n, k in shapes:
            yield dtype, f"m{m}n{n}k{k}"


def _add_wmma() -> None:
    for dtype, shape in _wmma_shapes():
        for layout in _MAJORS:
            short = _layout(layout)
            for space in ("shared", "global"):
                for part in "ab":
                    family = wmma_load_family(part, shape, dtype, layout, space)
                    _add(family, _later(_wmma_copy, "load", part, shape, dtype, short, space))
                for total in _TOTALS[dtype]:
                    family = wmma_load_family("c", shape, total, layout, space)
                    _add(family, _later(_wmma_copy, "load", "c", shape, total, short, space))
                    family = wmma_store_family(shape, total, layout, space)
                    _add(family, _later(_wmma_copy, "store", "d", shape, total, short, space))
            for other in _MAJORS:
                for total in _TOTALS[dtype]:
                    family = wmma_mma_family(shape, dtype, total, layout, other)
                    _add(family, _later(_wmma_mma, shape, dtype, total, short, _layout(other)))


# ---- wgmma --------------------------------------------------------------------------------------


def wgmma_family(shape: str, a: str, c: str, swizzle: int, turned: str) -> str:
    """Name of the helper of ``ptx_wgmma``."""
    return f"wgmma_{shape}_{a}_{c}_swizzle{swizzle}{turned and '_turned_' + turned}"


def _wgmma_text(shape: str, a: str, c: str, swizzle: int, turned: str) -> str:
    """The product of two tiles, by descriptors of them (PTX ISA, "Matrix descriptor").

    Groups of eight rows lie 8 * swizzle bytes apart ("stride byte offset"). Blocks of 64 elements
    of a turned operand lie 16 rows apart ("leading byte offset"), which has no meaning for others,
    whose rows are as long as the swizzle.
    """
    _, n, k = sizes(shape)
    kind, constraint = _register(_PTX_TYPES[c])
    total = n // 2 * dtypes.bits_of(DTYPES[c]) // 32
    mode = {128: 1, 64: 2, 32: 3}[swizzle]
    fixed = (mode << 62) | ((8 * swizzle >> 4) << 32)
    leading = [TURNED_DEPTH * swizzle >> 4 if item else 1 for item in TURNED[turned]]
    asm = _Operands()
    sums = asm.out(f"+{constraint}", _array("c", total))
    asm.take("l", ["left", "right"])
    types = ".".join(_PTX_TYPES[item] for item in (c, a, a))
    order = "".join(f", {int(item)}" for item in TURNED[turned])
    order = f", 1, 1{order}" if k == TURNED_DEPTH else ", 1, 1"
    signs = "" if a in BYTES else order  # products of bytes take no signs
    text = asm.text(
        f"wgmma.mma_async.sync.aligned.{shape}.{types} {sums}, %{total}, %{total + 1}, 1{signs}"
    )
    return f"""
$fn void $name({kind}* c, const void* a, const void* b) {{
  unsigned long long left = ((unsigned int)__cvta_generic_to_shared(a) & 0x3ffff) >> 4;
  unsigned long long right = ((unsigned int)__cvta_generic_to_shared(b) & 0x3ffff) >> 4;
  left |= {fixed | leading[0] << 16:#x}ull;
  right |= {fixed | leading[1] << 16:#x}ull;
  {text}
}}"""


def _add_wgmma() -> None:
    for a, totals in WGMMA_TYPES.items():
        depth = 32 // dtypes.bytes_of(DTYPES[a])
        for n in range(8, 257, 8):
            if a in BYTES and n % 16:
                continue
            for c in totals:
                shape = f"m64n{n}k{depth}"
                turned = [(128, "a")] if depth == TURNED_DEPTH else []
                if turned and n % TURNED_WIDTH == 0:
                    turned += [(128, "b"), (128, "ab")]
                for swizzle, order in [(32, ""), (64, ""), (128, ""), *turned]:
                    _add(
                        wgmma_family(shape, a, c, swizzle, order),
                        _later(_wgmma_text, shape, a, c, swizzle, order),
                    )


# ---- asynchronous copies ------------------------------------------------------------------------


def _add_copies() -> None:
    for size in (4, 8, 16):
        cache = "cg" if size == 16 else "ca"
        form = f"cp.async.{cache}.shared.global [%0], [%1], {size}"
        place = "unsigned int place = (unsigned int)__cvta_generic_to_shared(to);"
        _add(
            f"cp_async_{size}",
            f"""
$fn void $name(void* to, const void* from) {{
  {place}
  asm volatile("{form};" :: "r"(place), "l"(from) : "memory");
}}""",
        )
        _add(
            f"cp_async_zfill_{size}",
            f"""
$fn void $name(void* to, const void* from, int bytes) {{
  {place}
  asm volatile("{form}, %2;" :: "r"(place), "l"(from), "r"(bytes) : "memory");
}}""",
        )


def _add_barriers() -> None:
    start = "unsigned int place = (unsigned int)__cvta_generic_to_shared(barrier);"

    def add(family: str, parameters: str, *lines: str) -> None:
        body = "\n  ".join((start, *lines))
        _add(family, f"$fn void $name({parameters}) {{\n  {body}\n}}")

    add(
        "init_barrier_thread_count",
        "void* barrier, unsigned int count",
        'asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place), "r"(count)'
        ' : "memory");',
    )
    add(
        "invalidate_barrier",
        "void* barrier",
        'asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(place) : "memory");',
    )
    add(
        "arrive_barrier",
        "void* barrier",
        'asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }"'
        ' :: "r"(place) : "memory");',
    )
    add(
        "arrive_barrier_cluster",
        "void* barrier, unsigned int cta",
        'asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; '
        'mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }"'
        ' :: "r"(place), "r"(cta) : "memory");',
    )
    add(
        "arrive_barrier_expect_tx",
        "void* barrier, unsigned int bytes",
        'asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], '
        '%1; }" :: "r"(place), "r"(bytes) : "memory");',
    )
    for family, order in (("wait_barrier", ""), ("wait_barrier_cluster", ".acquire.cluster")):
        add(
            family,
            "void* barrier, unsigned int parity",
            "unsigned int over;",
            "do {",
            f'  asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity{order}.shared::cta.b64 p, '
            '[%1], %2; selp.u32 %0, 1, 0, p; }" '
            ': "=r"(over) : "r"(place), "r"(parity) : "memory");',
            "} while (!over);",
        )
    add(
        "cp_async_bulk", "void* to, const void* from, void* barrier, unsigned int bytes",
        "unsigned int target = (unsigned int)__cvta_generic_to_shared(to);",
        'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], '
        '[%1], %2, [%3];" :: "r"(target), "l"(from), "r"(bytes), "r"(place) : "memory");',
    )  # fmt: skip


def _add_tensor_copies() -> None:
    """Copies of boxes (PTX ISA, ``cp.async.bulk.tensor``): a map is a generic address."""
    _add("tensor_map", "struct __align__(64) $name { unsigned long long words[16]; };")
    for rank in range(1, TENSOR_RANK + 1):
        names = [f"c{n}" for n in range(rank)]
        places = ", ".join(f"%{n + 3}" for n in range(rank))
        values = ", ".join(f'"r"({name})' for name in names)
        text = f"""
$fn void $name(void* to, const void* map, void* barrier, {", ".join(f"int {n}" for n in names)}) {{
  unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
  unsigned int place = (unsigned int)__cvta_generic_to_shared(barrier);
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2];"
      :: "r"(target), "l"(map), "r"(place), {values} : "memory");
}}"""
        _add(f"cp_async_bulk_tensor_{rank}", text)
        several = text.replace("void* barrier,", "void* barrier, unsigned short mask,")
        several = several.replace("::bytes [%0]", "::bytes.multicast::cluster [%0]")
        several = several.replace("[%2];", f"[%2], %{rank + 3};")
        several = several.replace(f"{values} :", f'{values}, "h"(mask) :')
        _add(f"cp_async_bulk_tensor_{rank}_multicast", several)


def _add_distributed() -> None:
    """Elements of shared memory of other blocks of the cluster (PTX ISA, ``mapa``)."""
    for bits, constraint in ((8, "r"), (16, "h"), (32, "r"), (64, "l")):
        kind = {8: "char", 16: "short", 32: "int", 64: "long long"}[bits]
        register = {8: "int"}.get(bits, kind)
        map_place = (
            f"{_PLACE}\n  unsigned int remote;\n  "
            'asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(place), '
            '"r"(cta));'
        )
        _add(
            f"st_shared_cluster_{bits}",
            f"""
$fn void $name(void* memory, unsigned int cta, unsigned {kind} value) {{
  {map_place}
  asm volatile("st.shared::cluster.u{bits} [%0], %1;"
      :: "r"(remote), "{constraint}"((unsigned {register})value) : "memory");
}}""",
        )
        _add(
            f"ld_shared_cluster_{bits}",
            f"""
$fn void $name(void* to, const void* memory, unsigned int cta) {{
  {map_place}
  unsigned {register} value;
  asm volatile("ld.shared::cluster.u{bits} %0, [%1];"
      : "={constraint}"(value) : "r"(remote) : "memory");
  *(unsigned {kind}*)to = (unsigned {kind})value;
}}""",
        )


_add_mma()
_add_matrices()
_add_wmma()
_add_wgmma()
_add_copies()
_add_barriers()
_add_tensor_copies()
_add_distributed()
assert all(re.fullmatch(r"\w+", family) for family in PTX_HELPERS)
