"""Which releases of a library a project allows, with the Python that a fresh install is assumed to run on."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from dslint.engine.surroundings import Surroundings
from dslint.model.versions.allowed import NOTHING_SAID, STATED, UNKNOWN, Allowed
from dslint.model.versions.known import releases_of
from dslint.settings import load_settings


@pytest.fixture
def allowed(tmp_path, monkeypatch):
    """The answers for `train.py` in a project of these files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()

    def answer(files: dict[str, str], path: str = "train.py", **flags: str) -> Allowed:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        settings = load_settings(Path(), {name.replace("_", "-"): value for name, value in flags.items()})
        return Surroundings(settings, {}).allowed(str(tmp_path / path))

    return answer


def test_nothing_said_is_a_state_of_its_own(allowed):
    found = allowed({}).of("transformers")
    assert (found.state, found.bounds, found.is_pin) == (NOTHING_SAID, (), False)
    assert found.releases[-1] == found.fresh == releases_of("transformers")[-1].version


def test_a_name_without_a_range_is_a_bound_at_its_place(allowed):
    found = allowed({"requirements.txt": "torch\ntransformers\n"}).of("transformers")
    assert found.state == STATED
    assert [bound.place for bound in found.bounds] == ["requirements.txt:2"]


def test_ranges_are_sets_of_existing_releases(allowed):
    found = allowed({"requirements.txt": "transformers>=4.36,!=4.36.1,<4.37.1\n"}).of("transformers")
    assert found.releases == ("4.36.0", "4.36.2", "4.37.0")
    assert found.fresh == "4.37.0"


def test_a_pin_inside_the_range_of_the_package_is_the_answer(allowed):
    files = {
        "requirements.txt": "transformers==4.37.2\n",
        "pyproject.toml": '[project]\ndependencies = ["transformers>=4.30"]\n',
    }
    found = allowed(files).of("transformers")
    assert (found.releases, found.is_pin, found.is_split) == (("4.37.2",), True, False)
    assert {bound.place for bound in found.bounds} == {"requirements.txt:1", "pyproject.toml:2"}


def test_files_that_exclude_each_other_allow_what_any_of_them_allows(allowed):
    files = {"requirements.txt": "transformers==4.31.0\n", "environment.yml": "dependencies:\n- transformers=4.41.2\n"}
    found = allowed(files).of("transformers")
    assert (found.releases, found.is_pin, found.is_split) == (("4.31.0", "4.41.2"), False, True)
    assert found.fresh == "4.31.0"


def test_files_for_different_uses_are_alternatives(allowed):
    files = {"requirements_flux.txt": "peft>=0.17\n", "requirements_sd3.txt": "peft==0.11.1\n"}
    found = allowed(files).of("peft")
    assert found.releases[0] == "0.11.1"
    assert "0.17.0" in found.releases
    assert "0.12.0" not in found.releases
    assert allowed({"requirements.txt": "peft==0.7.0\n"}).of("peft").releases == ("0.7.0",)


def test_constraints_hold_together_with_what_names_them(allowed):
    files = {"requirements.txt": "-c pins.txt\naccelerate>=0.20\n", "pins.txt": "accelerate<0.22\n"}
    assert allowed(files).of("accelerate").releases[-1] == "0.21.0"


def test_markers_are_evaluated_with_the_python_of_the_project(allowed):
    files = {
        "requirements.txt": 'torch==2.0.1; python_version < "3.10"\ntorch==2.4.0; python_version >= "3.10"\n',
        ".python-version": "3.9.7\n",
    }
    found = allowed(files)
    assert (found.python.version, found.python.is_stated) == ("3.9", True)
    assert found.of("torch").releases == ("2.0.1",)


@pytest.mark.parametrize("options", ["--pre", "--index-url https://download.pytorch.org/whl/nightly/cu130"])
def test_pre_releases_and_nightly_builds_are_unknown(allowed, options):
    found = allowed({"README.md": f"```\npip install torch 'vllm>=0.6' {options}\npip install accelerate\n```\n"})
    assert (found.of("torch").state, found.of("torch").fresh) == ("unknown", None)
    assert found.of("torch").reason == "a pre-release or a nightly build is installed"
    assert found.of("vllm").state == found.of("accelerate").state == "stated"


def test_a_fresh_install_takes_what_the_python_can_have(allowed):
    found = allowed({"Dockerfile": "FROM python:3.8-slim\nRUN pip install transformers\n"}).of("transformers")
    assert found.python.origin is not None
    assert found.python.origin.region.line == 1
    # The last release whose metadata say `Requires-Python: >=3.8.0`.
    assert found.fresh == "4.46.3"
    assert found.releases[-1] > found.fresh


def test_wheels_decide_where_nothing_else_is_built(allowed):
    found = allowed({"requirements.txt": "torch<2.2\n", ".python-version": "3.12\n"}).of("torch")
    assert found.fresh is None


def test_the_assumed_python_is_one_that_the_pins_install_on(allowed):
    files = {"pyproject.toml": '[project]\nrequires-python = ">=3.8"\ndependencies = ["torch==2.1.2"]\n'}
    found = allowed(files)
    assert found.python.version == "3.11"
    assert found.of("torch").fresh == "2.1.2"


