"""What an op costs in commands: the device did the work, and did it without waste."""

import time

import torch
from counted import Counted


def test_add_is_one_dispatch_and_one_allocation():
    a, b = torch.ones(100).webgpu(), torch.ones(100).webgpu()
    with Counted() as count:
        c = a + b
    assert (count.dispatches, count.allocations, count.readbacks) == (1, 1, 0)
    assert torch.equal(c.cpu(), torch.full((100,), 2.0))


def test_add_in_place_is_one_dispatch_and_no_allocation():
    x = torch.zeros(100).webgpu()
    with Counted() as count:
        x.add_(1)
    assert (count.dispatches, count.allocations, count.uploads) == (1, 0, 0)
    assert torch.equal(x.cpu(), torch.ones(100))


def test_strided_copy_is_one_dispatch():
    x = torch.arange(12.0).view(3, 4).webgpu()
    with Counted() as count:
        y = x.t().contiguous()
    assert (count.dispatches, count.allocations) == (1, 1)
    assert torch.equal(y.cpu(), x.cpu().t())


def test_views_and_metadata_cost_nothing():
    x = torch.arange(12.0).view(3, 4).webgpu()
    with Counted() as count:
        x.t()[1:].reshape(3, 3).unsqueeze(0).expand(5, 3, 3)
        x.unfold(0, 2, 1)
    assert (count.dispatches, count.copies, count.allocations, count.submits) == (0, 0, 0, 0)


def test_upload_and_readback_are_one_each():
    host = torch.arange(1000)
    with Counted() as count:
        device = host.webgpu()
    assert (count.uploads, count.dispatches, count.allocations) == (1, 0, 1)
    with Counted() as count:
        back = device.cpu()
    assert (count.readbacks, count.dispatches) == (1, 0)
    assert torch.equal(back, host)


def test_pipelines_are_reused():
    x = torch.arange(12.0).view(3, 4).webgpu()
    x.t().contiguous()
    with Counted() as count:
        for _ in range(10):
            x.t().contiguous()
    assert (count.dispatches, count.pipelines) == (10, 0)


def test_commands_are_batched():
    x = torch.zeros(16).webgpu()
    torch.webgpu.synchronize()
    with Counted() as count:
        for _ in range(256):
            x.add_(1)
        torch.webgpu.synchronize()
    assert count.dispatches == 256
    assert count.submits <= 256 // 16 + 1
    assert torch.equal(x.cpu(), torch.full((16,), 256.0))


def test_profile_measures_each_dispatch():
    x = torch.arange(1200.0).view(30, 40).webgpu()
    with torch.webgpu.profile() as profile:
        x.t().contiguous()
        x.t().contiguous()
    assert len(profile.entries) == 2
    assert profile.entries[0].name == profile.entries[1].name
    assert profile.entries[0].end_ns <= profile.entries[1].start_ns
    assert all(entry.duration_ns > 0 for entry in profile.entries)
    (count, _), *_ = profile.by_name().values()
    assert count == 2
    assert profile.entries[0].name in str(profile)


def test_a_slow_program_does_not_leave_the_device_idle():
    """Commands that waited for long are submitted though they are few."""
    x = torch.zeros(100).webgpu()
    torch.webgpu.synchronize()
    with Counted() as count:
        x.add_(1)
        time.sleep(0.05)
        for _ in range(4):
            x.add_(1)
    assert (count.dispatches, count.submits) == (5, 1)
    assert torch.equal(x.cpu(), torch.full((100,), 5.0))
