"""`python -m tests.conformance`: operators that run, fall back, fail, die and hang."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conformance import cells, comparison, compiled, databases, ledgers, readme, report
from conformance.__main__ import main
from torch.testing._internal.common_device_type import tol, toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch.torch_version import TorchVersion

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(what was printed, the JSON, the page) of a run of fake_ops.py."""
    folder = tmp_path_factory.mktemp("conformance")
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "tests.conformance",
                "--databases",
                "tests.tools.fake_ops:op_db",
            ),
            *("--dtypes", "float32,int64", "--samples", "1", "--jobs", "2", "--timeout", "20"),
            *("--json", str(folder / "run" / "result.json"), "--page", str(folder / "ops.html")),
        ],
        cwd=ROOT,
        # The suite's own mode must not reach the workers: they count.
        env=os.environ | {"TORCH_WEBGPU_FALLBACK": "error"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "run" / "result.json").read_text())
    return done.stdout, result, (folder / "ops.html").read_text()


def cells_of(finished, op):
    return {(c["dtype"], c["variant"]): c for c in finished[1]["cells"] if c["op"] == op}


def test_native(finished):
    variants = cells_of(finished, "hypot")
    assert set(variants) == {
        ("float32", variant) for variant in ("forward", "out", "inplace", "gradient")
    }
    assert {cell["status"] for cell in variants.values()} == {"native"}
    assert {c["status"] for c in cells_of(finished, "bitwise_not").values()} == {"native"}


def test_fallbacks_are_counted_and_named(finished):
    cell = cells_of(finished, "linalg_eigvals")["float32", "forward"]
    assert cell["status"] == "fallback"
    assert cell["fallbacks"] and all(op.startswith("aten::") for op in cell["fallbacks"])


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("fake.dies", r"the process died \(SIGABRT\)"),
        ("fake.hangs", "no end after 20 s"),
        ("fake.loses_device", "RuntimeError: device lost"),
    ],
)
def test_a_lost_worker_costs_one_cell(finished, op, reason):
    (cell,) = cells_of(finished, op.replace(".", "_")).values()
    assert cell["status"] == "fails"
    assert re.fullmatch(reason, cell["reason"])


def test_integers_are_compared_exactly(finished):
    (cell,) = cells_of(finished, "fake_inexact").values()
    assert cell["status"] == "fails"
    assert "not equal" in cell["reason"]
    assert "Greatest absolute difference: 1" in cell["detail"]


def test_no_reference(finished):
    (cell,) = cells_of(finished, "fake_<no reference>").values()
    assert cell["status"] == "skipped"
    assert cell["reason"] == "there is no reference: ValueError: not on the CPU"


def test_totals(finished):
    printed, result, _ = finished
    statuses = [cell["status"] for cell in result["cells"]]
    summed = dict.fromkeys(cells.STATUSES, 0)
    (by_variant,) = result["totals"].values()
    for counts in by_variant.values():
        for status, count in counts.items():
            summed[status] += count
    assert summed == {status: statuses.count(status) for status in cells.STATUSES}
    assert "float32: 1 of 5 entries run on the device in every variant (20.0 %)" in printed
    assert "not run" not in printed


def test_page(finished):
    page = finished[2]
    assert "fake_&lt;no reference&gt;" in page  # names are text, not markup
    assert '<td class="fails" title="forward: fails (the process died (SIGABRT))">' in page
    assert "aten::" in page
    assert not re.search(r"""(src|href)=""", page)  # self-contained
    assert page.count('<th scope="row">hypot</th>') == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "nothing"], "no entry has 'nothing'"),
        (["--dtypes", "float65"], "float65 not in float32,"),
    ],
)
def test_unknown_names(options, message, capsys):
    with pytest.raises(SystemExit):
        main(options)
    assert message in capsys.readouterr().err


def test_pytorchs_wider_tolerances_are_kept():
    wider = DecorateInfo(toleranceOverride({torch.float16: tol(atol=0, rtol=0.5)}), "TestCommon")
    compiled = DecorateInfo(toleranceOverride({torch.float16: tol(atol=9, rtol=9)}), "TestDecomp")
    op = OpInfo("abs", dtypes={torch.float16}, decorators=(wider, compiled))
    assert comparison.tolerance("forward", op, torch.float16) == (0.5, 1e-3)
    assert comparison.tolerance("forward", op, torch.float32) == (1e-4, 1e-4)


