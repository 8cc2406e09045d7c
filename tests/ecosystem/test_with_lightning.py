"""Lightning: Trainer and Fabric on the device, in every precision."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

L = pytest.importorskip("lightning")

from lightning.fabric.strategies import STRATEGY_REGISTRY  # noqa: E402
from lightning.pytorch.accelerators import AcceleratorRegistry  # noqa: E402
from lightning.pytorch.strategies import StrategyRegistry  # noqa: E402


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
        self.losses, self.seen = [], set()

    def training_step(self, batch, index):
        inputs, targets = batch
        outputs = self.body(inputs)
        loss = nn.functional.mse_loss(outputs.float(), targets.float())
        self.losses.append(loss.detach().float())
        self.seen.add((outputs.device.type, outputs.dtype))
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def batches():
    # Targets so small that no gradient of the first step overflows in half precision, with which
    # the scaler would skip that step.
    inputs = torch.randn(48, 6, generator=torch.Generator().manual_seed(2))
    return DataLoader(TensorDataset(inputs, 0.2 * inputs.sin().sum(1, keepdim=True)), batch_size=8)


def trained(folder, **settings):
    model = Regression()
    trainer = L.Trainer(
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few workers, no validation
        trainer.fit(model, batches())
    return model, trainer


def test_accelerator_and_strategy_are_registered():
    assert "webgpu" in AcceleratorRegistry.available_accelerators()
    assert "single_webgpu" in StrategyRegistry.available_strategies()
    assert "single_webgpu" in STRATEGY_REGISTRY.available_strategies()


PRECISIONS = {
    "32-true": (torch.float32, 1e-5),
    "16-mixed": (torch.float16, 5e-3),
    "bf16-mixed": (torch.bfloat16, 3e-2),
    "16-true": (torch.float16, 2e-2),
    "bf16-true": (torch.bfloat16, 8e-2),
}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_trainer(tmp_path, precision):
    dtype, tolerance = PRECISIONS[precision]
    expected, _ = trained(tmp_path, accelerator="cpu")
    model, trainer = trained(tmp_path, accelerator="webgpu", precision=precision)
    assert model.seen == {("webgpu", dtype)}
    assert trainer.strategy.root_device == torch.device("webgpu", 0)
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    assert (scaler is not None) == (precision == "16-mixed")
    actual = torch.stack(model.losses).cpu()
    torch.testing.assert_close(actual, torch.stack(expected.losses), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "settings",
    [
        {"accelerator": "webgpu", "devices": 1},
        {"accelerator": "webgpu", "devices": [0]},
        {"accelerator": "webgpu", "devices": "0,"},
        {"accelerator": "webgpu", "devices": -1},
        {"accelerator": "webgpu", "strategy": "single_webgpu"},
        {"strategy": "single_webgpu", "accelerator": "webgpu", "precision": "16-mixed"},
    ],
    ids=str,
)
def test_ways_to_name_the_device(tmp_path, settings):
    _, trainer = trained(tmp_path, **settings)
    assert trainer.strategy.root_device == torch.device("webgpu", 0)


def test_an_accelerator_object(tmp_path):
    accelerator = AcceleratorRegistry["webgpu"]["accelerator"]()
    model, _ = trained(tmp_path, accelerator=accelerator, precision="bf16-mixed")
    assert model.seen == {("webgpu", torch.bfloat16)}


def test_a_device_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="no device webgpu:3"):
        trained(tmp_path, accelerator="webgpu", devices=[3])


def test_auto(enable, tmp_path):
    _, trainer = trained(tmp_path, accelerator="auto")
    assert trainer.strategy.root_device.type == "cpu"  # software, and not asked for
    enable("lightning")
    for name in ("auto", "gpu"):
        model, _ = trained(tmp_path, accelerator=name)
        assert model.seen == {("webgpu", torch.float32)}


def test_auto_on_an_accelerator_says_that_it_takes_the_cpu(hardware, tmp_path):
    with pytest.warns(UserWarning, match=r"runs on the CPU.*enable\('lightning'\)"):
        trainer = L.Trainer(logger=False, enable_checkpointing=False)
    assert trainer.strategy.root_device.type == "cpu"


def test_a_checkpoint_continues(tmp_path):
    model, trainer = trained(tmp_path, accelerator="webgpu")
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = Regression.load_from_checkpoint(tmp_path / "model.ckpt", map_location="cpu")
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, model.state_dict()[name].cpu())


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_fabric(precision):
    dtype, tolerance = PRECISIONS[precision]
    losses = []
    for settings in ({"accelerator": "cpu"}, {"accelerator": "webgpu", "precision": precision}):
        fabric = L.Fabric(devices=1, **settings)
        model = Regression().body
        model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
        seen = []
        model.module[0].register_forward_hook(lambda m, i, out, seen=seen: seen.append(out.dtype))
        run = []
        for inputs, targets in fabric.setup_dataloaders(batches()):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            fabric.backward(loss)
            optimizer.step()
            run.append(loss.detach().cpu().float())
        losses.append(torch.stack(run))
    assert fabric.device == torch.device("webgpu", 0)
    assert set(seen) == {dtype}
    torch.testing.assert_close(losses[1], losses[0], rtol=tolerance, atol=tolerance)


TWO = """
import os, sys, warnings
import torch
import lightning as L
from torch import nn
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard

