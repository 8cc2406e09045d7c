"""torch.webgpu.Graph: what is captured, what a replay does, and what cannot be captured."""

import copy
import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "webgpu"


def capture(function, **options):
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph, **options):
        result = function()
    return graph, result


def graph_bytes():
    gc.collect()  # of graphs that tests before left
    return torch.webgpu.memory_stats()["graph_bytes.all.current"]


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(DEVICE)


def test_replay_computes_on_new_inputs():
    model, x = mlp(), torch.randn(8, 16, device=DEVICE)
    graph, y = capture(lambda: model(x))
    for _ in range(3):
        x.copy_(torch.randn(8, 16))
        graph.replay()
        assert torch.equal(y, model(x))


def test_the_first_thing_that_a_process_does(check_python):
    check_python(
        "import torch\n"
        "x, graph = torch.zeros(8, device='webgpu'), torch.webgpu.Graph()\n"
        "with torch.webgpu.graph(graph):\n"
        "    x.add_(1)\n"
        "    noise = torch.rand(8, device='webgpu')\n"
        "graph.replay()\n"
        "first = noise.tolist()\n"
        "graph.replay()\n"
        "assert x.tolist() == [2] * 8 and noise.tolist() != first\n"
    )


def test_nothing_runs_while_captured():
    x = torch.ones(4, device=DEVICE)
    before = torch.webgpu.stats()["dispatches"]
    graph, _ = capture(lambda: x.add_(1))
    assert torch.webgpu.stats()["dispatches"] == before
    assert x.tolist() == [1] * 4
    graph.replay()
    graph.replay()
    assert x.tolist() == [3] * 4


def test_replay_makes_no_bind_groups():
    x = torch.ones(64, device=DEVICE)
    graph, _ = capture(lambda: x.mul_(1.5).sin().sum())
    graph.replay()
    before = torch.webgpu.stats()
    for _ in range(10):
        graph.replay()
    after = torch.webgpu.stats()
    assert after["bind_groups"] == before["bind_groups"]
    assert after["dispatches"] - before["dispatches"] == 10 * graph.num_commands()


def test_copies_and_clears_are_captured():
    x = torch.randn(1000, device=DEVICE)

    def work():
        return x.clone(), torch.zeros(500, device=DEVICE), torch.cat([x, x]), x.flip(0)

    graph, results = capture(work)
    x.copy_(torch.randn(1000))
    graph.replay()
    for got, expected in zip(results, work(), strict=True):
        assert torch.equal(got, expected)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True),
    "adamw_loop": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, capturable=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_steps_equal_eager_ones(optimizer):
    x, target = torch.randn(8, 16, device=DEVICE), torch.arange(8, device=DEVICE) % 4

    def losses(graphed):
        model = mlp()
        optim = OPTIMIZERS[optimizer](model.parameters())

        def step():
            optim.zero_grad()
            loss = F.cross_entropy(model(F.dropout(x, 0.2)), target)
            loss.backward()
            optim.step()
            return loss

        torch.manual_seed(3)
        out = [step().item() for _ in range(3)]  # makes the optimizer's state
        if not graphed:
            return out + [step().item() for _ in range(4)]
        graph, loss = capture(step)
        for _ in range(4):
            graph.replay()
            out.append(loss.item())
        return out

    assert losses(True) == losses(False)


def test_a_tensor_learning_rate_is_read():
    model, x = mlp(), torch.randn(8, 16, device=DEVICE)
    rate = torch.tensor(0.0, device=DEVICE)
    optim = torch.optim.Adam(model.parameters(), lr=rate, capturable=True)

    def step():
        optim.zero_grad()
        model(x).square().sum().backward()
        optim.step()

    step()
    graph, _ = capture(step)
    weight = model[0].weight.detach().clone()
    graph.replay()
    assert torch.equal(model[0].weight, weight)
    rate.fill_(0.1)
    graph.replay()
    assert not torch.equal(model[0].weight, weight)


# ---- Random numbers


