"""torch.webgpu.tunable: kernels of products that are measured, remembered and read again."""

import contextlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE

import torch_webgpu
from torch_webgpu import wgsl
from torch_webgpu.webgpu import tunable

_C = torch_webgpu._C


@pytest.fixture(autouse=True)
def tuning(tmp_path):
    """Each test has a file of its own, and short measurements."""
    before = (tunable._files.name, tunable._files.has_ordinal)
    tunable.set_filename(str(tmp_path / "tuned.csv"))
    tunable.set_max_tuning_iterations(1)
    tunable.write_file_on_exit(False)
    tunable.enable()
    yield
    tunable.enable(False)
    tunable.tuning_enable(True)
    tunable.set_max_tuning_iterations(100)
    tunable._files.name, tunable._files.has_ordinal = before


def results_for(m, k, n):
    return [each for each in tunable.get_results() if f"_{m}_{n}_{k}_B_" in each[1]]


def product(m, k, n, dtype=torch.float32):
    torch.manual_seed(0)
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    return a, b, a.double() @ b.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_products_are_measured_once_and_stay_right(dtype):
    m, k, n = 33, 41, {torch.float32: 37, torch.float16: 38, torch.bfloat16: 39}[dtype]
    a, b, expected = product(m, k, n, dtype)
    x, y = a.to(DEVICE), b.to(DEVICE)
    for _ in range(2):
        torch.testing.assert_close((x @ y).cpu().double(), expected, rtol=2e-2, atol=0.1)
        (result,) = results_for(m, k, n)
    operator, parameters, kernel, milliseconds = result
    name = {torch.float32: "Float", torch.float16: "Half", torch.bfloat16: "BFloat16"}[dtype]
    assert operator == f"GemmTunableOp_{name}_NN"
    assert parameters.startswith(f"nn_{m}_{n}_{k}_B_1_{name}_")
    assert kernel in {row for row, *_ in _C._product_strategies()}
    assert milliseconds > 0


def test_a_known_kernel_is_taken():
    """Whatever the built-in estimates say. The two here add in different orders."""
    m, k, n = 40, 300, 24
    a, b, _ = product(m, k, n)
    x, y = a.to(DEVICE), b.to(DEVICE)
    x @ y
    (device, *key, _, _) = next(each for each in _C._tuned_results() if each[3:7] == (1, m, n, k))
    found = {}
    for row in ("direct", "registers_32"):
        _C._add_tuned_results([(device, *key, row, 1.0)])
        tuned = (x @ y).cpu()
        _C._force_product_strategy(row)
        forced = (x @ y).cpu()
        _C._force_product_strategy("")
        assert torch.equal(tuned, forced)
        found[row] = tuned
    assert not torch.equal(*found.values())
    tunable.enable(False)
    assert results_for(m, k, n)  # still known, but not used


def test_what_is_added_in_place_is_added_once():
    a, b, expected = product(20, 30, 50)
    c = torch.randn(20, 50)
    x = c.to(DEVICE)
    x.addmm_(a.to(DEVICE), b.to(DEVICE), alpha=2)
    torch.testing.assert_close(x.cpu().double(), c.double() + 2 * expected, rtol=1e-4, atol=1e-4)
    assert results_for(20, 30, 50)
    bias = torch.randn(50)
    linear = F.linear(a.to(DEVICE), b.t().contiguous().to(DEVICE), bias.to(DEVICE))
    torch.testing.assert_close(linear.cpu().double(), expected + bias, rtol=1e-4, atol=1e-4)
    assert len(results_for(20, 30, 50)) == 2


@pytest.mark.parametrize("kind", ["tuning off", "graph", "another target", "forced"])
def test_what_is_not_measured(kind):
    sizes = {"tuning off": 43, "graph": 44, "another target": 45, "forced": 46}[kind], 30, 50
    a, b, expected = product(*sizes)
    x, y = a.to(DEVICE), b.to(DEVICE)
    around = contextlib.nullcontext()
    if kind == "tuning off":
        tunable.tuning_enable(False)
        assert not tunable.tuning_is_enabled()
    if kind == "graph":
        captured = torch.webgpu.Graph()
        around = torch.webgpu.graph(captured)
    if kind == "another target":
        around = wgsl.target(limits={"workgroups_to_fill": 2048})
    if kind == "forced":
        _C._force_product_strategy("tiles_32")
    try:
        with around:
            actual = x @ y
    finally:
        _C._force_product_strategy("")
    if kind == "graph":
        captured.replay()
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-4)
    assert not results_for(*sizes)


