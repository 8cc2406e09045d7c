"""torch.compile(mode="reduce-overhead") replays graphs, and is never wrong for it."""

import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from torch_webgpu.inductor import replay

DEVICE = "webgpu"


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, mode="reduce-overhead", **options)


def replays():
    return counters["inductor"]["webgpu_graph_replays"]


def test_inference():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(DEVICE).eval()
    function = compiled(model)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(3, 8, device=DEVICE)
            torch.testing.assert_close(function(x), model(x))
    assert replays() == 4


def test_functions_without_inputs():
    """Their results tell the device."""
    function = compiled(lambda: torch.arange(10, device=DEVICE) * 2)
    for _ in range(4):
        torch.testing.assert_close(function().cpu(), torch.arange(10) * 2)
    assert replays() == 2  # the first call runs, and the second to tell where it lies


def test_sizes_of_zero():
    function = compiled(lambda x: x * 2, dynamic=True)
    for n in (3, 0, 4, 0, 4, 4):
        torch.testing.assert_close(
            function(torch.ones(n, device=DEVICE)).cpu(), torch.full((n,), 2.0)
        )


def test_calls_of_several_threads(monkeypatch):
    function = compiled(lambda x: x * 2)
    for _ in range(3):
        function(torch.randn(50, device=DEVICE))
    replayed = replay.Graph.replay

    def slowly(graph):  # so that other threads get their turn
        time.sleep(0.005)
        replayed(graph)

    monkeypatch.setattr(replay.Graph, "replay", slowly)
    wrong = []

    def work():
        for _ in range(15):
            x = torch.randn(50)
            if not torch.equal(function(x.to(DEVICE)).cpu(), x * 2):
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_that_are_kept_stay():
    function = compiled(lambda x: (x * 2 + 1).sin())
    inputs = [torch.randn(50, device=DEVICE) for _ in range(6)]
    kept = [function(x) for x in inputs]
    for x, y in zip(inputs, kept, strict=True):
        torch.testing.assert_close(y, (x * 2 + 1).sin())
    assert replays() == 1 and counters["inductor"]["webgpu_graph_passed_over"] == 4
    del kept, y
    function(inputs[0])
    assert replays() == 2


@pytest.fixture
def captures(monkeypatch):
    """The graphs that are captured, in their order."""
    made = []

    def capture(*args):
        made.append(original(*args))
        return made[-1]

    original = replay._Capture
    monkeypatch.setattr(replay, "_Capture", capture)
    return made


def test_a_result_that_is_held_until_the_next_call():
    function = compiled(lambda x: (x * 2).sum())
    for n in range(8):
        x = torch.full((50,), n, device=DEVICE)
        y = function(x)  # the last y is held meanwhile
        assert y.item() == 100 * n
    # One call without the graph shows that the result is to be copied.
    assert replays() == 6 and counters["inductor"]["webgpu_graph_passed_over"] == 1


def test_large_results_are_not_copied(monkeypatch):
    monkeypatch.setattr(replay, "_MOST_COPIED_OUT", 100)
    function = compiled(lambda x: x * 2)
    for n in range(7):
        y = function(torch.full((50,), n, device=DEVICE))
        assert y.tolist() == [2 * n] * 50
    assert replays() == 3 and counters["inductor"]["webgpu_graph_passed_over"] == 3


def test_what_the_forward_pass_saves_is_read_where_it_lies(captures):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Tanh()).to(DEVICE)
    function = compiled(model)

    def gradients(run, x):
        model.zero_grad()
        run(x).square().sum().backward()
        return [p.grad.cpu() for p in model.parameters()]

    for _ in range(5):
        x = torch.randn(6, 8, device=DEVICE)
        torch.testing.assert_close(gradients(function, x), gradients(model, x))
    forward, backward = captures
    assert len(forward.copied) == 1  # x
    assert len(backward.copied) == 2  # x, and the gradient of the result
    assert replays() == 8 and not counters["inductor"]["webgpu_graph_inputs_moved"]


def test_what_a_graph_returned_is_read_where_it_lies(captures):
    def function(x):
        y = x.sin() * 2
        torch._dynamo.graph_break()
        return y.cos() + y.sum()

    run = compiled(function)
    for _ in range(5):
        x = torch.randn(30, device=DEVICE)
        torch.testing.assert_close(run(x), function(x))
    assert [len(capture.copied) for capture in captures] == [1, 0]
    assert replays() == 8


