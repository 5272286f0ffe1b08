"""A linker for what the code generators make: ELF64 objects in, one shared library out.

Exporting a module must not need a system linker. This one knows what LLVM emits for
position-independent kernels on x86-64 and AArch64: code, constants, data, calls and GOT accesses.
It does no garbage collection, no relaxation and no thread-local storage, and says so where an
object wants them. Calls to other libraries go through a stub and a GOT entry that the loader fills
in at once, so the result has no lazy binding.

Layout, each part in its own pages:

    read only   ELF header, symbols, hash, relocations, constants
    executable  code, stubs
    read-write  GOT, dynamic section, data, zeros

The parts of a linkage, in order: :func:`_read_object` parses, :class:`_Link` resolves symbols,
places sections, applies relocations and writes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.codegen.elf_relocations import (
    ARCHITECTURES,
    Architecture,
    patch,
    relocation_name,
)
from tilewright.support.errors import BuildError

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_GROUP = 1, 2, 4, 8, 17
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS = 1, 2, 4, 0x400
_SHN_UNDEF, _SHN_ABS, _SHN_COMMON, _SHN_XINDEX = 0, 0xFFF1, 0xFFF2, 0xFFFF
_STB_LOCAL, _STB_GLOBAL, _STB_WEAK = 0, 1, 2
_STT_NOTYPE, _STT_OBJECT, _STT_FUNC = 0, 1, 2

#: Symbols that the host program brings, if it has them: a library must load without.
_OPTIONAL_PREFIX = "TVMFFI"
_NEEDED = ("libc.so.6", "libm.so.6")

# Sections that a library can do without: unwind tables (kernels don't throw), notes, comments.
_DROPPED = (".eh_frame", ".note", ".comment", ".llvm_addrsig", ".llvm.")
_REFUSED = (".init_array", ".fini_array", ".ctors", ".dtors")


@dataclass(eq=False)
class _Section:
    name: str
    flags: int
    kind: int
    align: int
    size: int
    data: bytearray
    address: int = 0
    relocations: list[tuple[int, int, _Symbol, int]] = field(default_factory=list)


@dataclass(eq=False)
class _Symbol:
    name: str
    binding: int
    kind: int
    size: int
    section: _Section | None  # None: undefined, or absolute
    value: int
    defined: bool

    def address(self) -> int:
        return self.value + (self.section.address if self.section is not None else 0)


@dataclass
class _Object:
    machine: int
    sections: list[_Section]
    symbols: list[_Symbol]


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _read_object(data: bytes) -> _Object:
    """Parse a relocatable ELF64 object."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise BuildError("the linker takes little-endian ELF64 objects only")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != 1:
        raise BuildError(f"the linker takes relocatable objects (ET_REL), got ELF type {kind}")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_index = struct.unpack_from("<HHH", data, 58)
    if count == 0:
        raise BuildError("objects of 65280 or more sections are not supported")
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]

    def content(header: tuple[int, ...]) -> bytes:
        return data[header[4] : header[4] + header[5]]

    names = content(headers[names_index])
    sections: list[_Section | None] = []
    for header in headers:
        name = _text(names, header[0])
        keep = header[2] & _SHF_ALLOC and not name.startswith(_DROPPED)
        if not keep:
            sections.append(None)
            continue
        if header[2] & _SHF_TLS:
            raise BuildError(f"section {name}: thread-local storage is not supported")
        if name.startswith(_REFUSED) and header[5]:
            raise BuildError(f"section {name}: start-up and exit functions are not supported")
        if header[1] not in (_SHT_PROGBITS, _SHT_NOBITS):
            raise BuildError(f"section {name}: type {header[1]} is not supported")
        body = bytearray() if header[1] == _SHT_NOBITS else bytearray(content(header))
        sections.append(_Section(name, header[2], header[1], max(header[8], 1), header[5], body))
    symbols: list[_Symbol] = []
    for header in headers:
        if header[1] == _SHT_SYMTAB:
            symbols = _read_symbols(content(header), content(headers[header[6]]), sections)
    for header in headers:
        section = sections[header[7]] if header[1] == _SHT_RELA else None
        if section is None:
            continue
        for offset, info, addend in struct.iter_unpack("<QQq", content(header)):
            section.relocations.append((offset, info & 0xFFFFFFFF, symbols[info >> 32], addend))
    return _Object(machine, [s for s in sections if s is not None], symbols)


