"""StorageRewrite: allocations that live one after the other use the same memory."""

from __future__ import annotations

import numpy as np
from transform_cases import applied, lowered, unchanged

from tilewright.tir import transform


def program(*lines: str, args: str = 'C: T.Buffer((8,), "float32")') -> str:
    text = "".join(f"    {line}\n" for line in lines)
    return f"@T.prim_func\ndef main(A: T.Buffer((8,), 'float32'), {args}):\n{text}"


def arrays():
    return np.arange(8, dtype="float32"), np.zeros(8, "float32")


def chain(sizes=(8, 8, 8, 8), dtypes=("float32",) * 4, scope="global"):
    """B0 = A; B1 = f(B0); …; C = f(last)."""
    lines = [
        f'B{i} = T.allocate(({n},), "{d}", scope="{scope}")'
        for i, (n, d) in enumerate(zip(sizes, dtypes))
    ]
    names = ["A", *(f"B{i}" for i in range(len(sizes))), "C"]
    kinds = ["float32", *dtypes, "float32"]
    for source, target, kind in zip(names, names[1:], kinds[1:]):
        lines += [
            "for i in range(8):",
            f'    {target}[i] = T.Cast("{kind}", {source}[i]) + T.Cast("{kind}", 1)',
        ]
    return lowered(program(*lines))


def test_a_chain_needs_two_pieces_of_memory():
    mod = chain()
    plan = transform.storage_plan(mod["main"])
    assert (plan.bytes_before, plan.bytes_after, plan.bytes_saved) == (128, 64, 64)
    text = applied(transform.StorageRewrite(), mod, *arrays())
    assert text.count("T.allocate") == 2 and text.count("data=B") == 2


def test_memory_grows_to_the_greatest_of_its_users():
    mod = chain((8, 16, 32, 64))
    text = applied(transform.StorageRewrite(), mod, *arrays())
    assert "T.allocate((32,)" in text and "T.allocate((64,)" in text
    assert transform.storage_plan(mod["main"]).bytes_saved == 4 * (8 + 16)


def test_the_least_memory_that_is_great_enough_is_taken():
    text = program(
        'P = T.allocate((64,), "float32")',
        'Q = T.allocate((16,), "float32")',
        'R = T.allocate((8,), "float32")',
        "P[0] = A[0]",
        "Q[0] = A[1]",
        "C[0] = P[0] + Q[0]",
        "R[0] = A[2]",
        "C[1] = R[0]",
    )
    made = applied(transform.StorageRewrite(), lowered(text), *arrays())
    assert "data=Q" in made and "data=P" not in made


def test_types_and_scopes_are_not_mixed():
    assert unchanged(transform.StorageRewrite(), chain((8, 8), ("float32", "int32")))
    mod = chain((8, 8, 8), ("float32", "int32", "float32"))
    assert "data=B0" in applied(transform.StorageRewrite(), mod, *arrays())
    assert unchanged(transform.StorageRewrite(), chain(scope="local"))
    assert unchanged(transform.StorageRewrite(), chain(scope="shared"))
    asked = transform.StorageRewrite(scopes=("shared",))
    assert "data=B0" in applied(asked, chain(scope="shared"), *arrays())


def test_alignment_is_the_greatest():
    mod = lowered(
        program(
            'P = T.allocate((8,), "float32")',
            'Q = T.allocate((8,), "float32", align=256)',
            "P[0] = A[0]",
            "C[0] = P[0]",
            "Q[0] = A[2]",
            "C[1] = Q[0]",
        )
    )
    assert "align=256" in applied(transform.StorageRewrite(), mod, *arrays())


def test_a_loop_extends_what_it_uses_from_outside():
    text = program(
        'P = T.allocate((8,), "float32")',
        'Q = T.allocate((8,), "float32")',
        "P[0] = A[0]",
        "for k in range(3):",
        "    C[k] = P[0]",
        "    Q[0] = A[k]",
        "    P[0] = Q[0] + T.float32(1)",
    )
    assert unchanged(transform.StorageRewrite(), lowered(text))