def test_draws_advance_with_each_replay():
    x = torch.empty(100, device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(7)

    def draw():
        return (
            torch.rand_like(x),
            F.dropout(torch.ones_like(x), 0.5),
            x.new_empty(5).normal_(generator=generator),
        )

    torch.manual_seed(11)
    expected = [draw() for _ in range(3)]
    state = torch.webgpu.get_rng_state(), generator.get_state()
    torch.manual_seed(11)
    generator.manual_seed(7)
    graph, results = capture(draw)
    for step in expected:
        graph.replay()
        for got, wanted in zip(results, step, strict=True):
            assert torch.equal(got, wanted)
    assert torch.equal(torch.webgpu.get_rng_state(), state[0])
    assert torch.equal(generator.get_state(), state[1])


def test_a_seed_set_between_replays_counts():
    graph, x = capture(lambda: torch.randn(10, device=DEVICE))
    torch.manual_seed(5)
    graph.replay()
    first = x.tolist()
    graph.replay()
    assert x.tolist() != first
    torch.manual_seed(5)
    graph.replay()
    assert x.tolist() == first


def test_recomputed_dropout_is_the_same():
    x = torch.randn(64, device=DEVICE, requires_grad=True)

    def step():
        y = checkpoint(lambda t: F.dropout(t * 2, 0.5), x, use_reentrant=False)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        return y, gradient

    graph, (y, gradient) = capture(step)
    graph.replay()
    assert torch.equal(y == 0, gradient == 0) and 0 < int((y == 0).sum()) < 64


def test_states_that_generators_take_in_a_capture():
    default, other = torch.webgpu.default_generators[0], torch.Generator(DEVICE)
    own = default.graphsafe_get_state()

    def draw():
        first = torch.rand(8, device=DEVICE)
        default.graphsafe_set_state(other)
        try:
            return first, torch.rand(8, device=DEVICE), F.dropout(torch.ones_like(first), 0.5)
        finally:
            default.graphsafe_set_state(own)

    def seed():
        torch.manual_seed(11)
        other.manual_seed(12)

    seed()
    expected = [draw() for _ in range(3)]
    offsets = own.get_offset(), other.get_offset()
    seed()
    graph, results = capture(draw)
    # A replay goes on from the states, whichever generators have them by then.
    later = other.graphsafe_get_state()
    other.graphsafe_set_state(torch.Generator(DEVICE))
    for step in expected:
        graph.replay()
        for got, wanted in zip(results, step, strict=True):
            assert torch.equal(got, wanted)
    assert (own.get_offset(), later.get_offset()) == offsets
    clone = other.clone_state()
    capture(lambda: torch.rand(4, device=DEVICE, generator=clone))
    with pytest.raises(RuntimeError, match="generator"):
        capture(lambda: torch.rand(4, device=DEVICE, generator=other.clone_state()))


def test_state_of_a_generator_in_a_capture():
    generator = torch.Generator(DEVICE)
    state = generator.get_state()

    def set_offset():
        generator.set_offset(400)
        return torch.rand(4, device=DEVICE, generator=generator)

    before = torch.webgpu.get_rng_state()
    for body in (
        set_offset,
        lambda: generator.set_state(state),
        lambda: torch.rand(4, device=DEVICE, generator=torch.Generator(DEVICE)),
        lambda: torch.webgpu.set_rng_state(before),
    ):
        with pytest.raises(RuntimeError, match="generator"):
            capture(body)
    capture(lambda: torch.webgpu.set_rng_state(torch.webgpu.get_rng_state()))  # of this capture
    saved = []
    capture(lambda: saved.append(torch.webgpu.get_rng_state()))
    for run in (lambda f: f(), capture):
        with pytest.raises(RuntimeError, match="generator"):
            run(lambda: torch.webgpu.set_rng_state(saved[0]))
    assert torch.equal(torch.webgpu.get_rng_state(), before)


def test_recomputation_in_another_graph_is_refused():
    x = torch.ones(64, device=DEVICE, requires_grad=True)
    _, y = capture(lambda: checkpoint(F.dropout, x, use_reentrant=False))
    with pytest.raises(RuntimeError, match="same capture"):
        capture(lambda: torch.autograd.grad(y.sum(), x))


# ---- Memory


def test_memory_of_a_graph_is_its_own():
    x = torch.randn(1000, device=DEVICE)
    graph, y = capture(lambda: (x * 2 + 1).exp().tanh())
    assert graph_bytes() > 0
    graph.replay()
    expected = y.cpu()
    others = [torch.full((1000,), 7.0, device=DEVICE) for _ in range(20)]
    graph.replay()
    assert torch.equal(y.cpu(), expected)
    assert all(bool((other == 7).all()) for other in others)


def test_freed_inputs_stay_the_graphs():
    x = torch.ones(1000, device=DEVICE)
    inputs = [torch.full((1000,), 2.0, device=DEVICE)]
    graph, y = capture(lambda: x * inputs[0])
    inputs.clear()
    others = [torch.full((1000,), 7.0, device=DEVICE) for _ in range(5)]
    graph.replay()
    assert bool((y == 2).all()) and all(bool((other == 7).all()) for other in others)


def test_reset_gives_the_memory_back():
    base = graph_bytes()
    x = torch.ones(1 << 16, device=DEVICE)
    kept = None
    for _ in range(3):
        allocated = torch.webgpu.memory_allocated()
        graph, kept = capture(lambda: (x + 1) * 2)
        graph.replay()
        graph.reset()
        assert kept.sum().item() == 4 * x.numel()
        kept = None
        assert torch.webgpu.memory_allocated() == allocated
    assert graph_bytes() == base


def test_shared_pool():
    handle = torch.webgpu.graph_pool_handle()
    x = torch.randn(5000, device=DEVICE)
    first, a = capture(lambda: (x + 1).sin() * 3, pool=handle)
    held = graph_bytes()
    second, b = capture(lambda: (a + 1).sin() * 3, pool=first.pool())
    assert first.pool() == second.pool() == handle
    assert graph_bytes() - held < held  # intermediate results share memory
    first.replay()
    second.replay()
    assert torch.equal(a, (x + 1).sin() * 3) and torch.equal(b, (a + 1).sin() * 3)
    third, _ = capture(lambda: x + 1)
    assert third.pool() != handle


def test_caches_filled_during_a_capture_serve_later_operators():
    x = torch.randn(3, 77, device=DEVICE)
    graph, y = capture(lambda: torch.fft.rfft(x))
    torch.testing.assert_close(torch.fft.rfft(x).cpu(), torch.fft.rfft(x.cpu()))
    graph.replay()
    torch.testing.assert_close(y.cpu(), torch.fft.rfft(x.cpu()))


# ---- What cannot be captured

REFUSED = {
    "item": (lambda x: x.sum().item(), "_local_scalar_dense.*on the host"),
    "to_host": (lambda x: x.cpu(), "to the CPU"),
    "upload": (lambda x: torch.tensor([1.0, 2.0], device=DEVICE), "from the CPU"),
    "nonzero": (lambda x: x.nonzero(), "nonzero cannot be captured.*size depends on data"),
    "mask": (lambda x: x[x > 0], "size depends on data"),
    "branch": (lambda x: 1 if x.sum() > 0 else 0, "on the host"),
    "seed": (lambda x: torch.manual_seed(1), "seed"),
    "timing": (lambda x: torch.webgpu.Event(enable_timing=True).record(), "enable_timing"),
    "error": (lambda x: x @ x, "mat1 and mat2|size mismatch|shapes cannot be"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    function, message = REFUSED[what]
    x = torch.ones(3, 4, device=DEVICE)
    held, offset = graph_bytes(), torch.webgpu.get_rng_state()
    graph = torch.webgpu.Graph()

    def work():
        with torch.webgpu.graph(graph):
            torch.rand(5, device=DEVICE)
            function(x + 1)

    with pytest.raises(RuntimeError, match=message):
        work()
    assert not torch.webgpu.is_current_stream_capturing()
    assert graph_bytes() == held
    assert torch.equal(torch.webgpu.get_rng_state(), offset)
    assert (x * 3).sum().item() == 36
    with pytest.raises(RuntimeError, match="has not been captured"):
        graph.replay()
    with torch.webgpu.graph(graph):  # the same object can be captured now
        z = x * 2
    graph.replay()
    assert z.sum().item() == 24


def test_operators_on_the_cpu_are_refused():
    x = torch.randn(4, 4, device=DEVICE)
    mode = torch.webgpu.get_fallback_mode()
    torch.webgpu.set_fallback_mode("silent")
    try:
        with pytest.raises(RuntimeError, match=r"aten::linalg_eig\S* cannot be captured"):
            capture(lambda: torch.linalg.eig(x))
    finally:
        torch.webgpu.set_fallback_mode(mode)


def test_states():
    graph, other = torch.webgpu.Graph(), torch.webgpu.Graph()
    x = torch.ones(3, device=DEVICE)
    for method in (graph.replay, graph.instantiate, graph.pool, graph.num_commands):
        with pytest.raises(RuntimeError, match="has not been captured"):
            method()
    with pytest.raises(RuntimeError, match="without capture_begin"):
        graph.capture_end()
    with pytest.raises(ValueError, match="capture error mode"):
        graph.capture_begin(capture_error_mode="strict")
    graph.capture_begin()
    assert torch.webgpu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="another graph is being captured"):
        other.capture_begin()
    with pytest.raises(RuntimeError, match="while it is captured"):
        graph.reset()
    x.add_(1)
    graph.capture_end()
    with pytest.raises(RuntimeError, match="captured already"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="cannot be captured"):
        capture(graph.replay)
    graph.replay()
    assert x.tolist() == [2] * 3
    graph.reset()
    graph.capture_begin()
    graph.capture_end()
    graph.replay()  # nothing
    assert x.tolist() == [2] * 3


def test_a_graph_deleted_while_captured_ends_the_capture():
    graph = torch.webgpu.Graph()
    graph.capture_begin()
    del graph
    assert not torch.webgpu.is_current_stream_capturing()
    assert torch.ones(3, device=DEVICE).sum().item() == 3


def test_index_errors_of_replays():
    x, index = torch.arange(5, device=DEVICE), torch.tensor([1, 2], device=DEVICE)
    graph, y = capture(lambda: x[index])
    graph.replay()
    assert y.tolist() == [1, 2]
    index.fill_(9)
    graph.replay()
    with pytest.raises(IndexError):
        torch.webgpu.synchronize()
    index.fill_(3)
    graph.replay()
    assert y.tolist() == [3, 3]


def test_refusals_that_the_body_catches():
    x = torch.ones(3, device=DEVICE)

    def body():
        try:
            return x.sum().item()
        except RuntimeError:
            return x + 1

    with pytest.raises(RuntimeError, match="capture is invalid"):
        capture(body)
    assert not torch.webgpu.is_current_stream_capturing()


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch has none")
def test_refusals_in_an_accelerator_graph():
    x = torch.ones(3, device=DEVICE)
    graph = torch.accelerator.Graph()

    def body():
        with torch.Stream(), graph:
            x.add_(1)
            x.sum().item()

    with pytest.raises(RuntimeError):
        body()
    with pytest.raises(RuntimeError, match="has not been captured"):
        graph.replay()
    assert x.tolist() == [1] * 3


@pytest.mark.parametrize("name", ["Adam", "RAdam", "Adafactor", "Adagrad"])
def test_optimizers_that_count_on_the_host(name):
    model, x = mlp(), torch.randn(8, 16, device=DEVICE)
    options = {"lr_decay": 0.1} if name == "Adagrad" else {}
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)

    def step():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    step()
    with pytest.raises(RuntimeError, match=r"capturable is False|counts steps|cannot be captured"):
        capture(step)
    step()


def test_steps_with_closures_are_checked_before_there_are_gradients():
    weight = torch.randn(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.Adam([weight])

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    def step():
        optimizer.zero_grad()
        optimizer.step(closure)

    step()
    with pytest.raises(RuntimeError, match="capturable is False"):
        capture(step)


def test_wrong_kinds_of_arguments():
    with pytest.raises(TypeError, match=r"torch\.webgpu\.Graph"):
        torch.webgpu.graph(None)
    with pytest.raises(TypeError, match=r"torch\.webgpu\.Graph"):
        torch.webgpu.update_graph(5)
    with pytest.raises(TypeError, match=r"torch\.Stream"):
        torch.webgpu.graph(torch.webgpu.Graph(), stream="cuda")
    with pytest.raises(RuntimeError, match="has not been captured"):
        torch.webgpu.update_graph(torch.webgpu.Graph())
    last = torch.webgpu.graph_pool_handle()[1]
    for token in ((0, last + 2), (last, 0), (1, 1), (last + 1, 0)):
        with pytest.raises(RuntimeError, match="no token"):
            torch.webgpu.Graph().capture_begin(pool=token)
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(torch.webgpu.Graph())


def test_replay_and_reset_in_several_threads():
    x = torch.ones(100, device=DEVICE)
    for _ in range(20):
        graph, _ = capture(lambda: [x.add(k) for k in range(20)])
        failures = []

        def replay(graph=graph, failures=failures):
            try:
                for _ in range(20):
                    graph.replay()
            except RuntimeError as error:
                failures.append(str(error))

        thread = threading.Thread(target=replay)
        thread.start()
        graph.reset()
        thread.join()
        assert all("has not been captured" in failure for failure in failures)


# ---- Other numbers


def test_update_does_not_depend_on_cached_buffers():
    x = torch.ones(100000, device=DEVICE)

    def body(scale):
        return (x[:10000] * scale).sum(), (x[:11000] * scale).sum()

    torch.empty(11000, device=DEVICE)  # leaves a cached buffer
    graph, results = capture(lambda: body(2.0))
    a, b = torch.empty(10000, device=DEVICE), torch.empty(11000, device=DEVICE)
    del a, b
    with torch.webgpu.update_graph(graph):
        body(3.0)
    graph.replay()
    assert [r.item() for r in results] == [30000, 33000]


def test_update_pairs_tensors_one_to_one():
    x = torch.ones(10, device=DEVICE)

    def body():
        a = x * 2.0
        return a, a + 1

    graph, (a, _) = capture(body)

    def update():
        with torch.webgpu.update_graph(graph):
            torch.mul(x, 3.0, out=a)
            return torch.empty_like(x) + 1

    with pytest.raises(RuntimeError, match="cannot be updated"):
        update()


def test_update_takes_new_numbers():
    x = torch.randn(100, device=DEVICE)
    scale = 2.0
    graph, y = capture(lambda: torch.rand_like(x) + (x * scale).relu() + x.sum(0))
    scale = -3.0
    with torch.webgpu.update_graph(graph):
        torch.rand_like(x) + (x * scale).relu() + x.sum(0)
    torch.manual_seed(1)
    graph.replay()
    torch.manual_seed(1)
    assert torch.equal(y, torch.rand_like(x) + (x * scale).relu() + x.sum(0))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.exp(),
        lambda x: (x * 2).exp(),
        lambda x: x[:50] * 2,
        lambda x: torch.randn_like(x) * 2,
        lambda x: x.clone() * 2,
    ],
)
def test_update_refuses_another_program(other):
    x = torch.randn(100, device=DEVICE)
    graph, y = capture(lambda: x * 2)
    with pytest.raises(RuntimeError, match="cannot be updated"):
        with torch.webgpu.update_graph(graph):
            other(x)
    graph.replay()
    assert torch.equal(y, x * 2)


def test_keep_graph_and_dump(tmp_path):
    x = torch.ones(3, device=DEVICE)
    graph = torch.webgpu.Graph(keep_graph=True)
    with torch.webgpu.graph(graph):
        y = (x + 1).clone()
    graph.instantiate()
    graph.replay()
    assert y.tolist() == [2] * 3
    graph.debug_dump(tmp_path / "graph.txt")
    lines = (tmp_path / "graph.txt").read_text().splitlines()
    assert len(lines) == graph.num_commands() and lines[0].startswith("dispatch add grid 1x1x1")
    with pytest.raises(RuntimeError, match="could not write"):
        graph.debug_dump(tmp_path / "no" / "graph.txt")


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch has none")
def test_accelerator_graph():
    x = torch.ones(3, device=DEVICE)
    graph = torch.accelerator.Graph()
    with torch.Stream(), graph:
        y = x * 2
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [10] * 3
    graph.reset()
