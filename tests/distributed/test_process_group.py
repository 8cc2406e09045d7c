"""Two processes that communicate, compared with Gloo on the CPU and with one process.

The file is also the program that the processes run: torchrun starts it once, and each check of it
is a test.
"""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from torch_webgpu import distributed

if not distributed.is_built():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

RANKS = 2
GROUP_SECONDS = 30
RUN_SECONDS = 240
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
)

# ---- Checks: each process runs all of them, in this order, with the group of init_process_group()

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def values(*shape, dtype=torch.float32):
    """Small numbers that differ by process and place."""
    count = torch.Size(shape).numel()
    numbers = torch.arange(count).mul(7).add(3 * dist.get_rank()).remainder(11)
    return (numbers % 2 == 0 if dtype == torch.bool else numbers.to(dtype)).reshape(shape)


def outcome(function):
    """What the function returns, or the type and the text of what it raises."""
    try:
        return function()
    except Exception as error:
        # Some of Gloo's errors have a time of day.
        return type(error), re.sub(r"[\d:.]+ ProcessGroupGloo", "ProcessGroupGloo", str(error))


def same_as_gloo(collective, *tensors):
    """collective(*tensors) leaves in webgpu tensors what it leaves in CPU tensors."""
    here = [tensor.to("webgpu") for tensor in tensors]
    expected, actual = outcome(lambda: collective(*tensors)), outcome(lambda: collective(*here))
    assert actual == expected, (actual, expected)
    for one, other in zip(here, tensors, strict=True):
        assert one.device.type == "webgpu"
        assert_close(one.cpu(), other, rtol=0, atol=0)


@check
def names_and_devices():
    assert dist.get_backend_config() == "cpu:gloo,webgpu:webgpu_gloo"
    assert dist.get_default_backend_for_device("webgpu") == distributed.BACKEND
    group = dist.group.WORLD
    assert {device.type for device in group._device_types} == {"cpu", "webgpu"}
    backend = group._get_backend(torch.device("webgpu"))
    assert backend.name() == distributed.BACKEND
    assert (backend.rank(), backend.size()) == (dist.get_rank(), RANKS)
    assert isinstance(group._get_backend(torch.device("cpu")), dist.ProcessGroupGloo)
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    assert objects == [{"rank": 0}, {"rank": 1}]


@check
def groups_by_name():
    both = "cpu:gloo,webgpu:webgpu_gloo"
    # A PyTorch built for CUDA keeps Gloo for it.
    gloo = "cpu:gloo,cuda:gloo,webgpu:webgpu_gloo" if torch._C._has_cuda else both
    for name, config in (
        ("gloo", gloo),
        (distributed.BACKEND, "cpu:webgpu_gloo,webgpu:webgpu_gloo"),
        (both, both),
        (None, both),
    ):
        group = dist.new_group(backend=name)
        assert dist.get_backend_config(group) == config
        # The two devices take turns: what is sent is matched by its order.
        for device in ("webgpu", "cpu", "webgpu"):
            x = values(3).to(device)
            work = dist.all_reduce(x, group=group, async_op=True)
            y = values(2).add(1).to("cpu" if device == "webgpu" else "webgpu")
            dist.all_reduce(y, group=group)
            work.wait()
            assert x.tolist() == [3, 17, 9]
            assert y.tolist() == [5, 19]
        dist.destroy_process_group(group)
    alone = dist.new_group([1])
    if dist.get_rank() == 1:
        x = torch.ones(2, device="webgpu")
        dist.all_reduce(x, group=alone)
        assert x.tolist() == [1, 1]
        dist.destroy_process_group(alone)
    halves = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=GROUP_SECONDS))
    dist.barrier(halves)


@contextlib.contextmanager
def bound_device():
    """As after init_process_group(device_id=), where PyTorch splits groups."""
    world = dist.group.WORLD
    world.bound_device_id = torch.device("webgpu", 0)
    try:
        yield
    finally:
        world.bound_device_id = None


@check
def groups_are_split():
    rank = dist.get_rank()
    if torch.__version__ < "2.15":  # from then on PyTorch asks for no device
        with pytest.raises(RuntimeError, match="No device associated"):
            dist.split_group(split_ranks=[[0, 1]])
    one_for_both = dist.new_group(backend=distributed.BACKEND)
    with bound_device():
        # Two of the same processes, parts of parts, and a new_group() that leaves a process out.
        groups = [dist.split_group(split_ranks=[[0, 1]], group_desc="both") for _ in range(2)]
        groups.append(dist.split_group(groups[0], split_ranks=[[0, 1]]))
        groups.append(dist.split_group(one_for_both, split_ranks=[[0, 1]]))
        alone = dist.split_group(split_ranks=[[0], [1]])
        first = dist.new_group([0])
        # This process is in a group that the other is not in.
        with pytest.raises(RuntimeError, match="unlike numbers of groups"):
            dist.split_group(split_ranks=[[0, 1]])
    for device in ("webgpu", "cpu", "webgpu"):
        works = []
        for k, group in enumerate(groups):
            backend = group._get_backend(torch.device(device))
            ours = device == "webgpu" or k == 3
            assert backend.name() == (distributed.BACKEND if ours else "gloo")
            x = values(3).add(k).to(device)
            works.append((dist.all_reduce(x, group=group, async_op=True), x, k))
        for work, x, k in reversed(works):
            work.wait()
            assert x.tolist() == [3 + 2 * k, 17 + 2 * k, 9 + 2 * k]
        y = values(3).to(device)
        dist.all_reduce(y, group=alone)
        if rank == 0:
            dist.all_reduce(y, group=first)
        assert torch.equal(y.cpu(), values(3))
    for group in (*groups, one_for_both, alone, *([first] if rank == 0 else [])):
        dist.destroy_process_group(group)


