"""The names of torch.cuda: each is in torch.webgpu, or left out for a reason that stands here."""

import copy
import gc
import types
import warnings

import pytest
import torch

LEFT_OUT = {
    # What CUDA is made of, and other makers' tools.
    "CudaError": "cudart",
    "cudart": "cudart",
    "cudaStatus": "cudart",
    "check_error": "cudart",
    "current_blas_handle": "cuBLAS",
    "current_solver_handle": "cuSOLVER",
    "has_magma": "MAGMA",
    "nccl": "NCCL; torch.distributed takes Gloo",
    "gds": "cuFile",
    "jiterator": "CUDA C++; torch.webgpu.compile_shader takes WGSL",
    "nvtx": "the ranges of NVIDIA's profilers; torch.profiler.record_function marks ranges",
    "get_arch_list": "nvcc",
    "get_gencode_flags": "nvcc",
    "PYTORCH_RELEASES_CODE_CC": "nvcc",
    "DEVICE_REQUIREMENT": "nvcc",
    "DeferredCudaCallError": "of CUDA's lazy start",
    "AcceleratorError": "never raised: errors of the device are RuntimeError and IndexError",
    # One name stands for another.
    "CUDAGraph": "torch.webgpu.Graph",
    "Device": "of annotations",
    "has_half": "always True",
    "is_tf32_supported": "of CUDA's tensor cores; torch.set_float32_matmul_precision is the switch",
    # What WebGPU does not tell, or has not.
    "clock_rate": "not told",
    "device_memory_used": "not told",
    "list_gpu_processes": "not told",
    "memory_usage": "not told",
    "power_draw": "not told",
    "temperature": "not told",
    "utilization": "not told",
    "ExternalStream": "one stream for each device, which is PyTorch's own",
    "get_stream_from_external": "one stream for each device, which is PyTorch's own",
    "GreenContext": "a device cannot be divided",
    "green_contexts": "a device cannot be divided",
    "get_sync_debug_mode": "copies to the host are not watched",
    "set_sync_debug_mode": "copies to the host are not watched",
    # Of CUDA's graphs, from torch 2.14 on.
    "export_dot": "cudart's picture of a graph; torch.webgpu.Graph.save writes a file",
    "export_graph_data": "cudart's nodes of a graph; torch.webgpu.Graph.save writes a file",
    "graph_annotations": "numbers of nodes that NVIDIA's profilers show",
    # Of CUDA's allocator.
    "CUDAPluggableAllocator": "the pool cannot be replaced",
    "caching_allocator_alloc": "a buffer has no address",
    "caching_allocator_delete": "a buffer has no address",
    "caching_allocator_disabled": "the pool cannot be replaced",
    "caching_allocator_enable": "the pool cannot be replaced",
    "change_current_allocator": "the pool cannot be replaced",
    "get_allocator_backend": "the pool cannot be replaced",
    "MemPool": "pools are of graphs alone: graph_pool_handle",
    "use_mem_pool": "pools are of graphs alone: graph_pool_handle",
    "memory_snapshot": "the pool keeps no history",
    # Modules of nothing but the above, or empty.
    "sparse": "empty",
}


def is_own(name: str) -> bool:
    """Whether torch.cuda means the name for users, rather than imports it for itself."""
    value = getattr(torch.cuda, name)
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith("torch.cuda.")
    return name in torch.cuda.__all__ or getattr(value, "__module__", "").startswith("torch.")


def test_the_names_of_cuda():
    public = {name for name in dir(torch.cuda) if not name.startswith("_") and is_own(name)}
    public -= {"classproperty"}  # of torch._utils
    missing = {name for name in public if not hasattr(torch.webgpu, name)}
    assert missing - set(LEFT_OUT) == set()
    assert {name for name in LEFT_OUT if hasattr(torch.webgpu, name)} == set()
    assert {name for name in public - missing if name not in dir(torch.webgpu)} == set()


def test_out_of_memory_is_caught_by_the_device_s_name():
    assert torch.webgpu.OutOfMemoryError is torch.OutOfMemoryError
    with pytest.raises(torch.webgpu.OutOfMemoryError):
        torch.empty(1 << 44, dtype=torch.uint8, device="webgpu")


def test_modules():
    from torch.webgpu import amp, graphs

    from torch_webgpu.graphs import Graph

    assert graphs.Graph is Graph is torch.webgpu.Graph
    assert torch.webgpu.amp is amp


def test_mixed_precision():
    from torch.webgpu.amp import GradScaler, autocast, custom_bwd, custom_fwd

    class Square(torch.autograd.Function):
        @staticmethod
        @custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @custom_bwd
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    weight = torch.full((4, 4), 0.5, device="webgpu", requires_grad=True)
    with autocast():
        product = weight @ weight
        assert product.dtype == torch.float16
        loss = Square.apply(product).sum()
        assert loss.dtype == torch.float32
    with autocast(dtype=torch.bfloat16):
        assert (weight @ weight).dtype == torch.bfloat16
    with autocast(enabled=False):
        assert (weight @ weight).dtype == torch.float32
    scaler = GradScaler(init_scale=4.0)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.unique().tolist() == [8.0]
    scaler.step(optimizer)
    scaler.update()
    assert isinstance(scaler, torch.amp.GradScaler)
    assert autocast()(lambda: (weight @ weight).dtype)() == torch.float16