def _read_symbols(table: bytes, names: bytes, sections: Sequence[_Section | None]) -> list[_Symbol]:
    symbols = []
    for name, info, _other, index, value, size in struct.iter_unpack("<IBBHQQ", table):
        text = _text(names, name)
        if index == _SHN_COMMON:
            raise BuildError(f"symbol {text}: common symbols are not supported")
        if index == _SHN_XINDEX:
            raise BuildError("objects of 65280 or more sections are not supported")
        section = sections[index] if index not in (_SHN_UNDEF, _SHN_ABS) else None
        symbols.append(
            _Symbol(text, info >> 4, info & 15, size, section, value, index != _SHN_UNDEF)
        )
    return symbols


def undefined_symbols(data: bytes) -> list[str]:
    """Return the names that an object refers to but doesn't define."""
    symbols = _read_object(data).symbols
    return [s.name for s in symbols if s.name and not s.defined and s.binding != _STB_LOCAL]


def _align(value: int, to: int) -> int:
    return -(-value // to) * to


def _sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value ^= high >> 24 | high
    return value & 0xFFFFFFFF


class _Link:
    """One linkage."""

    def __init__(self, objects: Sequence[bytes], exports: Sequence[str], soname: str) -> None:
        parsed = [_read_object(data) for data in objects]
        machines = {item.machine for item in parsed}
        if len(machines) != 1 or not machines <= set(ARCHITECTURES):
            known = ", ".join(a.name for a in ARCHITECTURES.values())
            raise BuildError(
                f"objects must all be for one of {known}; got ELF machines {sorted(machines)}"
            )
        self.arch: Architecture = ARCHITECTURES[machines.pop()]
        self.sections = [section for item in parsed for section in item.sections]
        self.soname = soname
        self.globals = self._resolve(parsed)
        self.exports = self._exported(exports)
        self.imports: list[str] = []
        self.weak: set[str] = set()
        # GOT entries and stubs by what they lead to: the defined symbol, or an import's name.
        self.got: dict[_Symbol | str, int] = {}
        self.stubs: dict[str, int] = {}
        self._scan()

    # -- symbols -------------------------------------------------------------------------------

    @staticmethod
    def _resolve(parsed: Sequence[_Object]) -> dict[str, _Symbol]:
        found: dict[str, _Symbol] = {}
        for item in parsed:
            for symbol in item.symbols:
                if not symbol.defined or symbol.binding == _STB_LOCAL:
                    continue
                before = found.get(symbol.name)
                if before is None or before.binding == _STB_WEAK != symbol.binding:
                    found[symbol.name] = symbol
                elif symbol.binding != _STB_WEAK:
                    raise BuildError(f"symbol {symbol.name} is defined twice")
        return found

    def _exported(self, names: Sequence[str]) -> list[str]:
        missing = [name for name in names if name not in self.globals]
        if missing:
            raise BuildError(f"no object defines the symbols to export: {', '.join(missing)}")
        return list(dict.fromkeys(names))

    def _target(self, symbol: _Symbol) -> _Symbol | str:
        """What a reference leads to: a definition in here, or the name of an import."""
        if symbol.binding == _STB_LOCAL or symbol.name in self.globals:
            found = symbol if symbol.binding == _STB_LOCAL else self.globals[symbol.name]
            if found.defined and found.section is None and found.value == 0:
                raise BuildError(f"reference to {found.name or 'a section'}, which is left out")
            return found
        if symbol.defined:
            return symbol
        if symbol.name not in self.imports:
            self.imports.append(symbol.name)
        if symbol.binding == _STB_WEAK or symbol.name.startswith(_OPTIONAL_PREFIX):
            self.weak.add(symbol.name)
        return symbol.name

    def _scan(self) -> None:
        """Find what needs GOT entries and stubs, and which references the loader must fill in."""
        self.dynamic: list[tuple[_Section, int, int, _Symbol | str, int]] = []
        for section in self.sections:
            for offset, number, symbol, addend in section.relocations:
                kind = self.arch.relocations.get(number)
                if kind is None:
                    raise BuildError(
                        f"relocation {relocation_name(self.arch, number)} against "
                        f"{symbol.name or 'a section'} in {section.name} is not supported in "
                        f"shared libraries; compile with the PIC relocation model"
                    )
                target = self._target(symbol)
                if kind.got:
                    self.got.setdefault(target, len(self.got))
                elif kind.absolute:
                    if not section.flags & _SHF_WRITE:
                        # As .data.rel.ro: the loader must be able to write the address.
                        section.flags |= _SHF_WRITE
                    self.dynamic.append((section, offset, number, target, addend))
                elif isinstance(target, str):
                    if not kind.call:
                        raise BuildError(
                            f"{section.name} refers to {target} of another library directly; "
                            f"compile with the PIC relocation model"
                        )
                    self.got.setdefault(target, len(self.got))
                    self.stubs.setdefault(target, len(self.stubs))

    # -- layout --------------------------------------------------------------------------------

    def _dynamic_symbols(self) -> None:
        """Build .dynsym's names, .dynstr and .hash; addresses come later."""
        strings = bytearray(b"\0")

        def add(text: str) -> int:
            strings.extend(text.encode() + b"\0")
            return len(strings) - len(text.encode()) - 1

        self.dynamic_names = [*self.imports, *self.exports]
        self.number = {name: i + 1 for i, name in enumerate(self.dynamic_names)}
        self.name_offsets = [add(name) for name in self.dynamic_names]
        self.needed_offsets = [add(name) for name in _NEEDED]
        self.soname_offset = add(self.soname)
        self.strings = bytes(strings)
        buckets = max(1, len(self.dynamic_names))
        heads, chains = [0] * buckets, [0] * (len(self.dynamic_names) + 1)
        for name, number in self.number.items():
            bucket = _sysv_hash(name) % buckets
            chains[number] = heads[bucket]
            heads[bucket] = number
        self.hash = struct.pack(
            f"<{2 + buckets + len(chains)}I", buckets, len(chains), *heads, *chains
        )

    def _assign_addresses(self) -> None:
        """Give every part its address, which is also its offset in the file (except zeros)."""
        self._dynamic_symbols()
        page = self.arch.page
        self.rela_count = len(self.dynamic) + len(self.got)
        groups: dict[str, list[_Section]] = {"ro": [], "rx": [], "rw": [], "bss": []}
        for section in self.sections:
            if section.flags & _SHF_EXEC:
                groups["rx"].append(section)
            elif section.kind == _SHT_NOBITS:
                groups["bss"].append(section)
            else:
                groups["rw" if section.flags & _SHF_WRITE else "ro"].append(section)
        self.groups = groups
        at = 64 + 56 * 5

        def reserve(size: int, align: int = 8) -> int:
            nonlocal at
            start = _align(at, align)
            at = start + size
            return start

        def put(sections: Sequence[_Section]) -> None:
            for section in sections:
                section.address = reserve(section.size, section.align)

        self.hash_at = reserve(len(self.hash))
        self.symbols_at = reserve(24 * (len(self.dynamic_names) + 1))
        self.strings_at = reserve(len(self.strings))
        self.rela_at = reserve(24 * self.rela_count)
        put(groups["ro"])
        self.ro_end = at
        self.rx_at = at = _align(at, page)
        put(groups["rx"])
        self.stubs_at = reserve(self.arch.stub_size * len(self.stubs), 16)
        self.rx_end = at
        self.rw_at = at = _align(at, page)
        self.got_at = reserve(8 * len(self.got))
        self.dynamic_size = 16 * (len(_NEEDED) + 12)
        self.dynamic_at = reserve(self.dynamic_size)
        put(groups["rw"])
        self.rw_end = at
        put(groups["bss"])
        self.end = at

    # -- output --------------------------------------------------------------------------------

    def _apply(self, section: _Section) -> None:
        for offset, number, symbol, addend in section.relocations:
            kind = self.arch.relocations[number]
            if kind.absolute:
                continue
            target = self._target(symbol)
            if kind.got:
                value = self.got_at + 8 * self.got[target]
            elif isinstance(target, str):
                value = self.stubs_at + self.arch.stub_size * self.stubs[target]
            else:
                value = target.address()
            where = section.address + offset
            try:
                patch(kind, section.data, offset, where, value + addend)
            except OverflowError as err:
                name = relocation_name(self.arch, number)
                raise BuildError(f"{name} in {section.name} doesn't reach its target") from err

    def _relocations(self) -> bytes:
        """Entries of .rela.dyn: those of our own addresses first, as loaders prefer."""
        relative, symbolic = [], []
        for target, index in self.got.items():
            where = self.got_at + 8 * index
            if isinstance(target, str):
                symbolic.append((where, self.number[target] << 32 | self.arch.glob_dat, 0))
            else:
                relative.append((where, self.arch.relative, target.address()))
        for section, offset, _number, target, addend in self.dynamic:
            where = section.address + offset
            if isinstance(target, str):
                symbolic.append((where, self.number[target] << 32 | self.arch.absolute, addend))
            else:
                relative.append((where, self.arch.relative, target.address() + addend))
        self.relative_count = len(relative)
        return b"".join(struct.pack("<QQq", *entry) for entry in (*relative, *symbolic))

    def _symbol_table(self) -> bytes:
        entries = [bytes(24)]
        for name, offset in zip(self.dynamic_names, self.name_offsets, strict=True):
            symbol = None if name in self.imports else self.globals[name]
            if symbol is None:
                binding = _STB_WEAK if name in self.weak else _STB_GLOBAL
                entries.append(struct.pack("<IBBHQQ", offset, binding << 4, 0, 0, 0, 0))
                continue
            info = _STB_GLOBAL << 4 | symbol.kind
            # Loaders only ask whether the section is 0; the number of .text or .data would do.
            index = self.section_number(symbol)
            entries.append(
                struct.pack("<IBBHQQ", offset, info, 0, index, symbol.address(), symbol.size)
            )
        return b"".join(entries)

    def section_number(self, symbol: _Symbol) -> int:
        """Number of the output section that holds a symbol; see :meth:`_section_headers`."""
        section = symbol.section
        if section is None:
            return _SHN_ABS
        return next(
            {"ro": 5, "rx": 6, "rw": 9, "bss": 10}[name]
            for name, members in self.groups.items()
            if section in members
        )

    def _dynamic_section(self) -> bytes:
        tags = [(1, offset) for offset in self.needed_offsets]
        tags += [
            (14, self.soname_offset),  # SONAME
            (4, self.hash_at),  # HASH
            (5, self.strings_at),  # STRTAB
            (6, self.symbols_at),  # SYMTAB
            (10, len(self.strings)),  # STRSZ
            (11, 24),  # SYMENT
            (7, self.rela_at),  # RELA
            (8, 24 * self.rela_count),  # RELASZ
            (9, 24),  # RELAENT
            (0x6FFFFFF9, self.relative_count),  # RELACOUNT
            # NOW, NODELETE: threads of the pool run code of the library until the process ends.
            (0x6FFFFFFB, 1 | 8),
            (0, 0),
        ]
        return b"".join(struct.pack("<QQ", *tag) for tag in tags)

    def _section_headers(self, image: bytearray) -> tuple[int, int]:
        """Append section headers, for the eyes of binutils; returns their offset and number."""
        names = bytearray(b"\0")
        rows = [(0,) * 10]

        def span(group: str) -> tuple[int, int]:
            members = self.groups[group]
            if not members:
                start = {"ro": self.ro_end, "rx": self.rx_at, "rw": self.rw_end, "bss": self.end}
                return start[group], 0
            last = members[-1]
            return members[0].address, last.address + last.size - members[0].address

        def row(
            name: str,
            kind: int,
            flags: int,
            place: tuple[int, int],
            link: int = 0,
            info: int = 0,
            entry: int = 0,
            align: int = 8,
        ) -> None:
            offset = min(place[0], self.rw_end) if kind == _SHT_NOBITS else place[0]
            rows.append(
                (len(names), kind, flags, place[0], offset, place[1], link, info, align, entry)
            )
            names.extend(name.encode() + b"\0")

        row(".hash", 5, 2, (self.hash_at, len(self.hash)), 2, 0, 4)
        row(".dynsym", 11, 2, (self.symbols_at, 24 * (len(self.dynamic_names) + 1)), 3, 1, 24)
        row(".dynstr", 3, 2, (self.strings_at, len(self.strings)), align=1)
        row(".rela.dyn", 4, 2, (self.rela_at, 24 * self.rela_count), 2, 0, 24)
        row(".rodata", 1, 2, span("ro"), align=1)
        start, size = span("rx")
        size = max(size, self.rx_end - start) if self.stubs else size
        row(".text", 1, 6, (start, size), align=1)
        row(".got", 1, 3, (self.got_at, 8 * len(self.got)), 0, 0, 8)
        row(".dynamic", 6, 3, (self.dynamic_at, self.dynamic_size), 3, 0, 16)
        row(".data", 1, 3, span("rw"), align=1)
        row(".bss", 8, 3, span("bss"), align=1)
        names_at = len(image)
        rows.append((len(names), 3, 0, 0, names_at, len(names) + 10, 0, 0, 1, 0))
        names.extend(b".shstrtab\0")
        image.extend(names)
        image.extend(bytes(-len(image) % 8))
        headers_at = len(image)
        for entry in rows:
            image.extend(struct.pack("<IIQQQQIIQQ", *entry))
        return headers_at, len(rows)

    def write(self) -> bytes:
        """Place everything, apply the relocations and return the file."""
        self._assign_addresses()
        image = bytearray(self.rw_end)

        def store(at: int, data: bytes) -> None:
            image[at : at + len(data)] = data

        for section in self.sections:
            self._apply(section)
            if section.kind != _SHT_NOBITS:
                store(section.address, bytes(section.data))
        for name, index in self.stubs.items():
            at = self.stubs_at + self.arch.stub_size * index
            store(at, self.arch.stub(at, self.got_at + 8 * self.got[name]))
        store(self.hash_at, self.hash)
        store(self.strings_at, self.strings)
        store(self.symbols_at, self._symbol_table())
        store(self.rela_at, self._relocations())
        store(self.dynamic_at, self._dynamic_section())
        page = self.arch.page
        headers = [
            # type, flags, offset, address, size in the file, size in memory, alignment
            (1, 4, 0, self.ro_end, self.ro_end, page),
            (1, 5, self.rx_at, self.rx_end - self.rx_at, self.rx_end - self.rx_at, page),
            (1, 6, self.rw_at, self.rw_end - self.rw_at, self.end - self.rw_at, page),
            (2, 6, self.dynamic_at, self.dynamic_size, self.dynamic_size, 8),
            (0x6474E551, 6, 0, 0, 0, 16),  # GNU_STACK: not executable
        ]
        for index, (kind, flags, at, in_file, in_memory, align) in enumerate(headers):
            store(
                64 + 56 * index,
                struct.pack("<IIQQQQQQ", kind, flags, at, at, at, in_file, in_memory, align),
            )
        headers_at, count = self._section_headers(image)
        identity = b"\x7fELF\x02\x01\x01" + bytes(9)
        store(
            0,
            identity
            + struct.pack(
                "<HHIQQQIHHHHHH",
                *(3, self.arch.machine, 1, 0, 64, headers_at, 0, 64, 56, len(headers)),
                *(64, count, count - 1),
            ),
        )
        return bytes(image)


def link_shared(
    objects: Sequence[bytes], exports: Sequence[str], *, soname: str = "tilewright-module.so"
) -> bytes:
    """Link relocatable objects to a shared library and return its bytes.

    Only ``exports`` can be seen from outside. What no object defines is looked up by the loader in
    libc, libm and what the program has loaded; ``TVMFFI...`` may be missing (null) in programs
    without tvm-ffi. The same input gives the same bytes.
    """
    return _Link(objects, exports, soname).write()


def data_object(constants: Mapping[str, bytes], *, machine: str = "x86_64") -> bytes:
    """Return a relocatable object that defines constants, each aligned to 64 bytes.

    Large constants, such as a model's weights, reach a library this way without passing through
    LLVM. ``machine`` is the first part of the triple.
    """
    numbers = {"x86_64": 62, "aarch64": 183}
    if machine not in numbers:
        raise BuildError(f"no objects for machine {machine!r}; known are {', '.join(numbers)}")
    data, names, symbols = bytearray(), bytearray(b"\0"), bytearray(24)
    for name, content in constants.items():
        data.extend(bytes(-len(data) % 64))
        info = _STB_GLOBAL << 4 | _STT_OBJECT
        symbols += struct.pack("<IBBHQQ", len(names), info, 0, 1, len(data), len(content))
        names += name.encode() + b"\0"
        data += content
    titles = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0"
    parts: list[tuple[str, int, int, bytes | bytearray, int, int, int, int]] = [
        (".rodata", _SHT_PROGBITS, _SHF_ALLOC, data, 0, 0, 64, 0),
        (".symtab", _SHT_SYMTAB, 0, symbols, 3, 1, 8, 24),
        (".strtab", 3, 0, names, 0, 0, 1, 0),
        (".shstrtab", 3, 0, titles, 0, 0, 1, 0),
    ]
    image = bytearray(64)
    headers = bytearray(64)
    for title, kind, flags, body, link, info, align, entry in parts:
        image.extend(bytes(-len(image) % align))
        at = titles.index(title.encode() + b"\0")
        headers += struct.pack(
            "<IIQQQQIIQQ", at, kind, flags, 0, len(image), len(body), link, info, align, entry
        )
        image += body
    image.extend(bytes(-len(image) % 8))
    fields = (1, numbers[machine], 1, 0, 0, len(image), 0, 64, 0, 0, 64, len(parts) + 1, len(parts))
    image[:64] = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", *fields)
    return bytes(image + headers)


__all__ = ["data_object", "link_shared", "undefined_symbols"]
