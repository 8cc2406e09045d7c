"""Tensors live in WebGPU buffers of the pool, and the counters tell the truth about them."""

import gc
import itertools
import queue
import sys
import threading

import pytest
import torch

from torch_webgpu import _C

KIB = 1024


@pytest.fixture(autouse=True)
def clean_pool():
    gc.collect()
    torch.webgpu.synchronize()
    torch.webgpu.empty_cache()
    torch.webgpu.reset_peak_memory_stats()


def counters() -> dict[str, int]:
    return torch.webgpu.memory_stats()


def test_a_tensor_is_one_buffer():
    before = counters()
    tensor = torch.empty(5 * KIB, dtype=torch.uint8, device="webgpu")
    after = counters()
    assert after["segment.all.allocated"] - before["segment.all.allocated"] == 1
    assert after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] == 5 * KIB
    assert after["reserved_bytes.all.current"] > before["reserved_bytes.all.current"]
    assert tensor.data_ptr() != 0


def test_an_op_allocates_its_result_only():
    source = torch.ones(64, 3).webgpu()
    before = counters()["allocation.all.allocated"]
    result = source.t().contiguous()
    assert counters()["allocation.all.allocated"] - before == 1
    assert torch.equal(result.cpu(), torch.ones(3, 64))


def test_views_allocate_nothing():
    base = torch.ones(4, 6).webgpu()
    before = counters()["allocation.all.allocated"]
    views = [base[1:], base.t(), base.view(2, 12), base.unfold(1, 2, 2), base.view(torch.int32)]
    assert counters()["allocation.all.allocated"] == before
    assert all(
        view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr() for view in views
    )


def test_freed_buffers_are_used_again():
    tensor = torch.empty(100 * KIB, device="webgpu")
    address = tensor.data_ptr()
    before = counters()["segment.all.allocated"]
    del tensor
    again = torch.empty(100 * KIB, device="webgpu")
    assert again.data_ptr() == address
    assert counters()["segment.all.allocated"] == before


def test_live_tensors_never_share_an_address():
    tensors = [torch.empty(size, device="webgpu") for size in (1, 3, 1000, 1000, 5 * KIB)]
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))


def test_peak_and_reset():
    base = torch.webgpu.memory_allocated()
    tensor = torch.empty(64 * KIB, dtype=torch.uint8, device="webgpu")
    del tensor
    assert torch.webgpu.memory_allocated() == base
    assert torch.webgpu.max_memory_allocated() == base + 64 * KIB
    torch.webgpu.reset_peak_memory_stats()
    assert torch.webgpu.max_memory_allocated() == base


def test_empty_cache_gives_memory_back():
    tensor = torch.empty(256 * KIB, dtype=torch.uint8, device="webgpu")
    held = torch.webgpu.memory_reserved()
    del tensor
    assert torch.webgpu.memory_reserved() == held
    torch.webgpu.empty_cache()
    assert held - torch.webgpu.memory_reserved() >= 256 * KIB


def test_rounding_wastes_at_most_an_eighth():
    for size in (1000 * KIB, 1025 * KIB, 1 + 3 * 1024 * KIB):
        torch.webgpu.empty_cache()
        before = torch.webgpu.memory_reserved()
        tensor = torch.empty(size, dtype=torch.uint8, device="webgpu")
        assert torch.webgpu.memory_reserved() - before <= size * 1.126
        del tensor


def test_empty_tensors_need_no_buffer():
    before = counters()["allocation.all.allocated"]
    tensor = torch.empty(0, 3, device="webgpu")
    assert counters()["allocation.all.allocated"] == before
    assert tensor.cpu().shape == (0, 3)
    assert tensor.clone().t().shape == (3, 0)


def test_out_of_memory_is_an_error_that_passes():
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate .*MiB"):
        torch.empty(1 << 44, dtype=torch.uint8, device="webgpu")
    assert torch.ones(3).webgpu().tolist() == [1, 1, 1]


