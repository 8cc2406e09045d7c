"""Random numbers: distributions, seeds, layouts and dtypes."""

import pytest
import torch
from common import check_error

stats = pytest.importorskip("scipy.stats")

DEVICE = "webgpu"
COUNT = 50_001  # not a multiple of anything
FLOATS = [torch.float32, torch.float16, torch.bfloat16]

# in-place call -> the law of its samples
CONTINUOUS = {
    "uniform": (lambda x: x.uniform_(-2, 3), stats.uniform(-2, 5)),
    "normal": (lambda x: x.normal_(1, 2), stats.norm(1, 2)),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.7), stats.lognorm(0.7, scale=2.718281828**0.5)),
    "exponential": (lambda x: x.exponential_(0.5), stats.expon(scale=2)),
    "cauchy": (lambda x: x.cauchy_(1, 2), stats.cauchy(1, 2)),
}
DISCRETE = {
    "bernoulli": (lambda x: x.bernoulli_(0.3), stats.bernoulli(0.3)),
    "geometric": (lambda x: x.geometric_(0.3), stats.geom(0.3)),
    "random": (lambda x: x.random_(3, 20), stats.randint(3, 20)),
}
ALL = {**CONTINUOUS, **DISCRETE}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)  # a pass is not a matter of luck


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_law(name):
    draw, law = CONTINUOUS[name]
    x = draw(torch.empty(COUNT, device=DEVICE)).cpu().numpy()
    assert stats.kstest(x, law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_law(name, dtype):
    draw, law = DISCRETE[name]
    x = draw(torch.empty(COUNT, dtype=dtype, device=DEVICE)).cpu().to(torch.int64)
    observed = torch.bincount(x)
    expected = law.pmf(range(len(observed))) * COUNT
    assert (observed[expected == 0] == 0).all()
    common = expected > 5
    error = (observed.numpy() - expected)[common]
    statistic = (error**2 / expected[common]).sum()
    assert stats.chi2(common.sum()).sf(statistic) > 1e-3


def test_bernoulli_of_probabilities():
    p = torch.rand(400, 1).expand(400, 300)
    x = torch.bernoulli(p.webgpu())
    assert (x.cpu().mean(1) - p[:, 0]).abs().max() < 5 * 0.5 / 300**0.5
    ends = torch.tensor([0.0, 1.0]).repeat(1000).webgpu()
    assert torch.equal(torch.bernoulli(ends).cpu(), ends.cpu())
    assert torch.equal(ends.clone().bernoulli_(ends).cpu(), ends.cpu())
    mask = torch.empty(2000, dtype=torch.bool, device=DEVICE).bernoulli_(ends)
    assert torch.equal(mask.cpu(), ends.cpu() == 1)


@pytest.mark.parametrize("p", [-0.5, 1.5, float("nan")])
def test_bernoulli_of_no_probability(p):
    check_error(lambda x: x.bernoulli_(p), torch.zeros(3))
    check_error(lambda p: torch.bernoulli(p).cpu(), torch.tensor([0.5, p]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_stays_below_its_end(dtype):
    x = torch.empty(COUNT, dtype=dtype, device=DEVICE).uniform_(1, 1.25).cpu()
    assert x.min() >= 1 and x.max() < 1.25
    assert (x.float().mean() - 1.125).abs() < 0.005


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (torch.int64, -(2**63), 2**63 - 1),
        (torch.int64, -5, 2**40),
        (torch.int32, -(2**31), 2**31 - 1),
        (torch.int8, -128, 127),
        (torch.float32, 0, 1000),
    ],
)
def test_integers_cover_their_range(dtype, low, high):
    x = torch.empty(COUNT, dtype=dtype, device=DEVICE).random_(low, high).cpu().double()
    assert (x.min() >= low and x.max() < high) or dtype == torch.int64
    scaled = (x - low) / (high - low)
    assert stats.kstest((scaled + (0.5 if high - low < 5000 else 0) / (high - low)).numpy(),
                        "uniform").statistic < 0.02  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "end"),
    [(torch.bool, 2), (torch.uint8, 2**8), (torch.int8, 2**7), (torch.int16, 2**15),
     (torch.int32, 2**31), (torch.int64, 2**63), (torch.float32, 2**24 + 1),
     (torch.float16, 2**11 + 1), (torch.bfloat16, 2**8 + 1)],
)  # fmt: skip
def test_random_without_bounds(dtype, end):
    x = torch.empty(COUNT, dtype=dtype, device=DEVICE).random_().cpu().double()
    assert (x.min() >= 0 and x.max() <= end - 1) or dtype == torch.int64
    assert abs(float(x.mean()) / (end - 1) - 0.5) < 0.01


def test_int64_fills_all_bits():
    x = torch.empty(COUNT, dtype=torch.int64, device=DEVICE)
    x.random_(-(2**63), None)
    bits = torch.stack([(x.cpu() >> b & 1).double().mean() for b in range(64)])
    assert (bits - 0.5).abs().max() < 0.015


