"""The ways in which a step that repeats can run."""

from collections.abc import Callable
from enum import Enum

import torch


class Mode(Enum):
    EAGER = "eager"
    COMPILED = "compiled"
    GRAPHED = "graphed"
    COMPILED_GRAPHED = "compiled-graphed"

    @property
    def compiles(self) -> bool:
        return self in (Mode.COMPILED, Mode.COMPILED_GRAPHED)

    @property
    def graphs(self) -> bool:
        return self in (Mode.GRAPHED, Mode.COMPILED_GRAPHED)

    def compile(self, function: Callable) -> Callable:
        return torch.compile(function) if self.compiles else function


class Repeated:
    """A step that takes nothing, returns nothing and always uses the same tensors.

    In a graphed mode it runs as it is until whatever it makes once (an optimizer's state, compiled
    code) is there; then it is captured, which executes nothing, and replayed.
    """

    RUNS_BEFORE_CAPTURE = 2

    def __init__(self, step: Callable[[], None], mode: Mode) -> None:
        self.step, self.is_graphed = step, mode.graphs
        self.runs = 0
        self.graph = None

    def __call__(self) -> None:
        self.runs += 1
        if not self.is_graphed or self.runs <= self.RUNS_BEFORE_CAPTURE:
            self.step()
            return
        if self.graph is None:
            self.graph = torch.webgpu.Graph()
            with torch.webgpu.graph(self.graph):
                self.step()
        self.graph.replay()