def test_accelerator_agrees():
    tensor = torch.empty(3 * KIB, device="webgpu")
    assert torch.accelerator.memory_allocated() == torch.webgpu.memory_allocated() >= tensor.nbytes
    assert torch.accelerator.max_memory_reserved() == torch.webgpu.max_memory_reserved()
    stats = torch.accelerator.memory_stats()
    assert stats["segment.all.allocated"] == counters()["segment.all.allocated"]


def test_summary():
    tensor = torch.empty(5 << 20, dtype=torch.uint8, device="webgpu")
    allocated = torch.webgpu.memory_allocated()
    rows = {line[:22].strip(): line[22:].split() for line in summary().splitlines()}
    number, unit = rows["allocated by tensors"][:2]
    shown = float(number) * {"KiB": KIB, "MiB": KIB**2, "GiB": KIB**3}[unit]
    assert shown == pytest.approx(allocated, rel=0.05)
    assert {"reserved", "free", "total", "held by graphs", "out of memory"} <= rows.keys()
    assert int(rows["allocations"][1].replace(",", "")) == counters()["allocation.all.allocated"]
    assert "allocations" not in summary(abbreviated=True)
    assert torch.webgpu.get_device_name() in summary()
    del tensor


def summary(**options):
    return torch.webgpu.memory_summary("webgpu:0", **options)


def test_memory_of_the_device():
    free, total = torch.webgpu.mem_get_info()
    assert 0 < free <= total
    properties = torch.webgpu.get_device_properties()
    assert properties.total_memory == total
    assert isinstance(properties.total_memory_is_estimated, bool)
    assert torch.accelerator.get_memory_info()[1] == total
    assert torch.accelerator.get_memory_info(0)[0] <= total
    assert torch.webgpu.mem_get_info("webgpu:0")[1] == torch.webgpu.mem_get_info(0)[1] == total
    with pytest.raises(RuntimeError, match="invalid device ordinal 3"):
        torch.webgpu.mem_get_info(3)


def test_reserved_memory_is_not_free():
    torch.webgpu.empty_cache()
    free, total = torch.webgpu.mem_get_info()
    tensor = torch.zeros(64 << 20, dtype=torch.uint8, device="webgpu")
    torch.webgpu.synchronize()
    assert torch.webgpu.mem_get_info()[0] <= total - torch.webgpu.memory_reserved()
    assert torch.webgpu.memory_reserved() >= tensor.nbytes
    assert free <= total


def test_memory_where_the_runtime_does_not_tell(check_python):
    """wgpu-native lists no memory heaps: the number is an estimate, and says so."""
    pytest.importorskip("wgpu", reason="the wgpu package is optional")
    check_python(
        "import torch\n"
        "properties = torch.webgpu.get_device_properties()\n"
        "assert properties.total_memory_is_estimated\n"
        "free, total = torch.webgpu.mem_get_info()\n"
        "assert 0 < free <= total == properties.total_memory\n"
        "assert '(estimated)' in torch.webgpu.memory_summary()\n",
        env={"TORCH_WEBGPU_RUNTIME": "wgpu"},
    )


def test_capability():
    assert torch.webgpu.get_device_capability() == torch.webgpu.get_device_capability(0) == (1, 0)
    assert torch.float16 in torch.accelerator.get_device_capability()["supported_dtypes"]


# A new process reads how many pages it holds. In a process that holds much, the C library may place
# the memory in a gap of its heap, which it does not return.
RESIDENT_BYTES = (
    "import resource, torch, torch_webgpu\n"
    "def resident_bytes():\n"
    "    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()\n"
)