@pytest.mark.parametrize("name", ALL)
def test_seed_decides(name):
    draw = ALL[name][0]

    def sample():
        return draw(torch.empty(101, device=DEVICE)).cpu()

    torch.manual_seed(5)
    first, second = sample(), sample()
    torch.webgpu.manual_seed(5)
    assert torch.equal(sample(), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.int64])
@pytest.mark.parametrize("name", ["uniform", "normal", "random"])
def test_layout_does_not_matter(name, dtype):
    if dtype in (torch.int8, torch.int64) and name != "random":
        pytest.skip("floating-point distributions")
    draw = ALL[name][0]

    def sample(x):
        torch.manual_seed(7)
        return draw(x).cpu()

    expected = sample(torch.empty(6, 7, dtype=dtype, device=DEVICE))
    assert torch.equal(sample(torch.empty(7, 6, dtype=dtype, device=DEVICE).t()), expected)
    base = torch.full((100,), 77, dtype=dtype, device=DEVICE)
    for offset in (1, 2, 3):
        view = base[offset : offset + 42].view(6, 7)
        assert torch.equal(sample(view), expected)
    outside = torch.cat([base[:1].cpu(), base[45:].cpu()])
    assert (outside == 77).all()


def test_neighbouring_calls_are_independent():
    a, b = (torch.empty(COUNT, device=DEVICE).normal_().cpu() for _ in range(2))
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.02
    assert abs(float(torch.corrcoef(torch.stack([a[:-1], a[1:]]))[0, 1])) < 0.02


def test_generator_and_state():
    generator = torch.Generator(device=DEVICE)
    generator.manual_seed(3)
    a = torch.rand(10, device=DEVICE, generator=generator).cpu()
    generator.manual_seed(3)
    assert torch.equal(torch.rand(10, device=DEVICE, generator=generator).cpu(), a)
    assert not torch.equal(torch.rand(10, device=DEVICE).cpu(), a)

    state = torch.webgpu.get_rng_state()
    b = torch.randn(5, device=DEVICE).cpu()
    torch.webgpu.set_rng_state(state)
    assert torch.equal(torch.randn(5, device=DEVICE).cpu(), b)
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(3, device=DEVICE).uniform_(generator=torch.Generator())


def test_composites_and_errors():
    assert torch.randint(5, (100,), device=DEVICE).cpu().max() < 5
    assert torch.randn_like(torch.empty(3, 3, device=DEVICE)).shape == (3, 3)
    assert torch.randn(4, dtype=torch.complex64, device=DEVICE).dtype == torch.complex64
    assert torch.normal(torch.full((20_000,), 3.0, device=DEVICE), 0.5).cpu().std() < 0.52
    assert torch.empty(0, device=DEVICE).normal_().numel() == 0
    for call in (
        lambda x: x.uniform_(3, 1),
        lambda x: x.normal_(0, -1),
        lambda x: x.bernoulli_(2),
        lambda x: x.exponential_(-1),
        lambda x: x.random_(3, 3),
    ):
        with pytest.raises(RuntimeError) as expected:
            call(torch.empty(3))
        with pytest.raises(RuntimeError) as got:
            call(torch.empty(3, device=DEVICE))
        assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(COUNT,), (3, 5, 7)])
def test_dropout(dtype, shape):
    x = torch.randn(shape).to(dtype)
    x[x == 0] = 1
    device = x.webgpu().requires_grad_()
    before = torch.webgpu.stats()["dispatches"]
    y = torch.nn.functional.dropout(device, 0.25)
    assert torch.webgpu.stats()["dispatches"] == before + 1
    y.backward(torch.full_like(y, 3))
    kept = y.detach().cpu() != 0
    torch.testing.assert_close(y.detach().cpu(), torch.where(kept, (x.float() / 0.75).to(dtype), 0))
    assert torch.equal(device.grad.cpu(), torch.where(kept, 4.0, 0.0).to(dtype))
    assert abs(kept.float().mean() - 0.75) < 5 * (0.75 * 0.25 / x.numel()) ** 0.5


def test_dropout_layouts_and_ends():
    x = torch.ones(4, 8, 6, 6).webgpu().to(memory_format=torch.channels_last)
    y, mask = torch.native_dropout(x, 0.5, True)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y.cpu(), mask.cpu() * 2.0)
    strided = torch.ones(10, 10).webgpu()[::2, 1:]
    y, mask = torch.native_dropout(strided, 0.5, True)
    assert torch.equal(y.cpu(), mask.cpu() * 2.0)
    gaps = torch.ones(3, 4, 5).webgpu().permute(2, 0, 1)[1:, :, 1:]
    y, mask = torch.native_dropout(gaps, 0.5, True)
    assert y.permute(1, 2, 0).is_contiguous()
    assert torch.equal(y.cpu(), mask.cpu() * 2.0)
    assert torch.equal(torch.native_dropout(x, 0.0, True)[0].cpu(), x.cpu())
    assert not torch.native_dropout(x, 1.0, True)[0].cpu().any()
    assert torch.native_dropout(x, 0.5, False)[1].cpu().all()
    ints = torch.arange(6, device=x.device)
    scaled = torch.ops.aten.native_dropout_backward(ints, ints > 2, 1.5)
    assert scaled.tolist() == [0, 0, 0, 4.5, 6, 7.5]


