"""What rules have kernels for, and what only looks like it: another update, order or type."""

from __future__ import annotations

_T = "? T float32|float64|int32|int64|float32|int16|uint8"
_UPDATES = (
    "{O} + {X} * {Y}|{O} + {X} * {Y}|{O} + {X} * {Y}|{O} + {Y} * {X}|{X} * {Y} + {O}|"
    "{O} - {X} * {Y}|T.max({O}, {X} * {Y})|{X} * {Y} - {O}|"
    "T.max(T.min({O} * T.{S}(3) + {X} * {Y}, T.{S}(99)), T.{S}(0))|"
    "{O} + {X} * {Y} + T.{S}(1)|T.max({O}, {X}) + {Y}|{O} + T.max({X} * {Y}, T.{S}(0))"
)
_ENDS = (
    "{V}|{V} + B[vj]|T.max({V} + B[vj], T.{S}(0))|{V} * T.{S}(2) - B[vj]|"
    "T.Select({V} > B[vj], {V}, B[vj])|T.min(T.max({V}, T.{S}(-8)), T.{S}(8))"
)


def _filled(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


def _contraction(x: str, y: str, start: str) -> str:
    """A product of matrices with an epilogue, its operands stored in some order."""
    update = _filled(_UPDATES, O="C[vi, vj]", X='T.Cast("{S}", X[' + x + "])",
                     Y='T.Cast("{S}", Y[' + y + "])")  # fmt: skip
    names = {"vi": "d0", "vj": "d1", "vk": "d2"}
    shapes = [",".join(names[part.strip()] for part in item.split(",")) for item in (x, y)]
    return f"""
? T float32|float32|float64|int32|float16|bfloat16|int8|uint8
? S float32|int32
? UPDATE {update}
? END {_filled(_ENDS, V="C[vi, vj]")}
X {shapes[0]} {{T}}; Y {shapes[1]} {{T}}; B d1 {{S}}; Z d0,d1 {{S}}
C = T.alloc_buffer((d0, d1), "{{S}}")
nest C(i: d0, j: d1, k: R d2):
    with T.init():
        C[vi, vj] = T.{{S}}({start})
    C[vi, vj] = {{UPDATE}}
nest Z(i: d0, j: d1):
    Z[vi, vj] = {{END}}
"""


def _rows(result: str, item: str) -> str:
    """Reduce by what has a reducer, and by what has none."""
    text = (
        "{R} + {A}|T.max({R}, {A})|T.min({R}, {A})|{A} - {R}|{A}|"
        "T.max(T.min({R} * T.{T}(3) + {A}, T.{T}(99)), T.{T}(0))"
    )
    return _filled(text, R=result, A=item)


_VECTOR = (
    "Z[vi] + {M} * Y[vk]|Y[vk] * {M} + Z[vi]|{M} - Z[vi]|T.max(Z[vi], {M} + Y[vk])|"
    "T.max(T.min(Z[vi] * T.{T}(3) + {M}, T.{T}(99)), T.{T}(0))"
)
_WINDOW = (
    "Z[vc, vi, vj] + {X} * W[vc, vk, vl]|T.max(Z[vc, vi, vj], {X})|"
    "T.max(T.min(Z[vc, vi, vj] * T.{T}(3) + {X}, T.{T}(99)), T.{T}(0))|{X} - Z[vc, vi, vj]"
)

PROGRAMS: dict[str, str] = {
    "matmul nn": _contraction("vi, vk", "vk, vj", "0"),
    "matmul nt": _contraction("vi, vk", "vj, vk", "0"),
    "matmul tn": _contraction("vk, vi", "vk, vj", "0"),
    "matmul tt": _contraction("vk, vi", "vj, vk", "0"),
    "matmul from one": _contraction("vi, vk", "vk, vj", "1"),
    "batches of matmul": f"""
{_T}
? UPDATE C[vb, vi, vj] + X[vb, vi, vk] * Y[vb, vk, vj]|X[vb, vi, vk] * Y[vb, vk, vj] - C[vb, vi, vj]
X d3,d0,d2 {{T}}; Y d3,d2,d1 {{T}}; Z d3,d0,d1 {{T}}
C = T.alloc_buffer((d3, d0, d1), "{{T}}")
nest C(b: d3, i: d0, j: d1, k: R d2):
    with T.init():
        C[vb, vi, vj] = T.{{T}}(0)
    C[vb, vi, vj] = {{UPDATE}}
nest Z(b: d3, i: d0, j: d1):
    Z[vb, vi, vj] = C[vb, vi, vj] + T.{{T}}(1)
""",
    "matrix times vector": f"""
{_T}
? UPDATE {_VECTOR}
? M X[vi, vk]|X[vk, vi]
X d0,d0 {{T}}; Y d0 {{T}}; Z d0 {{T}}
nest Z(i: d0, k: R d0):
    with T.init():
        Z[vi] = T.{{T}}(1)
    Z[vi] = {{UPDATE}}
""",
    "rows": f"""
{_T}
? REDUCE {_rows("R[vi]", "B[vi, vk]")}
? AGAIN Q[vi] + B[vi, vk] * R[vi]|T.max(Q[vi], B[vi, vk] - R[vi])|B[vi, vk] - Q[vi]
A d0,d1 {{T}}; W d1 {{T}}; Z d0,d1 {{T}}
B = T.alloc_buffer((d0, d1), "{{T}}")
R = T.alloc_buffer((d0,), "{{T}}")
Q = T.alloc_buffer((d0,), "{{T}}")
nest B(i: d0, j: d1):
    B[vi, vj] = A[vi, vj] + W[vj]
nest R(i: d0, k: R d1):
    with T.init():
        R[vi] = T.{{T}}(1)
    R[vi] = {{REDUCE}}
nest Q(i: d0, k: R d1):
    with T.init():
        Q[vi] = T.{{T}}(0)
    Q[vi] = {{AGAIN}}
nest Z(i: d0, j: d1):
    Z[vi, vj] = B[vi, vj] * R[vi] - Q[vi]
""",
    "columns": f"""
{_T}
? REDUCE {_rows("Z[vj]", "A[vk, vj]")}
A d0,d1 {{T}}; Z d1 {{T}}
nest Z(j: d1, k: R d0):
    with T.init():
        Z[vj] = T.{{T}}(0)
    Z[vj] = {{REDUCE}}
""",
    "everything": f"""
{_T}
? REDUCE {_rows("Z[0]", "A[vk, vl]")}
A d0,d1 {{T}}; Z 1 {{T}}
nest Z(k: R d0, l: R d1):
    with T.init():
        Z[0] = T.{{T}}(0)
    Z[0] = {{REDUCE}}
""",
    "windows of an image": f"""
{_T}
? S 1|2
? UPDATE {_WINDOW}
? X A[vc, vi * {{S}} + vk, vj * {{S}} + vl]
A d3,d0*2+2,d1*2+2 {{T}}; W d3,3,3 {{T}}; Z d3,d0,d1 {{T}}
nest Z(c: d3, i: d0, j: d1, k: R 3, l: R 3):
    with T.init():
        Z[vc, vi, vj] = T.{{T}}(0)
    Z[vc, vi, vj] = {{UPDATE}}
""",
    "padded convolution": f"""
{_T}
? UPDATE Z[vf, vi, vj] + {{X}}|{{X}} - Z[vf, vi, vj]
? X P[vc, vi + vk, vj + vl] * W[vf, vc, vk, vl]
A d2,d0,d1 {{T}}; W d3,d2,3,3 {{T}}; Z d3,d0,d1 {{T}}
P = T.alloc_buffer((d2, d0 + 2, d1 + 2), "{{T}}")
nest P(c: d2, i: d0 + 2, j: d1 + 2):
    P[vc, vi, vj] = T.if_then_else(
        vi >= 1 and vi < d0 + 1 and vj >= 1 and vj < d1 + 1, A[vc, vi - 1, vj - 1], T.{{T}}(0)
    )
nest Z(f: d3, i: d0, j: d1, c: R d2, k: R 3, l: R 3):
    with T.init():
        Z[vf, vi, vj] = T.{{T}}(0)
    Z[vf, vi, vj] = {{UPDATE}}
""",
    "pixels of channels": f"""
{_T}
X d2,d0,d1 {{T}}; W d3,d2 {{T}}; B d3 {{T}}; Z d3,d0,d1 {{T}}
C = T.alloc_buffer((d3, d0, d1), "{{T}}")
nest C(f: d3, i: d0, j: d1, c: R d2):
    with T.init():
        C[vf, vi, vj] = T.{{T}}(0)
    C[vf, vi, vj] = C[vf, vi, vj] + X[vc, vi, vj] * W[vf, vc]
nest Z(f: d3, i: d0, j: d1):
    Z[vf, vi, vj] = T.max(C[vf, vi, vj] + B[vf], T.{{T}}(0))
""",
    "transposes": f"""
{_T}
? VALUE A[vj, vi, vk]|A[vj, vi, vk] + W[vi]|A[d1 - 1 - vj, vi, vk]
A d1,d0,d2 {{T}}; W d0 {{T}}; Z d0,d1,d2 {{T}}; Y d2,d0,d1 {{T}}
nest Z(i: d0, j: d1, k: d2):
    Z[vi, vj, vk] = {{VALUE}}
nest Y(k: d2, i: d0, j: d1):
    Y[vk, vi, vj] = Z[vi, vj, vk] * T.{{T}}(2)
""",
    "groups of sums": """
? T float32|float64|int32
X d0,d2,d3 {T}; W d2,d3,d1 {T}; G d2,d1 {T}; Z d0,d1 {T}
P = T.alloc_buffer((d0, d2, d1), "{T}")
nest P(i: d0, g: d2, j: d1, k: R d3):
    with T.init():
        P[vi, vg, vj] = T.{T}(0)
    P[vi, vg, vj] = P[vi, vg, vj] + X[vi, vg, vk] * W[vg, vk, vj]
nest Z(i: d0, j: d1, g: R d2):
    with T.init():
        Z[vi, vj] = T.{T}(0)
    Z[vi, vj] = Z[vi, vj] + P[vi, vg, vj] * G[vg, vj]
""",
}
