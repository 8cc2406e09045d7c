"""``torch.compile(model, backend="webgpu")``: Inductor, by a name of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def webgpu(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The Dynamo backend. `mode` and `options` are those of Inductor."""
    import torch._inductor
    from torch._inductor import compile_fx

    patches = {**(torch._inductor.list_mode_options(mode) if mode else {}), **(options or {})}
    compiled: Callable[..., Any] = compile_fx.compile_fx(
        gm, example_inputs, config_patches=patches or None
    )
    return compiled
