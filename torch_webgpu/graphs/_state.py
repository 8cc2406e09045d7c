"""State dicts as the JSON of a graph file, and back.

A tree is {"tensor": VIEW}, {"dict": [[key, tree], ...]}, {"list": [tree, ...]},
{"tuple": [tree, ...]}, {"value": text, integer, boolean or null}, or {"float": text}.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tree = dict[str, Any]
_DEEPEST = 64


def to_tree(
    value: object, path: str, tensor: Callable[[torch.Tensor, str], object], depth: int = 0
) -> Tree:
    """The tree of a value. `tensor(x, path)` gives the VIEW of a tensor. Raises TypeError for what
    a file cannot hold, and ValueError for a value nested too deeply."""
    if depth > _DEEPEST:
        raise ValueError(f"{path} is nested more than {_DEEPEST} deep")
    if isinstance(value, torch.Tensor):
        return {"tensor": tensor(value, path)}
    if isinstance(value, dict):
        pairs = []
        for key, item in value.items():
            if not isinstance(key, (str, int)):
                raise TypeError(f"{path} has the key {key!r}; a graph file holds str and int")
            pairs.append([key, to_tree(item, f"{path}.{key}", tensor, depth + 1)])
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [to_tree(v, f"{path}.{k}", tensor, depth + 1) for k, v in enumerate(value)]}
    if isinstance(value, float):
        return {"float": value.hex()}
    if value is None or isinstance(value, (str, int, bool)):
        return {"value": value}
    raise TypeError(f"a graph file cannot hold {path}, a {type(value).__name__}")


def from_tree(tree: object, tensor: Callable[[object], torch.Tensor], depth: int = 0) -> Any:
    """The value of a tree. Raises ValueError for what is not a tree."""
    if not isinstance(tree, dict) or len(tree) != 1 or depth > _DEEPEST:
        raise ValueError("the state is malformed")
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensor(value)
    if kind == "value" and (value is None or isinstance(value, (str, int, bool))):
        return value
    if kind == "float" and isinstance(value, str):
        return float.fromhex(value)
    if not isinstance(value, list):
        raise ValueError("the state is malformed")
    if kind in ("list", "tuple"):
        items = [from_tree(item, tensor, depth + 1) for item in value]
        return items if kind == "list" else tuple(items)
    if kind != "dict":
        raise ValueError(f"the state has a {kind!r}")
    result = {}
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], (str, int)):
            raise ValueError("the state is malformed")
        result[pair[0]] = from_tree(pair[1], tensor, depth + 1)
    return result


def has_state_dict(holder: Any) -> bool:
    """Not of dicts, of which some have any attribute that is asked for."""
    return not isinstance(holder, Mapping) and callable(getattr(holder, "state_dict", None))


def state_dict_of(holder: Any) -> Any:
    return holder.state_dict() if has_state_dict(holder) else holder
