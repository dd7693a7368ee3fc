"""Launch commands: which words are the launcher's, which the script's, and how many processes start."""

from __future__ import annotations

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.launch.launchers import programs
from dslint.model.launch.launchers.adapters import BY_HEAD
from dslint.model.launch.read import may_begin


def commands(script: str, path: str = "run.sh") -> tuple[LaunchCommand, ...]:
    return read_launch_docs(SourceFile(path, script), "shell")[0].commands


def one(script: str) -> LaunchCommand:
    found = commands(script)
    assert len(found) == 1, found
    return found[0]


def world(command: LaunchCommand) -> tuple[int | str, int | str, int | str]:
    return shown(command.nodes), shown(command.processes_per_node), shown(command.world_size)


@pytest.mark.parametrize(
    ("script", "launcher", "expected"),
    [
        ("torchrun --nproc_per_node 8 t.py", "torchrun", (1, 8, 8)),
        ("torchrun --nproc-per-node=4 --nnodes=2 t.py", "torchrun", (2, 4, 8)),
        ("torchrun --nproc=4 --nnode 2 t.py", "torchrun", (2, 4, 8)),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 t.py", "torchrun", ("unknown", 8, "unknown")),
        ("torchrun --nproc_per_node gpu t.py", "torchrun", (1, "unknown", "unknown")),
        ("torchrun --nproc_per_node $N t.py", "torchrun", (1, "unknown", "unknown")),
        ("torchrun $DISTRIBUTED_ARGS t.py", "torchrun", ("unknown", "unknown", "unknown")),
        ("A='--nnodes 2 --nproc_per_node 4'\ntorchrun $A t.py", "torchrun", (2, 4, 8)),
        ("torchrun t.py", "torchrun", (1, 1, 1)),
        ("python -u -m torch.distributed.launch --nproc_per_node=8 --use_env t.py", "torchrun", (1, 8, 8)),
        ("python3 -m torch.distributed.run --nproc_per_node=8 t.py", "torchrun", (1, 8, 8)),
        ("deepspeed t.py", "deepspeed", (1, "unknown", "unknown")),
        ("deepspeed --num_gpus 8 t.py", "deepspeed", (1, 8, 8)),
        ("deepspeed --num_nodes=2 --num_gpus=8 t.py", "deepspeed", (2, 8, 16)),
        ("deepspeed -H hosts --num_gpus=8 t.py", "deepspeed", ("unknown", 8, "unknown")),
        ("deepspeed --include localhost:0,1,3 t.py", "deepspeed", (1, 3, 3)),
        ("deepspeed -i a:0,1@b:0,1 t.py", "deepspeed", (2, 2, 4)),
        ("deepspeed -i a:0,1@b:0 t.py", "deepspeed", (2, "unknown", 3)),
        ("deepspeed -i a@b:0 t.py", "deepspeed", (2, "unknown", "unknown")),
        ("deepspeed --exclude localhost:0 t.py", "deepspeed", ("unknown", "unknown", "unknown")),
        ("CUDA_VISIBLE_DEVICES=0,2 deepspeed t.py", "deepspeed", (1, 2, 2)),
        ("CUDA_VISIBLE_DEVICES=0,2 deepspeed --num_gpus 4 t.py", "deepspeed", (1, 4, 4)),
        ("accelerate launch --num_processes 16 --num_machines 2 t.py", "accelerate", (2, 8, 16)),
        ("accelerate launch --num_processes 8 t.py", "accelerate", (1, 8, 8)),
        ("accelerate launch t.py", "accelerate", ("absent", "unknown", "unknown")),
        ("srun -N 2 --ntasks-per-node=8 python t.py", "srun", (2, 8, 16)),
        ("srun -N2 -n16 python -u t.py", "srun", (2, 8, 16)),
        ("srun python t.py", "srun", ("absent", "absent", "absent")),
        ("srun $SRUN_ARGS python t.py", "srun", ("unknown", "unknown", "unknown")),
        ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8 # tasks\nsrun python t.py", "srun", (4, 8, 32)),
        ("#SBATCH -N 4\nsrun -N 2 -n 2 python t.py", "srun", (2, 1, 2)),
        ("#SBATCH -N 2\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 t.py", "torchrun", (2, 8, 16)),
        ("mpirun -np 16 -npernode 8 python t.py", "mpirun", (2, 8, 16)),
        ("mpirun -np 4 --mca btl tcp -x A=1 python t.py", "mpirun", ("unknown", "absent", 4)),
        ("NPROC_PER_NODE=8 xtuner train c.py", "xtuner", (1, 8, 8)),
        ("export NNODES=2\nNPROC_PER_NODE=8 xtuner train c.py", "xtuner", (2, 8, 16)),
        ("NNODES=2\nNPROC_PER_NODE=8 xtuner train c.py", "xtuner", ("unknown", 8, "unknown")),
        ("xtuner train c.py", "xtuner", ("absent", "absent", "absent")),
        ("srun -N 2 -n 16 xtuner train c.py --launcher slurm", "xtuner", (2, 8, 16)),
        ("NPROC_PER_NODE=4 swift sft --model x", "swift", (1, 4, 4)),
        ("FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train c.yaml", "llamafactory", (2, 8, 16)),
        ("axolotl train c.yml", "axolotl", ("unknown", "unknown", "unknown")),
        ("python t.py", "python", ("absent", "absent", "absent")),
    ],
)
def test_processes_are_counted(script: str, launcher: str, expected: tuple[object, ...]) -> None:
    command = one(script)
    assert command.launcher == launcher
    assert world(command) == expected