@check
def meshes_are_split():
    from torch.distributed.device_mesh import init_device_mesh

    with bound_device():
        mesh = init_device_mesh("webgpu", (2, 1), mesh_dim_names=("rows", "columns"))
    for name, size in (("rows", 2), ("columns", 1)):
        group = mesh[name].get_group()
        assert group.size() == size
        x = torch.ones(2, device="webgpu")
        dist.all_reduce(x, group=group)
        assert x.tolist() == [size, size]


def gather_both(own, x, y):
    dist.all_gather([x, y], own.to(x.device))


@check
def barriers_take_the_number_of_a_process():
    # As programs of the CPU do, and of two processes that share a device.
    dist.barrier(device_ids=[dist.get_rank()])
    dist.barrier(None, False, [dist.get_rank()])
    work = dist.distributed_c10d.barrier(async_op=True, device_ids=[dist.get_rank()])
    work.wait()


@check
def every_collective_in_every_dtype():
    rank = dist.get_rank()
    other = 1 - rank
    for dtype in DTYPES:
        for shape in ((5,), (2, 3), (), (0,), (0, 3)):
            like = functools.partial(values, *shape, dtype=dtype)
            same_as_gloo(lambda x: dist.broadcast(x, 1), like())
            same_as_gloo(dist.all_reduce, like())
            gather = functools.partial(gather_both, like())
            same_as_gloo(gather, like(), like())
            if dtype == torch.float32 or shape == (5,):
                rooted(like, rank)
                if shape:
                    stacked(like, rank, other)


def rooted(like, rank):
    total = like().to("webgpu")
    expected = like()
    dist.reduce(total, 1)
    dist.reduce(expected, 1)
    # Elsewhere Gloo leaves partial sums, here the tensor stays as it is.
    assert_close(total.cpu(), expected if rank == 1 else like(), rtol=0, atol=0)
    same_as_gloo(
        lambda x, y: dist.gather(like().to(x.device), [x, y] if rank == 0 else None, 0),
        like(),
        like(),
    )
    same_as_gloo(
        lambda x, y, z: dist.scatter(z, [x, y] if rank == 1 else None, 1), like(), like(), like()
    )


def stacked(like, rank, other):
    """Collectives of tensors that hold a part for each process."""

    def both(x):
        return torch.cat([x, x.flip(0)])

    same_as_gloo(lambda x, y: dist.all_gather_into_tensor(x, y), both(like()), like())
    same_as_gloo(lambda x, y: dist.reduce_scatter_tensor(x, y), like(), both(like()))
    same_as_gloo(lambda x, y, z: dist.reduce_scatter(x, [y, z]), like(), like(), like())
    same_as_gloo(lambda x, y: dist.all_to_all_single(x, y), both(like()), both(like()))
    same_as_gloo(lambda a, b, x, y: dist.all_to_all([a, b], [x, y]), like(), like(), like(), like())
    if like().dim() == 1 and like().numel():
        # Rank 0 sends one element to itself and four to rank 1, which sends two and three.
        sent = [1, 4] if rank == 0 else [2, 3]
        got = [1, 2] if rank == 0 else [4, 3]
        same_as_gloo(
            lambda x, y: dist.all_to_all_single(x, y, got, sent),
            torch.zeros(sum(got)).to(like().dtype),
            like(),
        )
    same_as_gloo(
        lambda *x: dist.all_reduce_coalesced(list(x)), like(), both(like()), like().flatten()
    )


@check
def coalesced_collectives():
    """Several of a kind as one. Gloo has no `_coalescing_manager`."""

    def gather_lists(a, b, c, d, e, f):
        dist.all_gather_coalesced([[c, d], [e, f]], [a, b])

    for dtype in (torch.float32, torch.float16, torch.int64):
        x, y = values(3, dtype=dtype), values(2, 2, dtype=dtype)
        same_as_gloo(gather_lists, x, y, x.clone(), y.clone(), x.clone(), y.clone())


@check
def collectives_of_objects():
    rank = dist.get_rank()
    mine = {"rank": rank, "tensor": torch.full((2,), rank, device="webgpu")}
    given = [mine] if rank == 0 else [None]
    dist.broadcast_object_list(given, 0)
    assert given[0]["rank"] == 0 and given[0]["tensor"].tolist() == [0, 0]
    assert given[0]["tensor"].device.type == "webgpu"
    gathered = [None, None] if rank == 1 else None
    dist.gather_object(rank, gathered, 1)
    assert gathered == ([0, 1] if rank == 1 else None)
    received = [None]
    dist.scatter_object_list(received, ["a", "b"] if rank == 0 else None, 0)
    assert received == ["ab"[rank]]
    if rank == 0:
        dist.send_object_list(["text", 3], 1)
    else:
        objects = [None, None]
        dist.recv_object_list(objects, 0)
        assert objects == ["text", 3]