@pytest.mark.skipif(
    torch.webgpu.get_device_properties().type != "software" or sys.platform != "linux",
    reason="only a software adapter keeps tensors in the process's own memory",
)
def test_empty_cache_returns_the_memory_itself(check_python):
    check_python(
        RESIDENT_BYTES + "size = 128 << 20\n"
        "tensor = torch.ones(size, dtype=torch.uint8, device='webgpu')\n"
        "tensor.add_(1)\n"
        "torch.webgpu.synchronize()\n"
        "full = resident_bytes()\n"
        "del tensor\n"
        "torch.webgpu.empty_cache()\n"
        "freed = full - resident_bytes()\n"
        "assert freed > 0.9 * size, freed\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="limits the process's memory as Linux does")
def test_memory_that_was_freed_can_be_allocated_again(check_python):
    # The limit of the process stands in for a device with little memory. No operator runs between
    # the allocations: nothing but the allocator itself makes the driver let go of what was freed.
    check_python(
        "import resource, torch, torch_webgpu\n"
        "def empty(mebibytes):\n"
        "    return torch.empty(mebibytes << 20, dtype=torch.uint8, device='webgpu')\n"
        "empty(1)\n"
        "torch.webgpu.synchronize()\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        # Each tensor also reserves addresses of its size.
        "resource.setrlimit(resource.RLIMIT_AS, (used + 1300 * 2**20, resource.RLIM_INFINITY))\n"
        "for size in (400, 410, 450, 460, 500):\n"
        "    tensor = empty(size)\n"
        "    del tensor\n"
        "smaller = [empty(64) for _ in range(6)]\n"
        "assert all(t.fill_(7)[-1].item() == 7 for t in smaller)\n"
        "del smaller\n"
        "tensor = empty(500)\n"
        "del tensor\n"
        "torch.webgpu.empty_cache()\n"
        "torch.webgpu.synchronize()\n"
        "assert empty(500).fill_(1)[-1].item() == 1\n"
        "try:\n"
        "    empty(100_000)\n"
        "except torch.OutOfMemoryError:\n"
        "    pass\n"
        "assert empty(500).fill_(2)[-1].item() == 2\n"
    )


has_host_cache = pytest.mark.skipif(
    not hasattr(torch.accelerator, "empty_host_cache"),
    reason="this torch has no torch.accelerator.empty_host_cache",
)


@has_host_cache
def test_pinned_memory_is_used_again():
    torch.accelerator.empty_host_cache()
    first = torch.empty(1 << 20, pin_memory=True)
    address = first.data_ptr()
    other = torch.empty(1 << 20, pin_memory=True)
    assert other.data_ptr() != address
    del first
    smaller = torch.empty((1 << 20) - 5, pin_memory=True)  # of the same size class
    assert smaller.data_ptr() == address and smaller.is_pinned()
    assert smaller[5:].is_pinned() and not torch.empty(3).is_pinned()
    assert torch.empty(0, pin_memory=True).is_pinned() == torch.empty(0).is_pinned()


@has_host_cache
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of the process")
def test_empty_host_cache_returns_the_memory(check_python):
    check_python(
        RESIDENT_BYTES + "pinned = torch.ones(64 << 20, dtype=torch.uint8).pin_memory()\n"
        "device = pinned.to('webgpu', non_blocking=True)\n"
        "torch.webgpu.synchronize()\n"
        "held = resident_bytes()\n"
        "del pinned\n"
        "kept = resident_bytes()\n"
        "assert kept > held - (16 << 20), (held, kept)\n"
        "torch.accelerator.empty_host_cache()\n"
        "left = resident_bytes()\n"
        "assert left < held - (48 << 20), (held, left)\n"
        "assert device.sum().item() == 64 << 20\n"
    )


# Copies of at least 256 KiB from and to pinned memory are the device's, where it can use memory of
# the host.
direct = pytest.mark.skipif(
    "host-mapped-pointer" not in torch.webgpu.get_device_properties().features,
    reason="the device cannot use memory of the host",
)


def host_copies() -> int:
    """How many copies from and to host memory the device has done itself."""
    return int(_C.stream_stats()["host_copies"])


def used(pinned: torch.Tensor) -> torch.Tensor:
    """The pinned tensor, after so many copies that the device does the next ones itself."""
    for _ in range(2):
        on_device = pinned.to("webgpu", non_blocking=True)
        pinned.copy_(on_device)
    return pinned


def test_pinned_memory_may_be_written_after_a_blocking_upload():
    pinned = torch.full((300_000,), 1.0).pin_memory()
    uploads = []
    for value in range(5):
        pinned.fill_(value)
        uploads.append(pinned.to("webgpu"))
    assert [upload.mean().item() for upload in uploads] == [0, 1, 2, 3, 4]


@direct
def test_pinned_memory_may_be_written_once_its_upload_has_finished():
    pinned = used(torch.full((300_000,), 1.0).pin_memory())
    uploads = []
    copies = host_copies()
    for value in range(5):
        pinned.fill_(value)
        uploads.append(pinned.to("webgpu", non_blocking=True))
        if value % 2:
            torch.webgpu.synchronize()
        else:
            event = torch.Event("webgpu")
            event.record()
            event.synchronize()
    assert host_copies() == copies + 5
    assert [upload.mean().item() for upload in uploads] == [0, 1, 2, 3, 4]


@direct
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.complex64])
@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("extra", [0, 1, 2, 3])
def test_copies_of_views_of_pinned_memory(dtype, offset, extra):
    values = torch.randint(0, 100, (1_000_000,)).to(dtype).pin_memory()
    used(values)
    view = values[offset : offset + 400_000 + extra]
    is_whole = offset * dtype.itemsize % 4 == 0  # a device copies whole words
    copies = host_copies()
    uploaded = view.to("webgpu", non_blocking=True)
    assert host_copies() == copies + is_whole
    assert torch.equal(uploaded.cpu(), view)
    # A part of a larger tensor, between elements that stay.
    large = torch.full((1_000_000,), 7, dtype=dtype, device="webgpu")
    large[offset : offset + len(view)].copy_(view, non_blocking=True)
    expected = torch.full((1_000_000,), 7, dtype=dtype)
    expected[offset : offset + len(view)] = view
    assert torch.equal(large.cpu(), expected)
    # And back.
    back = used(torch.full((1_000_000,), 5, dtype=dtype).pin_memory())
    copies = host_copies()
    back[offset : offset + len(view)].copy_(uploaded)
    assert host_copies() == copies + is_whole
    expected.fill_(5)
    expected[offset : offset + len(view)] = view
    assert torch.equal(back, expected)


