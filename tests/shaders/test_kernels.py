"""naga accepts every form of every kernel that it can. Tint's part: test_targets.py."""

import pytest

from torch_webgpu import wgsl

from .forms import choices, forms, kernels_with_text
from .programs import assert_valid, complaints

PORTABLE = [name for name in kernels_with_text() if not wgsl.kernels()[name]["enables"]]


@pytest.mark.parametrize("kernel", PORTABLE)
def test_forms_are_valid(kernel):
    found = complaints("validate_kernels")[kernel]
    assert_valid(found)


@pytest.mark.parametrize("kernel", kernels_with_text())
def test_each_choice_occurs(kernel):
    contract = wgsl.kernels()[kernel]
    found = list(forms(contract))
    possible = dict(choices(contract))  # a kernel may fix what it imports
    for const in contract["consts"]:
        seen = {form.consts[const["name"]] for form in found}
        assert seen == set(possible[f"const {const['name']}"])
    for operand in contract["operands"]:
        seen = {operand["name"] in form.operands for form in found}
        assert seen == set(possible.get(f"has {operand['name']}", [True]))


def test_a_target_without_an_extension_is_refused():
    form = next(iter(forms(wgsl.kernels()["gemm_matrix"])))
    with pytest.raises(RuntimeError, match="kernel gemm_matrix: the target has no subgroups"):
        wgsl.assemble("gemm_matrix", form.consts, form.operands, features=["shader-f16"])


def test_operands_are_computed_in_one_type():
    form = next(iter(forms(wgsl.kernels()["gemm"])))
    wrong = {**form.operands, "c": form.operands["c"]._replace(dtype="i64")}
    with pytest.raises(RuntimeError, match="operand c is not computed in the type of a"):
        wgsl.assemble("gemm", form.consts, wrong)


def test_a_wrong_form_is_refused():
    kernel = wgsl.kernels()["norm_rows"]
    form = next(iter(forms(kernel)))
    with pytest.raises(RuntimeError, match="kernel norm_rows: constant items cannot be 3"):
        wgsl.assemble("norm_rows", {**form.consts, "items": 3}, form.operands)
    wrong = {**form.operands, "x": form.operands["x"]._replace(dtype="i64")}
    with pytest.raises(RuntimeError, match="kernel norm_rows: operand x cannot have dtype i64"):
        wgsl.assemble("norm_rows", form.consts, wrong)
    without = {name: given for name, given in form.operands.items() if name != "x"}
    with pytest.raises(RuntimeError, match="kernel norm_rows: operand x is missing"):
        wgsl.assemble("norm_rows", form.consts, without)
    flipped = {**form.consts, "centered": not form.consts["centered"]}
    with pytest.raises(RuntimeError, match="do not go together"):
        wgsl.assemble("norm_rows", flipped, form.operands)
    with pytest.raises(ValueError, match="kernel norm_rows declares no z"):
        wgsl.assemble("norm_rows", form.consts, {**form.operands, "z": form.operands["x"]})
