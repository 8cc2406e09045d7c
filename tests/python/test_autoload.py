"""`import torch` registers the device only where PyTorch has no other accelerator."""

import pytest
import torch

import torch_webgpu_autoload

# A process whose torch was imported without the entry point: the test calls it, in a torch that
# seems to be built for another accelerator.
SIMULATED = """
import builtins, os, sys, warnings
warnings.simplefilter("error")
import torch

def forbidden(*args):
    raise AssertionError("this initializes the driver")

torch._C._cuda_getDeviceCount = forbidden
torch.cuda.device_count = torch.cuda.is_available = forbidden
# Whatever this torch is built for.
torch._C._has_cuda = torch._C._has_xpu = torch._C._has_mps = False
torch._C._mtia_isBuilt = lambda: False
torch.version.hip = None
{set_up}

import torch_webgpu_autoload
torch_webgpu_autoload.autoload()
"""

CUDA = "torch._C._has_cuda = True; torch.cuda._device_count_nvml = lambda: {count}"
XPU = (
    "torch._C._has_xpu = True; torch.xpu.device_count = lambda: 1; "
    "import glob; glob.glob = lambda pattern: []"
)
MPS = "torch._C._has_mps = True; torch._C._mps_is_available = lambda: True"
BROKEN = (
    "torch._C._has_xpu = True; import glob; glob.glob = lambda pattern: 1 / 0; "
    "warnings.simplefilter('ignore')"
)


def simulated(set_up: str, then: str) -> str:
    return SIMULATED.format(set_up=set_up) + then


def environment(choice: str = "") -> dict[str, str]:
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCH_WEBGPU_AUTOLOAD": choice}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "set_up"),
    [("CUDA", CUDA.format(count=1)), ("XPU", XPU), ("MPS", MPS), ("XPU", BROKEN)],
    ids=["cuda", "xpu", "mps", "unknown"],
)
def test_another_accelerator_keeps_the_slot(check_python, name, set_up):
    printed = check_python(
        simulated(
            set_up,
            "assert 'torch_webgpu' not in sys.modules\n"
            "assert torch._C._get_privateuse1_backend_name() == 'privateuseone'\n"
            "try:\n"
            "    torch.device('webgpu')\n"
            "except RuntimeError as error:\n"
            "    assert 'at start of device string: webgpu' in str(error)\n"
            "assert not hasattr(torch.webgpu, 'is_available')\n"
            "for use in (lambda: torch.webgpu.is_available(), lambda: torch.webgpu.synchronize):\n"
            "    try:\n"
            "        use()\n"
            "    except RuntimeError as error:\n"
            "        print(error)\n",
        ),
        env=environment(),
    )
    lines = printed.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("torch.webgpu.is_available: device 'webgpu' is not registered")
    for line in lines:
        assert f"this machine has {name}" in line
        assert "`import torch_webgpu` registers it" in line
        assert "TORCH_WEBGPU_AUTOLOAD=1" in line


def test_an_explicit_import_opts_in(check_python):
    check_python(
        simulated(
            CUDA.format(count=1),
            "import torch_webgpu\n"
            "assert (torch.ones(2, device='webgpu') + 1).tolist() == [2, 2]\n"
            "assert torch.webgpu.is_available()\n",
        ),
        env=environment(),
    )


def test_the_environment_opts_in(check_python):
    check_python(
        simulated(CUDA.format(count=1), "assert torch.webgpu.device_count() == 1\n"),
        env=environment("1"),
    )


def test_the_environment_opts_out(check_python):
    printed = check_python(
        "import torch\n"
        "assert not hasattr(torch.webgpu, 'device_count')\n"
        "try:\n"
        "    torch.webgpu.device_count()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "import torch_webgpu\n"
        "assert torch.webgpu.device_count() == 1\n",
        env={"TORCH_WEBGPU_AUTOLOAD": "0"},
    )
    assert "TORCH_WEBGPU_AUTOLOAD is 0" in printed


def test_a_wrong_setting_is_named(check_python):
    check_python(
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import torch\n"
        "assert any('TORCH_WEBGPU_AUTOLOAD' in str(w.message) for w in caught)\n"
        "import torch_webgpu\n"
        "assert torch.webgpu.device_count() == 1\n",
        env={"TORCH_WEBGPU_AUTOLOAD": "yes"},
    )


NO_GPU = [
    pytest.param(CUDA.format(count=0), id="a CUDA build without a visible GPU"),
    pytest.param(
        CUDA.format(count=-1) + "; os.path.exists = lambda path: False",
        id="a CUDA build without a driver",
    ),
    pytest.param(
        "torch._C._has_cuda = True; torch.version.hip = '6'; "
        "torch.cuda._device_count_amdsmi = lambda: -1; os.path.exists = lambda path: False",
        id="a ROCm build without a driver",
    ),
    pytest.param(
        "torch.cuda._device_count_nvml = torch.cuda._device_count_amdsmi = forbidden",
        id="a build without CUDA asks nothing",
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("set_up", NO_GPU)
def test_import_torch_is_enough_without_another_accelerator(check_python, set_up):
    check_python(
        simulated(set_up, "assert 'torch_webgpu' in sys.modules and torch.device('webgpu')\n"),
        env=environment(),
    )


def test_a_driver_that_does_not_answer_counts_by_its_files(check_python):
    set_up = CUDA.format(count=-1) + "; os.path.exists = lambda path: path == '/dev/nvidiactl'"
    check_python(simulated(set_up, "assert 'torch_webgpu' not in sys.modules\n"), env=environment())


def test_the_installed_entry_point_is_this_package():
    from importlib.metadata import entry_points

    (entry,) = (e for e in entry_points(group="torch.backends") if e.name == "torch_webgpu")
    assert entry.load() is torch_webgpu_autoload.autoload
    assert torch.webgpu.device_count() == 1
