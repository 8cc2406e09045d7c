"""Compiles the shaders of all files that the tests of this folder write."""

import gc

import pytest
from shader_files import Shaders


@pytest.fixture(autouse=True)
def _leaves_out_what_others_made():
    """Exports go through all objects of the process. Those that earlier tests left alive, such as
    compiled programs, are millions."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_shaders():
    return Shaders()


@pytest.fixture(scope="session")
def written_shaders(tmp_path_factory):
    """The shaders of the files that the tests wrote. The last test has an error if one of them does
    not compile, or needs more than its variant requires."""
    shaders = Shaders()
    yield shaders
    folder = tmp_path_factory.mktemp("shaders")
    for compiler in ("wgpu", "wgpudawn"):
        wrong = shaders.complaints(compiler, folder)
        assert not wrong, f"{len(wrong)} shaders do not compile with {compiler}; one: {wrong[0]}"


@pytest.fixture(autouse=True)
def _compiles_written_shaders(written_shaders, tmp_path, request):
    yield
    for path in tmp_path.iterdir():
        if path.is_file():
            written_shaders.add_file(path, request.node.name)
