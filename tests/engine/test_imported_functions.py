"""Functions of other files of a project, by import: what is found, what is not, and when a kept result holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.engine.projectfiles import ProjectFiles
from dslint.engine.run import check_paths
from dslint.engine.scripts import POOL_THRESHOLD
from dslint.python.search import ModuleSearch, is_library
from dslint.settings import make_settings

HELPER = """\
import torch.distributed as dist

def sync():
    dist.barrier()

def guarded():
    if dist.get_rank() == 0:
        print("here")

class Saver:
    def save(self):
        sync()

    def show(self):
        print("shown")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / ".git").mkdir()
    monkeypatch.chdir(root)
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def lines(path: str, **settings: object) -> list[int]:
    """The lines of a file where a call of another file is reported."""
    result = check_paths(["."], make_settings({"select": ["DSL201"], "cache": False, **settings}))
    assert {f.code for f in result.findings} <= {"DSL201"}
    return [f.location.region.line for f in result.findings if f.location.path == path]


def script(imports: str, call: str) -> str:
    return f"{imports}\nclass C:\n    def f(self, is_main_process):\n        if is_main_process:\n            {call}\n"


@pytest.mark.parametrize(
    ("imports", "call", "found"),
    [
        ("from helper import sync", "sync()", True),
        ("from helper import sync as s", "s()", True),
        ("from helper import (\n    guarded,  # one\n    sync,\n)", "sync()", True),
        ("import helper", "helper.sync()", True),
        ("import helper as h", "h.sync()", True),
        ("from . import helper", "helper.sync()", True),
        ("from .helper import sync", "sync()", True),
        ("from helper import *", "sync()", True),
        ("from helper import guarded", "guarded()", False),
        ("from helper import missing", "missing()", False),
        ("from nowhere import sync", "sync()", False),
        ("from helper import Saver", "Saver().save()", True),
        ("from helper import Saver", "saver = Saver(); saver.save()", True),
        ("from helper import Saver", "Saver().show()", False),
        ("from helper import Saver", "other.save()", False),
        ("from pkg import sync", "sync()", True),
        ("from pkg.inner import sync", "sync()", True),
        ("import pkg.inner.deep as d", "d.sync()", True),
        ("from installed.comm import sync", "sync()", True),
        ("try:\n    from fast import sync\nexcept ImportError:\n    sync = None", "sync()", False),
    ],
)
def test_an_import_leads_to_the_function(project: Path, imports: str, call: str, found: bool) -> None:
    write(
        project,
        {
            "helper.py": HELPER,
            "pkg/__init__.py": "from .inner import sync\n",
            "pkg/inner/__init__.py": "from .deep import *\n",
            "pkg/inner/deep.py": HELPER,
            "src/installed/__init__.py": "",
            "src/installed/comm.py": "from helper import sync as same\ndef sync():\n    same()\n",
            "train.py": script(imports, call),
        },
    )
    assert lines("train.py") == ([5 + imports.count("\n")] if found else [])


def test_a_method_of_a_base_class_in_another_file(project: Path) -> None:
    write(
        project,
        {
            "helper.py": HELPER,
            "train.py": "from helper import Saver\nclass Mine(Saver):\n    def f(self, is_main_process):\n"
            "        if is_main_process:\n            self.save()\n            self.show()\n",
        },
    )
    assert lines("train.py") == [5]


def test_the_place_of_the_helper_is_in_its_file(project: Path) -> None:
    write(project, {"helper.py": HELPER, "train.py": script("from helper import sync", "sync()")})
    (found,) = check_paths(["train.py"], make_settings({"cache": False})).findings
    assert [(r.path, r.region.line) for r in found.related if r.label == "runs the collective"] == [("helper.py", 4)]


@pytest.mark.parametrize(
    "helper", ["def sync(:\n", "import train\nfrom train import sync\n", "\0", "def sync():\n    return sync()\n"]
)
def test_what_cannot_be_followed_is_unknown(project: Path, helper: str) -> None:
    write(project, {"helper.py": helper, "train.py": script("from helper import sync", "sync()")})
    assert lines("train.py", select=["DSL201"]) == []