def test_memory_inside_a_serial_loop_may_come_from_outside():
    text = program(
        'P = T.allocate((8,), "float32")',
        "P[0] = A[0]",
        "C[0] = P[0]",
        "for k in range(3):",
        '    Q = T.allocate((8,), "float32")',
        "    Q[k] = A[k]",
        "    C[k + 1] = Q[k]",
    )
    made = applied(transform.StorageRewrite(), lowered(text), *arrays())
    assert "data=P" in made and made.count("T.allocate") == 1


PARALLEL = (
    'P = T.allocate((8,), "float32")',
    "P[0] = A[0]",
    "C[0] = P[0]",
    "for k in T.parallel(3):",
    '    Q = T.allocate((8,), "float32")',
    "    Q[k] = A[k]",
    "    C[k + 1] = Q[k]",
)


def test_memory_inside_a_parallel_loop_stays_inside():
    assert unchanged(transform.StorageRewrite(), lowered(program(*PARALLEL)))


def test_sharing_inside_a_parallel_loop():
    more = ('    R = T.allocate((8,), "float32")', "    R[k] = C[k + 1]", "    C[k + 4] = R[k]")
    made = applied(transform.StorageRewrite(), lowered(program(*PARALLEL, *more)), *arrays())
    assert "data=Q" in made
    assert made.index("T.parallel") < made.index("Q = T.allocate")


def test_siblings_share_memory_around_both():
    text = program(
        "for k in range(3):",
        '    P = T.allocate((8,), "float32")',
        "    P[k] = A[k]",
        "    C[k] = P[k]",
        "for k in range(3):",
        '    Q = T.allocate((16,), "float32")',
        "    Q[k] = A[k]",
        "    C[k + 3] = Q[k]",
    )
    made = applied(transform.StorageRewrite(), lowered(text), *arrays())
    assert made.count("T.allocate") == 1 and made.index("T.allocate((16,)") < made.index("for k")


def test_symbolic_sizes_must_be_equal():
    def of(second: str) -> str:
        return f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    P = T.allocate((n * 2,), "float32")
    Q = T.allocate(({second},), "float32")
    for i in range(n):
        P[i + n] = A[i]
    for i in range(n):
        C[i] = P[i + n]
    for i in range(n):
        Q[i] = C[i] + T.float32(1)
    for i in range(n):
        C[i] = Q[n - 1 - i]
"""

    made = applied(transform.StorageRewrite(), lowered(of("n + n")), *arrays())
    assert "data=P" in made
    assert unchanged(transform.StorageRewrite(), lowered(of("n * 3")))
    assert unchanged(transform.StorageRewrite(), lowered(of("32")))


def test_sizes_known_only_inside_are_not_moved_out():
    text = program(
        "for k in range(1, 4):",
        "    if k > 1:",
        '        P = T.allocate((k,), "float32")',
        "        P[0] = A[k]",
        "        C[k] = P[0]",
        "for k in range(1, 4):",
        '    Q = T.allocate((k,), "float32")',
        "    Q[0] = A[k]",
        "    C[k + 3] = Q[0]",
    )
    assert unchanged(transform.StorageRewrite(), lowered(text))


def test_a_pointer_that_got_a_name_keeps_its_memory():
    text = program(
        'P = T.allocate((8,), "float32")',
        'Q = T.allocate((8,), "float32")',
        'p: T.handle = T.address_of(P[0], dtype="handle")',
        "P[0] = A[0]",
        "C[0] = P[0]",
        "Q[0] = A[1]",
        "C[1] = Q[0]",
    )
    assert unchanged(transform.StorageRewrite(), lowered(text))


def test_small_ones_stay():
    assert unchanged(transform.StorageRewrite(min_bytes=33), chain())
    assert not unchanged(transform.StorageRewrite(min_bytes=32), chain())
