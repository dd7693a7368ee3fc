"""Programs that run a command: what dslint takes off, and what the real ones start where they are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.firstlook import RUN_PYTHON
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.launch.launchers.programs import PROGRAMS, PYTHON
from dslint.model.workspace import Workspace

RUN = "torchrun --nnodes 2 --nproc_per_node 4 train.py --lr 1"
ARGV = RUN.split()


def read(text: str) -> list[LaunchCommand]:
    workspace = Workspace(Path("/nonexistent"), {"run.sh": text, "train.py": "", "sub/train.py": ""})
    return [
        command for doc in read_launch_docs(SourceFile("run.sh", text), "shell", workspace) for command in doc.commands
    ]


def env(command: LaunchCommand) -> dict[str, str | None]:
    return {name: fact.get() if fact.is_known else None for name, fact in command.env.items()}


AROUND = """\
uv run --no-sync --with torch --extra gpu
uv run --frozen --group dev --
uv --directory sub run
uv tool run --from torch
uvx --from torch
pixi run --frozen --manifest-path pixi.toml -e gpu
conda run -n env --no-capture-output
mamba run --live-stream -p /env
micromamba -r /root run -n env
poetry -C sub run
pdm run -p sub
hatch run
hatch -e gpu run
hatch run gpu:
hatch env run -e gpu --
pipenv run
rye run
docker run --rm -it --gpus all --group-add video --ulimit memlock=-1 -v /a:/b -w /b image
docker container run --network host image
docker --context far run --entrypoint "" image
docker exec -it -w /w box
docker compose -f x.yml run --rm trainer
docker-compose exec -T trainer
podman run --device nvidia.com/gpu=all image
nerdctl run --gpus all image
singularity --quiet exec --nv -B /data:/data image.sif
apptainer run --nv image.sif
enroot start --rw --mount /a:/b image
kubectl exec -it pod -c box --
kubectl run x --image=image --
ray job submit --address http://h:8265 --working-dir . --
ray job submit --no-wait
sky exec cluster
sky launch -c cluster --num-nodes 2
ssh -p 22 -f user@host
pdsh -R ssh -w h1,h2
clush -bw h1,h2
pssh -h hosts -t 0 -i
tmux new-session -d -s x -n y
tmux -L socket new -d
screen -dmS name
screen -d -m -S name -L -Logfile x.log
nohup
setsid --wait
timeout -k 30s --signal=INT 3h
numactl --cpunodebind=0 --membind 0
nsys profile -t cuda,nvtx -o out --force-overwrite true
ncu --set full -o prof --target-processes all -k regex:foo
nvprof -o x --profile-child-processes
rocprofv3 --sys-trace --
py-spy record -o p.svg --subprocesses --
perf record -g -o x --
stdbuf -oL --error=L
env -u B A=1
taskset -c 0-7
nice -10
ionice -c2 -n7
sudo -nEu user
sudo -E A=1
systemd-run --user --scope -p MemoryMax=50G
gosu user
dotenv -f .env run --
direnv exec .
watch -n 1
""".splitlines()


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_is_taken_off(around: str) -> None:
    glue = "" if around.endswith(":") else " "
    (command,) = read(f"{around}{glue}{RUN}\n")
    assert [word.text for word in command.argv] == ARGV
    assert command.launcher == "torchrun"
    assert (shown(command.nodes), shown(command.world_size)) == (2, 8)
    assert command.wrappers[0][0].text == around.split()[0]


LINES = [
    'bash -lc "{}"',
    "docker run --rm image bash -c 'cd /w && {}'",
    'srun --container-image=image bash -c "{}"',
    'ssh host "cd /w; {}"',
    "for h in a b; do ssh $h '{}' & done",
    'tmux send-keys -t x "{}" C-m',
    'tmux new-session -d -s x \\; send-keys "{}" Enter',
    'screen -S name -X stuff "{}\\n"',
    'screen -dm bash -c "{}; exec bash"',
    'script -q -c "{}" log.txt',
    'su - user -c "{}"',
    "flock /tmp/lock -c '{}'",
    'gcloud compute tpus tpu-vm ssh name --worker=all --command="{}"',
    'kubectl exec pod -- bash -c "{}"',
    "env -S 'A=1 {}'",
    "bash <<'X'\n{}\nX",
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_inside_a_word_is_read(line: str) -> None:
    (command,) = read(line.format(RUN) + "\n")
    assert [word.text for word in command.argv] == ARGV


RUNS_PYTHON = """\
uv run train.py --lr 1
uv run --extra gpu -m train --lr 1
pdm run train.py --lr 1
coverage run --source=. -p train.py --lr 1
python -m coverage run train.py --lr 1
python -m cProfile -o out.prof train.py --lr 1
python -m cProfile -s cumtime -m train --lr 1
python -u -m pdb -c continue train.py --lr 1
python -m debugpy --listen 5678 --wait-for-client train.py --lr 1
python -m torch.utils.bottleneck train.py --lr 1
python -m trace --trace train.py --lr 1
viztracer --log_multiprocess -o x.json train.py --lr 1
viztracer -- train.py --lr 1
scalene --cpu train.py --lr 1
memray run -o x.bin train.py --lr 1
kernprof -l -v train.py --lr 1
pyinstrument -r html train.py --lr 1
""".splitlines()


@pytest.mark.parametrize("line", RUNS_PYTHON)
def test_tools_that_run_a_script_of_python(line: str) -> None:
    (command,) = read(line + "\n")
    assert command.script is not None
    assert command.script.text == ("train" if " -m train" in line else "train.py")
    assert [word.text for word in command.script_args] == ["--lr", "1"]
    assert command.launcher == "python"


def test_tools_in_front_of_a_launcher_that_is_a_module() -> None:
    line = "python -m debugpy --listen 5678 -m torch.distributed.run --nproc_per_node 2 train.py\n"
    for text in (
        line,
        line.replace("python -m debugpy --listen 5678", "uv run"),
        "uv run torchrun --nproc_per_node 2 train.py\n",
    ):
        (command,) = read(text)
        assert (command.launcher, shown(command.world_size)) == ("torchrun", 2)


def test_tools_of_python_pass_the_first_look() -> None:
    names = {name for row in PROGRAMS if row.runs in (PYTHON, "either") for name in row.names.split()}
    behind_python = {"cProfile", "profile", "pdb", "torch.utils.bottleneck", "trace"}
    assert names - behind_python == set(RUN_PYTHON)


@pytest.mark.parametrize(
    ("line", "seen", "withheld"),
    [
        ("docker run image {}", {}, {"A", "B"}),
        ("docker run -e A=3 -e B image {}", {"A": "3", "B": "2"}, set()),
        ("docker run -e A image bash -c '{}'", {"A": "1"}, {"B"}),
        ('docker run -e C=3 image bash -c "{}"', {"C": "3"}, {"A", "B"}),
        ("docker run --env-file x.env image {}", {}, set()),
        ("ssh host {}", {}, {"A", "B"}),
        ("ssh host 'export A=5; {}'", {"A": "5"}, {"A", "B"}),
        ("sudo {}", {}, {"A", "B"}),
        ("sudo -E {}", {"A": "1", "B": "2"}, set()),
        ("sudo A=$A {}", {"A": "1"}, {"B"}),
        ("ray job submit -- {}", {}, {"A", "B"}),
        ('ray job submit --runtime-env-json \'{{"env_vars": {{"A": "4"}}}}\' -- {}', {"A": "4"}, {"B"}),
        ("ray job submit --runtime-env x.yaml -- {}", {}, set()),
        ("apptainer exec --nv image.sif {}", {"A": "1", "B": "2"}, set()),
        ("apptainer exec --cleanenv --env A=2,C=3 image.sif {}", {"A": "2", "C": "3"}, {"B"}),
        ("APPTAINERENV_A=7 apptainer exec -e image.sif {}", {"A": "7"}, {"B", "APPTAINERENV_A"}),
        ("kubectl exec pod -- {}", {}, {"A", "B"}),
        ("uv run --env-file .env {}", {"A": "1", "B": "2"}, set()),
        ("conda run -n x {}", {"A": "1", "B": "2"}, set()),
        ("env -u A {}", {"B": "2"}, set()),
        ("nohup env A=9 {}", {"A": "9", "B": "2"}, set()),
        ("srun --container-image=image {}", {"A": "1", "B": "2"}, set()),
    ],
)
def test_which_variables_arrive(line: str, seen: dict[str, str], withheld: set[str]) -> None:
    (command,) = read(f"export A=1\nexport B=2\n{line.format(RUN)}\n")
    assert {
        name: value for name, value in env(command).items() if value is not None and name != "APPTAINERENV_A"
    } == seen
    assert set(command.withheld) == withheld


def test_what_is_filled_in_is_not_known() -> None:
    (command,) = read("seq 4 | xargs -I{} -P 2 torchrun --nproc_per_node 2 train.py --seed {} --name run-{}\n")
    assert [word.text for word in command.script_args] == ["--seed", None, "--name", None]
    (command,) = read("cat list | xargs -n1 -0 python train.py --seed\n")
    assert [word.text for word in command.script_args] == ["--seed", None]
    (command,) = read("parallel -j 4 python train.py --seed {1} --lr {2} ::: 1 2 ::: 3 4\n")
    assert [word.text for word in command.script_args] == ["--seed", None, "--lr", None]
    (command,) = read('parallel "CUDA_VISIBLE_DEVICES={%} torchrun --nproc_per_node 1 train.py --lr {}" ::: 1 2\n')
    assert [word.text for word in command.script_args] == ["--lr", None]
    assert env(command) == {"CUDA_VISIBLE_DEVICES": None}


def test_words_that_cannot_be_read_behind_ssh() -> None:
    (command,) = read("ssh $1 A=1 torchrun --nnodes 2 --node_rank $2 --nproc_per_node 4 train.py\n")
    assert shown(command.world_size) == 8
    assert env(command) == {"A": "1", "": None}


def test_the_directory_that_a_program_changes_to() -> None:
    (command,) = read(f"uv run --directory sub {RUN}\n")
    assert command.cwd.get() == "sub"
    (command,) = read(f"cd sub && sudo -E --chdir=deep {RUN}\n")
    assert command.cwd.get() == "sub/deep"


OTHERS = """\
docker build -t torchrun .
uv pip install deepspeed
conda install torchrun
tmux attach -t torchrun
kubectl get pods torchrun
screen -r torchrun
ray start --head --num-gpus 8
sky launch task.yaml torchrun
coverage run -m pytest tests
uv run https://example.org/train.py
xargs torchrun
""".splitlines()


@pytest.mark.parametrize("line", OTHERS)
def test_other_commands_of_these_programs_start_nothing(line: str) -> None:
    assert [c for c in read(line + "\n") if c.script is not None and c.script.text not in ("pytest", None)] == []


# ``R`` is a recorder in the place of torchrun, ``S`` the same as a script.
REAL = """\
env -u A B=2 R x "a b"
env -i PATH=$PATH B=2 R x
env -S "B=2 R x y"
nohup R x
timeout -k 30s --signal=INT 1m R x --signal=9
nice -n 3 R x
nice -5 R x
setsid --wait R x
stdbuf -oL --error=L R x -oL
taskset -c 0 R x
flock lock R x -c y
flock lock -c "R x y"
flock -w 3 lock R x
prlimit --nofile R x
ionice -c2 -n7 R x
script -q -c "R x y" log
printf "1\\n" | xargs -n 1 R x
printf "1\\0" | xargs -0 -n1 R x
printf "1\\n" | xargs -I{} -P 2 R x run-{} y
strace -f -o trace R x
exec -a other R x
bash -c "R x y"
sudo -E R x
python -m cProfile -o out.prof S x -o y
python -m trace --count -C . S x -C y
python -m pdb -c continue -c quit S x -c y
coverage run --source=. -p S x -p
python -m coverage run S x
viztracer -o x.json -- S x -o y
memray run -f -o x.bin S x -o y
kernprof -o x.lprof S x -o y
uv run --no-project --offline R x --offline
uv run --no-project --offline S x --offline
uv run --no-project --offline --env-file x.env R x
dotenv -f x.env run -- R x
pdm run R x
parallel R x {} ::: 1
""".splitlines()


@pytest.mark.parametrize("line", REAL)
def test_real_programs_start_what_dslint_reads(line: str, tmp_path: Path) -> None:
    program = next(word for word in line.split("|")[-1].split() if "=" not in word)
    module = line.split()[2] if program == "python" else ""
    if program != "exec" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    if module == "coverage":
        pytest.importorskip("coverage")
    recorder = (
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(tmp_path / 'seen.json')!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
    )
    (tmp_path / "x.env").write_text("FROM_FILE=1\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    for name in ("bin/torchrun", "train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(recorder)
        (tmp_path / name).chmod(0o755)
    words = {"R": "torchrun", "S": "train.py"}
    text = " ".join(words.get(word.lstrip('"'), word) if word.lstrip('"') in words and word[0] != '"' else
                    word.replace('"R', '"torchrun') for word in line.split(" "))  # fmt: skip
    text = text.replace("R x y", "torchrun x y")
    # uv puts the programs of its Python first: one that has no torchrun of its own.
    python = Path(sys.base_prefix) / "bin" if program == "uv" else Path(sys.executable).parent
    path = f"{tmp_path / 'bin'}:{python}:{os.environ['PATH']}"
    inherited = {"PATH": path, "HOME": str(tmp_path), "A": "1"}
    shell = f"PATH={path}; {text}\n"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, env=inherited, capture_output=True, timeout=60, check=False
    )
    seen = tmp_path / "seen.json"
    assert seen.exists(), done.stderr.decode()[-500:]
    argv, environment = json.loads(seen.read_text())
    (command,) = read(f"export A=1\n{text}\n")
    given = command.argv[1:] if command.launcher == "torchrun" else command.script_args
    known = [word.text for word in given if not word.spreads]
    assert len(argv) == len(known) or any(word.spreads for word in given)
    assert all(told in (None, real) for told, real in zip(known, argv, strict=False))
    facts = env(command)
    assert {name: value for name, value in facts.items() if value is not None} == {
        name: environment.get(name) for name, value in facts.items() if value is not None
    }
    assert "A" not in environment or "A" in facts or "" in facts
    assert "FROM_FILE" not in environment or "" in facts
    assert all(environment.get(name) != fact.get() for name, fact in command.withheld.items())
