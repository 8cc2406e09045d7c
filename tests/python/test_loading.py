"""Importing: what `import torch` does, the choice of the runtime, and what failures say."""

import ast
import importlib.metadata
import pathlib
import shutil
import sys

import pytest
import torch

import torch_webgpu
from torch_webgpu import _C, _register, _runtime, _torch_versions

USE = "import torch; import torch_webgpu; print(torch.ones(2).webgpu().tolist())"


def test_importing_starts_nothing(check_python):
    check_python(
        "import torch, torch_webgpu, sys\n"
        "assert torch.device('webgpu').type == 'webgpu'\n"
        "assert not torch.webgpu.is_initialized()\n"
        "torch.manual_seed(1)\n"
        "assert torch.webgpu.memory_allocated() == 0\n"
        "torch.webgpu.synchronize()\n"
        "torch.empty(0, device='webgpu')\n"
        "assert not torch.webgpu.is_initialized()\n"
        "assert 'wgpudawn' not in sys.modules\n"
    )


def test_importing_imports_little(check_python):
    """What is imported with torch beyond it: each module takes a quarter of a millisecond."""
    printed = check_python(
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import torch_webgpu\n"
        "print(*sorted(set(sys.modules) - before))\n",
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    own = {name for name in printed.split() if not name.startswith("torch.webgpu")}
    assert {name.partition(".")[0] for name in own} == {"torch_webgpu"}
    names = {name.removeprefix("torch_webgpu").removeprefix(".") for name in own} - {""}
    assert names <= {
        *("_C", "_dlpack", "_import_hook", "_printing", "_register", "_sharing", "_shutdown"),
        "_torch_versions",
        *("integrations", "integrations._imports", "integrations._libraries"),
        *("webgpu", "webgpu._device"),
    }


def test_importing_takes_a_fraction_of_what_torch_takes(check_python):
    """Some 0.7 % of the processor's time: 10 ms more would be seen."""
    program = (
        "import time\n"
        "start = time.process_time()\n"
        "import torch\n"
        "between = time.process_time()\n"
        "import torch_webgpu\n"
        "print((time.process_time() - between) / (between - start))\n"
    )
    # With compiled modules, as users have them: the first run writes them.
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONDONTWRITEBYTECODE": ""}
    # One run shows it; other processes may slow some.
    assert any(float(check_python(program, env=env)) < 0.015 for _ in range(5))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_importing_opens_no_runtime(check_python):
    check_python(
        "import torch, torch_webgpu, sys\n"
        "def is_open():\n"
        "    return 'wgpu_dawn' in open('/proc/self/maps').read()\n"
        "assert not is_open() and 'wgpudawn._lib' not in sys.modules\n"
        "assert torch.webgpu.is_available()\n"
        "assert is_open()\n",
        env={"TORCH_WEBGPU_RUNTIME": "dawn"},
    )


def test_what_is_imported_later_is_there(check_python):
    check_python(
        "import torch, torch_webgpu\n"
        "assert {'Graph', 'compile_shader', 'shaders'} <= set(dir(torch.webgpu))\n"
        "import torch.webgpu.shaders as one\n"
        "import torch_webgpu.webgpu.shaders as other\n"
        "assert one is other is torch.webgpu.shaders\n"
        "assert other.__spec__.name == 'torch_webgpu.webgpu.shaders'\n"
        "assert torch.webgpu.compile_shader is one.compile_shader\n"
        "from torch.webgpu import Graph, make_graphed_callables\n"
        "assert Graph.__module__.startswith('torch_webgpu.graphs')\n"
        "assert not torch.webgpu.is_initialized() and not hasattr(torch.webgpu, 'no_such_name')\n"
    )


@pytest.mark.sampled("0-torch", "1-torch_webgpu")
@pytest.mark.parametrize("first", ["torch", "torch_webgpu"])
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_either_import_may_come_first(check_python, first, autoload):
    second = {"torch": "torch_webgpu", "torch_webgpu": "torch"}[first]
    check_python(
        f"import {first}\nimport {second}\nassert torch.webgpu.device_count() == 1",
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
    )


def test_the_dawn_module_is_shared_with_its_package(check_python):
    check_python(
        "import torch, torch_webgpu\n"
        "from torch_webgpu import _runtime\n"
        "extension = _runtime._dawn_extension()\n"
        "from wgpudawn._lib import ffi\n"
        "assert ffi is extension.ffi\n"
        "import wgpudawn\n"
        "wgpudawn.gpu.request_adapter_sync()\n"
        "assert torch.ones(1).webgpu().item() == 1\n",
        env={"TORCH_WEBGPU_RUNTIME": "dawn"},
    )


@pytest.mark.parametrize("runtime", ["wgpu", "path"])
def test_the_second_runtime(check_python, runtime):
    pytest.importorskip("wgpu", reason="the wgpu package is optional")
    choice = str(_runtime._wgpu_library()) if runtime == "path" else runtime
    printed = check_python(
        USE + "; print(torch.webgpu.get_device_properties().runtime)",
        env={"TORCH_WEBGPU_RUNTIME": choice},
    )
    assert printed.splitlines()[0] == "[1.0, 1.0]"
    assert "wgpu_native" in printed.splitlines()[1]


@pytest.mark.parametrize("runtime", ["vulkan", "/no/such/library.so"])
def test_unknown_runtime(check_python, runtime):
    # Told at the first use, so that a wrong setting does not break CPU work.
    printed = check_python(
        "import torch, torch_webgpu\n"
        "assert not torch.webgpu.is_available()\n"
        "assert torch.webgpu.device_count() == 0\n"
        "try:\n"
        "    torch.ones(1).webgpu()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n",
        env={"TORCH_WEBGPU_RUNTIME": runtime},
    )
    assert f"the WebGPU runtime '{runtime}' does not exist" in printed
    assert "accepts 'dawn'" in printed


def test_a_library_that_is_no_runtime(check_python):
    library = next(pathlib.Path(torch.__file__).parent.glob("lib/libc10.*"))
    printed = check_python(
        "import torch, torch_webgpu\n"
        "try:\n"
        "    torch.ones(1).webgpu()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n",
        env={"TORCH_WEBGPU_RUNTIME": str(library)},
    )
    assert str(library) in printed
    assert "wgpu" in printed


def test_missing_package(monkeypatch):
    monkeypatch.setattr(_runtime.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("TORCH_WEBGPU_RUNTIME", "wgpu")
    runtime = _runtime.resolve()
    assert "the Python package wgpu is not installed" in runtime.error
    assert (runtime.proc_address, runtime.library) == (0, "")


def test_no_adapter(check_python):
    printed = check_python(
        "import torch, torch_webgpu\n"
        "assert not torch.webgpu.is_available()\n"
        "try:\n"
        "    torch.ones(1).webgpu()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "print(torch.ones(2).add(1).tolist())\n",
        env={"VK_DRIVER_FILES": "/dev/null", "VK_ICD_FILENAMES": "/dev/null"},
    )
    assert "no WebGPU adapter was found" in printed
    assert "Install" in printed
    assert "[2.0, 2.0]" in printed


def test_unknown_adapter(check_python):
    printed = check_python(
        "import torch, torch_webgpu\n"
        "print(torch.webgpu.is_available(), torch.webgpu.device_count())\n"
        "try:\n"
        "    torch.ones(1).webgpu()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n",
        env={"TORCH_WEBGPU_ADAPTER": "no such adapter"},
    )
    assert "False 0" in printed
    assert "names no adapter; there are: 0: " in printed


def test_adapter_by_name_and_index(check_python):
    name = torch.webgpu.list_adapters()[0]["name"]
    for choice in ("0", name[:5].upper()):
        assert "1.0" in check_python(USE, env={"TORCH_WEBGPU_ADAPTER": choice})


def copy_of_the_package(folder: pathlib.Path, built_for: str) -> None:
    package = folder / "torch_webgpu"
    source = pathlib.Path(torch_webgpu.__file__).parent
    shutil.copytree(
        source, package, ignore=shutil.ignore_patterns("lib", "include", "*.so", "__pycache__")
    )
    config = package / "share/cmake/TorchWebGPU/TorchWebGPUConfig.cmake"
    text = config.read_text()
    config.write_text(text.replace(f'"{_torch_versions.built_for()}"', f'"{built_for}"'))


@pytest.mark.parametrize("built_for", ["2.1.0", "the installed one"])
def test_an_extension_that_does_not_fit_is_named(tmp_path, check_python, built_for):
    # The copy has no extension module, as one that the loader refuses.
    version = torch.__version__.split("+")[0] if built_for == "the installed one" else built_for
    copy_of_the_package(tmp_path, version)
    printed = check_python(
        f"import sys, warnings\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import torch\n"
        "    import torch_webgpu\n"
        "print(torch.ones(2).add(1).tolist())\n"
        "(warning,) = [w for w in caught if issubclass(w.category, RuntimeWarning)]\n"
        "print(warning.message)\n"
    )
    assert "[2.0, 2.0]" in printed  # torch itself works
    assert f"built for torch {version}" in printed
    assert f"torch {torch.__version__}" in printed


def test_version_rule(monkeypatch):
    monkeypatch.setattr(_torch_versions, "built_for", lambda: "2.99.1")
    with pytest.raises(RuntimeError, match=r"built for torch 2\.99\.1"):
        _torch_versions.check_built_for()
    same_minor = ".".join(torch.__version__.split(".")[:2]) + ".77"
    monkeypatch.setattr(_torch_versions, "built_for", lambda: same_minor)
    _torch_versions.check_built_for()


def test_another_device_from_outside(check_python):
    printed = check_python(
        "import torch, warnings\n"
        "torch.utils.rename_privateuse1_backend('other')\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import torch_webgpu\n"
        "print(caught[0].message)\n",
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert "one out-of-tree device, and 'other' is registered already" in printed


def test_one_version():
    version = torch_webgpu.__version__
    assert importlib.metadata.version("torch-webgpu") == version
    package = pathlib.Path(torch_webgpu.cmake_prefix_path) / "TorchWebGPU"
    stated = (package / "TorchWebGPUConfigVersion.cmake").read_text()
    assert f'set(PACKAGE_VERSION "{".".join(version.split(".")[:3])}")' in stated


def test_stub_names_what_the_extension_has():
    stub = ast.parse(pathlib.Path(torch_webgpu.__file__).with_name("_C.pyi").read_text())
    declared = set()
    for node in stub.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            declared.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            declared.add(node.target.id)
    assert declared == {name for name in dir(_C) if not name.startswith("__")}


def test_registering_twice_is_harmless():
    _register.register_or_warn()
    assert sys.modules["torch.webgpu"] is torch.webgpu


def test_reloading_is_harmless(check_python):
    # As IPython's autoreload does.
    check_python(
        "import importlib, warnings, torch, torch_webgpu\n"
        "from torch_webgpu import _register\n"
        "warnings.simplefilter('error')\n"
        "module = torch.webgpu\n"
        "for reloaded in (_register, torch_webgpu, _register):\n"
        "    importlib.reload(reloaded)\n"
        "_register.register_or_warn()\n"
        "assert torch.webgpu is module and torch.ones(2, device='webgpu').sum().item() == 2\n"
    )