@check
def functional_collectives():
    import torch.distributed._functional_collectives as functional

    def all_of(device):
        x = values(4).add(1).to(device)
        group = dist.group.WORLD
        return [
            functional.all_reduce(x, "sum", group),
            functional.all_gather_tensor(x, 0, group),
            functional.reduce_scatter_tensor(x, "max", 0, group),
            functional.all_to_all_single(x, [2, 2], [2, 2], group),
            functional.broadcast(x, 1, group),
            *functional.all_reduce_coalesced([x, x * 2], "sum", group),
            *functional.all_gather_into_tensor_coalesced([x, x * 2], group),
            *functional.reduce_scatter_tensor_coalesced([x, x * 2], "sum", [0, 0], group),
        ]

    for ours, expected in zip(all_of("webgpu"), all_of("cpu"), strict=True):
        result = functional.wait_tensor(ours)
        assert result.device.type == "webgpu"
        assert torch.equal(result.cpu(), functional.wait_tensor(expected))


@check
def monitored_barriers():
    """PyTorch has them for groups that were made as Gloo's."""
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier()
    group = dist.new_group(backend="gloo")
    dist.monitored_barrier(group)
    backend = group._get_backend(torch.device("webgpu"))
    backend.monitored_barrier(datetime.timedelta(seconds=GROUP_SECONDS), True)
    dist.destroy_process_group(group)


@check
def every_reduction():
    ops = dist.ReduceOp
    scaled = dist._make_nccl_premul_sum(2.0)
    for op in (
        ops.SUM,
        ops.AVG,
        ops.PRODUCT,
        ops.MIN,
        ops.MAX,
        ops.BAND,
        ops.BOR,
        ops.BXOR,
        scaled,
    ):
        for dtype in (torch.float32, torch.float16, torch.int32):
            if op == ops.AVG and dtype == torch.int32:
                continue
            # Floats have no bitwise reductions, and only NCCL scales: the errors are Gloo's too.
            same_as_gloo(functools.partial(dist.all_reduce, op=op), values(4, dtype=dtype))
            scatter = functools.partial(dist.reduce_scatter_tensor, op=op)
            same_as_gloo(scatter, values(2, dtype=dtype), values(4, dtype=dtype))
    trues = torch.ones(3, dtype=torch.bool, device="webgpu")
    dist.all_reduce(trues)
    assert trues.view(torch.uint8).tolist() == [1, 1, 1]


def coo(dense_dim=0, count=5, dtype=torch.float32):
    """Elements that overlap with those of the other process in part, and may stand at one place."""
    places = torch.arange(count).mul(2).add(dist.get_rank()).remainder(4)
    shape = (4, 3)[: 2 - dense_dim]
    indices = torch.stack([places, places.div(2, rounding_mode="floor")])[: len(shape)]
    elements = values(count, *(4, 3)[len(shape) :], dtype=dtype)
    return torch.sparse_coo_tensor(indices, elements, (4, 3), check_invariants=True)


@check
def sparse_tensors():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int64):
        for dense_dim in (0, 1):
            for count in (5, dist.get_rank(), 0):  # without elements in one process, or in all
                x = coo(dense_dim, count, dtype)
                same_as_gloo(dist.all_reduce, x.clone())
                same_as_gloo(dist.all_reduce, x.coalesce())
    # Gloo has sums alone.
    same_as_gloo(lambda x: dist.all_reduce(x, dist.ReduceOp.MAX), coo())
    # The tensor may be overwritten at once, and the sum is there for all that comes later.
    x = coo().to("webgpu")
    expected = coo()
    dist.all_reduce(expected)
    total = x.clone()
    work = dist.all_reduce(total, async_op=True)
    total._values().zero_()
    (result,) = work.get_future().then(lambda future: [future.value()[0].to_dense() * 2]).wait()
    assert_close(result.cpu(), expected.to_dense() * 2)
    assert total.is_coalesced() and x._nnz() == 5
    # What Gloo does not take on the CPU either.
    for function in (
        lambda x: dist.broadcast(x, 0),
        lambda x: dist.reduce(x, 0),
        lambda x: dist.all_reduce(x.to_sparse_csr()),
    ):
        for device in ("cpu", "webgpu"):
            with pytest.raises(NotImplementedError, match="Could not run 'c10d::"):
                function(coo().to(device))
    backend = dist.group.WORLD._get_backend(torch.device("webgpu"))
    with pytest.raises(RuntimeError, match="only supports dense tensors"):
        backend.broadcast([x], dist.BroadcastOptions()).wait()
    with pytest.raises(RuntimeError, match="unsupported layout SparseCsr"):
        backend.allreduce([x.to_sparse_csr()], dist.AllreduceOptions())
    dist.all_reduce(x)
    assert_close(x.cpu(), expected)


