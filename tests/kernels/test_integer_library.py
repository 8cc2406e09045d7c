"""Integer and conversion functions of the WGSL library: exact against CPU PyTorch or Python."""

import numpy as np
import pytest
import torch
import wgsl_library as library

RNG = np.random.default_rng(0)


def pairs(bits):
    """Random values of every magnitude crossed with the extremes."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    extremes = [0, 1, -1, 2, -2, 3, -7, 10, low, low + 1, high, high - 1]
    extremes += [s * (2**k + d) for k in range(3, bits - 1, 4) for d in (-1, 0, 1) for s in (1, -1)]
    a, b = (x.ravel() for x in np.meshgrid(extremes, extremes))
    size = 20000
    shift = lambda: RNG.integers(0, bits - 1, size)  # noqa: E731
    random = [RNG.integers(low, high, size, endpoint=True) >> shift() for _ in range(2)]
    dtype = getattr(np, f"int{bits}")
    return tuple(np.concatenate([x, r]).astype(dtype) for x, r in zip((a, b), random, strict=True))


def wrap(value, bits):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def trunc_div(a, b):
    q = abs(a) // abs(b) if b else 0
    return -1 if b == 0 else q if (a < 0) == (b < 0) else -q


def int_pow(a, b, bits):
    if b >= 0:
        return pow(a, b, 2**bits)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def shift_left(a, b, bits):
    return a << b if 0 <= b < bits else 0


def shift_right(a, b, bits):
    return a >> (b if 0 <= b < bits else bits - 1)


BINARY = {
    "div": lambda a, b, n: trunc_div(a, b),
    "fmod": lambda a, b, n: a - b * trunc_div(a, b) if b else -1,
    "remainder": lambda a, b, n: a % b if b else -1,
    "floor_div": lambda a, b, n: a // b if b else -1,
    "pow": int_pow,
    "shl": shift_left,
    "shr": shift_right,
}
BINARY_64 = BINARY | {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "eq": lambda a, b, n: a == b,
    "ne": lambda a, b, n: a != b,
    "lt": lambda a, b, n: a < b,
    "le": lambda a, b, n: a <= b,
    "gt": lambda a, b, n: a > b,
    "ge": lambda a, b, n: a >= b,
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
}


@pytest.mark.parametrize(("table", "suffix", "bits"), [(BINARY, "i", 32), (BINARY_64, "l", 64)])
def test_binary(table, suffix, bits):
    a, b = pairs(bits)
    # Shift counts of random magnitude are mostly out of range: make half of them small.
    small = b % 80
    names = [f"{name}_{suffix}" for name in table]
    for right in (b, small.astype(b.dtype)):
        results = library.evaluate(names, (a, right))
        for (name, function), got in zip(table.items(), results, strict=True):
            want = [
                wrap(int(function(int(x), int(y), bits)), bits)
                for x, y in zip(a, right, strict=True)
            ]
            wrong = np.flatnonzero(np.asarray(want) != got)[:5]
            assert not wrong.size, (name, a[wrong], right[wrong], got[wrong])


@pytest.mark.parametrize(("suffix", "bits"), [("i", 32), ("l", 64)])
def test_gcd_and_lcm(suffix, bits):
    a, b = pairs(bits)
    # The absolute value of the minimum does not exist; PyTorch's result is unspecified there.
    kept = (a != -(2 ** (bits - 1))) & (b != -(2 ** (bits - 1)))
    a, b = a[kept], b[kept]
    gcd, lcm = library.evaluate([f"gcd_{suffix}", f"lcm_{suffix}"], (a, b))
    torch.testing.assert_close(torch.gcd(torch.tensor(a), torch.tensor(b)), torch.tensor(gcd))
    torch.testing.assert_close(torch.lcm(torch.tensor(a), torch.tensor(b)), torch.tensor(lcm))


def test_unary():
    a, _ = pairs(64)
    got = library.evaluate(["neg_l", "abs_l", "sign_l", "not_l"], (a,))
    x = torch.tensor(a)
    for want, result in zip((-x, x.abs(), x.sign(), ~x), got, strict=True):
        assert np.array_equal(want.numpy(), result)
    a, _ = pairs(32)
    x = torch.tensor(a)
    for want, result in zip(
        (x.abs(), x.sign()), library.evaluate(["abs_i", "sign_i"], (a,)), strict=True
    ):
        assert np.array_equal(want.numpy(), result)


def all_floats():
    """Every exponent and sign, with random and extreme mantissas."""
    high = np.arange(512, dtype=np.uint32) << 23
    low = [0, 1, 0x400000, 0x3FFFFF, 0x7FFFFF, 0x1000, 0x1001, 0x3000, 0x8000, 0x8001, 0x18000]
    low = np.concatenate([low, RNG.integers(0, 2**23, 100)]).astype(np.uint32)
    return (high[:, None] | low).ravel().view(np.float32)


def test_half_to_float():
    words = np.arange(65536, dtype=np.uint32)
    half = torch.tensor(words.astype(np.uint16).view(np.int16))
    for name, dtype in (("f_from_f16", torch.float16), ("f_from_bf16", torch.bfloat16)):
        (got,) = library.evaluate([name], (words,))
        want = half.view(dtype).float().numpy()
        nan = np.isnan(want)
        assert np.array_equal(nan, np.isnan(got))
        assert np.array_equal(want.view(np.uint32)[~nan], got.view(np.uint32)[~nan]), name
    (pairs,) = library.evaluate(["f2_from_f16"], (words | words[::-1] << np.uint32(16),))
    want = half.view(torch.float16).float().numpy()
    assert np.array_equal(want, pairs.real, equal_nan=True)
    assert np.array_equal(want[::-1], pairs.imag, equal_nan=True)


def test_float_to_half():
    x = all_floats()
    names = ["f16_from_f", "bf16_from_f"]
    for got, dtype in zip(
        library.evaluate(names, (x,)), (torch.float16, torch.bfloat16), strict=True
    ):
        want = torch.tensor(x).to(dtype)
        back = torch.tensor(got.astype(np.uint16).view(np.int16)).view(dtype)
        assert torch.equal(want.isnan(), back.isnan())
        number = ~want.isnan()
        assert torch.equal(want[number].view(torch.int16), back[number].view(torch.int16)), dtype
    names = ["round_f16_f", "round_bf16_f"]
    for got, dtype in zip(
        library.evaluate(names, (x,)), (torch.float16, torch.bfloat16), strict=True
    ):
        want = torch.tensor(x).to(dtype).float()
        torch.testing.assert_close(torch.tensor(got), want, rtol=0, atol=0, equal_nan=True)


def test_float_to_integer():
    x = np.concatenate([all_floats(), np.linspace(-300, 300, 6007, dtype=np.float32)])
    to_int, to_long, to_bool = library.evaluate(["i_from_f", "l_from_f", "b_from_f"], (x,))
    tensor = torch.tensor(x)
    # The minimum marks what does not fit, as on x86; other hosts saturate and are not compared.
    for got, dtype, limit in ((to_int, torch.int32, 2.0**31), (to_long, torch.int64, 2.0**63)):
        fits = np.abs(x) < limit
        assert np.array_equal(tensor[torch.tensor(fits)].to(dtype).numpy(), got[fits])
        assert (got[~fits] == -limit).all()
    assert np.array_equal(tensor.bool().numpy(), to_bool != 0)


def test_integer_to_float():
    shifts = np.arange(39)
    ties = [(np.int64(2**24 + k) << shifts) + d for k in range(4) for d in (-1, 0, 1)]
    ties = np.concatenate(ties)
    x = np.concatenate([pairs(64)[0], ties, -ties])
    float_, int_, bool_, complex_ = library.evaluate(
        ["f_from_l", "i_from_l", "b_from_l", "c_from_l"], (x,)
    )
    want = torch.tensor(x)
    assert np.array_equal(want.float().numpy(), float_)
    assert np.array_equal(want.int().numpy(), int_)
    assert np.array_equal(want.bool().numpy(), bool_ != 0)
    assert np.array_equal(want.float().numpy(), complex_.real)
    assert not complex_.imag.any()
    x, _ = pairs(32)
    float_, long_, bool_, complex_ = library.evaluate(
        ["f_from_i", "l_from_i", "b_from_i", "c_from_i"], (x,)
    )
    assert np.array_equal(x.astype(np.float32), float_)
    assert np.array_equal(x, long_)
    assert np.array_equal(x != 0, bool_ != 0)
    assert np.array_equal(float_, complex_)


def test_narrow_integers():
    words = np.arange(65536, dtype=np.uint32)
    signed, byte, short = library.evaluate(["i_from_i8", "i_from_u8", "i_from_i16"], (words,))
    assert np.array_equal(signed, words.astype(np.uint8).view(np.int8))
    assert np.array_equal(byte, words.astype(np.uint8))
    assert np.array_equal(short, words.astype(np.uint16).view(np.int16))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_narrow_shifts(dtype):
    bits = torch.iinfo(dtype).bits
    a = torch.arange(torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1, 5)
    b = torch.arange(-1 if dtype.is_signed else 0, bits + 3)
    a, b = (x.flatten() for x in torch.meshgrid(a, b, indexing="ij"))
    left, right = library.evaluate(
        ["shl_bits_i", "shr_bits_i"], (a.numpy(), b.numpy(), np.full(len(a), bits))
    )
    assert torch.equal(torch.tensor(left).to(dtype), a.to(dtype) << b.to(dtype))
    assert torch.equal(torch.tensor(right).to(dtype), a.to(dtype) >> b.to(dtype))


def test_division_corrections():
    """Multiples of the divisor and their neighbours, where the quotient's last digit is decided."""
    a, b = pairs(64)
    quotient = a >> 32
    divisor = np.where(b == 0, 1, b >> 16)
    divisor[divisor == 0] = 1
    near = np.concatenate([quotient * divisor + d for d in (-1, 0, 1)])
    divisor = np.tile(divisor, 3)
    (got,) = library.evaluate(["floor_div_l"], (near, divisor))
    assert np.array_equal(near // divisor, got)


def test_casts_between_kinds():
    """Complex drops its imaginary part on the way to a real kind; bool becomes 0 or 1."""
    z = np.array([0, -2.5 + 1j, 3e9, -0.0 + 1e-40j, np.nan + 0j, 7 - 3j], np.complex64)
    names = ["f_from_c", "i_from_c", "l_from_c", "b_from_c"]
    float_, int_, long_, bool_ = library.evaluate(names, (z,))
    assert np.array_equal(float_, z.real, equal_nan=True)
    assert int_.tolist() == [0, -2, -(2**31), 0, -(2**31), 7]
    assert long_.tolist() == [0, -2, 3 * 10**9, 0, -(2**63), 7]
    assert bool_.tolist() == [0, 1, 1, 1, 1, 1]
    flags = np.array([0, 1, 1], np.uint32)
    for got in library.evaluate(["f_from_b", "i_from_b", "l_from_b", "c_from_b"], (flags,)):
        assert got.tolist() == [0, 1, 1]
    (got,) = library.evaluate(["c_from_f"], (z.real.copy(),))
    assert np.array_equal(got, z.real.astype(np.complex64), equal_nan=True)
