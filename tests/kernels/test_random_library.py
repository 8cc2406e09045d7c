"""The random numbers of the WGSL library: known answers and distributions."""

import numpy as np
import pytest
import torch
import wgsl_library as library

scipy_stats = pytest.importorskip("scipy.stats")
COUNT = 200_000
RNG = np.random.default_rng(0)


def words():
    return RNG.integers(0, 2**32, COUNT, dtype=np.uint32)


def philox(key, counter):
    """Philox4x32-10 in Python integers."""
    mask = 2**32 - 1
    k0, k1 = key & mask, key >> 32
    a, b, c, d = counter
    for _ in range(10):
        even, odd = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (odd >> 32) ^ b ^ k0, odd & mask, (even >> 32) ^ d ^ k1, even & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return [a, b, c, d]


# key, counter, result: the known answers published with the Random123 library
KNOWN = [
    (0, (0,) * 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (2**64 - 1, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        0x299F31D0A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def test_philox():
    keys = np.array([k for k, _, _ in KNOWN], np.uint64)
    counters = np.array([c for _, c, _ in KNOWN], np.uint32)
    (got,) = library.evaluate(["philox"], (keys.view(np.int64), counters))
    assert got.tolist() == [list(r) for _, _, r in KNOWN]

    seeds = RNG.integers(0, 2**63, 500)
    lanes = RNG.integers(0, 2**32, 500, dtype=np.uint32)
    offsets = RNG.integers(0, 2**63, 500)
    (got,) = library.evaluate(["philox_at"], (seeds, lanes, offsets))
    for seed, lane, offset, result in zip(seeds, lanes, offsets, got, strict=True):
        counter = (int(offset) & 0xFFFFFFFF, int(offset) >> 32, int(lane), 0)
        assert philox(int(seed), counter) == result.tolist()


def test_uniform_bounds():
    extremes = np.array([0, 1, 255, 256, 2**31, 2**32 - 1], np.uint32)
    closed, opened = library.evaluate(["uniform_f", "uniform_open_f"], (extremes,))
    assert closed.min() == 0
    assert closed.max() == 1 - 2.0**-24
    assert 0 < opened.min() < 2.0**-32
    assert opened.max() == 1


def test_distributions():
    bits = words()
    (uniform,) = library.evaluate(["uniform_f"], (bits,))
    (normal,) = library.evaluate(["normal_pair_f"], (bits, words()))
    (exponential,) = library.evaluate(["exponential_f"], (bits, np.full(COUNT, 2.0)))
    (geometric,) = library.evaluate(["geometric_f"], (bits, np.full(COUNT, 0.3)))
    (cauchy,) = library.evaluate(["cauchy_f"], (bits, np.full(COUNT, 1.0), np.full(COUNT, 2.0)))
    # The words are fixed, so that a pass is not a matter of luck.
    for sample, law in (
        (uniform, scipy_stats.uniform()),
        (normal.real, scipy_stats.norm()),
        (normal.imag, scipy_stats.norm()),
        (exponential, scipy_stats.expon(scale=0.5)),
        (cauchy, scipy_stats.cauchy(1, 2)),
    ):
        assert scipy_stats.kstest(sample, law.cdf).pvalue > 1e-3, law.dist.name
    assert abs(np.corrcoef(normal.real, normal.imag)[0, 1]) < 0.01
    assert np.isfinite(cauchy).all()
    for value in (1, 2, 5):
        expected = scipy_stats.geom(0.3).pmf(value)
        assert abs((geometric == value).mean() - expected) < 0.005


def test_normal_matches_its_definition():
    """Box and Muller in float64, at random and extreme words."""
    a = np.concatenate([words()[:5000], [0, 1, 2**31, 2**32 - 1]]).astype(np.uint32)
    b = np.concatenate([words()[:5000], [0, 2**30, 2**31 + 1, 2**32 - 1]]).astype(np.uint32)
    (got,) = library.evaluate(["normal_pair_f"], (a, b))
    radius = np.sqrt(-2 * np.log((a + 0.5) / 2**32))
    want = radius * np.exp(2j * np.pi * b / 2**32)
    torch.testing.assert_close(
        torch.tensor(got), torch.tensor(want.astype(np.complex64)), rtol=1e-5, atol=2e-5
    )


def test_random_below():
    bits = RNG.integers(-(2**63), 2**63 - 1, 5000)
    ranges = RNG.integers(1, 2**63 - 1, 5000) >> RNG.integers(0, 62, 5000)
    ranges = np.maximum(ranges, 1)
    (got,) = library.evaluate(["random_below_l"], (bits, ranges))
    assert np.array_equal(got.view(np.uint64), bits.view(np.uint64) % ranges.view(np.uint64))
