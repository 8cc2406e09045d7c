"""States that the player in a page saved."""

import json
import os
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from torch_webgpu.graphs._state import from_tree

# Of the metadata that web/player/state.ts writes.
_STATE_KEY = "torch_webgpu.state"


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The states in a file that ``await player.state()`` made, by the names that `export` was
    given, with tensors on the CPU: ``model.load_state_dict(load_state(path)["model"])``.

    A file of one state, which ``player.state("model")`` makes, is a plain safetensors file, for
    ``safetensors.torch.load_file``. Raises ValueError for a file that holds no states, and OSError
    if it cannot be read.
    """
    path = os.fsdecode(path)
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_STATE_KEY)
            if text is None:
                raise ValueError("it holds no states")

            def tensor(name: object) -> torch.Tensor:
                return file.get_tensor(str(name))

            trees = json.loads(text)
            if not isinstance(trees, dict):
                raise ValueError("the states are malformed")
            return {name: from_tree(tree, tensor) for name, tree in trees.items()}
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot load the states of {path!r}: {error}") from error
