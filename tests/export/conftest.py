"""Compiles the shaders of all files that the tests of this folder write."""

import json
import pathlib
import subprocess
import sys

import pytest
import safetensors

from torch_webgpu.graphs._format import PROGRAM_KEY

ENABLES = {"shader-f16": "enable f16;", "subgroups": "enable subgroups;"}
HERE = pathlib.Path(__file__).parent


class Shaders:
    """Shaders of files, each once, with what the variants that use it require."""

    def __init__(self):
        self.found = {}

    def add_file(self, path, test):
        """Adds a file's shaders. Nothing, if it is no graph file of several variants."""
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                program = json.loads((file.metadata() or {}).get(PROGRAM_KEY, "{}"))
        except safetensors.SafetensorError:
            return
        for function in program.get("functions", {}).values():
            for variant in function["variants"]:
                used = {c["shader"] for c in variant["commands"] if c["do"] == "dispatch"}
                for number in used:
                    shader = program["shaders"][number]
                    self.add(f"{test}: {shader['label']}", shader["wgsl"], variant["requires"])

    def add(self, label, wgsl, requires):
        # What other shaders of the variant need does not concern this one.
        features = [f for f in requires.get("features", []) if ENABLES.get(f, "enable") in wgsl]
        language = tuple(requires.get("language_features", []))
        shader = {"label": label, "wgsl": wgsl, "features": features}
        self.found.setdefault(language, {}).setdefault((wgsl, *features), shader)

    def complaints(self, compiler, folder):
        return [
            text
            for language, shaders in self.found.items()
            for text in self._complaints(compiler, folder, language, list(shaders.values()))
        ]

    def _complaints(self, compiler, folder, language, shaders):
        (folder / "shaders.json").write_text(json.dumps(shaders))
        program = HERE / "compile_shaders.py"
        run = subprocess.run(
            [sys.executable, program, compiler, folder / "shaders.json", *language],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        texts = json.loads(run.stdout.splitlines()[-1])
        return [
            f"{shader['label']}: {text}\n{shader['wgsl']}"
            for shader, text in zip(shaders, texts, strict=True)
            if text
        ]


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
