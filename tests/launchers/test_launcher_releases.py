"""Which options a launcher has by release, and the generator of that table."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dslint.model.context import VersionFact
from dslint.model.launch.launchers.releases import (
    accepts,
    has_table,
    launcher_options,
    library_of,
    nearest,
    since,
    until,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("launcher", "typed", "version", "answer"),
    [
        ("torchrun", "--nproc_per_node", "", "yes"),
        ("torchrun", "--nproc_per_node", "==1.9.0", "yes"),
        ("torchrun", "--nproc-per-node", "==2.0.1", "yes"),
        ("torchrun", "--nproc-per-node", "==1.13.1", "no"),
        ("torchrun", "--nproc-per-node", "", "maybe"),
        ("torchrun", "--numa-binding", "==2.8.0", "no"),
        ("torchrun", "--numa-binding", ">=2.9", "yes"),
        ("torchrun", "--num_gpus", "", "no"),
        # One spelling fits before 2.0; since then two do, which older Pythons call ambiguous.
        ("torchrun", "--nproc", "==1.13.1", "yes"),
        ("torchrun", "--nproc", "==2.13.0", "maybe"),
        ("torchrun", "--nproc-per", "==2.13.0", "yes"),
        ("torchrun", "--no", "==2.13.0", "no"),
        ("torchrun", "-m", "", "yes"),
        ("torchrun", "--use_env", "==2.1.0", "no"),
        ("deepspeed", "--num_gpus", "==0.19.8", "yes"),
        ("deepspeed", "--num-gpus", "", "no"),
        ("deepspeed", "--num_g", "==0.9.2", "yes"),
        ("deepspeed", "--master_p", "", "yes"),
        ("deepspeed", "--nproc_per_node", "", "no"),
        ("deepspeed", "--node_rank", "==0.14.4", "no"),
        ("deepspeed", "--node_rank", "==0.14.5", "yes"),
        ("deepspeed", "--elastic_training", "==0.15.0", "yes"),
        ("deepspeed", "--elastic_training", "==0.19.8", "no"),
        ("accelerate", "--num-processes", "==0.27.2", "no"),
        ("accelerate", "--num-processes", "==0.28.0", "yes"),
        ("accelerate", "--num_proc", "==1.0.0", "no"),
        ("accelerate", "--num_proc", "==0.17.1", "yes"),
        ("accelerate", "--nproc_per_node", "", "no"),
        ("mpirun", "--anything", "", "maybe"),
    ],
)
def test_options_by_release(launcher: str, typed: str, version: str, answer: str) -> None:
    assert accepts(launcher, typed, VersionFact(version)) == answer


def test_options_of_the_older_torch_launcher() -> None:
    program = "python -m torch.distributed.launch"
    assert accepts("torchrun", "--use_env", VersionFact("==2.1.0"), program) == "yes"
    assert accepts("torchrun", "--use-env", VersionFact("==1.13.1"), program) == "no"
    assert accepts("torchrun", "--nproc_per_node", VersionFact(), program) == "yes"


def test_the_options_of_a_release_are_listed() -> None:
    new = {o.name: o for o in launcher_options("deepspeed", VersionFact("==0.19.8"))}
    old = {o.name: o for o in launcher_options("deepspeed", VersionFact("==0.5.9"))}
    assert new["--num_gpus"].spellings == ("--num_gpus", "--num_accelerators")
    assert old["--num_gpus"].spellings == ("--num_gpus",)
    assert new["--num_gpus"].kind == "int"
    assert new["--autotuning"].choices == ("tune", "run")
    assert not new["--module"].takes_value
    assert set(new) - set(old) >= {"--module", "--save_pid"}
    assert launcher_options("srun") == ()


def test_where_an_option_comes_from_and_where_it_goes() -> None:
    assert since("torchrun", "--nproc-per-node") == "2.0.0"
    assert since("torchrun", "--nproc_per_node") == since("torchrun", "--num_gpus") == ""
    assert until("deepspeed", "--min_elastic_nodes") == "0.19.8"
    assert until("deepspeed", "--num_gpus") == ""
    assert library_of("torchrun") == "torch"
    assert has_table("accelerate")
    assert not has_table("srun")


@pytest.mark.parametrize(
    ("launcher", "typed", "name"),
    [
        ("deepspeed", "--num-gpus", "--num_gpus"),
        ("torchrun", "--nproc_per_nod", "--nproc_per_node"),
        ("torchrun", "--nodes", "--nnodes"),
        ("accelerate", "--num_process", "--num_processes"),
        ("torchrun", "--learning_rate", ""),
    ],
)
def test_the_nearest_option(launcher: str, typed: str, name: str) -> None:
    assert nearest(launcher, typed) == name


# -- the generator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("generate_launcher_options")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


_OLD = 'p.add_argument("-t", "--tee", action=env, type=int)\np.add_argument("--lost", action="store_true")\n'
_NEW = 'p.add_argument("-t", "--tee", "--tee-to", action=env, type=int, choices=[1, 2])\np.add_argument("script")\n'


def test_spellings_come_and_go(generator: ModuleType, tmp_path: Path) -> None:
    for library in ("torch", "torch-launch", "deepspeed", "accelerate"):
        (tmp_path / f"{library}-1.9.0.py").write_text(_OLD)
        (tmp_path / f"{library}-1.10.0.py").write_text(_NEW)
    data = importlib.import_module("json").loads(generator.render(tmp_path))
    table = data["torchrun"]
    assert table["releases"] == ["1.9.0", "1.10.0"]
    names = {"-t": ["1.9.0"], "--tee": ["1.9.0"], "--tee-to": ["1.10.0"]}
    assert table["options"]["--tee"] == {"takes": "value", "type": "int", "choices": [1, 2], "names": names}
    assert table["options"]["--lost"] == {"takes": "nothing", "names": {"--lost": ["1.9.0", "1.10.0"]}}


def test_accelerate_adds_dashes_and_stops_to_abbreviate(generator: ModuleType) -> None:
    code = 'parser = CustomArgumentParser(allow_abbrev=False)\nparser.add_argument("--num_processes", type=int)\n'
    release = generator.read(code)
    assert not release.abbreviates
    assert release.options[0].names == ["--num_processes", "--num-processes"]


@pytest.mark.parametrize(
    ("launcher", "library"), [("torchrun", "torch"), ("deepspeed", "deepspeed"), ("accelerate",) * 2]
)
def test_the_table_agrees_with_what_is_installed(generator: ModuleType, launcher: str, library: str) -> None:
    from importlib.metadata import PackageNotFoundError, distribution, version

    parser = {
        "torchrun": "torch/distributed/run.py",
        "deepspeed": "deepspeed/launcher/runner.py",
        "accelerate": "accelerate/commands/launch.py",
    }[launcher]
    try:
        path = Path(str(distribution(library).locate_file(parser)))
    except PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    release = generator.read(path.read_text(encoding="utf-8"))
    fact = VersionFact(f"=={version(library).partition('+')[0]}")
    for option in release.options:
        for name in option.names:
            assert accepts(launcher, name, fact) == "yes", name