@check
def layouts():
    for view in (
        lambda x: x.t(),
        lambda x: x[1:],
        lambda x: x.narrow(1, 1, 3),
        lambda x: x[::2],
        lambda x: x[:, :1].expand(4, 1),
    ):
        for dtype in (torch.float32, torch.float16):
            base = values(4, 5, dtype=dtype).to("webgpu")
            expected = view(base.cpu()).contiguous()
            dist.all_reduce(expected)
            wanted = base.cpu()
            view(wanted).copy_(expected)
            dist.all_reduce(view(base))
            # Neighbours of the view's elements in memory stay as they are.
            assert_close(base.cpu(), wanted, rtol=0, atol=0)
    odd = values(7, dtype=torch.float16).to("webgpu")
    dist.broadcast(odd[1:4], 0)
    expected = values(7, dtype=torch.float16)
    dist.broadcast(expected[1:4], 0)
    assert_close(odd.cpu(), expected, rtol=0, atol=0)
    # Longer than what is copied at once, and not a multiple of it.
    same_as_gloo(dist.all_reduce, values(2_500_001))
    leaf = nn.Parameter(values(3).to("webgpu"))
    dist.broadcast(leaf, 1)
    assert leaf.tolist() == [3, 10, 6]


@check
def order():
    """A collective sees its tensors as they are when it is called; later commands its results."""
    rank = dist.get_rank()
    x = torch.full((1000,), 1.0 + rank, device="webgpu")
    gathered = torch.empty(2000, device="webgpu")
    works = []
    for _ in range(3):
        works.append(dist.all_gather_into_tensor(gathered, x, async_op=True))
        x += 10
    for work in works:
        work.wait()
    doubled = gathered * 2
    assert doubled.view(2, 1000)[:, 0].tolist() == [42, 44]
    assert x[0].item() == 31 + rank
    work = dist.all_reduce(x, async_op=True)
    (result,) = work.get_future().then(lambda future: [future.value()[0] / 2]).wait()
    assert_close(result.cpu(), torch.full((1000,), 31.5))
    assert work.is_completed() and work.is_success()
    work = dist.all_reduce(x, async_op=True)
    # A callback may wait for the work that it belongs to.
    assert work.get_future().then(lambda future: work.wait() and work.is_success()).wait()
    for _ in range(20):
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert work.get_future().done() and work.is_completed()
        work = dist.all_reduce(x, async_op=True)
        work.get_future().wait()
        assert work.is_completed() and work.is_success()
    assert work.result()[0].data_ptr() == x.data_ptr()


@check
def an_error_of_another_operator():
    """A process whose read raises has taken part: later collectives meet their own kind."""
    rank = dist.get_rank()
    for communicate in (
        lambda x: dist.all_reduce(x),
        lambda x: dist.send(x, 1) if rank == 0 else dist.recv(x, 0),
    ):
        x = torch.full((3,), 1.0 + rank, device="webgpu")
        y = torch.full((3,), 100.0 + rank, device="webgpu")
        if rank == 0:
            torch.zeros(3, device="webgpu")[torch.tensor([7], device="webgpu")]
            with pytest.raises(IndexError, match="index 7 is out of bounds"):
                communicate(x)
        else:
            communicate(x)
            assert x.tolist() in ([3, 3, 3], [1, 1, 1])
        dist.all_reduce(y)
        assert y.tolist() == [201, 201, 201]


@check
def a_callback_that_communicates():
    x, y = torch.ones(4, device="webgpu"), torch.ones(4, device="webgpu")

    def again(future):
        dist.all_reduce(y)
        return future.value()[0] + y

    result = dist.all_reduce(x, async_op=True).get_future().then(again).wait()
    assert result.tolist() == [4] * 4
    z = torch.ones(4, device="webgpu")
    dist.all_reduce(z)  # the thread that the callback took has a successor
    assert z.tolist() == [2] * 4


@check
def capture():
    """Results that arrive while a graph is captured are no part of it."""
    x = torch.ones(3, device="webgpu")
    y = torch.zeros(3, device="webgpu")
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        graph = torch.webgpu.Graph()
        with torch.webgpu.graph(graph):
            y += 1
            dist.send(torch.ones(1), 1)  # the other process takes part only from here on
            work.wait()
        assert x.tolist() == [2, 2, 2]
        x.zero_()
        graph.replay()
        assert (x.tolist(), y.tolist()) == ([0, 0, 0], [1, 1, 1])
    else:
        dist.recv(torch.empty(1), 0)
        dist.all_reduce(x)