def test_nothing_outside_of_the_project_is_read(project: Path) -> None:
    write(project, {"train.py": script("from linked import sync", "sync()")})
    write(project.parent, {"outside.py": HELPER})
    (project / "linked.py").symlink_to(project.parent / "outside.py")
    (project / "folder").symlink_to(project.parent)
    write(project, {"second.py": script("from folder.outside import sync", "sync()")})
    write(project, {"third.py": script("from ..outside import sync", "sync()")})
    found = check_paths(["second.py", "third.py", "train.py"], make_settings({"cache": False})).findings
    assert found == []
    files = ProjectFiles()
    assert files.kind(files.absolute("linked.py")) == ""
    assert files.kind(files.absolute("folder")) == ""
    assert files.kind(files.absolute("train.py")) == "file"


def test_two_files_that_would_do_mean_none(project: Path) -> None:
    write(
        project, {"a/helper.py": HELPER, "helper.py": HELPER, "a/b/train.py": script("import helper", "helper.sync()")}
    )
    assert lines("a/b/train.py") == []
    (project / "helper.py").unlink()
    assert lines("a/b/train.py") == [5]


def kept(project: Path) -> list[int]:
    settings = {"select": ["DSL201"], "cache-dir": project / ".cache"}
    found = check_paths(["train.py"], make_settings(settings)).findings
    return [f.location.region.line for f in found]


def test_a_kept_result_holds_as_long_as_the_other_files_are_the_same(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"train.py": script("from pkg import sync", "sync()")})
    assert kept(project) == []
    write(project, {"pkg/__init__.py": "from .comm import sync\n"})
    assert kept(project) == []
    write(project, {"pkg/comm.py": HELPER})  # a file that was asked for and not there
    assert kept(project) == [5]
    write(project, {"pkg/comm.py": HELPER.replace("dist.barrier()", "pass")})
    assert kept(project) == []
    write(project, {"pkg/comm.py": HELPER, "other.py": HELPER})
    assert kept(project) == [5]
    with monkeypatch.context() as patch:
        patch.setattr("dslint.engine.scripts.Judge.judged", None)
        assert kept(project) == [5]  # nothing has changed: nothing is judged
        write(project, {"unrelated.py": "x = 1\n"})
        assert kept(project) == [5]
    (project / "pkg" / "__init__.py").unlink()
    (project / "pkg" / "comm.py").unlink()
    assert kept(project) == []


@pytest.mark.parametrize("answers", [[], [["file", "x", "y"]], [["file", "x", "y"]] * 2, "none", [1], [[1]]])
def test_a_damaged_cache_is_judged_again(project: Path, answers: object) -> None:
    import json

    write(project, {"train.py": script("from helper import sync", "sync()"), "helper.py": HELPER})
    assert kept(project) == [5]
    (file,) = (project / ".cache").glob("*.json")
    table = json.loads(file.read_text())
    assert table["answers"]
    file.write_text(json.dumps({**table, "answers": answers}))
    assert kept(project) == [5]


def test_workers_and_one_process_find_the_same(project: Path) -> None:
    write(project, {"helper.py": HELPER})
    for number in range(POOL_THRESHOLD + 4):
        padding = "# filled\n" * 1200 + f"x = {number}\n"
        write(project, {f"train{number}.py": script("from helper import sync", "sync()") + padding})
    found = [check_paths(["."], make_settings({"cache": False, "jobs": jobs})).findings for jobs in (1, 2)]
    assert found[0] == found[1]
    assert len(found[0]) == POOL_THRESHOLD + 4


def test_a_text_that_is_given_replaces_the_file(project: Path) -> None:
    write(project, {"helper.py": "def sync(): pass\n", "train.py": script("from helper import sync", "sync()")})
    settings = make_settings({"cache": False})
    assert check_paths(["train.py"], settings).findings == []
    found = check_paths(["train.py"], settings, {"helper.py": HELPER, "new/x.py": ""}).findings
    assert [f.code for f in found] == ["DSL201"]


FILES = {
    "/p/train.py", "/p/utils.py", "/p/pkg/__init__.py", "/p/pkg/utils.py", "/p/pkg/sub/__init__.py", "/p/pkg/sub/a.py",
    "/p/src/lib/__init__.py", "/p/ns/mod.py", "/p/pkg/both.py", "/p/pkg/both/__init__.py", "/p/json.py", "/outside.py",
    "/p/same/__init__.py", "/p/same/same.py", "/p/same/sub/__init__.py", "/p/same/sub/same.py",
    "/p/deep/down/run.py", "/p/deep/torch/__init__.py", "/p/deep/torch/inner.py",
}  # fmt: skip


