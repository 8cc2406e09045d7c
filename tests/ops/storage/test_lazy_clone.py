"""torch._lazy_clone: clones share memory until one of them is written."""

import gc

import pytest
import torch
from torch import nn

from torch_webgpu import _C

DEVICE = "webgpu"

is_shared = torch._C._is_cow_tensor


def values(tensor):
    return tensor.cpu().tolist()


def pair(count=8, dtype=torch.float32):
    """A tensor 0, 1, 2 ... and its lazy clone."""
    x = torch.arange(count, dtype=torch.float32).to(dtype).to(DEVICE)
    return x, torch._lazy_clone(x)


def allocations():
    return torch.webgpu.memory_stats()["allocation.all.allocated"]


READERS = {
    "add": lambda x: x + 1,
    "two operands": lambda x: x * x,
    "sum": lambda x: x.sum(),
    "reduce rows": lambda x: x.view(2, 4).amax(1),
    "matmul": lambda x: x.view(2, 4) @ x.view(4, 2),
    "softmax": lambda x: x.softmax(0),
    "index": lambda x: x[torch.tensor([1, 2], device=DEVICE)],
    "gather": lambda x: x.gather(0, torch.tensor([1, 2], device=DEVICE)),
    "sort": lambda x: x.sort(),
    "cat": lambda x: torch.cat([x, x]),
    "foreach": lambda x: torch._foreach_add([x, x], 1.0),
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: nn.functional.layer_norm(x, (8,)),
    "convolution": lambda x: nn.functional.conv1d(x.view(1, 2, 4), x.view(2, 2, 2)),
    "item": lambda x: x[3].item(),
    "to the CPU": lambda x: x.cpu(),
    "a view": lambda x: x.view(2, 4).t()[1:],
    "a strided view": lambda x: x[::2].contiguous(),
    "another dtype": lambda x: x.half(),
    "copy from": lambda x: torch.empty(8, device=DEVICE).copy_(x),
    "source of scatter": lambda x: torch.zeros(9, device=DEVICE).scatter_(
        0, torch.arange(8, device=DEVICE), x
    ),
    "equal": lambda x: torch.equal(x, x + 0),
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("name", READERS)
def test_reading_keeps_the_memory_shared(name):
    x, clone = pair()
    READERS[name](x)
    READERS[name](clone)
    assert is_shared(x) and is_shared(clone)
    assert values(x) == values(clone) == list(range(8))


INDEX, INF = [1, 3], float("inf")
WRITERS = {
    "add_": lambda x: x.add_(1),
    "add_ to itself": lambda x: x.add_(x),
    "fill_": lambda x: x.fill_(3),
    "zero_": lambda x: x.zero_(),
    "copy_ from the device": lambda x: x.copy_(torch.full((8,), 5.0, device=x.device)),
    "copy_ from the CPU": lambda x: x.copy_(torch.full((8,), 5.0)),
    "copy_ of another dtype": lambda x: x.copy_(torch.full((8,), 5, device=x.device)),
    "out=": lambda x: torch.mul(torch.full_like(x, 2.0), 4, out=x),
    "out= with itself": lambda x: torch.mul(x, x, out=x),
    "out= of a reduction": lambda x: torch.sum(torch.ones(3, 8, device=x.device), 0, out=x),
    "out= of a product": lambda x: torch.mm(
        torch.ones(2, 3, device=x.device), torch.ones(3, 4, device=x.device), out=x.view(2, 4)
    ),
    "addmm_": lambda x: x.view(2, 4).addmm_(
        torch.ones(2, 3, device=x.device), torch.ones(3, 4, device=x.device)
    ),
    "out= of cat": lambda x: torch.cat(
        [torch.ones(4, device=x.device), torch.zeros(4, device=x.device)], out=x
    ),
    "out= of sort": lambda x: torch.sort(
        torch.ones(8, device=x.device), out=(x, torch.empty(8, device=x.device, dtype=torch.long))
    ),
    "out= of cumsum": lambda x: torch.cumsum(x, 0, out=x),
    "index_put_": lambda x: x.index_put_((torch.tensor(INDEX, device=x.device),), -x[:2]),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor(INDEX, device=x.device), 9),
    "index_add_": lambda x: x.index_add_(0, torch.tensor(INDEX, device=x.device), x[4:6].clone()),
    "scatter_": lambda x: x.scatter_(0, torch.tensor(INDEX, device=x.device), 9.0),
    "scatter_reduce_": lambda x: x.scatter_reduce_(
        0, torch.tensor(INDEX, device=x.device), x[4:6].clone(), "amax"
    ),
    "masked_fill_": lambda x: x.masked_fill_(x > 3, 0),
    "setitem": lambda x: x.__setitem__(slice(1, 3), 7.0),
    "a view, then a write": lambda x: x.view(2, 4).t()[1:].mul_(3),
    "a detached alias": lambda x: x.detach().sub_(1),
    "set_, then a write": lambda x: torch.empty(0, device=x.device).set_(x).add_(1),
    "foreach": lambda x: torch._foreach_mul_([x, torch.ones(3, device=x.device)], 2.0),
    "found_inf of unscaling": lambda x: torch._amp_foreach_non_finite_check_and_unscale_(
        [torch.full((4,), INF, device=x.device)], x[:1], torch.ones(1, device=x.device)
    ),
    "untyped storage": lambda x: x.untyped_storage().fill_(0),
    "sgd": lambda x: torch._fused_sgd_(
        [x], [torch.ones(8, device=x.device)], [], weight_decay=0, momentum=0, lr=0.5,
        dampening=0, nesterov=False, maximize=False, is_first_step=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", WRITERS)
def test_writing_leaves_the_other_alone(name, which):
    expected = torch.arange(8.0)
    WRITERS[name](expected)
    both = pair()
    written, other = both[which], both[1 - which]
    WRITERS[name](written)
    assert not is_shared(written) and is_shared(other)
    assert values(written) == expected.tolist()
    assert values(other) == list(range(8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8, torch.int64, torch.complex64])
def test_other_element_sizes(dtype):
    x, clone = pair(7, dtype)
    clone += 1
    assert values(x) == torch.arange(7).to(dtype).tolist()
    assert values(clone) == (torch.arange(7).to(dtype) + 1).tolist()


def test_the_last_owner_does_not_copy():
    x, clone = pair()
    second = torch._lazy_clone(clone)
    before = allocations()
    x.add_(1)
    second.add_(2)
    assert allocations() == before + 2
    assert is_shared(clone)
    clone.add_(3)
    assert allocations() == before + 2 and not is_shared(clone)
    assert values(x[:2]) == [1, 2] and values(second[:2]) == [2, 3] and values(clone[:2]) == [3, 4]


def test_an_owner_that_is_left_alone_does_not_copy():
    x, clone = pair()
    del clone
    gc.collect()
    before = allocations()
    x.add_(1)
    assert allocations() == before and not is_shared(x)
    again = torch._lazy_clone(x)  # what was shared once can be shared again
    assert allocations() == before
    x.add_(1)
    assert values(again[:2]) == [1, 2] and values(x[:2]) == [2, 3]


def test_memory_is_freed_with_its_last_owner():
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    x, clone = pair(1 << 16)
    one = torch.accelerator.memory_allocated() - before
    assert one >= 1 << 18
    del x
    assert torch.accelerator.memory_allocated() - before == one
    del clone
    assert torch.accelerator.memory_allocated() == before


def test_views_of_a_clone_keep_their_place():
    x = torch.arange(12.0, device=DEVICE)
    part = torch._lazy_clone(x[4:].view(2, 4).t())
    assert part.stride() == (1, 4) and part.storage_offset() == 4
    part.mul_(10)
    assert values(part) == [[40, 80], [50, 90], [60, 100], [70, 110]]
    assert values(x) == list(range(12))


@pytest.mark.parametrize("shape", [(0,), (0, 3), ()])
def test_without_elements_or_dimensions(shape):
    x = torch.zeros(shape, device=DEVICE)
    clone = torch._lazy_clone(x)
    clone.add_(1)
    assert clone.shape == shape and torch.equal(x, torch.zeros(shape, device=DEVICE))
    assert clone.device == x.device


def test_resizing():
    x, clone = pair()
    clone.resize_(4)
    assert is_shared(clone)
    clone.resize_(16)
    assert not is_shared(clone) and values(clone[:8]) == list(range(8))
    clone.fill_(1)
    assert values(x) == list(range(8))
    clone.untyped_storage().resize_(0)
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(32)
    x.fill_(2)
    assert values(x) == [2] * 8


def test_data_ptr_and_dlpack_make_memory_of_their_own():
    x, clone = pair()
    assert clone.data_ptr() != x.data_ptr()
    x, clone = pair()
    borrowed = torch.from_dlpack(clone)
    borrowed.add_(1)
    assert values(x) == list(range(8)) and values(clone) == list(range(1, 9))


def test_the_copy_has_its_place_in_the_stream():
    x, clone = pair()
    for step in range(20):
        later = torch._lazy_clone(x)
        x.add_(1)
        assert later[0].item() == step
    assert values(clone) == list(range(8))


def test_backward():
    x, clone = pair()
    x.requires_grad_()
    y = torch._lazy_clone(x)
    assert is_shared(y)
    (y * y).sum().backward()
    assert is_shared(y) and is_shared(x)
    assert values(x.grad) == [2.0 * k for k in range(8)]
    gradient, given = pair()
    z = clone.requires_grad_().exp()
    z.backward(given)
    assert is_shared(given) and is_shared(gradient) and values(gradient) == list(range(8))
    with torch.no_grad():
        x.add_(1)
    assert values(y.detach()) == list(range(8))


def test_a_saved_tensor_that_is_written_is_an_error():
    x = torch.ones(4, device=DEVICE, requires_grad=True)
    clone = torch._lazy_clone(x)
    y = clone * clone
    clone.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_module_and_an_optimizer():
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).to(DEVICE)
    before = [torch._lazy_clone(p.detach()) for p in layer.parameters()]
    copies = [p.cpu() for p in before]
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    layer(torch.ones(2, 4, device=DEVICE)).square().sum().backward()
    optimizer.step()
    for kept, copy, now in zip(before, copies, layer.parameters(), strict=True):
        assert torch.equal(kept.cpu(), copy) and not torch.equal(now.cpu(), copy)


def test_a_shader_of_the_users():
    library = torch.webgpu.compile_shader("""
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@compute @workgroup_size(64)
fn double(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < arrayLength(&out)) { out[id.x] = 2.0 * x[id.x]; }
}
""")
    x, clone = pair()
    library.double(clone, x)
    assert values(x) == list(range(8)) and values(clone) == [2 * k for k in range(8)]
    assert is_shared(x) and not is_shared(clone)


def test_compiled_code():
    def function(x, y):
        y.add_(x)
        return x * 2

    x, clone = pair()
    doubled = torch.compile(function)(x, clone)
    assert values(x) == list(range(8)) and values(clone) == values(doubled)


def test_storages_that_borrow_memory_are_refused():
    borrowed = torch.from_dlpack(torch.ones(3, device=DEVICE))
    with pytest.raises(RuntimeError):
        torch._lazy_clone(borrowed)
    assert values(borrowed) == [1] * 3


def test_memory_that_a_graph_file_had_before():
    size = 3 << 20
    program = _C.Program(False)
    program.add_buffer(size)
    del program
    x = torch.zeros(size // 4, device=DEVICE)
    clone = torch._lazy_clone(x)
    clone.add_(1)
    assert clone.sum().item() == size // 4 and x.sum().item() == 0
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()


class TestGraphs:
    """A captured graph names memory, so what it uses is not shared."""

    @pytest.mark.parametrize("size", [1 << 16, 1 << 18])
    def test_its_memory_may_lie_right_before_what_was_shared(self, size):
        """New memory often does: an address behind its end is then the one of the old memory."""
        numbers = torch.arange(size, dtype=torch.float32)
        out = torch.empty(size, device=DEVICE)
        for _ in range(4):
            x = numbers.to(DEVICE)
            clone = torch._lazy_clone(x)
            graph = torch.webgpu.Graph()
            with torch.webgpu.graph(graph):
                torch.add(x, 1, out=out)
            graph.replay()
            assert torch.equal(out.cpu(), numbers + 1)
            assert torch.equal(clone.cpu(), numbers)

    def capture(self, function):
        graph = torch.webgpu.Graph()
        with torch.webgpu.graph(graph):
            result = function()
        return graph, result

    @pytest.mark.parametrize("written", ["pointwise", "reduction", "matmul", "index"])
    def test_an_input_that_was_shared_keeps_its_place(self, written):
        functions = {
            "pointwise": lambda x: x[2:] + 1,
            "reduction": lambda x: x[2:].sum(),
            "matmul": lambda x: x.view(2, 4) @ x.view(2, 4).t(),
            "index": lambda x: x[torch.tensor([1, 2])] if x.is_cpu else x.take(index),
        }
        index = torch.tensor([1, 2], device=DEVICE)
        function = functions[written]
        x, clone = pair()
        graph, result = self.capture(lambda: function(x))
        x.copy_(torch.arange(8.0) * 3)
        graph.replay()
        assert torch.equal(result.cpu(), function(torch.arange(8.0) * 3))
        assert values(clone) == list(range(8))

    def test_an_input_that_is_cloned_later_keeps_its_place(self):
        x = torch.arange(4.0, device=DEVICE)
        graph, result = self.capture(lambda: x + 1)
        graph.replay()
        kept = torch._lazy_clone(x)
        kept_result = torch._lazy_clone(result)
        x.fill_(7)
        graph.replay()
        assert values(result) == [8] * 4
        assert values(kept) == [0, 1, 2, 3] and values(kept_result) == [1, 2, 3, 4]

    def test_a_write_is_repeated_on_the_clone_of_before(self):
        x, clone = pair(4)
        graph, _ = self.capture(lambda: clone.add_(1))
        assert values(clone) == [0, 1, 2, 3]
        for _ in range(3):
            graph.replay()
        assert values(clone) == [3, 4, 5, 6] and values(x) == [0, 1, 2, 3]

    def test_a_clone_that_is_made_in_the_graph_is_made_by_each_replay(self):
        x = torch.arange(4.0, device=DEVICE)

        def function():
            clone = torch._lazy_clone(x)
            x.add_(1)
            return clone

        graph, clone = self.capture(function)
        for step in range(3):
            graph.replay()
            assert values(clone) == [step + k for k in range(4)]
        assert values(x) == [3, 4, 5, 6]
