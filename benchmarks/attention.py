"""Rows about scaled dot product attention."""

from .operators import SHORT, operator, random
from .registry import row

ATTENTION = "Attention"


def shape(batch: int, heads: int, length: int, head: int) -> dict[str, int]:
    return {"batch": batch, "heads": heads, "length": length, "head": head}


def attention_row(name: str, *, dtype: str, causal: bool, backward: bool, tiny, small, full):
    @row(
        f"attention {SHORT[dtype]} {name} {{batch}}x{{heads}}x{{length}}x{{head}}",
        unit="ms",
        group=ATTENTION,
        what="batch x heads x length x head size"
        + (", forward and the gradients of query, key and value" if backward else ""),
        tiny=[tiny],
        small=[small],
        full=[full],
    )
    def measured(peer, batch, heads, length, head):
        inputs = [random(batch, heads, length, head, seed=k) for k in range(3)]

        def function(ops, query, key, value):
            return ops.attention(query, key, value, causal)

        # Heads do not depend on each other. All of them would take long on the CPU.
        ends = [(slice(0, 1), slice(0, 1)), (slice(-1, None), slice(-1, None))]
        outputs = 3 if backward else 1
        return operator(
            peer,
            function,
            *inputs,
            amount=1,
            dtype=dtype,
            which=range(3) if backward else (),
            parts=[((end,) * 3, (end,) * outputs) for end in ends],
        )


TINY, SMALL = shape(1, 2, 5, 4), shape(2, 4, 128, 64)
for name, causal, backward, dtype, full in (
    ("forward", False, False, "float16", shape(4, 16, 4096, 64)),
    ("forward", False, False, "bfloat16", shape(4, 16, 4096, 64)),
    ("causal", True, False, "float16", shape(4, 16, 4096, 64)),
    # Of other names, because smaller scales have one size for all rows.
    ("causal, wide", True, False, "float16", shape(4, 16, 4096, 128)),
    ("causal, long", True, False, "float16", shape(1, 16, 16384, 64)),
    ("causal, with gradients", True, True, "float16", shape(4, 16, 4096, 64)),
    ("forward", False, False, "float32", shape(4, 16, 2048, 64)),
    ("causal, with gradients", True, True, "float32", shape(4, 16, 1024, 64)),
):
    attention_row(
        name, dtype=dtype, causal=causal, backward=backward, tiny=TINY, small=SMALL, full=full
    )


@row(
    "attention f16 decode {batch}x{heads}x{length}x{head}, {shared} for keys and values",
    unit="ms",
    group=ATTENTION,
    what="one query in each head; several heads share keys and values",
    tiny=[{**shape(1, 4, 5, 4), "shared": 2}],
    small=[{**shape(1, 8, 256, 64), "shared": 2}],
    full=[{**shape(8, 32, 8192, 128), "shared": 8}, {**shape(1, 14, 1024, 64), "shared": 2}],
)
def decode(peer, batch, heads, length, head, shared):
    query = random(batch, heads, 1, head)
    key, value = (random(batch, shared, length, head, seed=k) for k in (1, 2))
    first, last = slice(0, 1), slice(-1, None)
    return operator(
        peer,
        lambda ops, q, k, v: ops.attention(q, k, v, False),
        query,
        key,
        value,
        amount=1,
        dtype="float16",
        parts=[((end,) * 3, (end,)) for end in (first, last)],
    )