@direct
def test_copies_that_convert_or_rearrange_pinned_memory():
    values = used(torch.randn(700, 500).pin_memory())
    copies = host_copies()
    for source in (values.t(), values[:, ::2], values[::3]):
        assert torch.equal(source.to("webgpu", non_blocking=True).cpu(), source)
        back = torch.zeros(700, 700)
        target = back[: source.size(0), : source.size(1)]
        assert torch.equal(target.copy_(source.to("webgpu")), source)
    half = torch.zeros(700, 500, dtype=torch.float16, device="webgpu")
    assert torch.equal(half.copy_(values, non_blocking=True).cpu(), values.half())
    assert host_copies() == copies + 1  # of values.t(), which lies like its upload
    transposed = torch.empty(500, 700, device="webgpu").copy_(values.t())
    assert torch.equal(values.copy_(transposed.t() + 1), transposed.cpu().t() + 1)


@direct
@has_host_cache
def test_pinned_memory_is_handed_out_again_once_the_device_has_read_it():
    torch.accelerator.empty_host_cache()
    blocks = [used(torch.zeros(1 << 20).pin_memory()) for _ in range(4)]
    addresses = {block.data_ptr() for block in blocks}
    del blocks
    square = torch.ones(600, 600, device="webgpu")
    uploads = []
    copies = host_copies()
    for value in range(4):
        product = square @ square  # keeps the device from reading the memory for a while
        pinned = torch.full((1 << 20,), float(value)).pin_memory()
        assert pinned.data_ptr() in addresses
        uploads.append(pinned.to("webgpu", non_blocking=True))
        del pinned
    assert host_copies() == copies + 4
    assert [upload.mean().item() for upload in uploads] == [0, 1, 2, 3]
    assert product[0, 0].item() == 600
    again = [torch.empty(1 << 20, pin_memory=True) for _ in addresses]
    assert {tensor.data_ptr() for tensor in again} == addresses


