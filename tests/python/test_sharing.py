"""Tensors that travel to other processes, and `DataParallel`, which takes one device."""

from multiprocessing.reduction import ForkingPickler

import pytest
import torch

# The child answers with what it received, so each tensor travels twice, here and back.
SHARE = """
import torch
import torch.multiprocessing as mp
import torch_webgpu

def echo(inbox, outbox, strategy):
    mp.set_sharing_strategy(strategy)
    for message in iter(inbox.get, None):
        assert all(t.device == torch.device("webgpu:0") for t in message)
        outbox.put(message)

if __name__ == "__main__":
    torch.manual_seed(0)
    base = torch.randn(6, 8)
    sent = [
        base, base[1::2, 3:], base.mT, base.half(), base.bfloat16(), base > 0,
        (base * 100).long(), (base * 100).to(torch.int8)[2, 3:], base.to(torch.complex64),
        torch.empty(0, 3), torch.tensor(2.5), base[:1].expand(4, 8),
    ]
    sent = [t.webgpu() for t in sent]
    sent.append(torch.ones(3, device="webgpu", requires_grad=True))
    sent.append(torch.nn.Parameter(torch.ones(3, device="webgpu"), requires_grad=False))
    context = mp.get_context("spawn")
    for strategy in mp.get_all_sharing_strategies():
        mp.set_sharing_strategy(strategy)
        inbox, outbox = context.Queue(), context.Queue()
        child = context.Process(target=echo, args=(inbox, outbox, strategy))
        child.start()
        inbox.put(sent)
        received = outbox.get(timeout=120)
        inbox.put(None)
        child.join()
        assert child.exitcode == 0
        for there, back in zip(sent, received, strict=True):
            assert type(back) is type(there) and back.device == there.device
            assert back.requires_grad == there.requires_grad and back.dtype == there.dtype
            assert torch.equal(back.detach().cpu(), there.detach().cpu())
            if there.storage_offset() == 0 and 0 not in there.stride():
                assert back.stride() == there.stride()
        print(strategy, len(received))
"""


def test_queue_copies_through_shared_memory(tmp_path, check_python):
    script = tmp_path / "share.py"
    script.write_text(SHARE)
    printed = check_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    strategies = torch.multiprocessing.get_all_sharing_strategies()
    assert sorted(printed.split()) == sorted(" 14 ".join([*strategies, ""]).split())


# Arguments that a process inherits, and what a worker of a DataLoader takes with it.
INHERIT = """
import itertools
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset
import torch_webgpu

def total(outbox, strategy, model, *tensors):
    mp.set_sharing_strategy(strategy)
    assert all(t.device == torch.device("webgpu:0") for t in (model.weight, *tensors))
    outbox.put(sum(t.sum().item() for t in (model.weight.detach(), *tensors)))

if __name__ == "__main__":
    tensors = [torch.full((k, 3), float(k), device="webgpu") for k in range(1, 20)]
    model = torch.nn.Linear(4, 5).webgpu()
    torch.nn.init.ones_(model.weight)
    expected = 20 + sum(3 * k * k for k in range(1, 20))
    methods = ["spawn", "forkserver"]
    strategies = sorted(mp.get_all_sharing_strategies())
    # Each method, and each strategy: what they do has nothing in common.
    pairs = zip(methods, (strategies[0], strategies[-1]))
    for method, strategy in itertools.product(methods, strategies) if ALL_PAIRS else pairs:
        mp.set_sharing_strategy(strategy)
        context = mp.get_context(method)
        outbox = context.Queue()
        child = context.Process(target=total, args=(outbox, strategy, model, *tensors))
        child.start()
        assert outbox.get(timeout=120) == expected
        child.join()
        assert child.exitcode == 0
        data = TensorDataset(torch.arange(8.0, device="webgpu"))
        batches = DataLoader(data, 4, num_workers=1, multiprocessing_context=method, timeout=120)
        assert [batch.tolist() for (batch,) in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        print(method)
"""


@pytest.mark.parametrize("all_pairs", [False, pytest.param(True, marks=pytest.mark.long)])
def test_processes_inherit_copies(tmp_path, check_python, all_pairs):
    script = tmp_path / "inherit.py"
    script.write_text(f"ALL_PAIRS = {all_pairs}\n{INHERIT}")
    run = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    count = len(torch.multiprocessing.get_all_sharing_strategies()) if all_pairs else 1
    printed = check_python(run, timeout=400).split()
    assert printed == ["spawn"] * count + ["forkserver"] * count


def pickled(value: object) -> object:
    return ForkingPickler.dumps(value)


def test_refused_as_by_cuda():
    x = torch.ones(3, device="webgpu", requires_grad=True)
    with pytest.raises(RuntimeError, match="Cannot pickle webgpu storage"):
        pickled(x.untyped_storage())
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        pickled(x * 2)
    assert (x * 2).tolist() == [2, 2, 2]


no_other_devices = pytest.mark.skipif(
    torch.cuda.is_available(), reason="DataParallel takes CUDA's devices where there are some"
)


@no_other_devices
def test_data_parallel_on_one_device():
    network = torch.nn.DataParallel(torch.nn.Linear(3, 2))
    host = torch.randn(4, 3)
    x = host.webgpu().requires_grad_()
    expected = network.module(x)
    for run in (network, lambda x: torch.nn.parallel.data_parallel(network.module, x)):
        result = run(x)
        assert result.device == torch.device("webgpu:0")
        assert torch.equal(result, expected)
        assert torch.equal(run(host), expected)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient, network.module.weight.sum(0).expand(4, 3))


@no_other_devices
def test_data_parallel_over_devices_names_ddp(check_python):
    check_python(
        "import torch, torch_webgpu\n"
        "network = torch.nn.Linear(3, 2).webgpu()\n"
        "x = torch.randn(4, 3, device='webgpu')\n"
        "for run in (lambda: torch.nn.DataParallel(network),\n"
        "            lambda: torch.nn.DataParallel(network, device_ids=[0, 1]),\n"
        "            lambda: torch.nn.parallel.data_parallel(network, x)):\n"
        "    try:\n"
        "        run()\n"
        "    except NotImplementedError as error:\n"
        "        assert 'DistributedDataParallel' in str(error)\n"
        "    else:\n"
        "        raise AssertionError('no error')\n"
        "torch.nn.DataParallel(network, device_ids=[1])\n",
        env={"TORCH_WEBGPU_ADAPTER": "0,0"},
    )
