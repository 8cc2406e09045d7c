"""Device selection, and use of the one device from several threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch


def test_guards_nest():
    with torch.webgpu.device(0):
        with torch.webgpu.device("webgpu:0"), torch.webgpu.device(torch.device("webgpu")):
            assert torch.webgpu.current_device() == 0
            assert torch.empty(1, device="webgpu").device == torch.device("webgpu", 0)
        assert torch.accelerator.current_device_index() == 0
    with torch.accelerator.device_index(0), torch.webgpu.device_of(torch.empty(1)):
        assert torch.webgpu.current_device() == 0


def test_default_device_nests():
    with torch.device("webgpu"):
        assert torch.empty(2).device.type == "webgpu"
        with torch.device("cpu"):
            assert torch.empty(2).device.type == "cpu"
        assert torch.empty(2).device.type == "webgpu"


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(1, device="webgpu:1"),
        lambda: torch.empty_strided((1,), (1,), device="webgpu:1"),
        lambda: torch.ones(1).to("webgpu:3"),
        lambda: torch.webgpu.set_device(1),
        lambda: torch.webgpu.device("webgpu:2").__enter__(),
        lambda: torch.webgpu.synchronize(7),
        lambda: torch.Generator(device="webgpu:1"),
    ],
)
def test_there_is_one_device(use):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        use()
    assert torch.empty(1, device="webgpu").device.index == 0


def test_another_kind_of_device_is_refused():
    with pytest.raises(ValueError, match="Expected a webgpu device"):
        torch.webgpu.set_device("cpu")


def test_threads_get_their_own_results():
    def work(seed: int) -> bool:
        host = torch.randn(64, 33, generator=torch.Generator().manual_seed(seed))
        with torch.webgpu.device(0):
            device = host.webgpu()
            for _ in range(20):
                device = device.t().contiguous()
            return torch.equal(device.cpu(), host)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))


def test_threads_share_a_tensor():
    x = torch.zeros(1000).webgpu()
    start = threading.Barrier(4)

    def add() -> None:
        start.wait()
        for _ in range(50):
            x.add_(1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(x.cpu(), torch.full((1000,), 200.0))


def test_backward_in_several_threads():
    def work(scale: float) -> bool:
        x = torch.ones(8).webgpu().requires_grad_()
        x.t().mul(scale).backward(torch.ones(8).webgpu())
        return torch.equal(x.grad.cpu(), torch.full((8,), scale))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [1.0, 2.0, 3.0, 4.0] * 4))


def test_an_error_in_one_thread_leaves_the_others_alone():
    def work(index: int) -> bool:
        if index % 2:
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(1 << 44, device="webgpu")
            return True
        return torch.ones(5).webgpu().tolist() == [1.0] * 5

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(16)))
