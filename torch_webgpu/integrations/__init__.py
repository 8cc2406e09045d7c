"""Libraries that name CUDA, XPU and others where they choose a device, taught to know webgpu.

Two things are done for each library, when it is imported:

- ``"webgpu"`` works wherever the program names a device, always:
  `safetensors.torch.load_file(path, device="webgpu")`, `lightning.Trainer(accelerator="webgpu")`,
  `YOLO(...).predict(device="webgpu")`.
- webgpu is *chosen* where the program names no device. Accelerate, and with it the Trainer of
  transformers, has a way to be told a default, so they choose it by themselves if the machine has a
  WebGPU adapter that is no software. Others have a list of devices in their code; they choose it
  after `enable`, and until then say once that they take the CPU although there is an adapter.

A device that the program names (``cpu=True``, ``ACCELERATE_USE_CPU``, ``ACCELERATE_TORCH_DEVICE``,
``device="cpu"``), and any accelerator that a library finds by itself, comes first. Nothing is asked
of the GPU before a library chooses.

``TORCH_WEBGPU_INTEGRATIONS`` in the environment: ``all``, or names with commas between them, is as
`enable`; ``0`` leaves all libraries as they are.
"""

# `import torch` imports this package, so its functions import what they need.

__all__ = ["enable", "enabled", "names"]


def names() -> tuple[str, ...]:
    """The libraries that `enable` knows, by the names of their packages."""
    from torch_webgpu.integrations._libraries import LIBRARIES

    return tuple(LIBRARIES)


def enabled() -> tuple[str, ...]:
    """The libraries that `enable` was called for."""
    from torch_webgpu.integrations import _choice

    return tuple(sorted(_choice.enabled))


def enable(*libraries: str) -> None:
    """Makes these libraries choose webgpu where the program names no device; without names, all.

    Also a software adapter is chosen then. They may be imported already or later. Raises ValueError
    for a name that is not in `names`, and RuntimeError if a library that is imported already is of
    a version that this package does not know.
    """
    from torch_webgpu.integrations import _choice, _imports

    wanted = libraries or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        raise ValueError(f"no integration for {', '.join(unknown)}; there are {', '.join(names())}")
    for library in wanted:
        _imports.install(library)
        problem = _imports.problems.get(library)
        if problem is not None:
            raise RuntimeError(str(problem)) from problem
    _choice.enabled.update(wanted)
