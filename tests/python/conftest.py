import os
import subprocess
import sys

import pytest


@pytest.fixture
def run_python():
    """Runs a program in a new interpreter and returns the finished process."""

    def run(
        code: str, *, timeout: float = 120, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def check_python(run_python):
    """Like run_python, but the program must exit with 0. Returns what it printed."""

    def check(code: str, **options) -> str:
        process = run_python(code, **options)
        assert process.returncode == 0, process.stderr
        return process.stdout

    return check
