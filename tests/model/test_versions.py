"""Library versions out of project files, each with the line that states it, and what a range covers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dslint.core.source import SourceFile
from dslint.model.context import VersionFact
from dslint.model.deepspeed.releases import RELEASES
from dslint.model.versions.resolve import (
    covers,
    is_pin,
    parse_versions,
    stated_version,
    stronger,
    told_files,
    version_files,
)

UV_LOCK = """version = 1
requires-python = ">=3.10"

[[package]]
name = "deepspeed-mii"
version = "0.1.0"

[[package]]
name = "deepspeed"
version = "0.16.2"
source = { registry = "https://pypi.org/simple" }
"""
POETRY = """[tool.poetry.dependencies]
python = "^3.10"
deepspeed = "^0.12.6"
torch = {version = "2.1.2", optional = true}
accelerate = "~1.2"
transformers = "*"
"""
PYPROJECT = """[build-system]
requires = ["setuptools", "torch==9.9"]

[project]
name = "xtuner"
# "deepspeed==0.1.1" was too old
dependencies = [
    "torch>=2.1,<2.5", "transformers[sentencepiece]==4.37.2",
    'accelerate ~= 1.2',
]
[project.optional-dependencies]
train = ["deepspeed==0.12.6", "ninja"]
[dependency-groups]
dev = ["mmengine>=0.10"]
"""
SETUP_PY = """from setuptools import setup
extras = {"deepspeed": ["deepspeed>=0.14"]}
setup(name="é", install_requires=["ü", "torch>=2.0.0", f"transformers=={1}"], extras_require=extras)
"""
SETUP_CFG = """[metadata]
name = x
[options]
python_requires = >=3.9
install_requires =
    torch>=2.1
    accelerate==1.2.0  # pinned
[options.extras_require]
train =
    deepspeed>=0.14,<0.16
"""
CONDA = """name: train
dependencies:
  - python=3.10
  - pytorch::pytorch=2.1.2=py3.10_cuda12.1
  - transformers=4.37
  - pip:
      - deepspeed==0.12.6
      - "accelerate>=1.2"
"""
DOCKERFILE = """FROM nvidia/cuda
# RUN pip install deepspeed==0.1.1
ARG V=2
RUN apt-get update && pip install --no-cache-dir \\
    "deepspeed==0.16.4" torch==${V} \\
    'transformers>=4.50' && rm -rf x
RUN echo accelerate==1.0
"""
PIPFILE_LOCK = """{
  "default": {
    "deepspeed": {"hashes": [], "version": "==0.12.6"}
  },
  "develop": {}
}
"""
REQUIREMENTS = """# deepspeed==0.1.1
--extra-index-url https://download.pytorch.org/whl/cu118
-r base.txt
torch==2.1.2+cu118
deepspeed[dev]>=0.9,<0.13  # comment
transformers==4.37.2 ; python_version >= "3.8" \\
    --hash=sha256:abc
