"""`python shader_files.py FILES` compiles the shaders of graph files with naga and with Tint, and
prints what does not compile, or needs more than its variant requires."""

import json
import pathlib
import subprocess
import sys
import tempfile

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


def main() -> None:
    shaders = Shaders()
    for name in sys.argv[1:]:
        shaders.add_file(name, name)
    print(sum(map(len, shaders.found.values())), "shaders")
    with tempfile.TemporaryDirectory() as folder:
        for compiler in ("wgpu", "wgpudawn"):
            for wrong in shaders.complaints(compiler, pathlib.Path(folder)):
                print(f"{compiler}: {wrong}")


if __name__ == "__main__":
    main()