warnings.simplefilter("ignore")
hooks = []


def hook(state, bucket):
    hooks.append(bucket.buffer().device.type)
    return default_hooks.allreduce_hook(state, bucket)


STRATEGIES = {
    "sharded": lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
    "hook": lambda: DDPStrategy(ddp_comm_hook=hook, process_group_backend="gloo"),
}


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(6, 2)

    def configure_model(self):
        if os.environ["STRATEGY"] == "sharded":
            fully_shard(self.body, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, index):
        return self.body(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


inputs = torch.randn(48, 6, generator=torch.Generator().manual_seed(2))
data = torch.utils.data.TensorDataset(inputs)
name = os.environ["STRATEGY"]
model = Regression()
trainer = L.Trainer(
    accelerator=os.environ["ACCELERATOR"], devices=2, strategy=STRATEGIES.get(name, lambda: name)(),
    precision=os.environ.get("PRECISION", "32-true"), max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    default_root_dir=os.environ["FOLDER"],
)
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8, shuffle=False))
weight = model.body.weight
weight = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
line = f"rank {trainer.global_rank} {trainer.strategy.root_device} {trainer.world_size} "
line += f"{trainer.global_step} {weight.norm().item():.4f} {set(hooks)}"
sys.stdout.write(line + chr(10))
sys.stdout.flush()
"""


def run_lightning(run_two, strategy, accelerator="webgpu", launcher=("-u",), **variables):
    """The lines of the processes, which Lightning starts, or torchrun."""
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    variables |= {"STRATEGY": strategy, "ACCELERATOR": accelerator}
    return [line.split() for line in run_two(TWO, launcher=launcher, **variables)]


@pytest.mark.parametrize("strategy", ["auto", "ddp_find_unused_parameters_true", "hook", "sharded"])
def test_two_devices(run_two, strategy):
    expected, _ = run_lightning(run_two, "ddp", "cpu")
    ran = "{'webgpu'}" if strategy == "hook" else "set()"
    steps, norm = expected[4:6]
    assert steps == "3"  # each process has half of the data
    assert run_lightning(run_two, strategy) == [
        ["rank", str(rank), f"webgpu:{rank}", "2", steps, norm, ran] for rank in range(2)
    ]


def test_two_devices_in_mixed_precision(run_two):
    lines = run_lightning(run_two, "ddp", launcher=(), PRECISION="16-mixed")
    assert [line[1:5] for line in lines] == [[str(k), f"webgpu:{k}", "2", "3"] for k in range(2)]
    assert lines[0][5] == lines[1][5]


def test_fabric_on_two_devices(run_two):
    lines = run_two(
        """
import sys, torch, lightning as L
fabric = L.Fabric(accelerator="webgpu", devices=2, strategy="ddp")
fabric.launch()
torch.manual_seed(fabric.global_rank)
model = torch.nn.Linear(4, 2)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
fabric.backward(model(torch.randn(2, 4, device=fabric.device)).sum())
optimizer.step()
everyone = fabric.all_gather(model.weight.detach())
same = torch.equal(everyone[0], everyone[1])
sys.stdout.write(f"rank {fabric.global_rank} {fabric.device} {same}" + chr(10))
sys.stdout.flush()
""",
        launcher=("-u",),
    )
    assert lines == ["rank 0 webgpu:0 True", "rank 1 webgpu:1 True"]


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp_cpu_offload"])
def test_fsdp_is_refused(strategy):
    for make in (L.Trainer, L.Fabric):
        with pytest.raises(ValueError, match=r"made for CUDA.*ModelParallelStrategy"):
            make(accelerator="webgpu", strategy=strategy)