def test_stream_contexts():
    stream = torch.webgpu.Stream()
    context = torch.webgpu.stream(stream)
    assert isinstance(context, torch.webgpu.StreamContext)
    assert context.stream is stream
    with context, torch.webgpu.StreamContext(None):
        assert torch.webgpu.current_stream() == stream
    assert copy.copy(stream) is stream is copy.deepcopy({"stream": stream})["stream"]


def test_events_are_of_their_class():
    assert isinstance(torch.webgpu.Event(), torch.webgpu.Event)
    assert isinstance(torch.webgpu.current_stream().record_event(), torch.webgpu.Event)
    assert not isinstance(torch.webgpu.Stream(), torch.webgpu.Event)
    torch.webgpu.Event(enable_timing=False, blocking=True, interprocess=False, external=False)
    with pytest.raises(NotImplementedError, match="graph"):
        torch.webgpu.Event(external=True)


def test_counters_have_the_names_of_the_accelerator():
    tensor = torch.empty(1000, device="webgpu")
    stats, known = torch.webgpu.memory_stats(), dict(torch.accelerator.memory_stats())
    graphs = {"graph_bytes.all.current": stats["graph_bytes.all.current"]}
    assert stats == {**known, **graphs}
    assert stats["active.all.current"] == stats["allocation.all.current"] > 0
    assert stats["active_bytes.all.current"] == torch.webgpu.memory_allocated() >= tensor.nbytes
    nested = torch.webgpu.memory_stats_as_nested_dict()
    assert nested["reserved_bytes"]["all"]["peak"] == torch.webgpu.max_memory_reserved()


COUNTERS = ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes", "active_bytes")


@pytest.mark.parametrize("of", [torch.webgpu, torch.accelerator], ids=["webgpu", "accelerator"])
def test_counters_of_what_came_and_went(of):
    gc.collect()
    torch.webgpu.empty_cache()
    of.reset_accumulated_memory_stats()
    of.reset_peak_memory_stats()
    before = of.memory_stats()
    for name in (*COUNTERS, "requested_bytes"):
        all_of_it = [before[f"{name}.all.{which}"] for which in ("allocated", "freed")]
        assert all_of_it == [0, 0]
        assert before[f"{name}.all.peak"] == before[f"{name}.all.current"]
    kept = torch.empty(3000, dtype=torch.uint8, device="webgpu")
    torch.empty(5000, dtype=torch.uint8, device="webgpu")  # freed at once
    after = of.memory_stats()
    changes = {
        name: tuple(
            after[f"{name}.all.{which}"] - before[f"{name}.all.{which}"]
            for which in ("current", "peak", "allocated", "freed")
        )
        for name in COUNTERS
    }
    assert changes["allocation"] == changes["active"] == (1, 2, 2, 1)
    assert changes["allocated_bytes"] == changes["active_bytes"] == (3000, 8000, 8000, 5000)
    assert changes["segment"] == (2, 2, 2, 0)
    torch.webgpu.empty_cache()
    emptied = of.memory_stats()
    assert emptied["segment.all.freed"] == 1
    assert 5000 <= emptied["reserved_bytes.all.freed"] < 8000
    for which in ("alloc", "free"):  # as on CUDA, these are never reset
        assert emptied[f"num_device_{which}"] > before[f"num_device_{which}"]
    assert kept.nbytes == 3000


def test_failures_are_counted():
    torch.accelerator.reset_accumulated_memory_stats()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 44, dtype=torch.uint8, device="webgpu")
    assert torch.accelerator.memory_stats()["num_ooms"] == 1
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.memory_stats()["num_ooms"] == 0


def test_old_names_warn_as_those_of_cuda():
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert torch.webgpu.max_memory_cached() == torch.webgpu.max_memory_reserved()
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.webgpu.memory_cached() == torch.webgpu.memory_reserved()
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        with pytest.warns(FutureWarning, match=f"{name} now calls") as caught:
            getattr(torch.webgpu, name)()
        assert caught[0].filename == __file__


def test_what_a_process_takes_cannot_be_limited():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.webgpu.ipc_collect()
        torch.webgpu.set_per_process_memory_fraction(1.0)
    assert torch.webgpu.get_per_process_memory_fraction() == 1.0
    with pytest.raises(NotImplementedError, match="cannot be limited"):
        torch.webgpu.set_per_process_memory_fraction(0.5, "webgpu:0")
    with pytest.raises(ValueError, match="Allowed range"):
        torch.webgpu.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="must be `float`"):
        torch.webgpu.set_per_process_memory_fraction(1)


def test_properties_that_cuda_has():
    properties = torch.webgpu.get_device_properties()
    assert (properties.major, properties.minor) == torch.webgpu.get_device_capability()
    assert properties.warp_size == max(properties.limits["subgroup_max_size"], 1)
    assert not hasattr(properties, "multi_processor_count")  # WebGPU does not tell