def test_saved_tensors_here_and_there(captures):
    """Two forward passes before their backward passes: the second finds the graph in use, so that
    what it saves lies elsewhere."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()).to(DEVICE)
    function = compiled(model)

    def gradients(run, xs):
        results = [run(x) for x in xs]
        return [torch.autograd.grad(y.sum(), model[0].weight)[0] for y in results]

    for count in (1, 1, 1, 2, 2, 1, 2, 2, 2, 1, 1):
        xs = [torch.randn(3, 8, device=DEVICE) for _ in range(count)]
        torch.testing.assert_close(gradients(function, xs), gradients(model, xs))
    assert counters["inductor"]["webgpu_graph_inputs_moved"] > 0


def test_inputs_that_always_move_are_copied(captures):
    """Parameters that are replaced before each call."""
    model = nn.Linear(8, 4).to(DEVICE)
    function = compiled(model)
    x = torch.randn(2, 8, device=DEVICE)
    kept = []
    with torch.no_grad():
        for k in range(12):
            if k > 1:
                kept.append(model.weight.data)
                model.weight.data = model.weight.data + 1
            torch.testing.assert_close(function(x), model(x))
    assert len(captures) == 3
    assert len(captures[-1].copied) == 2  # x and the weight
    assert counters["inductor"]["webgpu_graph_inputs_moved"] == 4 and replays() > 5


def test_results_that_are_parts_of_inputs():
    function = compiled(lambda x, w: (x + w, w[2:], x[1:3]))
    x, w = torch.randn(5, device=DEVICE), torch.randn(5, device=DEVICE)
    for _ in range(4):
        x = x + 1
        total, part, other = function(x, w)
        torch.testing.assert_close(total, x + w)
        assert part.data_ptr() == w[2:].data_ptr() and torch.equal(part, w[2:])
        assert other.data_ptr() == x[1:].data_ptr() and torch.equal(other, x[1:3])


def test_views_of_results_count():
    function = compiled(lambda x: x.reshape(5, 10) * 2)
    x = torch.randn(50, device=DEVICE)
    function(x)
    row = function(x)[2]
    expected = row.clone()
    function(x + 1)
    assert torch.equal(row, expected)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_equals_eager(dropout):
    def losses(compile_it):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        model = model.to(DEVICE)
        forward = compiled(model) if compile_it else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        target = torch.arange(6, device=DEVICE) % 4
        out = []
        for step in range(6):
            x = torch.full((6, 8), 0.1, device=DEVICE).cumsum(1) * (step + 1)
            x[torch.arange(6, device=DEVICE), torch.arange(6, device=DEVICE)] = step
            loss = F.cross_entropy(forward(F.dropout(x, dropout)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        statistics = [b.cpu() for b in model.buffers()]
        return out, statistics

    # Kernels of the compiler add up in another order.
    torch.testing.assert_close(losses(True), losses(False), rtol=1e-5, atol=1e-6)
    assert replays() >= 8


def test_gradients_that_accumulate():
    model = nn.Linear(8, 4).to(DEVICE)
    function = compiled(model)
    for _ in range(4):
        function(torch.ones(2, 8, device=DEVICE)).sum().backward()
    assert model.weight.grad.tolist() == [[8.0] * 8] * 4


def test_forwards_before_their_backwards():
    function = compiled(lambda x: (x * x).sin())
    xs = [torch.randn(20, device=DEVICE, requires_grad=True) for _ in range(4)]
    for _ in range(3):
        ys = [function(x) for x in xs]
        for x, y in zip(xs, ys, strict=True):
            (gradient,) = torch.autograd.grad(y.sum(), x)
            torch.testing.assert_close(gradient, (x * x).cos().mul(2 * x).detach())


def test_inputs_that_are_written_into():
    def step(x, state):
        state.add_(x)
        return state * 2

    function = compiled(step)
    state = torch.zeros(10, device=DEVICE)
    for k in range(1, 6):
        y = function(torch.ones(10, device=DEVICE), state)
        assert state.tolist() == [k] * 10 and y.tolist() == [2 * k] * 10


def test_parameters_that_move():
    model = nn.Linear(8, 4).to(DEVICE)
    function = compiled(model)
    x = torch.randn(2, 8, device=DEVICE)
    with torch.no_grad():
        for k in range(6):
            if k == 3:
                model.weight.data = model.weight.data * 2
            torch.testing.assert_close(function(x), model(x))


def test_random_numbers_advance():
    function = compiled(lambda x: F.dropout(x, 0.5))
    x = torch.ones(200, device=DEVICE)
    results = {tuple(function(x).tolist()) for _ in range(5)}
    assert len(results) == 5


def test_dynamic_sizes():
    function = compiled(lambda x: (x + 1).sum(0), dynamic=True)
    for _ in range(3):
        for size in (5, 7, 9):
            x = torch.randn(size, 4, device=DEVICE)
            torch.testing.assert_close(function(x), (x + 1).sum(0))
    assert replays() == 6


def test_what_cannot_be_captured_runs():
    def function(x):
        y = x.sin()
        return y[y > 0].sum() + y.sum().item()

    run = compiled(function)
    for _ in range(4):
        x = torch.randn(30, device=DEVICE)
        torch.testing.assert_close(run(x), function(x))


def test_inside_a_graph_of_the_users():
    run = compiled(lambda x: (x * 3).cos())
    x = torch.randn(30, device=DEVICE)
    run(x)
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        y = run(x)
    graph.replay()
    torch.testing.assert_close(y, (x * 3).cos())
