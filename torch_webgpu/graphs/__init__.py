"""Graphs: programs of device commands, captured once and replayed without Python.

The names and meanings are those of ``torch.cuda``; docs/graphs.md says where they differ.
"""

from torch_webgpu.graphs._callables import make_graphed_callables
from torch_webgpu.graphs._graph import (
    Graph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    update_graph,
)

__all__ = [
    "Graph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "update_graph",
]