def test_a_command_with_alternatives_is_one_command_for_each() -> None:
    script = """
N=8
case $1 in
zero2) DS=ds2.json ;;
zero3) DS=ds3.json; N=4 ;;
*) exit 1 ;;
esac
for lr in 1e-5 2e-5; do
  torchrun --nproc_per_node $N t.py --deepspeed $DS --lr $lr
done
"""
    found = [
        (c.world_size.get(), [w.text for w in c.script_args[1::2]], [str(x) for x in c.conditions])
        for c in commands(script)
    ]
    two, three = ["`$1` is zero2 (run.sh:3)"], ["`$1` is zero3 (run.sh:3)"]
    assert found == [
        (8, ["ds2.json", "1e-5"], two),
        (4, ["ds3.json", "1e-5"], three),
        (8, ["ds2.json", "2e-5"], two),
        (4, ["ds3.json", "2e-5"], three),
    ]


def test_what_no_command_tells_apart_makes_no_alternative() -> None:
    script = "if [ $1 ]; then LOG=a; N=8; else LOG=b; N=8; fi\ntorchrun --nproc_per_node $N t.py > $LOG\n"
    command = one(script)
    assert command.conditions == ()
    assert command.world_size.get() == 8


def test_words_say_why_they_are_not_known() -> None:
    script = "A=$(nproc)\nfor i in $X; do B=1; done\ntorchrun t.py $A $B $C $1 ~/x *.json\n"
    assert [w.why for w in one(script).script_args] == [
        "output of `nproc`",
        "set in a loop",
        "`$C` is never set in this file",
        "`$1` is an argument of the script",
        "the home directory decides",
        "the names of files decide",
    ]


def test_many_alternatives_are_cut_and_said() -> None:
    tests = "".join(f'if [ "$X{i}" ]; then O="$O --x{i}"; fi\n' for i in range(30))
    (command,) = commands(f"O=\n{tests}torchrun --nproc_per_node 8 t.py $O\n")
    assert command.world_size.get() == 8
    assert [(w.text, w.why) for w in command.script_args] == [(None, "too many alternatives")]
    nested = "if [ $A ]; then\n" * 30 + "N=4\n" + "fi\n" * 30
    assert len(commands(f"N=8\n{nested}torchrun --nproc_per_node $N t.py\n")) == 2


@pytest.mark.parametrize(
    ("script", "name", "arguments"),
    [
        ("torchrun --nproc_per_node 8 --standalone t.py --lr 1", "t.py", ["--lr", "1"]),
        ("torchrun --rdzv-backend=c10d --some_new_option 3 t.py a", "t.py", ["a"]),
        ("torchrun -m pkg.train --x", "pkg.train", ["--x"]),
        ("deepspeed --module pkg.train --x", "pkg.train", ["--x"]),
        ("deepspeed --master_port 1234 src/t.py --deepspeed c.json", "src/t.py", ["--deepspeed", "c.json"]),
        ("accelerate launch --use_deepspeed --config_file c.yaml t.py --x", "t.py", ["--x"]),
        ("python -W ignore -u t.py --x", "t.py", ["--x"]),
        ("torchrun --nproc_per_node 8 -- t.py --x", "t.py", ["--x"]),
    ],
)
def test_the_script_and_its_arguments_are_found(script: str, name: str, arguments: list[str]) -> None:
    command = one(script)
    assert command.script is not None
    assert command.script.text == name
    assert command.is_module == ("." in name and not name.endswith(".py"))
    assert [w.text for w in command.script_args] == arguments