@pytest.mark.parametrize(
    ("line", "state", "releases"),
    [
        ("git+https://github.com/huggingface/transformers.git@v4.37.2", STATED, ("4.37.2",)),
        ("-e git+https://github.com/huggingface/transformers.git@v4.37.2#egg=transformers", STATED, ("4.37.2",)),
        ("transformers @ git+https://github.com/huggingface/transformers@main", STATED, ("newest",)),
        ("git+ssh://git@github.com/huggingface/transformers.git", STATED, ("newest",)),
        ("git+https://github.com/huggingface/transformers@0a1b2c3", UNKNOWN, ()),
        ("git+https://github.com/somebody/transformers.git", UNKNOWN, ()),
        ("-e ./transformers", UNKNOWN, ()),
        ("transformers @ file:///src/transformers", UNKNOWN, ()),
        ("https://example.org/wheels/transformers-4.37.2-py3-none-any.whl", STATED, ("4.37.2",)),
        ("transformers==4.38.0.dev0", UNKNOWN, ()),
        ("transformers[torch]~=4.37.1", STATED, ("4.37.1", "4.37.2")),
    ],
)
def test_what_no_index_gives(allowed, line, state, releases):
    found = allowed({"requirements.txt": f"{line}\n"}).of("transformers")
    newest = releases_of("transformers")[-1].version
    assert (found.state, found.releases) == (state, tuple(newest if r == "newest" else r for r in releases))
    assert found.is_head == (releases == ("newest",))
    assert bool(found.reason) == (state == UNKNOWN)


def test_what_a_builder_adds_to_a_release_is_no_other_release(allowed):
    files = {"requirements.txt": "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.1.0+cu118\n"}
    assert allowed(files).of("torch").releases == ("2.1.0",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", '[[package]]\nname = "peft"\nversion = "0.7.1"\n'),
        ("pixi.lock", "packages:\n- pypi: https://x.org/peft.whl\n  name: peft\n  version: 0.7.1\n"),
        ("conda-lock.yml", "package:\n- name: peft\n  version: 0.7.1\n  manager: pip\n"),
        ("Pipfile", '[packages]\npeft = "==0.7.1"\n'),
        ("setup.py", 'from setuptools import setup\nsetup(keywords=["peft"], install_requires=["peft==0.7.1"])\n'),
        ("environment.yml", "dependencies:\n- python=3.10\n- pip:\n  - peft==0.7.1\n"),
        ("Dockerfile", "FROM ubuntu\nRUN pip install peft==0.7.1\n"),
        ("README.md", "Install:\n\n    pip install peft==0.7.1\n"),
        (".github/workflows/test.yml", "jobs:\n  a:\n    steps:\n      - run: pip install peft==0.7.1\n"),
    ],
)
def test_every_kind_of_file_is_read_once_and_gives_its_place(allowed, name, text):
    found = allowed({name: text}).of("peft")
    assert found.releases == ("0.7.1",)
    assert found.is_pin
    assert found.pin.origin.path.endswith(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environment.yml", "dependencies:\n  - python=3.9\n"),
        ("Pipfile", '[requires]\npython_version = "3.9"\n'),
        ("pyproject.toml", '[project]\nrequires-python = "==3.9.*"\n'),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "~3.9"\n'),
        ("setup.py", 'from setuptools import setup\nsetup(python_requires=">=3.9,<3.10")\n'),
        ("setup.cfg", "[options]\npython_requires = >=3.9,<3.10\n"),
        ("uv.lock", 'version = 1\nrequires-python = "==3.9.*"\n'),
        ("README.md", "```\nconda create -n x python=3.9 -y\n```\n"),
        (
            ".github/workflows/a.yml",
            "      - uses: actions/setup-python@v4\n        with:\n          python-version: '3.9'\n",
        ),
    ],
)
def test_the_python_of_a_project(allowed, name, text):
    python = allowed({name: text}).python
    assert (python.version, python.is_stated) == ("3.9", True)
    assert python.origin.path.endswith(name)


def test_several_pythons_of_a_workflow(allowed):
    text = "strategy:\n  matrix:\n    python-version: ['3.9', \"3.10\", 3.11]\n"
    python = allowed({".github/workflows/test.yml": text}).python
    assert (python.version, python.is_stated) == ("3.11", False)
    assert python.origin.region.line == 3


def test_the_nearest_folder_that_names_a_library_speaks(allowed):
    files = {"requirements.txt": "peft==0.7.1\ntrl==0.7.4\n", "examples/a/requirements.txt": "peft==0.10.0\n"}
    found = allowed(files, "examples/a/train.py")
    assert found.of("peft").releases == ("0.10.0",)
    assert found.of("trl").releases == ("0.7.4",)


def test_flags_beat_files(allowed):
    found = allowed({"requirements.txt": "transformers==4.37.2\n"}, transformers_version="4.40").of("transformers")
    assert found.releases == ("4.40.0", "4.40.1", "4.40.2")
    assert [bound.place for bound in found.bounds] == ["--transformers-version"]


def test_the_answer_keys_the_cache_and_travels_to_workers(allowed):
    first = allowed({"requirements.txt": "transformers==4.37.2\n"})
    copy = pickle.loads(pickle.dumps(first))
    assert copy == first
    assert repr(copy) == repr(first)
    assert repr(allowed({"requirements.txt": "transformers==4.37.1\n"})) != repr(first)
