"""Running the validate programs of this folder. Each compiles shaders in a process of its own,
because the packages of the two compilers do not share one.
"""

import functools
import json
import pathlib
import subprocess
import sys
from typing import Any


@functools.cache
def complaints(program: str, *arguments: str) -> dict[str, Any]:
    """The JSON object that `program`.py prints: complaints, which are "" for what is valid."""
    path = pathlib.Path(__file__).with_name(f"{program}.py")
    run = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def assert_valid(found: dict[str, str]) -> None:
    assert found
    wrong = [f"{label}:\n{text}" for label, text in found.items() if text]
    assert not wrong, f"{len(wrong)} of {len(found)} are invalid; the first: {wrong[0]}"
