"""Products that compute what follows them before they store."""

import pytest
import torch
import torch.nn.functional as F
from compiled import DEVICE, assert_equal, check, compile, dispatches
from torch import nn

TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    # Eager mode rounds to the half between its operators.
    torch.float16: {"rtol": 5e-3, "atol": 2e-2},
    torch.bfloat16: {"rtol": 4e-2, "atol": 2e-1},
}


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


M, K, N = 12, 20, 36
ONE_DISPATCH = {
    "bias and activation": (lambda a, b, bias: F.relu(a @ b + bias), [(M, K), (K, N), (N,)]),
    "addmm": (lambda a, b, bias: torch.addmm(bias, a, b).tanh(), [(M, K), (K, N), (N,)]),
    "used twice": (lambda a, b: F.gelu(a @ b), [(M, K), (K, N)]),
    "tanh of GELU": (lambda a, b: F.gelu(a @ b, approximate="tanh"), [(M, K), (K, N)]),
    "linear and residual": (
        lambda x, weight, bias, rest: F.linear(x, weight, bias) * 0.3 + rest,
        [(2, 6, K), (N, K), (N,), (2, 6, N)],
    ),
    "factors by row": (lambda a, b, row: (a @ b) * row, [(M, K), (K, N), (M, 1)]),
    "two further operands": (
        lambda a, b, c, d: (a @ b) * c - d.t(),
        [(M, K), (K, N), (M, N), (N, M)],
    ),
    "a selection": (
        lambda a, b, c: torch.where(c > 0, a @ b, torch.inf).abs(),
        [(M, K), (K, N), (1, N)],
    ),
    "a batch": (lambda a, b, c: (a @ b) * c + 1, [(3, M, K), (3, K, N), (3, 1, N)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b).relu(), [(3, 1, N), (3, M, K), (3, K, N)]),
    "one column": (lambda a, b: (a @ b).sigmoid(), [(M, K), (K, 1)]),
    "one row": (lambda a, b, c: F.silu(a @ b) * c, [(1, K), (K, N), (1, N)]),
    "a transposed result": (lambda a, b, c: (a @ b).t().sin() * c.t(), [(M, K), (K, N), (M, N)]),
    "the product is a result too": (
        lambda a, b, c: ((p := a @ b), p.relu() + c),
        [(M, K), (K, N), (M, N)],
    ),
    "two results": (lambda a, b: ((p := a @ b).sin(), p.cos()), [(M, K), (K, N)]),
    "two results of another size": (
        lambda a, b: ((p := a @ b).sin(), p.t().cos()),
        [(3, K), (K, 5)],
    ),
    "a result and its truth": (
        lambda a, b, c: ((p := (a @ b).relu() + c), p > c + 0.5),
        [(3, M, K), (3, K, N), (3, 1, N)],
    ),
    "places": (lambda a, b: (a @ b).sin().triu(), [(M, K), (K, N)]),
    "places in a batch": (
        lambda a, b: torch.where(
            torch.arange(N, device=DEVICE) > torch.arange(M, device=DEVICE)[:, None],
            -torch.inf,
            a @ b,
        ).exp(),
        [(3, M, K), (3, K, N)],
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", ONE_DISPATCH)
def test_one_dispatch(name, dtype):
    program, shapes = ONE_DISPATCH[name]
    args = [randn(*shape, dtype=dtype) for shape in shapes]
    compiled = check(program, *args, tolerances=TOLERANCES[dtype])
    assert dispatches(compiled, *args) == 1


CONVERTED = {
    "bias": (lambda x, a, b: torch.addmm(x.half(), a, b), (N,)),
    "bias and activation": (lambda x, a, b: F.gelu(torch.addmm(x.half(), a, b)), (N,)),
    "bias of a batch": (lambda x, a, b: torch.baddbmm(x.half() * 2, a[None], b[None]), (1, 1, N)),
    "matrix": (lambda x, a, b: torch.addmm(x.sin().half(), a, b), (M, N)),
    "row by row": (lambda x, a, b: torch.addmm(x.half(), a, b).relu(), (M, 1)),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_what_is_added_is_computed_too(name):
    program, shape = CONVERTED[name]
    args = randn(*shape), randn(M, K, dtype=torch.float16), randn(K, N, dtype=torch.float16)
    compiled = check(program, *args, tolerances=TOLERANCES[torch.float16])
    assert dispatches(compiled, *args) == 1


def test_what_is_added_changes_after_the_product():
    def program(x, a, b):
        result = torch.addmm(x.half(), a, b).relu()
        return result, x.mul_(2)

    args = randn(N), randn(M, K, dtype=torch.float16), randn(K, N, dtype=torch.float16)
    expected = program(args[0].clone(), *args[1:])
    assert_equal(compile(program)(*args), expected, **TOLERANCES[torch.float16])


def test_what_is_added_has_another_reader():
    def program(x, a, b):
        return torch.addmm(y := x.half(), a, b), y + 1

    args = randn(N), randn(M, K, dtype=torch.float16), randn(K, N, dtype=torch.float16)
    check(program, *args, tolerances=TOLERANCES[torch.float16])


# What computes a factor, or what more than floats depend on, is a kernel of its own.
NO_SOURCES = {
    "the second factor": lambda c, s, b, n: torch.addmm(c, s := s.half(), b) * s,
    "the first factor": lambda c, s, b, n: torch.addmm(c, b, s := s.half()) * s,
    "the factor alone": lambda c, s, b, n: ((s := s.half()) @ b) * s,
    "both factors": lambda c, s, b, n: ((s := s.half()) @ s.t()) * s,
    "a factor of a batch": lambda c, s, b, n: (
        torch.baddbmm(c[None], (s := s.half())[None], b[None]) + s
    ),
    "a linear layer": lambda c, s, b, n: F.linear(s := s.half(), b, c[0]) + s,
    "added and a factor": lambda c, s, b, n: torch.addmm(s := s.half(), s, b).relu(),
    "added twice": lambda c, s, b, n: torch.addmm(s := s.half(), c, b) * s,
    "a number": lambda c, s, b, n: (c @ b) * torch.as_strided(n + 1, (), ()),
    "a number of several": lambda c, s, b, n: (c @ b) * n,
}


@pytest.mark.parametrize("name", NO_SOURCES)
def test_what_else_is_computed_before(name):
    c, b = randn(N, N, dtype=torch.float16), randn(N, N, dtype=torch.float16)
    number = torch.tensor(3, device=DEVICE)
    with torch.no_grad():
        check(NO_SOURCES[name], c, randn(N, N), b, number, tolerances=TOLERANCES[torch.float16])


def test_groups_that_would_wait_for_each_other():
    """Each product's reader reads the next product too: not all three can be joined."""

    def program(a, b, c, d, e, f):
        p, q, g = a @ b, c @ d, e @ f
        return p + q[:16, :16], q + g[:32, :32], g + p[:1, :1]

    sizes = (16, 32, 48)
    args = [part for n in sizes for part in (randn(n, 8), randn(8, n))]
    check(program, *args, tolerances=TOLERANCES[torch.float32])


def test_residuals_of_convolutions():
    x, weight = randn(2, 4, 9, 9), randn(4, 4, 3, 3, dtype=torch.float16)

    def program(x, weight, bias):
        return F.conv2d(h := x.half(), weight, bias, padding=1) + h

    with torch.no_grad():
        args = x, weight, randn(4, dtype=torch.float16)
        check(program, *args, tolerances=TOLERANCES[torch.float16])


NOT_FUSED = {
    "three operands": (lambda a, b, c, d, e: (a @ b + c.sin()) * d * e, [(M, N)] * 3),
    "three results": (lambda a, b: ((p := a @ b), p.sin(), p.cos()), []),
    "results of two products": (lambda a, b: ((a @ b).sin(), (a @ b).cos()), []),
    "readers in a row": (lambda a, b: ((p := a @ b).sin().sum(0) + p, p.cos()), []),
    "a sum": (lambda a, b: (a @ b).sin().sum(1), []),
    "another dtype": (lambda a, b: (a @ b).sin().half(), []),
    "truth": (lambda a, b: (a @ b) > 0, []),
    "a part": (lambda a, b: (a @ b)[:, 3:].sin(), []),
    "a concatenation": (lambda a, b, c: torch.cat([(a @ b).sin(), c], 1), [(M, 4)]),
    "an operand that changes": (lambda a, b, c: ((a @ b).sin(), c.add_((a @ b).cos())), [(M, N)]),
    "factors": (lambda a, b: torch.addmm(a.sum(), a, b, alpha=2, beta=0.5).sin(), []),
    "integers": (lambda a, b: (a.long() @ b.long()).relu(), []),
}


@pytest.mark.parametrize("name", NOT_FUSED)
def test_more_dispatches(name):
    program, shapes = NOT_FUSED[name]
    args = [randn(M, K), randn(K, N), *(randn(*shape) for shape in shapes)]
    expected = program(*(arg.clone() for arg in args))
    actual = compile(program, dynamic=False)(*(arg.clone() for arg in args))
    assert_equal(actual, expected, **TOLERANCES[torch.float32])


@pytest.mark.parametrize("is_read", [True, False])
def test_operands_that_change_between(is_read):
    """The product reads its factor before the change; what follows it may read the changed one."""

    def program(a, b, c):
        product = a @ b
        a.mul_(c.sum())
        return (product + (a.sum() if is_read else c)).relu()

    args = [randn(M, K), randn(K, N), randn(M, N)]
    expected_args = [arg.clone() for arg in args]
    expected = program(*expected_args)
    actual = compile(program)(*args)
    assert_equal([actual, *args], [expected, *expected_args], **TOLERANCES[torch.float32])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", [(M, N), (7, 9), (3, M, N)])
def test_dropout(shape, dtype):
    """The kernel draws the numbers that a kernel of their own would draw, and stores the mask."""
    *batch, m, n = shape
    a, b = randn(*batch, m, K, dtype=dtype), randn(*batch, K, n, dtype=dtype)
    for each in (a, b):
        each.requires_grad_()
    rest = randn(*shape, dtype=dtype)
    fused = compile(lambda a, b, rest: F.dropout(a @ b, 0.3) + rest, dynamic=False)
    apart = compile(lambda x, rest: F.dropout(x, 0.3) + rest, dynamic=False)
    results = []
    for program in (lambda: fused(a, b, rest), lambda: apart(a @ b, rest)):
        torch.manual_seed(5)
        result = program()
        results.append([result, *torch.autograd.grad(result.sum(), (a, b))])
    assert_equal(*results, **TOLERANCES[dtype])
    kept = ((results[0][0] - rest).abs() > 1e-3).float().mean().item()
    assert 0.5 < kept < 0.9
    assert dispatches(fused, a, b, rest) == 2  # the seed is drawn by one


def test_layers_and_their_gradients():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(K, 2 * N), torch.nn.GELU(), torch.nn.Linear(2 * N, N), torch.nn.ReLU()
    ).to(DEVICE)
    x = randn(2, 6, K).requires_grad_()

    def program(x, *parameters):
        return torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), x)

    names, parameters = zip(*model.named_parameters(), strict=True)
    check(program, x, *parameters, backward=True, tolerances=TOLERANCES[torch.float32])


