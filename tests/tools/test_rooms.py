"""What the rooms of csrc promise of each other, as far as their text shows it."""

from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"


@pytest.mark.parametrize("room", ["ops", "launch"])
def test_plans_follow_from_the_target_alone(room):
    """Limits come from plan_target(), so that a launch can be planned for another device."""
    asking = [
        str(path.relative_to(CSRC))
        for path in (CSRC / room).rglob("*.*")
        if path.suffix in (".cpp", ".h") and ".caps()" in path.read_text()
    ]
    assert not asking


def test_the_runtime_knows_nothing_of_torch():
    files = [path for path in (CSRC / "runtime").rglob("*.*") if path.suffix in (".cpp", ".h")]
    assert files
    for path in files:
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(("#include <ATen", "#include <c10"))]