@pytest.mark.parametrize("dtype", FLOATS)
def test_multinomial_with_replacement(dtype):
    weights = torch.tensor([[0.5, 0.0, 2.0, 1.5, 0.0], [0.0, 4.0, 0.0, 0.0, 1.0]], dtype=dtype)
    x = torch.multinomial(weights.to(DEVICE), COUNT, replacement=True).cpu()
    assert x.shape == (2, COUNT) and x.dtype is torch.int64
    for drawn, law in zip(x, weights.double(), strict=True):
        observed = torch.bincount(drawn, minlength=5)
        expected = law / law.sum() * COUNT
        assert (observed[law == 0] == 0).all()
        statistic = ((observed - expected)[law > 0] ** 2 / expected[law > 0]).sum()
        assert stats.chi2((law > 0).sum() - 1).sf(statistic) > 1e-3


def test_multinomial_of_many_and_sparse_weights():
    weights = torch.zeros(100_003)
    weights[1000::1000] = torch.rand(100) + 0.1
    x = torch.multinomial(weights.to(DEVICE), 5000, replacement=True).cpu()
    assert (weights[x] > 0).all() and x.unique().numel() > 90
    strided = torch.rand(7, 3).t()
    assert torch.multinomial(strided.to(DEVICE), 4, replacement=True).max() < 7


def test_multinomial_without_replacement():
    weights = torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0, 0.5]).expand(400, 6).contiguous()
    x = torch.multinomial(weights.to(DEVICE), 4).cpu()
    assert (x.sort(1).values == torch.tensor([1, 2, 4, 5])).all()
    first = torch.bincount(x[:, 0], minlength=6)
    assert first[4] > first[2] > first[1] > first[5]
    one = torch.multinomial(weights[0].expand(1000, 6).to(DEVICE), 1).cpu()
    assert one.shape == (1000, 1) and (weights[0][one] > 0).all()


def test_multinomial_seed_and_errors():
    weights = torch.rand(3, 8).to(DEVICE)
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(torch.multinomial(weights, 20, True))
    assert torch.equal(*draws)
    assert not torch.equal(torch.multinomial(weights, 20, True), draws[0])
    assert torch.multinomial(weights[:0], 2, True).shape == (0, 2)
    draw = lambda w: torch.multinomial(w, 2, True)  # noqa: E731
    check_error(draw, torch.zeros(3))
    check_error(draw, torch.tensor([2.0, -1.0]))
    check_error(draw, torch.tensor([1.0, float("inf")]))
    check_error(draw, torch.ones(3, dtype=torch.int64))
    check_error(lambda w: torch.multinomial(w, 4), torch.ones(3))
    with pytest.raises(RuntimeError, match="either `inf`, `nan` or element < 0"):
        torch.multinomial(torch.tensor([2.0, -1.0]).to(DEVICE), 1).cpu()


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 9.9, 10.0, 37.5, 4000.0])
def test_poisson_law(rate):
    x = torch.poisson(torch.full((COUNT,), rate, device=DEVICE)).cpu()
    if rate == 0:
        assert not x.any()
        return
    edges = stats.poisson.ppf([k / 20 for k in range(1, 20)], rate)
    cells = torch.bucketize(x.double(), torch.tensor(edges).unique())
    observed = torch.bincount(cells, minlength=int(cells.max()) + 1)
    below = [stats.poisson.cdf(edge, rate) for edge in torch.tensor(edges).unique()]
    expected = torch.diff(torch.tensor([0, *below, 1])) * COUNT
    statistic = ((observed - expected) ** 2 / expected).sum().item()
    assert stats.chi2(len(expected) - 1).sf(statistic) > 1e-3


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.5, 400.0])
def test_gamma_law(alpha):
    x = torch._standard_gamma(torch.full((COUNT,), alpha, device=DEVICE)).cpu().numpy()
    assert stats.kstest(x, stats.gamma(alpha).cdf).pvalue > 1e-3


def test_dirichlet_law():
    alpha = torch.tensor([0.5, 2.0, 5.0], device=DEVICE)
    x = torch._sample_dirichlet(alpha.expand(COUNT, 3)).cpu()
    assert x.sum(1).sub(1).abs().max() < 1e-5
    for k, (a, rest) in enumerate(((0.5, 7), (2, 5.5), (5, 2.5))):
        assert stats.kstest(x[:, k].numpy(), stats.beta(a, rest).cdf).pvalue > 1e-3