def test_dispatches_of_the_forward_of_training():
    """A second result is what the backward pass needs: a GELU's input, a dropout's mask."""
    layers = [nn.Linear(K, N), nn.GELU(), nn.Linear(N, K), nn.Dropout(0.2)]
    x = randn(M, K)
    for count, expected in ((2, 1), (3, 2), (4, 3)):
        model = nn.Sequential(*layers[:count]).to(DEVICE)
        compiled = compile(model)
        assert compiled(x).requires_grad
        assert dispatches(compiled, x) == expected


def test_dynamic_sizes():
    def program(a, b, bias):
        return F.relu(a @ b + bias) * a.shape[0]

    compiled = compile(program, dynamic=True, fullgraph=True)
    for m, k, n in [(3, 5, 7), (40, 70, 33), (2, 300, 9)]:
        args = randn(m, k), randn(k, n), randn(n)
        assert_equal(compiled(*args), program(*args), **TOLERANCES[torch.float32])


def of_places(count, factor=1):
    return torch.arange(count, device=DEVICE) * factor


# By name: functions of a product, or of a convolution's image, and of the places of elements.
OF_PLACES = {
    "column": lambda y: y + of_places(y.shape[-1]),
    "row": lambda y: y * of_places(y.shape[-2])[:, None],
    "triangle": torch.tril,
    "mask": lambda y: y.masked_fill(of_places(y.shape[-1]) > of_places(y.shape[-2])[:, None], 0),
    "wide": lambda y: y + of_places(y.shape[-1], 2**31),
    "from_wide": lambda y: y + of_places(y.shape[-1], 2**31) // 2**29,
    "wraps": lambda y: y + of_places(y.shape[-1], 2**31) * of_places(y.shape[-2], 2**32)[:, None],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OF_PLACES)
