"""Seeds and states of the random number generator. No random number is drawn here."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def keep_state():
    state = torch.webgpu.get_rng_state()
    yield
    torch.webgpu.set_rng_state(state)


def test_manual_seed_reaches_the_device():
    torch.manual_seed(1234)
    assert torch.webgpu.initial_seed() == 1234
    torch.webgpu.manual_seed(5)
    assert torch.webgpu.default_generators[0].initial_seed() == 5
    torch.webgpu.manual_seed_all(6)
    assert torch.webgpu.initial_seed() == 6


def test_seed_is_another_one_each_time():
    torch.webgpu.seed()
    first = torch.webgpu.initial_seed()
    torch.webgpu.seed_all()
    assert torch.webgpu.initial_seed() != first


def test_state_has_cuda_layout():
    torch.webgpu.manual_seed(0x0102030405060708)
    state = torch.webgpu.get_rng_state()
    assert (state.dtype, state.device.type, tuple(state.shape)) == (torch.uint8, "cpu", (16,))
    assert state[:8].tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert state[8:].tolist() == [0] * 8


def test_state_round_trip():
    torch.webgpu.manual_seed(11)
    state = torch.webgpu.get_rng_state()
    torch.webgpu.manual_seed(12)
    torch.webgpu.set_rng_state(state)
    assert torch.webgpu.initial_seed() == 11
    torch.webgpu.set_rng_state_all(torch.webgpu.get_rng_state_all())
    assert torch.equal(torch.webgpu.get_rng_state(), state)


def test_bad_states_are_refused():
    with pytest.raises(RuntimeError, match="wrong size"):
        torch.webgpu.set_rng_state(torch.zeros(7, dtype=torch.uint8))
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.webgpu.set_rng_state(torch.zeros(16))
    # A seed, and an offset that is no multiple of 4: nothing of it is taken.
    generator = torch.Generator(device="webgpu").manual_seed(1)
    odd = torch.tensor([5, *[0] * 7, 3, *[0] * 7], dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_state(odd)
    assert generator.initial_seed() == 1


def test_fork_rng_restores():
    torch.webgpu.manual_seed(3)
    with torch.random.fork_rng(device_type="webgpu"):
        torch.manual_seed(4)
        assert torch.webgpu.initial_seed() == 4
    assert torch.webgpu.initial_seed() == 3


def test_own_generators_are_independent():
    torch.webgpu.manual_seed(1)
    generator = torch.Generator(device="webgpu").manual_seed(42)
    assert generator.device == torch.device("webgpu", 0)
    other = torch.Generator(device="webgpu")
    other.set_state(generator.get_state())
    assert other.initial_seed() == 42
    assert torch.webgpu.initial_seed() == 1
    generator.set_offset(8)
    assert generator.get_offset() == 8
    assert generator.clone_state().get_offset() == 8
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(3)


def test_states_are_shared_and_cloned_as_on_cuda():
    generator = torch.Generator(device="webgpu").manual_seed(42)
    generator.set_offset(8)
    shared, cloned = generator.graphsafe_get_state(), generator.clone_state()
    assert shared.device == cloned.device == generator.device
    generator.set_offset(16)
    assert (shared.get_offset(), cloned.get_offset()) == (16, 8)
    shared.manual_seed(7)
    assert (generator.initial_seed(), cloned.initial_seed()) == (7, 42)
    assert generator.graphsafe_set_state(cloned) is generator
    assert (generator.initial_seed(), generator.get_offset()) == (42, 8)
    cloned.set_offset(24)
    assert (generator.get_offset(), shared.get_offset()) == (24, 0)
    with pytest.raises(RuntimeError, match="expected a generator of webgpu:0, got cpu"):
        generator.graphsafe_set_state(torch.Generator())


def test_the_default_generator_takes_a_state():
    default = torch.webgpu.default_generators[0]
    torch.webgpu.manual_seed(5)
    own = default.graphsafe_get_state()
    other = torch.Generator(device="webgpu").manual_seed(6)
    default.graphsafe_set_state(other)
    assert torch.webgpu.initial_seed() == 6
    default.graphsafe_set_state(own)
    assert torch.webgpu.initial_seed() == 5


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_repeats_the_random_numbers(use_reentrant):
    x = torch.ones(64, device="webgpu", requires_grad=True)
    y = checkpoint(torch.nn.Dropout(0.5), x, use_reentrant=use_reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