def test_script_flags_have_values_at_their_places() -> None:
    script = "deepspeed t.py --lr=2e-5 --bf16 --names a b --neg -1 --out $OUT --x=$Y\n"
    command = one(script)
    flags = {f.name: f.value.text if f.value else None for f in command.script_flags}
    assert flags == {"--lr": "2e-5", "--bf16": None, "--names": "a", "--neg": "-1", "--out": None, "--x": None}
    value = command.script_flag("--lr")
    assert value is not None
    assert value.value is not None
    span = value.value.location.span
    assert script[span.start : span.end] == "2e-5"
    assert command.script_flag("--out") is not None
    assert command.script_flag("--missing") is None
    assert not command.may_hide_flags()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("deepspeed t.py $EXTRA_ARGS", True),
        ('deepspeed t.py "$@"', True),
        ('deepspeed t.py "${ARGS[@]}"', True),
        ("deepspeed t.py --bf16 $EXTRA_ARGS", True),
        ("deepspeed t.py $X", True),
        ("deepspeed t.py --out $OUT", False),
        ('deepspeed t.py "$CONFIG"', False),
    ],
)
def test_words_that_may_hold_flags_are_admitted(script: str, expected: bool) -> None:
    assert one(script).may_hide_flags() is expected


@pytest.mark.parametrize(
    "script",
    [
        "nohup torchrun --nproc_per_node 8 t.py > log 2>&1 &",
        "env -u A B=1 torchrun --nproc_per_node 8 t.py",
        "time nice -n 5 torchrun --nproc_per_node 8 t.py",
        "sudo -E timeout -k 5 3600 torchrun --nproc_per_node 8 t.py",
        "exec /opt/venv/bin/torchrun --nproc_per_node 8 t.py",
        '"$VENV"/bin/torchrun --nproc_per_node 8 t.py | tee log',
        "conda run -n x --no-capture-output torchrun --nproc_per_node 8 t.py",
        "uv run torchrun --nproc_per_node 8 t.py",
        'bash -c "cd src; torchrun --nproc_per_node 8 t.py"',
        "bash -lc 'torchrun --nproc_per_node 8 t.py'",
        'CMD="torchrun --nproc_per_node 8 \\\n t.py --out $OUT"\necho $CMD\neval $CMD',
        "CMD='torchrun --nproc_per_node 8 t.py'\n$CMD",
        "if [ $1 ]; then\n  torchrun --nproc_per_node 8 t.py\nfi",
        "main() {\n  torchrun --nproc_per_node 8 t.py\n}\nmain",
        "for s in $SEEDS; do torchrun --nproc_per_node 8 t.py --seed $s; done",
        "make && torchrun --nproc_per_node 8 t.py || exit 1",
    ],
)
def test_wrappers_and_blocks_do_not_hide_a_launch(script: str) -> None:
    command = one(script)
    assert command.launcher == "torchrun"
    assert shown(command.world_size) == 8
    assert command.script is not None
    assert command.script.text == "t.py"


@pytest.mark.parametrize(
    "script",
    [
        "pip install deepspeed -U",
        'echo "torchrun t.py"',
        "bash run.sh --backend deepspeed",
        "accelerate config default",
        "xtuner convert pth_to_hf c.py a b",
        "which torchrun",
        "# torchrun t.py",
        "cat <<EOF > x.sh\ntorchrun t.py\nEOF",
        "torchrun",
        "python -c 'import torch'",
        "srun hostname",
    ],
)
def test_other_commands_are_no_launches(script: str) -> None:
    assert commands(script) == ()


def test_the_outer_launcher_is_kept() -> None:
    command = one("srun -N 2 --container-image x bash -c 'torchrun --nnodes 2 --nproc_per_node 8 t.py'")
    assert (command.launcher, command.outer) == ("torchrun", "srun")
    assert [f.name for f in command.outer_flags] == ["-N", "--container_image"]


