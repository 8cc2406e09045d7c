"""How libraries are adapted: when, what the environment says, and what a changed library gets."""

import copy
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import zipfile
import zipimport

import pytest
import torch

from torch_webgpu import _import_hook, integrations
from torch_webgpu.integrations import _libraries, _patching


@pytest.fixture
def packages(tmp_path):
    """Writes packages of a test, and gives the environment of a program that can import them."""

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            for parent in path.parents[: len(name.split("__")) - 1]:
                (parent / "__init__.py").touch()
            path.write_text(text)
        return {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    return write


ENVIRONMENT_MODULE = "def get_device_name():\n    return 'cpu'\n"
NAME = "from sentence_transformers.util.environment import get_device_name as f; print(f())"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "cpu"),
        ("0", "cpu"),
        ("all", "webgpu:0"),
        ("lightning, sentence_transformers", "webgpu:0"),
        ("lightning", "cpu"),
    ],
)
def test_the_environment(check_python, packages, value, expected):
    environment = packages(sentence_transformers__util__environment=ENVIRONMENT_MODULE)
    environment["TORCH_WEBGPU_INTEGRATIONS"] = value
    assert check_python(f"import torch; {NAME}", env=environment).strip() == expected


def test_a_wrong_name_in_the_environment(run_python):
    done = run_python("import torch", env={"TORCH_WEBGPU_INTEGRATIONS": "lightening"})
    assert done.returncode == 0
    assert "TORCH_WEBGPU_INTEGRATIONS names lightening; it takes 0, all" in done.stderr


@pytest.mark.parametrize("order", ["before", "after"])
def test_enable_before_and_after_the_library(check_python, packages, order):
    environment = packages(sentence_transformers__util__environment=ENVIRONMENT_MODULE)
    enable = "from torch_webgpu import integrations; integrations.enable('sentence_transformers')"
    load = "from sentence_transformers.util.environment import get_device_name as early"
    lines = [enable, load] if order == "before" else ["import torch", load, enable]
    # A library may also be imported before torch is.
    if order == "after":
        lines = [load, "import torch", load, enable]
    printed = check_python("\n".join([*lines, "print(early())"]), env=environment)
    assert printed.strip() == "webgpu:0"


def test_a_library_that_changed(check_python, packages):
    environment = packages(sentence_transformers__util__environment="def other(): return 5\n")
    printed = check_python(
        "import torch, warnings\n"
        "from torch_webgpu import integrations\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from sentence_transformers.util.environment import other\n"
        "assert other() == 5\n"
        "print(*(w.message for w in caught))\n"
        "try:\n"
        "    integrations.enable('sentence_transformers')\n"
        "except RuntimeError as error:\n"
        "    print('enable:', error)\n"
        "assert integrations.enabled() == ()\n",
        env=environment,
    )
    first, second = printed.splitlines()
    assert "is not known to this version of torch_webgpu" in first and "get_device_name" in first
    assert second == f"enable: {first}"


def test_names():
    assert set(integrations.names()) == set(_libraries.LIBRARIES)
    with pytest.raises(ValueError, match="no integration for numpy; there are accelerate"):
        integrations.enable("numpy")
    for library, (module, functions) in _libraries.LIBRARIES.items():
        adapters = importlib.import_module(f"torch_webgpu.integrations.{module}")
        assert adapters.__doc__, library
        assert all(getattr(adapters, name).__doc__ for name in functions.values())


