"""histogram, histogramdd, and bincount with weights."""

import pytest
import torch
from common import DEVICE, check, check_error, to_device


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(density, weighted):
    x = torch.randn(500)
    weight = torch.rand(500) if weighted else None
    options = {"density": density}
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    check(lambda x, w: torch.histogram(x, 10, weight=w, **options), x, weight, **tolerance)
    check(
        lambda x, w: torch.histogram(x, 7, range=(-1.0, 0.5), weight=w, **options),
        x,
        weight,
        **tolerance,
    )
    edges = torch.tensor([-2.0, -0.5, 0.0, 0.1, 3.0])
    check(lambda x, e, w: torch.histogram(x, e, weight=w, **options), x, edges, weight, **tolerance)


def test_values_on_the_edges():
    x = torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0, -1.0, 3.5, float("nan"), float("inf")])
    check(lambda x: torch.histogram(x, 3, range=(0.0, 3.0)), x)
    check(lambda x, e: torch.histogram(x, e), x, torch.tensor([0.0, 1.0, 1.0, 3.0]))
    check(lambda x: torch.histogram(x, 4), torch.empty(0))
    check(lambda x: torch.histogram(x, 4), torch.full((3, 2), 2.0))


def test_more_points_than_float32_counts():
    count = 2**24 + 4
    hist, _ = torch.histogram(torch.zeros(count, device=DEVICE), 1, range=(0.0, 1.0))
    assert hist.item() == count


@pytest.mark.parametrize("density", [False, True])
def test_histogramdd(density):
    x = torch.randn(300, 3)
    weight = torch.rand(300)
    for w in (None, weight):
        run = lambda x, w: torch.histogramdd(x, [3, 5, 2], weight=w, density=density)  # noqa: E731
        check(lambda x, w, run=run: list(run(x, w)), x, w, rtol=1e-5, atol=1e-5)
    edges = [torch.tensor([-1.0, 0.0, 2.0]), torch.linspace(-2, 2, 6)]
    check(
        lambda x, e: torch.histogramdd(x, e, density=density).hist,
        x[:, :2].t().contiguous().t(),
        edges,
        rtol=1e-5,
        atol=1e-5,
    )


def test_out_and_errors():
    x = torch.randn(50)
    hist, edges = torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE)
    torch.histogram(x.to(DEVICE), 5, out=(hist, edges))
    expected = torch.histogram(x, 5)
    assert torch.equal(hist.cpu(), expected.hist)
    torch.testing.assert_close(edges.cpu(), expected.bin_edges)
    check_error(lambda x: torch.histogram(x, 0), x)
    check_error(lambda x: torch.histogram(x, 5, range=(2.0, 1.0)), x)
    check_error(lambda x: torch.histogram(x, 5, weight=x[:3]), x)
    check_error(lambda x: torch.histogram(x / 0, 5), torch.ones(3))


def test_bincount():
    x = torch.randint(0, 9, (200,))
    check(torch.bincount, x)
    check(lambda x: torch.bincount(x.int(), minlength=20), x)
    check(torch.bincount, x, torch.rand(200), rtol=1e-5, atol=1e-5)
    check(torch.bincount, torch.empty(0, dtype=torch.int64))
    check_error(torch.bincount, torch.tensor([1, -1]))
    check_error(torch.bincount, torch.tensor([1.0, 2.0]))
    check_error(torch.bincount, torch.tensor([2**63 - 1]))
    check_error(lambda x: torch.bincount(x, minlength=-1), x)
    check_error(lambda x: torch.bincount(x, x[:3].float()), x)
    with pytest.raises(NotImplementedError):  # summed in float64, by the fallback
        torch.bincount(*to_device((x, x)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_histc_of_integers(dtype):
    """As on CUDA; the CPU has none. Exact where float32 is not."""
    values = torch.randint(0, 100, (1000,)).to(dtype)
    for bins, low, high in [(10, 0, 99), (7, 20, 60), (5, 0, 0)]:
        counts = torch.histc(values.to(DEVICE), bins, low, high)
        assert counts.dtype == dtype
        expected = torch.histc(values.double(), bins, low, high)
        assert torch.equal(counts.cpu(), expected.to(dtype))
    if dtype == torch.int64:
        far = torch.arange(2**40, 2**40 + 64)
        counts = torch.histc(far.to(DEVICE), 64, 2**40, 2**40 + 64)
        assert (counts == 1).all()


def test_histc_errors():
    for dtype in (torch.bool, torch.complex64):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            torch.histc(torch.ones(3, dtype=dtype, device=DEVICE), 4)
    for dtype in (torch.float32, torch.int32):
        check_error(lambda x: torch.histc(x, 4, 5, 1), torch.tensor([1, 2, 3], dtype=dtype))
    check_error(lambda x: torch.histc(x, 4, float("nan"), 1), torch.ones(3))
    with pytest.raises(RuntimeError, match=r"range of \[.*inf\] is not finite"):
        torch.histc(torch.tensor([float("inf")], device=DEVICE))


def test_weights_on_another_device():
    """They are refused; a CPU kernel that reads the device's memory ends the process."""
    x, edges = torch.rand(10), torch.tensor([0.0, 0.5, 1.0])
    for here, there in ((x, x.to(DEVICE)), (x.to(DEVICE), x)):
        for bins in (edges.to(here.device), 4):
            with pytest.raises(RuntimeError, match="on the same device"):
                torch.histogram(here, bins, weight=there)