@check
def messages():
    rank = dist.get_rank()
    other = 1 - rank
    for dtype in (torch.float32, torch.float16):
        same_as_gloo(
            lambda x: dist.send(x, 1) if rank == 0 else dist.recv(x, 0), values(3, dtype=dtype)
        )
    # Received first and sent then, around a collective, by both.
    x, y = torch.zeros(4, device="webgpu"), torch.full((4,), 5.0 + rank, device="webgpu")
    received = dist.irecv(x, other)
    total = torch.ones(2, device="webgpu")
    dist.all_reduce(total)
    sent = dist.isend(y, other)
    sent.wait()
    received.wait()
    received.wait()
    assert x.tolist() == [5.0 + other] * 4
    assert total.tolist() == [2, 2]
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, x, other), dist.P2POp(dist.isend, y + 1, other)]
    )
    for work in works:
        work.wait()
    assert x.tolist() == [6.0 + other] * 4
    if rank == 0:
        dist.send(y, 1)
    else:
        assert dist.recv(x) == 0
        assert x.tolist() == [5.0] * 4
    # Errors: they are not contiguous.
    for view in (lambda x: x.t(), lambda x: x[:, ::2]):
        same_as_gloo(lambda x, view=view: dist.send(view(x), other), values(2, 4))
        same_as_gloo(lambda x, view=view: dist.irecv(view(x), other), values(2, 4))
        same_as_gloo(
            lambda x, y, view=view: dist.all_to_all_single(y, view(x)), values(4, 4), values(4, 4)
        )


@check
def threads_and_short_lives():
    """Two threads with a group each, and groups that are destroyed with work under way."""
    rank = dist.get_rank()
    groups = [dist.new_group(), dist.new_group(backend=distributed.BACKEND)]

    def communicate(group):
        works = []
        for k in range(40):
            size = (1, 5, 3000, 100_000)[k % 4]
            x = torch.full((size,), float(k + rank), device="webgpu")
            gathered = torch.empty(2 * size, device="webgpu")
            works.append((dist.all_gather_into_tensor(gathered, x, group, True), gathered, k))
            x.zero_()
        for work, gathered, k in works:
            work.wait()
            assert gathered.view(2, -1)[:, -1].tolist() == [k, k + 1]
        return True

    with ThreadPoolExecutor(2) as threads:
        assert all(threads.map(communicate, groups))
    totals = []
    for k in range(6):
        group = dist.new_group()
        x = torch.ones(1000, device="webgpu")
        future = dist.all_reduce(x, group=group, async_op=True).get_future()
        total = future.then(lambda future: future.value()[0].sum().item())
        if k % 2:
            total.wait()
        dist.destroy_process_group(group)
        del group
        totals.append(total)
    assert [total.wait() for total in totals] == [2000] * 6


@check
def errors():
    cpu, here = torch.ones(3), torch.ones(3, device="webgpu")
    # Gloo's own errors, before anything is sent.
    same_as_gloo(dist.all_reduce, values(3).to(torch.int16))
    same_as_gloo(lambda x, y: dist.all_gather([x, y[:1]], x), values(3), values(3))
    same_as_gloo(lambda x, y: dist.all_to_all_single(x, y, [1, 1], [2, 1]), values(3), values(3))
    same_as_gloo(lambda x, y: dist.reduce_scatter_tensor(x, y), values(3), values(3))
    with pytest.raises(RuntimeError, match="to be on one device"):
        dist.all_gather([here, cpu], here)
    with pytest.raises(RuntimeError, match="cannot be captured"):
        with torch.webgpu.graph(torch.webgpu.Graph()):
            dist.all_reduce(here)
    table = torch.ones(3, 2, device="webgpu")
    missing = torch.tensor([7], device="webgpu")
    with pytest.raises(IndexError):
        # The device's own error, which a collective that reads the result meets first.
        dist.all_reduce(F.embedding(missing, table), group=dist.group.WORLD)
    dist.all_reduce(here)
    assert here.tolist() == [2, 2, 2]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def batches(steps):
    numbers = torch.linspace(-1, 1, steps * 4 * 6).sin()
    return numbers.reshape(steps, 4, 6), numbers.mul(3).cos().reshape(steps, 4, 6)[..., :2]


def trained_alone(steps, accumulate=1):
    """The parameters of one process on the CPU that trains on everybody's part of each batch."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for k, (x, y) in enumerate(zip(*batches(steps), strict=True)):
        F.mse_loss(model(x), y).backward()
        if (k + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def part(x):
    return x.chunk(RANKS)[dist.get_rank()].to("webgpu")


def train(model, steps, accumulate=1):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for k, (x, y) in enumerate(zip(*batches(steps), strict=True)):
        ends = (k + 1) % accumulate == 0
        if accumulate > 1 and not ends:
            with model.no_sync():
                F.mse_loss(model(part(x)), part(y)).backward()
        else:
            F.mse_loss(model(part(x)), part(y)).backward()
        if ends:
            optimizer.step()
            optimizer.zero_grad()


@check
def data_parallel():
    for options in (
        {},
        {"bucket_cap_mb": 1e-4, "gradient_as_bucket_view": True},
        {"device_ids": [0], "output_device": 0, "static_graph": True},
        {"find_unused_parameters": True},
    ):
        model = network().to("webgpu")
        if dist.get_rank() == 1:
            with torch.no_grad():
                model[0].weight.zero_()  # rank 0's parameters are taken
        wrapped = nn.parallel.DistributedDataParallel(model, **options)
        train(wrapped, 3)
        for one, other in zip(model.parameters(), trained_alone(3), strict=True):
            assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6)
        if "timestamp-query" in torch.webgpu.get_device_properties().features:
            times = wrapped._get_ddp_logging_data()
            assert times["forward_compute_time"] > 0 and times["backward_compute_time"] > 0


class WordCounts(nn.Module):
    """Its gradients are sparse but for the last layer's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(11, 4, sparse=True)
        self.bags = nn.EmbeddingBag(11, 4, mode="sum", sparse=True)
        self.last = nn.Linear(4, 2)

    def forward(self, numbers):
        return self.last(self.words(numbers).sum(1) + self.bags(numbers))