accelerate
mmengine @ git+https://github.com/open-mmlab/mmengine.git@v0.10.4
sentence-transformers==1.0
torch-optimi==0.2
xtuner==0.1.9; sys_platform == "win32"
"""


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("uv.lock", UV_LOCK, {"deepspeed": ("==0.16.2", "0.16.2", 10)}),
        ("poetry.lock", UV_LOCK, {"deepspeed": ("==0.16.2", "0.16.2", 10)}),
        ("pdm.lock", UV_LOCK.replace("\n", "\r\n"), {"deepspeed": ("==0.16.2", "0.16.2", 10)}),
        ("Pipfile.lock", PIPFILE_LOCK, {"deepspeed": ("==0.12.6", '"==0.12.6"', 3)}),
        (
            "pyproject.toml",
            PYPROJECT,
            {
                "torch": (">=2.1,<2.5", "torch>=2.1,<2.5", 8),
                "transformers": ("==4.37.2", "transformers[sentencepiece]==4.37.2", 8),
                "accelerate": ("~=1.2", "accelerate ~= 1.2", 9),
                "deepspeed": ("==0.12.6", "deepspeed==0.12.6", 12),
                "mmengine": (">=0.10", "mmengine>=0.10", 14),
            },
        ),
        (
            "pyproject.toml",
            POETRY,
            {
                "deepspeed": (">=0.12.6,<0.13", 'deepspeed = "^0.12.6"', 3),
                "torch": ("==2.1.2", 'torch = {version = "2.1.2", optional = true}', 4),
                "accelerate": (">=1.2,<1.3", 'accelerate = "~1.2"', 5),
            },
        ),
        ("Pipfile", '[packages]\ndeepspeed = "==0.12.6"\n', {"deepspeed": ("==0.12.6", 'deepspeed = "==0.12.6"', 2)}),
        (
            "setup.py",
            SETUP_PY,
            {"deepspeed": (">=0.14", "deepspeed>=0.14", 2), "torch": (">=2.0.0", "torch>=2.0.0", 3)},
        ),
        (
            "setup.cfg",
            SETUP_CFG,
            {
                "torch": (">=2.1", "torch>=2.1", 6),
                "accelerate": ("==1.2.0", "accelerate==1.2.0", 7),
                "deepspeed": (">=0.14,<0.16", "deepspeed>=0.14,<0.16", 10),
            },
        ),
        (
            "environment.yml",
            CONDA,
            {
                "torch": ("==2.1.2", "pytorch=2.1.2=py3.10_cuda12.1", 4),
                "transformers": ("==4.37.*", "transformers=4.37", 5),
                "deepspeed": ("==0.12.6", "deepspeed==0.12.6", 7),
                "accelerate": (">=1.2", "accelerate>=1.2", 8),
            },
        ),
        (
            "docker/Dockerfile.train",
            DOCKERFILE,
            {
                "deepspeed": ("==0.16.4", "deepspeed==0.16.4", 5),
                "torch": ("==2", "torch==${V}", 5),
                "transformers": (">=4.50", "transformers>=4.50", 6),
            },
        ),
        (
            "requirements/base.txt",
            REQUIREMENTS,
            {
                "torch": ("==2.1.2+cu118", "torch==2.1.2+cu118", 4),
                "deepspeed": (">=0.9,<0.13", "deepspeed[dev]>=0.9,<0.13", 5),
                "transformers": ("==4.37.2", 'transformers==4.37.2 ; python_version >= "3.8"', 6),
                "mmengine": ("==0.10.4", "mmengine @ git+https://github.com/open-mmlab/mmengine.git@v0.10.4", 9),
            },
        ),
    ],
)
def test_each_kind_of_project_file_gives_versions_with_their_line(
    name: str, text: str, wanted: dict[str, tuple[str, str, int]]
) -> None:
    found = {}
    for library, fact in parse_versions(SourceFile(name, text)).items():
        assert fact.origin is not None
        span = fact.origin.span
        found[library] = (fact.specifier, text[span.start : span.end], fact.origin.region.line)
        assert fact.stated_by == name.rsplit("/", 1)[-1]
    assert found == wanted


PIXI = """[dependencies]
python = ">=3.10"
deepspeed = ">=0.14,<0.15"
[pypi-dependencies]
transformers = { version = "==4.57.1", extras = ["torch"] }
[feature.old.pypi-dependencies]
accelerate = "==0.34.0"
"""


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("pixi.toml", PIXI, {"deepspeed": ">=0.14,<0.15", "transformers": "==4.57.1", "accelerate": "==0.34.0"}),
        ("pyproject.toml", "[tool.pixi.pypi-dependencies]\ndeepspeed = '==0.16.9'\n", {"deepspeed": "==0.16.9"}),
        (
            "pyproject.toml",
            "[tool.hatch.envs.train]\ndependencies = ['deepspeed==0.16.9']\n",
            {"deepspeed": "==0.16.9"},
        ),
        ("pylock.toml", '[[packages]]\nname = "deepspeed"\nversion = "0.16.9"\n', {"deepspeed": "==0.16.9"}),
        ("requirements.txt", "git+https://github.com/deepspeedai/DeepSpeed.git@v0.16.9\n", {"deepspeed": "==0.16.9"}),
        ("requirements.txt", "git+https://github.com/deepspeedai/DeepSpeed.git@main\n", {}),
        ("Dockerfile", "ARG DS=0.16.9\nRUN pip install \\\n  'deepspeed==${DS}' \\\n  -U\n", {"deepspeed": "==0.16.9"}),
        ("Dockerfile", "ENV DS 0.16.9\nRUN pip install deepspeed==$DS\n", {"deepspeed": "==0.16.9"}),
        ("Dockerfile", "ARG DS\nRUN pip install deepspeed==${DS:-0.16.9}\n", {"deepspeed": "==0.16.9"}),
        ("Dockerfile", "ARG DS\nRUN pip install deepspeed==${DS}\n", {}),
        ("Dockerfile", "ARG DS=0.1.0\nARG DS=0.2.0\nRUN pip install deepspeed==${DS}\n", {}),
        ("Dockerfile", "RUN pip install deepspeed==$(cat version)\n", {}),
        ("install.sh", 'V=0.16.9\nuv pip install -U "deepspeed==$V" ninja && echo\n', {"deepspeed": "==0.16.9"}),
        ("install.sh", "# pip install deepspeed==0.14.4\npip install deepspeed==0.16.9\n", {"deepspeed": "==0.16.9"}),
        ("README.md", "Run `pip install deepspeed==0.16.9`.\n", {"deepspeed": "==0.16.9"}),
        ("README.md", "    pip install deepspeed>=0.9.0\n", {"deepspeed": ">=0.9.0"}),
        ("README.md", "It's fast: pip install transformers, don't wait; deepspeed==0.16.9\n", {}),
    ],
)
def test_more_places_that_state_a_version(name: str, text: str, wanted: dict[str, str]) -> None:
    found = parse_versions(SourceFile(name, text))
    assert {library: fact.specifier for library, fact in found.items()} == wanted
    for fact in found.values():
        assert fact.origin is not None
        stated = text[fact.origin.span.start : fact.origin.span.end]
        assert stated.strip() == stated
        assert stated[0] not in "\"'`"


def test_requirements_that_hold_together_are_joined_and_contradictions_say_nothing() -> None:
    def spec(text: str) -> str:
        fact = parse_versions(SourceFile("requirements.txt", text)).get("deepspeed")
        return fact.specifier if fact else ""

    assert spec("deepspeed>=0.9\ndeepspeed<0.13\n") == ">=0.9,<0.13"
    assert spec("deepspeed\ndeepspeed==0.12.6\n") == "==0.12.6"
    assert spec("deepspeed>=0.9\ndeepspeed==0.12.6\n") == "==0.12.6"
    assert spec("deepspeed==0.12.6\ndeepspeed==0.13.0\n") == ""
    assert spec("deepspeed==0.9.5; python_version<'3.9'\ndeepspeed==0.13.0; python_version>='3.9'\n") == ""


@pytest.mark.parametrize(
    ("tokenizers", "wanted"),
    [
        ("==0.13.3", ">=4.31,<4.34.0"),
        ("==0.15.1", ">=4.31,<4.40.0"),
        ("==0.23.1", ">=4.31"),
        (">=0.15", ">=4.31"),
        ("", ">=4.31"),
    ],
)
def test_a_pin_of_tokenizers_limits_an_open_range_of_transformers(tokenizers: str, wanted: str) -> None:
    text = f'[project]\ndependencies = ["transformers>=4.31", "tokenizers{tokenizers}"]\n'
    found = parse_versions(SourceFile("pyproject.toml", text))
    assert {name: fact.specifier for name, fact in found.items()} == {"transformers": wanted}


def test_a_pin_of_tokenizers_alone_says_nothing() -> None:
    assert parse_versions(SourceFile("requirements.txt", "tokenizers==0.15.1\ntransformers==4.38.0\n")).keys() == {
        "transformers"
    }
    assert not parse_versions(SourceFile("requirements.txt", "tokenizers==0.15.1\n"))


def test_a_file_of_another_kind_states_nothing() -> None:
    assert parse_versions(SourceFile("notes.md", "deepspeed==0.12.6")) == {}
    assert parse_versions(SourceFile("requirements.txt", "numpy==2.0")) == {}
    assert parse_versions(SourceFile("pyproject.toml", "[project\ndeepspeed")) == {}
    assert parse_versions(SourceFile("setup.py", "def deepspeed(:")) == {}


NAMES = ["uv.lock", "Pipfile.lock", "pyproject.toml", "setup.cfg", "setup.py", "Pipfile", "environment.yml"]
PIECES = ["deepspeed", "==0.1", ">=", "torch", "RUN pip install ", "[project]", "default", "\\\n"]


@given(
    st.sampled_from([*NAMES, "Dockerfile", "requirements.txt"]),
    st.lists(st.sampled_from([*"\n\n []{}\"'=:,-#;@\0", *PIECES]), max_size=30).map("".join),
)
@example("requirements.txt", "deepspeed==0.1; python_version in '\n")
def test_no_project_file_makes_the_reader_raise(name: str, text: str) -> None:
    for fact in parse_versions(SourceFile(name, text)).values():
        assert fact.origin is not None
        assert 0 <= fact.origin.span.start <= fact.origin.span.end <= len(text)


def test_locks_come_before_requirements_and_requirements_before_packages() -> None:
    names = ["setup.py", "Dockerfile", "train.py", "pyproject.toml", "requirements-dev.txt", "requirements.txt"]
    names += ["environment.yml", "uv.lock", "README.md", "requirements_o2.6.txt", "Pipfile.lock"]
    assert version_files(names) == [
        "uv.lock",
        "Pipfile.lock",
        "requirements.txt",
        "requirements_o2.6.txt",
        "requirements-dev.txt",
        "pyproject.toml",
        "setup.py",
        "environment.yml",
        "Dockerfile",
    ]
    assert "requirements/deepspeed.txt" in version_files(["requirements"])
    assert version_files(["docker", "pixi.toml", "install.sh", "README.md"]) == ["pixi.toml", "docker/Dockerfile"]
    names = ["README.md", "README_zh.md", "install_all.sh", "train.sh", "setup.py", "INSTALL.md"]
    assert told_files(names) == ["install_all.sh", "README.md"]
    assert told_files(["requirements"]) == ["requirements/install_all.sh"]


@pytest.mark.parametrize(
    ("fact", "specifier", "answer"),
    [
        ("==0.12.6", ">=0.12,<0.13", "yes"),
        ("==0.12.6", "<0.12", "no"),
        (">=0.9,<0.13", ">=0.12.4", "maybe"),
        (">=0.12.4,<0.12.6", ">=0.12,<0.13", "yes"),
        (">=0.9", ">=0.19.7", "maybe"),
        ("==0.16.*", ">=0.16,<0.17", "yes"),
        ("0.16", ">=0.16,<0.17", "yes"),
        ("0.12.6", "==0.12.6", "yes"),
        ("==0.77.0", ">=0.19.7", "yes"),
        (">=0.50", ">=0.19.7", "yes"),
        (">=0.50", "<0.13", "no"),
        ("~=0.12.0", "<0.13", "yes"),
        ("==0.12.6+cu118", ">=0.12,<0.13", "yes"),
        ("", ">=0.1", "maybe"),
        ("nonsense", ">=0.1", "maybe"),
        (">=2,<1", ">=0.1", "maybe"),
    ],
)
def test_covers_tells_certain_from_possible(fact: str, specifier: str, answer: str) -> None:
    assert covers(VersionFact(fact), specifier) == answer


versions = st.sampled_from(RELEASES)
ranges = st.one_of(
    versions.map("=={}".format),
    versions.map(">={}".format),
    versions.map("<={}".format),
    st.tuples(versions, versions).map(lambda pair: ">={},<{}".format(*sorted(pair, key=Version))),
)


@given(ranges, ranges)
def test_covers_agrees_with_trying_every_release(fact: str, specifier: str) -> None:
    allowed = [v for v in RELEASES if SpecifierSet(fact).contains(v)]
    inside = [v for v in allowed if SpecifierSet(specifier).contains(v)]
    if allowed:
        answer = "yes" if inside == allowed else "maybe" if inside else "no"
        assert covers(VersionFact(fact), specifier) == answer


@pytest.mark.parametrize(
    ("fact", "specifier", "answer"),
    [
        ("==4.57.1", ">=5", "no"),
        ("==5.14.1", ">=5", "yes"),
        ("==5.0.0rc1", ">=5.0.0", "no"),
        (">=4.55.0,<=5.8.0,!=4.57.0,!=5.6.0", ">=5", "maybe"),
        (">=4.55.0,<5", ">=5", "no"),
        (">=4.55.0,<5", "<5", "yes"),
        (">=4.45", ">=5", "maybe"),
        (">=5.1", ">=5.0", "yes"),
        ("==4.57.*", ">=4.57,<4.58", "yes"),
        ("==4.57.*", ">=4.57.1", "maybe"),
        ("~=4.57.1", ">=4.57,<4.58", "yes"),
        ("~=4.57", "<5", "yes"),
        ("~=4.57", "<4.58", "maybe"),
        (">=4.0,!=4.57.0", "!=4.57.0", "yes"),
        (">2.0", ">=2.0", "yes"),
        (">=2.0", ">2.0", "maybe"),
        ("<=2.0", "<2.0", "maybe"),
        ("", ">=5", "maybe"),
        ("nonsense", ">=5", "maybe"),
        (">=5.0.0rc1", ">=4", "yes"),
        (">=4.50.0.dev0,<5", ">=5", "no"),
        (">=4.50.0.dev0", ">=5", "maybe"),
    ],
)
def test_covers_needs_no_list_of_releases(fact: str, specifier: str, answer: str) -> None:
    assert covers(VersionFact(fact), specifier, "transformers") == answer


numbers = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
comparisons = st.one_of(
    st.tuples(st.sampled_from(("==", "!=", ">=", "<=", ">", "<")), numbers).map("".join),
    st.tuples(st.sampled_from(("==", "!=")), numbers, st.just(".*")).map("".join),
    st.tuples(st.just("~="), numbers.filter(lambda text: "." in text)).map("".join),
)
any_ranges = st.lists(comparisons, min_size=1, max_size=3).map(",".join)


@given(any_ranges, any_ranges, st.lists(numbers, max_size=8))
def test_what_covers_is_sure_of_holds_whatever_was_released(fact: str, specifier: str, releases: list[str]) -> None:
    allowed = [v for v in releases if SpecifierSet(fact).contains(v)]
    inside = [v for v in allowed if SpecifierSet(specifier).contains(v)]
    answer = covers(VersionFact(fact), specifier, "torch")
    assert answer != "yes" or inside == allowed
    assert answer != "no" or not inside


def test_a_user_states_a_release_a_series_or_a_range() -> None:
    assert stated_version("0.12.6").specifier == "==0.12.6"
    assert stated_version("v0.12.6").specifier == "==0.12.6"
    assert stated_version("0.16").specifier == "==0.16.*"
    assert stated_version("0.16.x").specifier == "==0.16.*"
    assert stated_version(">=0.9,<0.13").specifier == ">=0.9,<0.13"
    assert stated_version("0.19.0rc1").specifier == "==0.19.0rc1"
    for wrong in ("", "latest", ">=new", "0.1 2"):
        with pytest.raises(ValueError, match="is no version"):
            stated_version(wrong)


def test_a_pin_inside_the_range_of_a_stronger_file_wins() -> None:
    loose, pin, other = VersionFact(">=0.9"), VersionFact("==0.12.6"), VersionFact("==0.8.0")
    assert is_pin(pin)
    assert not is_pin(loose)
    assert not is_pin(VersionFact("==0.16.*"))
    assert stronger(None, loose) is loose
    assert stronger(loose, pin) is pin
    assert stronger(pin, loose) is pin
    assert stronger(loose, other) is loose
    assert not stronger(None, None).is_known


def test_the_release_table_is_in_order_and_without_repeats() -> None:
    assert list(RELEASES) == sorted(set(RELEASES), key=Version)


@pytest.mark.parametrize(
    ("line", "specifier"),
    [
        ("* pytorch 1.8.0", "==1.8.0"),
        ("- torch 2.1", "==2.1.*"),
        ("1. [PyTorch](https://pytorch.org/) >= 1.8", ">=1.8"),
        ('* <a href="https://pytorch.org/">PyTorch</a> 2.0+', ">=2.0"),
        ("- PyTorch 2.0 and above", ">=2.0"),
        ("- **torch** version 1.13.1", "==1.13.1"),
        ("- `torch`>=1.10,<2.0.0", ">=1.10,<2.0.0"),
        ("- PyTorch>=1.5.1, torchvision>=0.6.1 (see [here](https://pytorch.org/))", ">=1.5.1"),
        ("- torch 2.1 or 2.2", None),
        ("- PyTorch 2.0 support: use `--compile`", None),
        ("- [2023/05] PyTorch 2.0 is out", None),
        ("PyTorch 1.8.0 was used for the paper", None),
        ("- torchtext 0.9", None),
    ],
)
def test_lists_of_a_readme(line: str, specifier: str | None) -> None:
    text = f"# Title\n\n## Requirements\n\n{line}\n"
    fact = parse_versions(SourceFile("README.md", text)).get("torch")
    assert (fact.specifier if fact is not None else None) == specifier


def test_a_command_of_a_readme_says_more_than_its_list() -> None:
    text = "- torch 1.8.0\n- transformers 4.8.1\n\n```bash\npip install torch==2.1.0\n```\n"
    facts = parse_versions(SourceFile("README.md", text))
    assert (facts["torch"].specifier, facts["transformers"].specifier) == ("==2.1.0", "==4.8.1")