def test_either_of_two_equal_elements_may_be_chosen():
    sort = cells.entries("operators")["sort"]
    values = torch.tensor([1, 1, 2])

    def compare(indices, **arguments):
        sample = SampleInput(torch.tensor([1, 2, 1]), kwargs=arguments)
        actual, expected = ((values, torch.tensor(order)) for order in (indices, (0, 2, 1)))
        comparison.assert_same("forward", actual, expected, sort, sample, torch.int64)

    compare((2, 0, 1))
    with pytest.raises(AssertionError):
        compare((2, 0, 1), stable=True)
    with pytest.raises(AssertionError):
        compare((2, 1, 0))


def test_reasons_form_families():
    cell = cells.Cell("operators", "add", "float32", "forward")
    results = {
        cell._replace(op=op): cells.Result(cells.FAILS, f"size {k} is wrong")
        for k, op in enumerate(("add", "sub"))
    }
    assert report.families(results, cells.FAILS) == [("size N is wrong", 2, ["add", "sub"])]


def test_totals_replace_a_block_of_the_readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
    cell = cells.Cell("operators", "add", "float32", "out")
    readme.write(path, {cell: cells.Result(cells.NATIVE)})
    text = path.read_text()
    assert text.startswith(f"before\n{readme.BEGIN}\n") and text.endswith("after\n")
    assert "old" not in text
    assert "| operators, forward | 1 | 0 | 0 |" in text
    assert "Of 1 entries of the operator database in float32, 1 (100.0 %) run" in text


def test_a_sample_of_what_takes_long():
    def entries_of(database, only, every):
        found = cells.cells_of((database,), only, ("float32",), every)
        return {cell.op for cell in found}

    every, all_of_them = (entries_of("compiled", "", every) for every in (50, 1))
    assert 0 < len(every) <= len(all_of_them) // 40
    assert entries_of("operators", "", 50) == entries_of("operators", "", 1)
    assert entries_of("compiled", "softmax", 50) == entries_of("compiled", "softmax", 1)


def test_a_difference_of_compiled_code(monkeypatch):
    """It fails, unless the ledger knows of it; the reason is on the page."""
    op = OpInfo(
        "differs",
        op=lambda x: x + 1 if torch.compiler.is_compiling() else x + 2,
        dtypes={torch.float32},
        sample_inputs_func=lambda *args, **kwargs: [SampleInput(torch.ones(3))],
    )
    monkeypatch.setitem(databases.SECTIONS, "compiled", (compiled, []))
    monkeypatch.setattr(cells, "entries", lambda database: {"differs": op})
    for variant in ("forward", "dynamic"):
        cell = cells.Cell("compiled", "differs", "float32", variant)
        assert "not close" in cells.compare(cell, 1).reason
        monkeypatch.setitem(compiled.LEDGER, f"{variant}: differs", "one is not two")
        result = cells.compare(cell, 1)
        assert (result.status, result.reason) == (cells.KNOWN, "one is not two")
        status, text = report.square({variant: result})
        assert status == cells.KNOWN and f"{variant}: known (one is not two - " in text


def test_rows_of_ledgers_about_some_versions():
    rows = {
        "sin": "always",
        "cos": {"before": "2.14", "reason": "once"},
        "tan": {"since": "2.14", "reason": "now"},
    }
    for version, names in [
        ("2.9.1", {"sin": "always", "cos": "once"}),
        ("2.13.0+cpu", {"sin": "always", "cos": "once"}),
        ("2.14.1", {"sin": "always", "tan": "now"}),
    ]:
        assert ledgers.reasons(rows, TorchVersion(version)) == names


def test_every_line_of_the_ledger_is_of_an_entry():
    names = {op.formatted_name for op in databases.entries("compiled").values()}
    kinds = {*compiled.variant_names(), "float16", "float32"}
    for key in compiled.LEDGER:
        kind, _, name = key.rpartition(": ")
        assert name in names and (not kind or kind in kinds), key
