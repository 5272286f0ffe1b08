"""Source text of C-like languages: expressions with their precedence, names, numbers."""

from __future__ import annotations

import re
import struct

import numpy as np

# How tightly an operator binds, the tightest first, as in C.
ATOM, UNARY, MUL, ADD, SHIFT, LESS, EQUAL, BIT_AND, BIT_XOR, BIT_OR, AND, OR, TERNARY = range(13)
_LEVELS = {
    **dict.fromkeys("* / %".split(), MUL),
    **dict.fromkeys("+ -".split(), ADD),
    **dict.fromkeys("<< >>".split(), SHIFT),
    **dict.fromkeys("< <= > >=".split(), LESS),
    **dict.fromkeys("== !=".split(), EQUAL),
    "&": BIT_AND,
    "^": BIT_XOR,
    "|": BIT_OR,
    "&&": AND,
    "||": OR,
}
# Compilers warn of these next to each other without parentheses, as readers stumble over them.
_CONFUSING = frozenset((SHIFT, BIT_AND, BIT_XOR, BIT_OR, AND, OR))


class Text(str):
    """The text of an expression, which knows how tightly its outermost operator binds."""

    __slots__ = ("level",)
    level: int

    def __new__(cls, text: str, level: int | None = None) -> Text:
        """Make a text of a level; without one, of the level that the text has."""
        made = super().__new__(cls, text)
        made.level = getattr(text, "level", ATOM) if level is None else level
        return made


def within(text: str, level: int) -> str:
    """Put a text in parentheses unless it binds at least as tightly as ``level``."""
    own = text.level if isinstance(text, Text) else ATOM
    return text if own <= level else f"({text})"


def binary(symbol: str, a: str, b: str) -> Text:
    """Return ``a symbol b``; operators of one level are taken from the left."""
    level = _LEVELS[symbol]
    inside = MUL if level in _CONFUSING else level
    own = level if symbol in ("&", "|", "^", "&&", "||") else -1
    left = a if isinstance(a, Text) and a.level == own and f" {symbol} " in a else within(a, inside)
    return Text(f"{left} {symbol} {within(b, min(inside, level - 1))}", level)


def prefix(symbol: str, a: str) -> Text:
    """Return ``symbol a`` for a prefix operator or a cast in parentheses."""
    inner = within(a, UNARY)
    return Text(f"{symbol}({inner})" if inner[:1] in "+-" else f"{symbol}{inner}", UNARY)


def ternary(condition: str, a: str, b: str) -> Text:
    """Return ``condition ? a : b``."""
    return Text(f"{within(condition, OR)} ? {within(a, OR)} : {within(b, TERNARY)}", TERNARY)


def element(pointer: str, index: str) -> Text:
    """Return ``pointer[index]``."""
    return Text(f"{within(pointer, ATOM)}[{index}]")


def is_simple(text: str) -> bool:
    """Whether a text may be repeated: a name, a number, a member of a name."""
    return re.fullmatch(r"-?[\w.]+", text) is not None


# ---- names

_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm atomic auto bitand bitor bool break case catch char char8_t
    char16_t char32_t class compl concept const const_cast consteval constexpr constinit continue
    co_await co_return co_yield decltype default delete device do double dynamic_cast else enum
    explicit export extern false float for friend global goto half if inline int kernel local long
    metal mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
    public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread threadgroup thread_local throw true
    try typedef typeid typename typeof uchar uint ulong union unsigned ushort using virtual void
    volatile wchar_t while xor xor_eq
    threadIdx blockIdx blockDim gridDim warpSize constant read_only write_only
    main printf min max abs NULL INFINITY NAN errno signbit y0 y1 yn j0 j1 jn linux unix
    """.split()
)
_VECTOR_TYPE = re.compile(r"(u?(char|short|int|long|longlong)|float|double|half|bool)\d+")


def identifier(name: str) -> str:
    """Return a name that C takes, as like ``name`` as may be."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)[:80] or "_"
    reserved = made in _KEYWORDS or made[0].isdigit() or made.startswith(("_", "tw_"))
    return f"v_{made}" if reserved or _VECTOR_TYPE.fullmatch(made) else made


# ---- numbers


def float_text(value: float, single: bool) -> Text | None:
    """Return a finite number as C writes it; ``None`` for infinities and NaN."""
    if single:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            return None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    text = str(np.float32(value)) if single else repr(value)
    if not re.search(r"[.en]", text):
        text += ".0"
    return Text(f"{text}f" if single else text, UNARY if text.startswith("-") else ATOM)


def integer_text(value: int, bits: int, signed: bool, long_suffix: str) -> Text:
    """Return an integer constant; ``long_suffix`` marks one of 64 bits."""
    if not signed:
        return Text(f"{value}u" if value < 1 << 32 else f"{value}u{long_suffix}")
    if value == -(1 << 31) or value == -(1 << 63):
        suffix = long_suffix if bits == 64 and value < -(1 << 31) else ""
        return Text(f"{value + 1}{suffix} - 1", ADD)
    suffix = "" if -(1 << 31) < value < 1 << 31 else long_suffix
    return Text(f"{value}{suffix}", UNARY if value < 0 else ATOM)


def string_text(text: str) -> str:
    """Return a string literal that holds ``text``."""
    made = []
    for byte in text.encode():
        char = chr(byte)
        if char == "\n":
            made.append("\\n")
            continue
        plain = 32 <= byte < 127 and char not in '"\\?'
        made.append(char if plain else f"\\{byte:03o}")
    return '"' + "".join(made) + '"'
