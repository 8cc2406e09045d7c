"""The examples and the benchmarks are part of the repository, not of the installed package."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True)
def single_thread():
    """These networks are too small to share, and OpenMP's threads spin on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