@check
def data_parallel_with_sparse_gradients():
    numbers = torch.arange(4 * 3).mul(5).remainder(7).reshape(4, 3)
    for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        expected, model = WordCounts(), WordCounts().to("webgpu")
        wrapped = nn.parallel.DistributedDataParallel(model, **options)
        for network, all_numbers in ((expected, numbers), (wrapped, part(numbers))):
            sparse = [*network.parameters()][:2]
            optimizers = (
                torch.optim.SGD(sparse[:1], 0.1),
                torch.optim.SparseAdam(sparse[1:], 0.1),
                torch.optim.Adagrad([*network.parameters()][2:], 0.1),
            )
            for _ in range(3):
                network(all_numbers).square().mean().backward()
                assert all(parameter.grad.is_sparse for parameter in sparse)
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        for one, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


@check
def data_parallel_without_synchronization():
    model = nn.parallel.DistributedDataParallel(network().to("webgpu"))
    before = distributed.statistics()["collectives"]
    train(model, 4, accumulate=2)
    # One bucket in each of two steps of four backwards; after the first, processes agree on the
    # order of the parameters.
    assert distributed.statistics()["collectives"] - before <= 4
    for one, other in zip(model.parameters(), trained_alone(4, accumulate=2), strict=True):
        assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6)


@check
def backward_goes_on_while_buckets_are_reduced():
    model = network().to("webgpu")
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
    futures, reduced = [], []

    def reduce(_, bucket):
        work = dist.all_reduce(bucket.buffer().div_(RANKS), async_op=True)
        futures.append(work.get_future())
        return futures[-1].then(lambda future: future.value()[0])

    def wait_for_the_first_bucket(gradient):
        # The gradient of the first layer is the last that backward makes. Nobody waits for the
        # first bucket until then, so it is done here only if it is reduced beside.
        deadline = time.monotonic() + GROUP_SECONDS
        while futures and not futures[0].done() and time.monotonic() < deadline:
            time.sleep(1e-3)
        reduced.append([future.done() for future in futures])

    wrapped.register_comm_hook(None, reduce)
    (x,), (y,) = batches(1)
    F.mse_loss(wrapped(part(x)), part(y)).backward()  # has one bucket, and makes the others
    F.mse_loss(wrapped(part(x)), part(y)).backward()
    futures.clear()
    model[0].weight.register_hook(wait_for_the_first_bucket)
    before = distributed.statistics()
    F.mse_loss(wrapped(part(x)), part(y)).backward()
    assert len(futures) > 1
    assert reduced[0] and reduced[0][0], reduced
    assert len(reduced[0]) < len(futures), "the hook came after the last bucket"
    after = distributed.statistics()
    size = sum(parameter.nbytes for parameter in model.parameters())
    assert after["collectives"] - before["collectives"] == len(futures)
    for direction in ("bytes_read", "bytes_written"):
        assert after[direction] - before[direction] == size
    for step in ("reading", "communicating", "writing"):
        assert after[step] > before[step]


@check
def synchronized_batch_norm():
    def build(affine):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, affine=affine), nn.ReLU())

    x = torch.linspace(-2, 3, 3 * 2 * 4).sin().reshape(3, 2, 2, 2).add(1)
    own = x[:1] if dist.get_rank() == 0 else x[1:]  # unequal parts
    for affine in (True, False):
        expected = build(affine)
        synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(build(affine))
        model = nn.parallel.DistributedDataParallel(synchronized.to("webgpu"))
        # DDP takes means over the processes, of what is a sum here.
        (model(own.to("webgpu")).square().sum() * RANKS).backward()
        expected(x).square().sum().backward()
        for one, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
        for one, other in zip(model.buffers(), expected.buffers(), strict=True):
            assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6)


@check
def fully_sharded():
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = network().to("webgpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    train(model, 3)
    assert model[0].weight.to_local().shape == (4, 6)
    for one, other in zip(model.parameters(), trained_alone(3), strict=True):
        assert_close(one.full_tensor().cpu(), other, rtol=1e-5, atol=1e-6)

    # A checkpoint of shards, loaded into an unlike model by whoever has a part of it.
    directory = pathlib.Path(os.environ["CHECKPOINT"])
    state = get_model_state_dict(model)
    torch.distributed.checkpoint.save({"model": state}, checkpoint_id=directory)
    loaded = network().to("webgpu")
    with torch.no_grad():
        loaded[0].weight.zero_()
    whole = loaded.state_dict()
    torch.distributed.checkpoint.load({"model": whole}, checkpoint_id=directory)
    for one, other in zip(whole.values(), trained_alone(3), strict=True):
        assert one.device.type == "webgpu"
        assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6)

    narrow = network().to("webgpu")
    half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
    fully_shard(narrow, mp_policy=half)
    (x,), (y,) = batches(1)
    loss = F.mse_loss(narrow(part(x)).float(), part(y))
    loss.backward()
    expected = network()
    F.mse_loss(expected(x), y).backward()
    assert_close(
        narrow[0].weight.grad.full_tensor().cpu(), expected[0].weight.grad, rtol=2e-2, atol=2e-3
    )


