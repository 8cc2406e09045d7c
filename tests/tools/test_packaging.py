"""What a wheel is called and requires, and which wheels a release has."""

import importlib.util
import pathlib
import re

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINOR = ".".join(torch.__version__.split(".")[:2])


@pytest.fixture
def provider():
    path = ROOT / "tools" / "packaging" / "built_for_torch.py"
    spec = importlib.util.spec_from_file_location("built_for_torch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Provider()


@pytest.mark.parametrize("state", ["wheel", "metadata_wheel"])
def test_a_wheel_is_called_by_its_torch(provider, state, monkeypatch):
    monkeypatch.chdir(ROOT)
    provider.build_state(state)
    assert provider.dynamic_metadata({}, {"version": "1.2.3"}) == {
        "version": f"1.2.3+torch{MINOR}",
        "dependencies": [f"torch=={MINOR}.*"],
    }


def test_a_wheel_of_a_source_distribution_keeps_its_version(provider, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PKG-INFO").write_text("")
    provider.build_state("wheel")
    found = provider.dynamic_metadata({}, {"version": "1.2.3"})
    assert found == {"dependencies": [f"torch=={MINOR}.*"]}


@pytest.mark.parametrize("state", ["sdist", "editable", "metadata_editable"])
def test_others_keep_their_version(provider, state, monkeypatch):
    monkeypatch.chdir(ROOT)
    provider.build_state(state)
    assert provider.dynamic_metadata({}, {"version": "1.2.3"}) == {"dependencies": []}


def test_a_release_has_wheels_for_every_torch_that_the_sources_take():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())
    matrix = workflow["jobs"]["linux"]["strategy"]["matrix"]
    text = (ROOT / "pyproject.toml").read_text()
    least, beyond = re.search(r'"torch>=2\.(\d+),<2\.(\d+)"', text).groups()
    assert matrix["torch"] == [f"2.{minor}" for minor in range(int(least), int(beyond))]
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', text)[1]
    assert matrix["python"] == [f"3.{minor}" for minor in range(int(oldest), 15)]