@has_host_cache
def test_memory_that_a_thread_pins_while_others_wait_for_the_device_does_not_grow():
    def pin(batches):
        for value in range(40):
            batches.put(torch.full((1 << 18,), float(value)).pin_memory())

    torch.accelerator.empty_host_cache()
    batches = queue.Queue(2)
    blocks = torch.webgpu.host_memory_stats()["allocations.current"]
    thread = threading.Thread(target=pin, args=(batches,))
    thread.start()
    square = torch.ones(200, 200, device="webgpu")
    for value in range(40):
        uploaded = batches.get(timeout=60).to("webgpu", non_blocking=True)
        total = (square @ square).sum() + uploaded.sum()
        assert total.item() == 200**3 + value * (1 << 18)
    thread.join()
    assert torch.webgpu.host_memory_stats()["allocations.current"] - blocks <= 8


@direct
def test_an_upload_reads_before_a_readback_into_the_same_memory():
    pinned = used(torch.zeros(1 << 20).pin_memory())
    other = torch.full((1 << 20,), 5.0, device="webgpu")
    square = torch.ones(400, 400, device="webgpu")
    for value in range(3):
        pinned.fill_(value)
        product = square @ square
        uploaded = pinned.to("webgpu", non_blocking=True)
        pinned.copy_(other)
        assert pinned.unique().tolist() == [5]
        assert uploaded.unique().tolist() == [value]
    assert product[0, 0].item() == 400


@direct
def test_an_error_of_a_kernel_is_raised_by_a_readback_into_pinned_memory():
    values = torch.arange(300_000, dtype=torch.float32, device="webgpu")
    pinned = used(torch.zeros(300_000).pin_memory())
    values[torch.tensor([300_000], device="webgpu")]
    copies = host_copies()
    with pytest.raises(IndexError, match="out of bounds"):
        pinned.copy_(values)
    assert host_copies() == copies + 1
    assert torch.equal(pinned.copy_(values), torch.arange(300_000, dtype=torch.float32))


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA pins what is created so")
def test_too_much_pinned_memory():
    with pytest.raises(RuntimeError, match="cannot allocate 1152921504606846976 bytes of pinned"):
        torch.empty(1 << 60, dtype=torch.uint8, pin_memory=True)
    assert torch.ones(3, pin_memory=True).is_pinned()


def test_figures_of_pinned_memory():
    before = torch.webgpu.host_memory_stats()
    pinned = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    held = torch.webgpu.host_memory_stats()
    assert held["active_requests.current"] == before["active_requests.current"] + 1
    assert 5000 <= held["active_bytes.current"] - before["active_bytes.current"] <= 8192
    del pinned
    after = torch.webgpu.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"]
    assert after["active_bytes.peak"] >= held["active_bytes.current"]
    assert after["allocated_bytes.current"] == held["allocated_bytes.current"]
    assert after["num_host_alloc"] == after["allocations.allocated"]
    torch.webgpu.reset_peak_host_memory_stats()
    torch.webgpu.reset_accumulated_host_memory_stats()
    reset = torch.webgpu.host_memory_stats()
    assert reset["active_bytes.peak"] == reset["active_bytes.current"]
    assert reset["num_host_alloc"] == reset["host_alloc_time.count"] == 0
    assert torch.webgpu.host_memory_stats_as_nested_dict()["active_bytes"]["allocated"] == 0


@has_host_cache
def test_the_host_allocator_of_the_accelerator():
    torch.ones(3, device="webgpu")
    torch.accelerator.empty_host_cache()
    pinned = torch.ones(1024).pin_memory()
    assert pinned.is_pinned()
    torch.accelerator.empty_host_cache()
    assert torch.equal(pinned.to("webgpu", non_blocking=True).cpu(), pinned)


def test_steps_of_a_loop_find_the_buffers_of_the_last():
    """Each step needs other sizes first than last, and more buffers in all than at its peak."""

    def step():
        for size, count in ((24 << 20, 12), (30 << 20, 4)):
            tensors = [torch.empty(size, dtype=torch.uint8, device="webgpu") for _ in range(count)]
            del tensors

    torch.webgpu.empty_cache()
    for _ in range(12):
        step()
    before = counters()["segment.all.allocated"]
    for _ in range(3):
        step()
    assert counters()["segment.all.allocated"] == before
    torch.webgpu.empty_cache()