def test_an_import_that_fails_is_adapted_when_it_succeeds(tmp_path, monkeypatch):
    (tmp_path / "fails_once.py").write_text("import builtins\nif not builtins.allowed: 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    adapted = []
    _import_hook.when_imported("fails_once", adapted.append)
    monkeypatch.setattr("builtins.allowed", False, raising=False)
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("fails_once")
    assert not adapted
    monkeypatch.setattr("builtins.allowed", True)
    module = importlib.import_module("fails_once")
    assert adapted == [module]
    assert type(module.__spec__.loader) is importlib.machinery.SourceFileLoader
    assert importlib.reload(module) is module and adapted == [module, module]
    del _import_hook._awaited["fails_once"]
    _import_hook.when_imported("no_such_module_at_all", adapted.append)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")
    del _import_hook._awaited["no_such_module_at_all"]


LATE = """
import torch
from sentence_transformers.util import other
def get_device_name():
    return 'cpu'
"""


@pytest.mark.parametrize("how", ["plain", "fails", "package"])
def test_a_library_that_imports_torch_itself(check_python, packages, how):
    """The module is in sys.modules, half executed, when `import torch` comes to adapt it."""
    modules = {"sentence_transformers__util__environment": LATE}
    modules["sentence_transformers__util__other"] = "assert True\n"
    if how == "package":
        modules["sentence_transformers__util__first"] = (
            "from sentence_transformers.util.environment import get_device_name as name\n"
        )
    if how == "fails":
        modules["sentence_transformers__util__environment"] = (
            LATE + "import builtins\nif not vars(builtins).get('allowed'): raise EOFError\n"
        )
    environment = packages(**modules)
    environment["TORCH_WEBGPU_INTEGRATIONS"] = "all"
    lines = ["import sys, warnings", "warnings.simplefilter('error')", "import builtins"]
    if how == "fails":
        lines += [
            "try:",
            "    import sentence_transformers.util.environment",
            "    raise SystemExit('must fail')",
            "except EOFError:",
            "    builtins.allowed = True",
        ]
    if how == "package":
        lines += ["from sentence_transformers.util.first import name", "print(name())"]
    else:
        lines += [NAME]
    lines += [
        "from sentence_transformers.util import environment",
        "from importlib.machinery import ModuleSpec",
        "spec = environment.__spec__",
        "assert type(spec) is ModuleSpec and not spec._initializing",
        "from torch_webgpu.integrations import _imports",
        "assert not _imports.problems",
    ]
    assert check_python("\n".join(lines), env=environment).split() == ["webgpu:0"]


DEADLOCK = """
import faulthandler, threading
import torch
from torch_webgpu import _import_hook

faulthandler.dump_traceback_later(20, exit=True)
adapted = []
_import_hook.when_imported("parent_of_a_test.awaited", adapted.append)
import builtins
builtins.parent_begins, builtins.child_is_asked = threading.Event(), threading.Event()

def import_parent():
    import parent_of_a_test

def import_child():
    builtins.parent_begins.wait()
    builtins.child_is_asked.set()
    import parent_of_a_test.awaited

threads = [threading.Thread(target=target) for target in (import_parent, import_child)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import sys
assert adapted == [sys.modules["parent_of_a_test.awaited"]]
"""


def test_two_threads_import_a_package_and_its_module(check_python, packages, tmp_path):
    environment = packages(parent_of_a_test__awaited="X = 1\n")
    (tmp_path / "parent_of_a_test/__init__.py").write_text(
        "import builtins, time\n"
        "builtins.parent_begins.set()\n"
        "builtins.child_is_asked.wait()\n"
        "time.sleep(0.3)\n"  # the other thread waits for this package's lock by then
        "from parent_of_a_test import awaited\n"
    )
    check_python(DEADLOCK, env=environment)


@pytest.fixture
def awaited(monkeypatch):
    """Awaits a module, and gives the list of the modules that were adapted."""
    adapted = []

    def wait_for(name):
        _import_hook.when_imported(name, adapted.append)
        return adapted

    monkeypatch.setattr(_import_hook, "_awaited", dict(_import_hook._awaited))
    before = set(sys.modules)
    yield wait_for
    for name in set(sys.modules) - before:
        if "of_a_test" in name:
            del sys.modules[name]


def test_finders_that_ask_each_other(tmp_path, monkeypatch, awaited):
    (tmp_path / "asked_of_a_test.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    class Finder:
        """Asks all others, as the one of this package does."""

        def find_spec(self, name, path=None, target=None):
            if name != "asked_of_a_test":
                return None
            found = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
            return next((spec for spec in found if spec is not None), None)

    real = [*sys.meta_path]
    for position in (0, 1, 2):
        adapted = awaited("asked_of_a_test")
        adapted.clear()
        finders = [*real]
        finders.insert(position, Finder())
        monkeypatch.setattr(sys, "meta_path", finders)
        module = importlib.import_module("asked_of_a_test")
        assert adapted == [module]
        del sys.modules["asked_of_a_test"]


def test_a_loader_of_several_modules(tmp_path, monkeypatch, awaited):
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
        archive.writestr("zipped_of_a_test/__init__.py", "")
        for name in ("one", "two", "other"):
            archive.writestr(f"zipped_of_a_test/{name}.py", f"X = {name!r}\n")
    monkeypatch.syspath_prepend(tmp_path / "modules.zip")
    for name in ("one", "two"):
        adapted = awaited(f"zipped_of_a_test.{name}")
    spec = importlib.util.find_spec("zipped_of_a_test.one")  # and nothing executes it
    assert "X = 'one'" in spec.loader.get_source(spec.name)
    assert not spec.loader.is_package(spec.name) and copy.copy(spec.loader)
    importlib.util.find_spec("zipped_of_a_test.two")
    other = importlib.import_module("zipped_of_a_test.other")
    assert (other.X, adapted) == ("other", [])
    two = importlib.import_module("zipped_of_a_test.two")
    one = importlib.import_module("zipped_of_a_test.one")
    assert (one.X, two.X, adapted) == ("one", "two", [two, one])
    assert type(one.__loader__) is type(one.__spec__.loader) is zipimport.zipimporter
    assert "exec_module" not in vars(one.__loader__)


@pytest.mark.skipif(
    "xxsubtype" not in sys.builtin_module_names, reason="this Python has no such built-in module"
)
def test_a_loader_that_is_a_class(monkeypatch, awaited):
    """The loaders of built-in modules have no instances."""
    adapted = awaited("xxsubtype")
    monkeypatch.delitem(sys.modules, "xxsubtype", raising=False)
    module = importlib.import_module("xxsubtype")
    assert adapted == [module]
    assert module.__spec__.loader is importlib.machinery.BuiltinImporter
    monkeypatch.delitem(sys.modules, "xxsubtype")


def choose(kind):
    return kind in ("cpu", "cuda", "xpu")


def choose_twice(kind):
    return kind in ("cpu", "cuda") or kind in {"cuda", "cpu", "mps"}


def test_extending_a_list_in_a_function():
    one = types.FunctionType(choose.__code__, globals())
    assert not one("webgpu")
    _patching.extend_constant(one, {"cuda", "xpu"}, "webgpu")
    _patching.extend_constant(one, {"cuda", "xpu"}, "webgpu")  # is there already
    assert one("webgpu") and one("cpu") and not one("tpu") and not choose("webgpu")
    for function, members in ((choose, {"hpu"}), (choose_twice, {"cpu", "cuda"})):
        with pytest.raises(LookupError, match="has no list of the devices"):
            _patching.extend_constant(function, members, "webgpu")


def test_replacing_a_function_where_it_was_imported(monkeypatch):
    source, user = types.ModuleType("source_of_a_test"), types.ModuleType("user_of_a_test")

    def answer():
        """Two."""
        return 2

    source.answer = user.alias = answer
    monkeypatch.setitem(sys.modules, source.__name__, source)
    monkeypatch.setitem(sys.modules, user.__name__, user)
    _patching.replace(source, "answer", lambda old: lambda: old() + 1)
    assert source.answer() == user.alias() == 3
    assert source.answer.__doc__ == "Two."
    with pytest.raises(AttributeError):
        _patching.replace(source, "question", lambda old: old)


def test_nothing_is_asked_before_a_library_chooses(check_python, packages):
    environment = packages(sentence_transformers__util__environment=ENVIRONMENT_MODULE)
    check_python(
        "import torch\n"
        "from torch_webgpu import _C\n"
        "_C.is_available = _C.adapter = lambda: 1 / 0\n"
        "from torch_webgpu import integrations\n"
        "integrations.enable()\n"
        "import sentence_transformers.util.environment as environment\n"
        "try:\n"
        "    environment.get_device_name()\n"
        "except ZeroDivisionError:\n"
        "    raise SystemExit(0)\n"
        "raise SystemExit('not asked')\n",
        env=environment,
    )


def test_index_0_of_the_accelerator_is_the_device():
    assert torch.device(0) == torch.device("webgpu", 0)