@pytest.mark.parametrize("dynamic", [False, None, True])
def test_places_of_elements(name, dynamic):
    function = OF_PLACES[name]
    compiled = compile(lambda x: function(x @ x), dynamic=dynamic)
    for size in (8, 9, 17):
        for shape in ((size, size), (3, size, size)):
            x = randn(*shape)
            tolerances = TOLERANCES[torch.float32]
            assert_equal(compiled(x), function(x @ x), **tolerances)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OF_PLACES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_places_of_positions(name, dynamic):
    function, weight = OF_PLACES[name], randn(4, 3, 3, 3)
    check(
        lambda x: function(F.conv2d(x, weight)),
        randn(2, 3, 10, 12),
        dynamic=dynamic,
        tolerances=TOLERANCES[torch.float32],
    )


def test_dynamic_numbers_that_follow():
    """They are no operands of a product's kernel."""

    def program(a, b, n):
        return torch.where(a @ b > n, a @ b, torch.full_like(a @ b, n)) + n

    compiled = compile(program)
    a, b = randn(5, 7), randn(7, 3)
    for n in (1, 2, 10**10):
        assert_equal(compiled(a, b, n), program(a, b, n), **TOLERANCES[torch.float32])


def test_replay():
    args = randn(M, K), randn(K, N), randn(N)
    compiled = compile(lambda a, b, bias: F.relu(a @ b + bias), mode="reduce-overhead")
    for _ in range(3):  # run, captured, replayed
        assert_equal(compiled(*args), F.relu(args[0] @ args[1] + args[2]), rtol=1e-4, atol=1e-4)
        args[0].add_(1)


def test_parts_of_buffers():
    """Operands, and what is added, lie somewhere in their buffers."""
    base = randn(M + 3, 2 * N)
    check(
        lambda a, b, base: (a[:, 2:] @ b[2:]) * base[3:, ::2] + base[1, 5 : 5 + N],
        randn(M, K),
        randn(K, N),
        base,
        tolerances=TOLERANCES[torch.float32],
    )


@pytest.mark.parametrize("shape", [(0, 4, 5), (4, 0, 5), (4, 5, 0)])
def test_empty_matrices(shape):
    m, k, n = shape
    check(lambda a, b, c: (a @ b + c).exp(), randn(m, k), randn(k, n), randn(n))