def test_the_environment_is_prefix_exports_and_directives() -> None:
    command = one("#SBATCH --gres=gpu:a100:4\nexport A=1\nB=2\nC=3 torchrun t.py\n#SBATCH -N 3\n")
    assert command.variable("A").get() == "1"
    assert command.variable("C").get() == "3"
    assert command.variable("B").is_unknown
    assert command.variable("D").is_absent
    assert command.variable("SBATCH_GPUS_PER_NODE").get() == "4"
    assert command.variable("SBATCH_NODES").is_absent
    assert one("source env.sh\ntorchrun t.py").variable("D").is_unknown


def test_counts_say_where_they_come_from() -> None:
    command = one("GPUS=8\ntorchrun --nnodes=2 --nproc_per_node $GPUS t.py\n")
    assert [(str(o), o.label) for o in command.world_size.origins] == [
        ("run.sh:2", "--nnodes 2"),
        ("run.sh:2", "--nproc_per_node 8"),
        ("run.sh:1", ""),
    ]
    slurm = one("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node 4\nsrun python t.py\n")
    assert [o.label for o in slurm.world_size.origins] == ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node 4"]
    assert one("export NNODES=2 NPROC_PER_NODE=4\nxtuner train c.py").world_size.origins[0].label == "NNODES=2"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun t.py", None),
        ("cd src\ntorchrun t.py", "src"),
        ("cd src/a && cd ../b && torchrun t.py", "src/b"),
        ('cd "$(dirname "$0")/.."\ntorchrun t.py', "ex"),
        ("cd ${BASH_SOURCE[0]%/*}\ntorchrun t.py", "ex/run"),
        ("(cd src)\ntorchrun t.py", None),
    ],
)
def test_the_directory_is_followed(script: str, expected: str | None) -> None:
    (command,) = commands(script, "ex/run/go.sh")
    assert command.cwd.value == expected
    assert not command.cwd.is_unknown
    assert commands("cd $DIR\ntorchrun t.py")[0].cwd.is_unknown


def test_an_evaluated_command_with_quotes_in_its_variables_and_unknown_ones_is_read() -> None:
    text = """\
if [ -z "$CACHE" ]; then export CACHE="$HOME/hub"; fi
epochs=2
data_args="\\
    --query 'Represent this: ' \\
    --format '{}{}' \\
"
model_args="--cache_dir $CACHE"
cmd="torchrun --nproc_per_node $gpus train.py $model_args $data_args --epochs $epochs"
echo $cmd
eval $cmd
"""
    (command,) = commands(text)
    assert [w.text for w in command.words][:4] == ["torchrun", "--nproc_per_node", None, "train.py"]
    known = [w.text for w in command.words][-6:]
    assert known == ["--query", "Represent this: ", "--format", "{}{}", "--epochs", "2"]
    assert command.may_hide_flags()
    assert commands("cmd=\"torchrun train.py --name '$NAME'\"\neval $cmd\n")[0].words[-1].text is None


def test_a_command_for_an_inner_shell_with_escapes_and_unknown_variables_is_read() -> None:
    text = """\
PORT=29501
export NODES=2
GPUS=8
srun bash -c "torchrun --nnodes \\$NODES --nproc_per_node \\$GPUS --node_rank \\$SLURM_PROCID \\
    --master_addr $HOST --master_port $PORT train.py \\"a b\\""
"""
    (command,) = commands(text)
    words = [w.text for w in command.words]
    assert words[-1] == "a b"
    flags = {flag.name: flag.value.text if flag.value else None for flag in command.launcher_flags}
    assert flags == {
        "--nnodes": "2",
        "--nproc_per_node": None,  # not exported: the inner shell does not see it
        "--node_rank": None,
        "--master_addr": None,
        "--master_port": "29501",
    }


@pytest.mark.parametrize(
    "command",
    ["echo torchrun t.py", "pip install deepspeed", "mkdir -p out/deepspeed", "/bin/echo deepspeed t.py", "git commit"],
)
def test_first_words_that_start_nothing(command: str) -> None:
    assert not may_begin(command.split()[0])
    assert commands(command) == ()


def test_first_words_that_may_start_something() -> None:
    heads = {*BY_HEAD, *programs.NAMES, "python3.11", "bash", "sbatch", "eval", "./run.sh", "run.slurm"}
    assert all(may_begin(head) for head in (*heads, *(f"/opt/bin/{head}" for head in heads)))
    assert all(may_begin(head) for head in ("$CMD", '"$LAUNCHER"', "`which", "$(which", "torch{run,}", "'torchrun'"))