@check
def fully_sharded_with_parameters_on_the_host():
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    def on_the_device(layer, inputs):
        assert layer.weight.device.type == inputs[0].device.type == "webgpu"

    for pinned, start in ((True, "webgpu"), (False, "cpu")):
        model, expected = network().to(start), network()
        policy = CPUOffloadPolicy(pin_memory=pinned)
        for layer in (model[0], model[2]):
            layer.register_forward_pre_hook(on_the_device)
            fully_shard(layer, offload_policy=policy)
        fully_shard(model, offload_policy=policy)
        train(model, 3)
        for one, other in zip(model.parameters(), trained_alone(3), strict=True):
            own = one.to_local()
            assert own.device.type == "cpu" and own.is_pinned() == pinned
            assert_close(one.full_tensor().cpu(), other, rtol=1e-5, atol=1e-6)
        expected.load_state_dict(dict(zip(expected.state_dict(), trained_alone(3), strict=True)))
        (x,), (y,) = batches(1)
        for _ in range(2):  # gradients are added on the host
            F.mse_loss(model(part(x)), part(y)).backward()
            F.mse_loss(expected(x), y).backward()
        norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.1) for each in (model, expected)]
        assert_close(norms[0].full_tensor().cpu(), norms[1], rtol=1e-4, atol=1e-6)
        for one, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert one.grad.to_local().device.type == "cpu"
            assert_close(one.grad.full_tensor().cpu(), other.grad, rtol=1e-4, atol=1e-6)


