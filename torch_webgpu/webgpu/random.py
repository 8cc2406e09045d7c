"""Random numbers of the devices: Philox, seeded, reproducible. Each device has its generator."""

from collections.abc import Iterable, Sequence
from typing import overload

import torch

from torch_webgpu import _C

from ._device import DeviceLike, index_of


class _DefaultGenerators(Sequence[torch.Generator]):
    """The generator of each device. Asks for the adapters when its length is needed, not before."""

    def __len__(self) -> int:
        return _C.device_count()

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if index == 0:
            return _C.default_generator(0)
        return _C.default_generator(range(len(self))[index])


default_generators: Sequence[torch.Generator] = _DefaultGenerators()


def _generator(device: DeviceLike = None) -> torch.Generator:
    return _C.default_generator(index_of(device))


def manual_seed(seed: int) -> None:
    """Sets the seed of the current device's generator."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Sets the seed of all devices' generators. ``torch.manual_seed`` does so too."""
    for index in range(_C.most_devices):  # how many there are is not asked: that loads drivers
        _C.default_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Sets the seed of the current device's generator to a random number."""
    _generator().seed()


def seed_all() -> None:
    """Sets the seed of all devices' generators to one random number."""
    manual_seed_all(_C.default_generator(0).seed())


def initial_seed() -> int:
    """The current seed of the current device's generator."""
    return _generator().initial_seed()


def get_rng_state(device: DeviceLike = "webgpu") -> torch.Tensor:
    """The state of the device's generator: a CPU uint8 tensor of 16 elements."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """`get_rng_state` of every device."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "webgpu") -> None:
    """Restores what `get_rng_state` returned."""
    _generator(device).set_state(new_state.cpu())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restores what `get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
