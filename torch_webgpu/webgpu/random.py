"""Random numbers of the device: Philox, seeded, reproducible."""

from collections.abc import Iterable

import torch

from torch_webgpu import _C

from ._device import DeviceLike, check_device

default_generators: tuple[torch.Generator, ...] = (_C.default_generator(),)


def manual_seed(seed: int) -> None:
    """Sets the seed of the device's generator. ``torch.manual_seed`` does so too."""
    default_generators[0].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """The same as `manual_seed`, since there is one device."""
    manual_seed(seed)


def seed() -> None:
    """Sets the seed to a random number."""
    default_generators[0].seed()


def seed_all() -> None:
    """The same as `seed`, since there is one device."""
    seed()


def initial_seed() -> int:
    """The current seed."""
    return default_generators[0].initial_seed()


def get_rng_state(device: DeviceLike = "webgpu") -> torch.Tensor:
    """The state of the generator: a CPU uint8 tensor of 16 elements."""
    check_device(device)
    return default_generators[0].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """`get_rng_state` of every device."""
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "webgpu") -> None:
    """Restores what `get_rng_state` returned."""
    check_device(device)
    default_generators[0].set_state(new_state.cpu())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restores what `get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