@check
def checkpoints_are_saved_beside():
    """What is saved is what was there at the call, or at the end of its copy."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.staging import DefaultStager
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
    from torch.distributed.fsdp import fully_shard

    thread, process = AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS
    for name, stager, kind in (
        ("copied by the call", None, thread),
        ("copied beside", DefaultStager(), thread),
        ("saved by a process", None, process),
    ):
        model = network().to("webgpu")
        fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters())
        (x,), (y,) = batches(1)
        F.mse_loss(model(part(x)), part(y)).backward()
        optimizer.step()
        of_model, of_optimizer = get_state_dict(model, optimizer)
        plain = {str(dtype): torch.arange(5).to(dtype) for dtype in DTYPES}
        on_device = {key: tensor.to("webgpu") for key, tensor in plain.items()}
        expected = [parameter.full_tensor().cpu() for parameter in model.parameters()]
        moments = [optimizer.state[p]["exp_avg"].full_tensor().cpu() for p in model.parameters()]

        directory = pathlib.Path(os.environ["CHECKPOINT"], name)
        saved = checkpoint.async_save(
            {"model": of_model, "optimizer": of_optimizer, "plain": on_device},
            checkpoint_id=directory,
            async_stager=stager,
            async_checkpointer_type=kind,
        )
        if stager is not None:
            saved.staging_completion.result()
            saved = saved.upload_completion
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
                optimizer.state[parameter]["exp_avg"].zero_()
        for tensor in on_device.values():
            tensor.zero_()
        saved.result()
        if stager is not None:
            stager.close()

        checkpoint.load(
            {"model": of_model, "optimizer": of_optimizer, "plain": on_device},
            checkpoint_id=directory,
        )
        for parameter, values_of_it, moment in zip(
            model.parameters(), expected, moments, strict=True
        ):
            assert_close(parameter.full_tensor().cpu(), values_of_it, rtol=0, atol=0)
            exp_avg = optimizer.state[parameter]["exp_avg"]
            assert exp_avg.device.type == "webgpu" and moment.abs().max() > 0
            assert_close(exp_avg.full_tensor().cpu(), moment, rtol=0, atol=0)
        for key, tensor in on_device.items():
            assert_close(tensor.cpu(), plain[key], rtol=0, atol=0)


@check
def distributed_tensors():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("webgpu", (RANKS,))
    a = torch.linspace(-1, 1, 24).reshape(6, 4)
    b = torch.linspace(1, 2, 12).reshape(4, 3)
    rows = distribute_tensor(a.to("webgpu"), mesh, [Shard(0)])
    whole = distribute_tensor(b.to("webgpu"), mesh, [Replicate()])
    product = rows @ whole
    assert product.placements == (Shard(0),)
    assert_close(product.full_tensor().cpu(), a @ b)
    # The inner dimension is spread, so that each process has a summand.
    partial = distribute_tensor(a.to("webgpu"), mesh, [Shard(1)]) @ distribute_tensor(
        b.to("webgpu"), mesh, [Shard(0)]
    )
    assert partial.placements == (Partial(),)
    assert_close(partial.redistribute(mesh, [Shard(0)]).full_tensor().cpu(), a @ b)
    columns = rows.redistribute(mesh, [Shard(1)])
    assert columns.to_local().shape == (6, 2)
    assert_close(columns.full_tensor().cpu(), a)

    # Layers that are spread over the processes, with gradients that cross them.
    model, expected = network().to("webgpu"), network()
    styles = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, mesh, styles)
    (x,), _ = batches(1)
    model(x.to("webgpu")).square().sum().backward()
    expected(x).square().sum().backward()
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        gradient = one.grad.full_tensor() if isinstance(one.grad, DTensor) else one.grad
        assert_close(gradient.cpu(), other.grad, rtol=1e-4, atol=1e-6)


@check
def a_message_that_does_not_come():
    # Gloo closes the connection then, so this is a group of its own.
    group = dist.new_group()
    x = torch.zeros(2, device="webgpu")
    if dist.get_rank() == 0:
        work = dist.irecv(x, 1, group=group, tag=99)
        with pytest.raises(RuntimeError, match="Timed out"):
            work.wait(datetime.timedelta(milliseconds=50))
        with pytest.raises(RuntimeError, match="timeout"):
            dist.all_reduce(x, group=group)
    dist.all_reduce(x)


@check
def a_process_that_ends():
    x = torch.ones(4, device="webgpu")
    if dist.get_rank() == 1:
        return  # from the last check
    works = [dist.all_reduce(x, async_op=True) for _ in range(2)]
    for work in works:
        with pytest.raises(RuntimeError, match=r"Connection closed|Connection reset|Broken pipe"):
            work.wait()
    assert x.tolist() == [1, 1, 1, 1]


def main():
    results = pathlib.Path(os.environ["RESULTS"])
    dist.init_process_group(timeout=datetime.timedelta(seconds=GROUP_SECONDS))
    rank = dist.get_rank()
    report = {}
    for name, function in CHECKS.items():
        start = time.monotonic()
        try:
            function()
        except BaseException:
            # The others wait for this process, or communicate out of step.
            report[name] = traceback.format_exc()
            break
        finally:
            report.setdefault(name, "")
            print(f"rank {rank}: {name}: {time.monotonic() - start:.2f} s", flush=True)
    (results / f"{rank}.json").write_text(json.dumps(report))
    if rank == 1:
        os._exit(0)  # a_process_that_ends
    # Nothing is destroyed: a program that just ends must end.


# ---- Tests


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What each process reported, by its rank, and the output of all."""
    results = tmp_path_factory.mktemp("results")
    process = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nproc-per-node", str(RANKS), "--standalone", __file__),
        ],
        env={
            **os.environ,
            "RESULTS": str(results),
            "CHECKPOINT": str(tmp_path_factory.mktemp("checkpoint")),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
    )
    reports = {}
    for rank in range(RANKS):
        path = results / f"{rank}.json"
        reports[rank] = json.loads(path.read_text()) if path.exists() else {}
    return process, reports


def test_a_barrier_starts_no_device(check_python):
    check_python(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.barrier(device_ids=[0])\n"
        "assert not torch.webgpu.is_initialized()\n"
        "dist.destroy_process_group()\n"
    )


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_a_split_of_a_later_group(check_python, level):
    """Under DETAIL, what checks collectives stands between the group and its backends."""
    check_python(
        "import torch, torch.distributed as dist\n"
        "from torch_webgpu import distributed\n"
        "for repeat in range(2):\n"
        "    dist.init_process_group(\n"
        "        f'cpu:gloo,webgpu:{distributed.BACKEND}', store=dist.HashStore(), rank=0,\n"
        "        world_size=1, device_id=torch.device('webgpu', 0))\n"
        "    part = dist.split_group(split_ranks=[[0]])\n"
        "    of_cpu = dist.group.WORLD._get_backend(torch.device('cpu'))\n"
        "    gloo = getattr(of_cpu, 'wrapped_pg', of_cpu)\n"
        f"    assert (gloo is not of_cpu) == {level == 'DETAIL'}\n"
        "    assert gloo.options.global_ranks_in_group == [0]\n"
        "    for device in ('cpu', 'webgpu'):\n"
        "        x = torch.ones(2, device=device)\n"
        "        dist.all_reduce(x, group=part)\n"
        "        assert x.tolist() == [1, 1]\n"
        "    dist.destroy_process_group()\n",
        env={"TORCH_DISTRIBUTED_DEBUG": level},
    )


@pytest.mark.parametrize("name", CHECKS)
def test_two_processes(run, name):
    process, reports = run
    for rank, report in reports.items():
        if name not in report:
            pytest.fail(f"rank {rank} did not come so far:\n{process.stdout[-4000:]}")
        assert not report[name], f"rank {rank}:\n{report[name]}"


def test_processes_end_well(run):
    process, _ = run
    assert process.returncode == 0, process.stdout[-4000:]


if __name__ == "__main__":
    main()
