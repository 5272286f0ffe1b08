"""Relocations of the ELF linker, as tables, one per architecture (psABI documents).

Only what LLVM emits for position-independent code with the small code model. Each entry says how
the value is computed and where its bits go.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One relocation type.

    ``form`` names the encoding (see :func:`patch`). ``got``: the target is the symbol's GOT entry.
    ``call``: a branch, which may go to a stub. ``absolute``: a full address, filled in by the
    loader.
    """

    name: str
    form: str
    got: bool = False
    call: bool = False
    absolute: bool = False
    scale: int = 0


@dataclass(frozen=True)
class Architecture:
    """What differs between machines."""

    name: str
    machine: int
    page: int
    absolute: int
    glob_dat: int
    relative: int
    stub_size: int
    stub: Callable[[int, int], bytes]
    relocations: dict[int, Kind]


def _signed(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise OverflowError(value)
    return value


def _insert(data: bytearray, offset: int, clear: int, bits: int) -> None:
    (word,) = struct.unpack_from("<I", data, offset)
    struct.pack_into("<I", data, offset, word & ~clear & 0xFFFFFFFF | bits)


def _adr(delta: int) -> int:
    """Bits of an ADRP for a distance in pages."""
    pages = _signed(delta, 21) & 0x1FFFFF
    return (pages & 3) << 29 | (pages >> 2) << 5


def _page(value: int) -> int:
    return value >> 12


def patch(kind: Kind, data: bytearray, offset: int, where: int, value: int) -> None:
    """Write a relocation whose place is at address ``where`` and whose target is ``value``.

    Raises OverflowError when the distance doesn't fit.
    """
    form = kind.form
    if form == "rel32":
        struct.pack_into("<i", data, offset, _signed(value - where, 32))
    elif form == "rel64":
        struct.pack_into("<q", data, offset, value - where)
    elif form == "branch26":
        words = _signed(value - where, 28) >> 2
        _insert(data, offset, 0x3FFFFFF, words & 0x3FFFFFF)
    elif form == "branch19":
        words = _signed(value - where, 21) >> 2
        _insert(data, offset, 0x7FFFF << 5, (words & 0x7FFFF) << 5)
    elif form == "branch14":
        words = _signed(value - where, 16) >> 2
        _insert(data, offset, 0x3FFF << 5, (words & 0x3FFF) << 5)
    elif form == "adrp":
        _insert(data, offset, 0x60FFFFE0, _adr(_page(value) - _page(where)))
    elif form == "adr":
        delta = _signed(value - where, 21) & 0x1FFFFF
        _insert(data, offset, 0x60FFFFE0, (delta & 3) << 29 | (delta >> 2) << 5)
    elif form == "lo12":
        low = value & 0xFFF
        if low & ((1 << kind.scale) - 1):
            raise OverflowError(value)
        _insert(data, offset, 0xFFF << 10, (low >> kind.scale) << 10)
    else:
        raise AssertionError(form)


def _x86_stub(at: int, entry: int) -> bytes:
    # jmp *entry(%rip); the rest traps
    return b"\xff\x25" + struct.pack("<i", _signed(entry - at - 6, 32)) + b"\xcc" * 10


def _aarch64_stub(at: int, entry: int) -> bytes:
    # adrp x16, page; ldr x16, [x16, low]; br x16
    adrp = 0x90000010 | _adr(_page(entry) - _page(at))
    load = 0xF9400210 | ((entry & 0xFFF) >> 3) << 10
    return struct.pack("<4I", adrp, load, 0xD61F0200, 0xD503201F)


_X86_64 = Architecture(
    name="x86-64",
    machine=62,
    page=0x1000,
    absolute=1,
    glob_dat=6,
    relative=8,
    stub_size=16,
    stub=_x86_stub,
    relocations={
        1: Kind("R_X86_64_64", "abs64", absolute=True),
        2: Kind("R_X86_64_PC32", "rel32"),
        4: Kind("R_X86_64_PLT32", "rel32", call=True),
        9: Kind("R_X86_64_GOTPCREL", "rel32", got=True),
        24: Kind("R_X86_64_PC64", "rel64"),
        41: Kind("R_X86_64_GOTPCRELX", "rel32", got=True),
        42: Kind("R_X86_64_REX_GOTPCRELX", "rel32", got=True),
    },
)

_AARCH64 = Architecture(
    name="AArch64",
    machine=183,
    page=0x10000,
    absolute=257,
    glob_dat=1025,
    relative=1027,
    stub_size=16,
    stub=_aarch64_stub,
    relocations={
        257: Kind("R_AARCH64_ABS64", "abs64", absolute=True),
        260: Kind("R_AARCH64_PREL64", "rel64"),
        261: Kind("R_AARCH64_PREL32", "rel32"),
        274: Kind("R_AARCH64_ADR_PREL_LO21", "adr"),
        275: Kind("R_AARCH64_ADR_PREL_PG_HI21", "adrp"),
        276: Kind("R_AARCH64_ADR_PREL_PG_HI21_NC", "adrp"),
        277: Kind("R_AARCH64_ADD_ABS_LO12_NC", "lo12"),
        278: Kind("R_AARCH64_LDST8_ABS_LO12_NC", "lo12"),
        279: Kind("R_AARCH64_TSTBR14", "branch14"),
        280: Kind("R_AARCH64_CONDBR19", "branch19"),
        282: Kind("R_AARCH64_JUMP26", "branch26", call=True),
        283: Kind("R_AARCH64_CALL26", "branch26", call=True),
        284: Kind("R_AARCH64_LDST16_ABS_LO12_NC", "lo12", scale=1),
        285: Kind("R_AARCH64_LDST32_ABS_LO12_NC", "lo12", scale=2),
        286: Kind("R_AARCH64_LDST64_ABS_LO12_NC", "lo12", scale=3),
        299: Kind("R_AARCH64_LDST128_ABS_LO12_NC", "lo12", scale=4),
        311: Kind("R_AARCH64_ADR_GOT_PAGE", "adrp", got=True),
        312: Kind("R_AARCH64_LD64_GOT_LO12_NC", "lo12", got=True, scale=3),
        314: Kind("R_AARCH64_PLT32", "rel32", call=True),
    },
)

#: By the machine number of the ELF header.
ARCHITECTURES = {arch.machine: arch for arch in (_X86_64, _AARCH64)}

_REFUSED_NAMES = {
    (62, 10): "R_X86_64_32",
    (62, 11): "R_X86_64_32S",
    (62, 19): "R_X86_64_TLSGD",
    (62, 20): "R_X86_64_TLSLD",
    (62, 22): "R_X86_64_GOTTPOFF",
    (62, 23): "R_X86_64_TPOFF32",
}


def relocation_name(arch: Architecture, number: int) -> str:
    """Return the name of a relocation, known or not."""
    if number in arch.relocations:
        return arch.relocations[number].name
    return _REFUSED_NAMES.get((arch.machine, number), f"number {number} of {arch.name}")