def kind(path: str) -> str:
    if path in FILES:
        return "file"
    return "folder" if any(file.startswith(path + "/") for file in FILES) else ""


@pytest.mark.parametrize(
    ("folder", "name", "expected"),
    [
        ("/p", "utils", "/p/utils.py"),
        ("/p", "pkg", "/p/pkg/__init__.py"),
        ("/p", "pkg.sub.a", "/p/pkg/sub/a.py"),
        ("/p", "pkg.both", "/p/pkg/both/__init__.py"),
        ("/p", "ns.mod", "/p/ns/mod.py"),
        ("/p", "ns", ""),
        ("/p", "lib", "/p/src/lib/__init__.py"),
        ("/p", "json", ""),
        ("/p", ".utils", "/p/utils.py"),
        ("/p", "..outside", ""),
        ("/p/pkg/sub", "pkg.utils", "/p/pkg/utils.py"),
        ("/p/pkg/sub", "a", "/p/pkg/sub/a.py"),
        ("/p/pkg/sub", ".a", "/p/pkg/sub/a.py"),
        ("/p/pkg/sub", "..utils", "/p/pkg/utils.py"),
        ("/p/pkg/sub", "..", "/p/pkg/__init__.py"),
        ("/p/pkg", "utils", ""),  # the package's own when it is a script, the one beside it when it is installed
        (
            "/p/same",
            "same",
            "/p/same/__init__.py",
        ),  # the package that it lies in, not the module of that name beside it
        ("/p/same", "same.same", "/p/same/same.py"),
        ("/p/same/sub", "same", "/p/same/__init__.py"),
        ("/p/deep/down", "utils", "/p/utils.py"),
        ("/p/deep/down", "torch", ""),
        ("/p/deep/torch", "torch.inner", "/p/deep/torch/inner.py"),
        ("/elsewhere", "utils", ""),
        ("/p", "a." * 20, ""),
        ("/p", "", ""),
    ],
)
def test_modules_are_found_as_python_finds_them(folder: str, name: str, expected: str) -> None:
    assert ModuleSearch(kind).find(folder, "/p", name) == expected


def test_a_module_beside_the_script_hides_the_installed_datasets() -> None:
    files = {"/p/datasets.py", "/p/train.py", "/p/tools/train.py"}
    search = ModuleSearch(lambda path: "file" if path in files else "folder" if path in ("/p", "/p/tools") else "")
    assert search.find("/p", "/p", "datasets") == "/p/datasets.py"
    assert search.find("/p/tools", "/p", "datasets") == ""  # Python does not look there
    assert not is_library("/p/train.py", "datasets")


def test_libraries_are_no_question_outside_of_themselves() -> None:
    assert is_library("/p/train.py", "torch.distributed")
    assert is_library("/p/train.py", "os")
    assert not is_library("/p/src/accelerate/utils.py", "accelerate.state")
    assert not is_library("/p/train.py", ".torch")


STARTS = """\
import torch.distributed as dist

def setup():
    dist.init_process_group("nccl")
"""
TRAINS = """\
from kit import setup
from loop import Loop

def main(path):
    setup()
    Loop(path).load()

if __name__ == "__main__":
    main(input())
"""
LOOP = """\
import torch
from torch import distributed as net

class Loop:
    def __init__(self, path):
        self.path = path

    def load(self):
        if net.get_rank() == 0:
            net.barrier()
"""


@pytest.mark.parametrize(("kit", "place"), [(STARTS, "loop.py:10"), ("def setup():\n    print()\n", "")])
def test_a_run_begins_in_what_a_script_imports(project: Path, kit: str, place: str) -> None:
    """The script has no word for the start of several ranks: its imports are asked."""
    for name, text in (("kit.py", kit), ("train.py", TRAINS), ("loop.py", LOOP)):
        (project / name).write_text(text, "utf-8")
    settings = make_settings({"cache": False, "jobs": 1, "select": ("DSL201",)}, Path())
    found = [str(f.location) for f in check_paths(["train.py"], settings).findings]
    assert found == ([place] if place else [])