def test_files(tmp_path):
    m, k, n = 51, 52, 53
    a, b, _ = product(m, k, n)
    a.to(DEVICE) @ b.to(DEVICE)
    path = tmp_path / "other.csv"
    assert tunable.write_file(str(path))
    text = path.read_text()
    (row,) = results_for(m, k, n)
    assert ",".join(row[:3]) in text
    assert [line.split(",")[1] for line in text.splitlines() if line.startswith("Validator")] == [
        name for name, _ in tunable.get_validators()
    ]
    tiles = "tiles_64" if row[2] != "tiles_64" else "tiles_32"
    path.write_text(text.replace(",".join(row[:3]), ",".join([*row[:2], tiles])))
    assert tunable.read_file(str(path))
    assert results_for(m, k, n)[0][2] == tiles
    parts = row[1].split("_")
    for damaged in (
        text.replace(torch.__version__, "0.0.1"),
        text.replace(",".join(row[:3]), ",".join([*row[:2], "no kernel"])),
        text.replace(row[1], "nonsense"),
        text.replace(row[0], "Other_Float_NN"),
        text.replace(row[0], row[0].replace("Float", "Flaot")),
        text.replace(row[1], "_".join([parts[0], "9" * 23, *parts[2:]])),
        text + "one,two\n",
        "\N{GREEK SMALL LETTER ALPHA}" * 10,
        "x" * 200_000,
        "",
    ):
        path.write_text(damaged, encoding="utf-8")
        assert not tunable.read_file(str(path))
        assert results_for(m, k, n)[0][2] == tiles
    path.write_bytes(bytes(range(256)))
    assert not tunable.read_file(str(path))
    assert not tunable.read_file(str(tmp_path))  # a folder
    with pytest.raises(FileNotFoundError):
        tunable.read_file(str(tmp_path / "none.csv"))
    assert not tunable.write_file(str(tmp_path / "no folder" / "file.csv"))
    # The kernel of the estimates, and no time.
    path.write_text(text.replace(",".join(map(str, row)), ",".join([*row[:2], "Default"])))
    assert tunable.read_file(str(path))
    assert results_for(m, k, n)[0][2:] == ("Default", 0.0)
    assert torch.equal((a.to(DEVICE) @ b.to(DEVICE)).cpu(), untuned(a, b))


def untuned(a, b):
    tunable.enable(False)
    result = (a.to(DEVICE) @ b.to(DEVICE)).cpu()
    tunable.enable()
    return result


def test_what_files_hold_is_not_lost(tmp_path):
    path = tmp_path / "shared.csv"
    a, b, _ = product(61, 30, 50)
    a.to(DEVICE) @ b.to(DEVICE)
    (row,) = results_for(61, 30, 50)
    assert tunable.write_file(str(path))
    # A result that another process has added stays.
    other = ",".join(map(str, [row[0], row[1].replace("_61_", "_62_"), *row[2:]]))
    path.write_text(path.read_text() + other + "\n")
    assert tunable.write_file(str(path))
    text = path.read_text()
    assert other in text
    assert ",".join(row[:3]) in text
    # A file of another version is kept beside the new one, and enable() says that it is not read.
    old = text.replace(torch.__version__, "0.0.1")
    path.write_text(old)
    with pytest.warns(UserWarning, match="it is not read"):
        tunable.set_filename(str(path))
    assert tunable.write_file()
    assert (tmp_path / "shared.csv.bak").read_text() == old
    assert other not in path.read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shared.csv", "shared.csv.bak"]


def test_less_precision_is_measured_by_itself():
    a, b, expected = product(63, 30, 50)
    x, y = a.to(DEVICE), b.to(DEVICE)
    x @ y
    torch.set_float32_matmul_precision("high")
    try:
        actual = x @ y
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-2, atol=1e-2)
    assert len(results_for(63, 30, 50)) == 2


def test_names_and_settings(tmp_path):
    tunable.set_filename(str(tmp_path / "name.csv"), insert_device_ordinal=True)
    assert tunable.get_filename() == str(tmp_path / "name0.csv")
    tunable.set_filename(str(tmp_path / "name.csv"))
    assert tunable.get_filename() == str(tmp_path / "name.csv")
    assert tunable.is_enabled()
    before = tunable.get_max_tuning_duration()
    tunable.set_max_tuning_duration(5)
    assert tunable.get_max_tuning_duration() == 5
    tunable.set_max_tuning_duration(before)
    for setter in (tunable.set_max_tuning_duration, tunable.set_max_tuning_iterations):
        for number in (-1, 2**70):
            with pytest.raises(ValueError, match="must be from 0"):
                setter(number)
    with pytest.raises(ValueError, match="is empty"):
        tunable.set_filename("", insert_device_ordinal=True)


PROGRAM = """
import torch
from torch.webgpu import tunable
tunable.set_filename({path!r})
tunable.set_max_tuning_iterations(1)
tunable.tuning_enable({tunes})
tunable.enable()
print(len(tunable.get_results()))
x = torch.ones(60, 61, device="webgpu") @ torch.ones(61, 62, device="webgpu")
assert (x.cpu() == 61).all()
print(len(tunable.get_results()))
"""


def test_the_next_process_reads_what_one_has_measured(tmp_path):
    counts = []
    for tunes in (True, False):
        program = PROGRAM.format(path=str(tmp_path / "kept.csv"), tunes=tunes)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        counts.append(done.stdout.split())
    assert counts == [["0", "1"], ["1", "1"]]
