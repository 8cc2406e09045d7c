"""torch.webgpu: the functions a user of torch.cuda expects."""

import dataclasses
import sys

import pytest
import torch

import torch_webgpu


def test_the_module_is_part_of_torch():
    import torch.webgpu.memory as memory

    assert sys.modules["torch.webgpu"] is torch.webgpu
    assert sys.modules["torch.webgpu.memory"] is memory
    assert memory.memory_allocated is torch.webgpu.memory_allocated
    assert all(hasattr(torch.webgpu, name) for name in torch.webgpu.__all__)
    documented = [getattr(torch.webgpu, name) for name in torch.webgpu.__all__]
    assert all(thing.__doc__ for thing in documented if callable(thing))


def test_availability():
    assert torch.webgpu.is_available()
    assert torch.webgpu.device_count() == 1
    assert torch.webgpu.current_device() == 0
    torch.webgpu.init()
    assert torch.webgpu.is_initialized()


def test_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("webgpu")
    assert torch.accelerator.device_count() == 1
    assert torch.get_device_module("webgpu") is torch.webgpu
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device == torch.device("webgpu", 0)


def test_properties():
    properties = torch.webgpu.get_device_properties()
    assert properties.name == torch.webgpu.get_device_name("webgpu:0") != ""
    assert properties.backend
    assert properties.type in ("discrete", "integrated", "software")
    assert properties.name in properties.adapter
    assert properties.limits["max_buffer_size"] >= 1 << 28
    assert properties.limits["max_storage_buffers"] >= 8
    assert properties.name in [adapter["name"] for adapter in torch.webgpu.list_adapters()]
    with pytest.raises(dataclasses.FrozenInstanceError):
        properties.name = "another"


def test_amp():
    assert set(torch.webgpu.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16}
    assert torch.webgpu.is_bf16_supported()
    assert not torch.webgpu.is_bf16_supported(including_emulation=False)
    assert torch.amp.is_autocast_available("webgpu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_lowers_and_raises_precision(dtype):
    a = torch.ones(4, 4).webgpu()
    with torch.autocast("webgpu", dtype=dtype):
        product = a @ a
        assert product.dtype == dtype
        assert product.sum().dtype == torch.float32
    assert (a @ a).dtype == torch.float32


def test_cmake_package_is_found():
    assert (
        torch_webgpu._torch_versions._PACKAGE / "share/cmake/TorchWebGPU/TorchWebGPUConfig.cmake"
    ).exists()
    assert torch_webgpu.cmake_prefix_path.endswith("share/cmake")


def test_streams_are_the_one_stream():
    stream = torch.webgpu.Stream()
    assert stream == torch.webgpu.current_stream() == torch.webgpu.default_stream()
    x = torch.ones(3).webgpu()
    with torch.webgpu.stream(stream):
        y = x.clone()
    stream.wait_stream(torch.webgpu.current_stream())
    stream.synchronize()
    assert stream.query()
    y.record_stream(stream)
    assert y.tolist() == [1, 1, 1]


def test_events_tell_when_they_are_reached():
    event = torch.webgpu.Event()
    assert event.query()  # never recorded
    x = torch.ones(1000).webgpu()
    x.view(10, 100).t().contiguous()
    event.record()
    event.wait()
    event.synchronize()
    assert event.query()
    assert isinstance(event, torch.Event)


def test_elapsed_time_is_device_time_in_milliseconds():
    start, end = (torch.webgpu.Event(enable_timing=True) for _ in range(2))
    x = torch.ones(500, 400).webgpu()
    x.t().contiguous()
    start.record()
    for _ in range(20):
        x.t().contiguous()
    end.record()
    with torch.webgpu.profile() as profile:
        x.t().contiguous()
    (entry,) = profile.entries
    elapsed = start.elapsed_time(end)
    assert 20 * entry.duration_ns * 1e-6 / 50 < elapsed < 60_000
    assert end.elapsed_time(start) == pytest.approx(-elapsed)


def test_elapsed_time_wants_timing():
    events = [torch.webgpu.Event() for _ in range(2)]
    for event in events:
        event.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        events[0].elapsed_time(events[1])
    with pytest.raises(NotImplementedError):
        torch.webgpu.Event(interprocess=True)
