"""Makes the source tree importable in the current environment, as an editable install would.

Writes a .pth file and a .dist-info folder into site-packages. CMake builds into the source tree, so
that nothing else is to be installed after a change; the metadata is what lets `import torch` find
the `torch.backends` entry point. With `--requirements` it prints the packages that a development
environment needs instead.
"""

import argparse
import pathlib
import re
import shutil
import sysconfig

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def requirements(pyproject: dict, groups: list[str]) -> list[str]:
    project = pyproject["project"]
    optional = {"build": pyproject["build-system"]["requires"], **project["optional-dependencies"]}
    wanted = [*project["dependencies"], *(spec for group in groups for spec in optional[group])]
    return list(dict.fromkeys(wanted))


def version() -> str:
    text = (ROOT / "torch_webgpu" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    assert match is not None
    return match[1]


def install(project: dict, site_packages: pathlib.Path) -> None:
    module = project["name"].replace("-", "_")
    for old in site_packages.glob(f"{module}-*.dist-info"):
        shutil.rmtree(old)
    info = site_packages / f"{module}-{version()}.dist-info"
    info.mkdir(parents=True)
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version()}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {spec}" for spec in project["dependencies"]),
    ]
    entry_points = []
    for group, entries in project["entry-points"].items():
        entry_points += [f"[{group}]", *(f"{name} = {ref}" for name, ref in entries.items())]
    files = {
        f"{info.name}/METADATA": "\n".join(metadata) + "\n",
        f"{info.name}/entry_points.txt": "\n".join(entry_points) + "\n",
        f"{info.name}/INSTALLER": "tools/dev_install.py\n",
        f"{module}.pth": f"{ROOT}\n",
    }
    # RECORD lets `pip uninstall torch-webgpu` take all of it away.
    files[f"{info.name}/RECORD"] = "".join(
        f"{name},,\n" for name in [*files, f"{info.name}/RECORD"]
    )
    for name, text in files.items():
        (site_packages / name).write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", nargs="+", metavar="GROUP")
    args = parser.parse_args()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if args.requirements:
        print("\n".join(requirements(pyproject, args.requirements)))
    else:
        install(pyproject["project"], pathlib.Path(sysconfig.get_path("purelib")))


if __name__ == "__main__":
    main()
