"""The same run written another way gives the same finding, or none where nobody can tell; never a wrong one."""

from __future__ import annotations

import pytest
from plan_helpers import PLAIN, TRAINER, config, findings

ARGS = "--output_dir o --learning_rate 2e-5"
OPTIONS = f"--deepspeed ds.json {ARGS}"
RUN = f"torchrun --nproc_per_node 8 train.py {OPTIONS}"
WRONG = config(optimizer={"type": "AdamW", "params": {"lr": 1e-4}})
HOSTS = "worker-0 slots=4\nworker-1 slots=4\n"


def mismatch(launch: str, path: str = "run.sh", **files: str) -> list[str]:
    """Where DSL409 fires when ``launch`` stands in ``path``."""
    given = {path: launch + "\n", "train.py": TRAINER, "ds.json": WRONG, **files}
    return [f.location.path for f in findings("DSL409", given, path)]


@pytest.mark.parametrize(
    ("launch", "path"),
    [
        (RUN, "scripts/run.sh"),
        (f"cd ..\n{RUN}", "scripts/run.sh"),
        (f'cd "$(dirname "$0")/.."\n{RUN}', "scripts/run.sh"),
        (f"cd $(dirname ${{BASH_SOURCE[0]}})/../..\n{RUN}", "scripts/train/run.sh"),
        (f"pushd ..\n{RUN}\npopd", "scripts/run.sh"),
        (f"cd $(git rev-parse --show-toplevel) && {RUN}", "scripts/run.sh"),
        (f"CMD='{RUN}'\n$CMD", "run.sh"),
        (f'CMD="{RUN}"\necho $CMD\neval "$CMD"', "run.sh"),
        (f'CMD="{RUN}"\nbash -c "$CMD"', "run.sh"),
        (f'CMD="{RUN}"\nnohup $CMD > log 2>&1 &', "run.sh"),
        (f'CMD="{RUN}"\nexec $CMD', "run.sh"),
        (f'CMD="{RUN}"\nCUDA_LAUNCH_BLOCKING=1 $CMD', "run.sh"),
        (f'CMD="{RUN}"\nsrun --jobid $JOB bash -c "$CMD" 2>&1 | tee log', "run.sh"),
        (f'CMD="\ntorchrun --nproc_per_node 8\n  train.py\n  {OPTIONS}\n"\n$CMD', "run.sh"),
        (f'CMD="\ntorchrun --nproc_per_node 8\n  train.py\n  {OPTIONS}\n"\neval $CMD', "run.sh"),
        (f'CMD="torchrun --nproc_per_node 8 train.py"\nCMD+=" {OPTIONS}"\n$CMD', "run.sh"),
        (f'L="torchrun --nproc_per_node 8"\nP="train.py {OPTIONS}"\n$L $P', "run.sh"),
        (f'CMD=(torchrun --nproc_per_node 8 train.py {OPTIONS})\n"${{CMD[@]}}"', "run.sh"),
        (RUN.replace("--deepspeed ", "--deepspeed="), "run.sh"),
        (RUN.replace("--deepspeed ds.json", '--deepspeed="./ds.json"'), "run.sh"),
        (RUN.replace("ds.json", "$PWD/ds.json"), "run.sh"),
        ("DS=${1:-ds.json}\n" + RUN.replace("ds.json", "${DS}"), "run.sh"),
        ("D=$(dirname $0)\n" + RUN.replace("train.py", "$D/train.py").replace("ds.json", "$D/ds.json"), "run.sh"),
        (f'O=(\n  --deepspeed ds.json\n  # why\n  {ARGS}\n)\n{RUN.partition(" --deepspeed")[0]} "${{O[@]}}"', "run.sh"),
        (f'O=()\nO+=(--deepspeed=ds.json)\nO+=({ARGS})\n{RUN.partition(" --deepspeed")[0]} "${{O[@]}}"', "run.sh"),
    ],
)
def test_a_run_is_the_same_however_it_is_written(launch: str, path: str) -> None:
    assert mismatch(launch, path) == ["ds.json"]


def test_a_run_under_a_condition_is_a_run() -> None:
    options = f'O="{OPTIONS}"\nif [ -n "$X" ]; then O+=" --learning_rate 1e-4"; fi\n'
    assert mismatch(f"{options}{RUN.partition(' --deepspeed')[0]} $O") == ["ds.json"]


@pytest.mark.parametrize(
    "launch",
    [
        RUN.replace("ds.json", "/home/me/ds.json"),
        RUN.replace("ds.json", "$REPO/ds.json"),
        f'O="--deepspeed ds.json {ARGS} $@"\n{RUN.partition(" --deepspeed")[0]} $O',
        # Between quotes every line is a command of its own: the second one is no launch.
        f'CMD="\ntorchrun --nproc_per_node 8 train.py\n  {OPTIONS}\n"\neval "$CMD"',
    ],
)
def test_a_run_that_nobody_can_read_is_left_alone(launch: str) -> None:
    assert mismatch(launch) == []


def test_the_config_of_the_folder_that_the_run_changes_to_is_judged() -> None:
    other = {"other/train.py": TRAINER, "other/ds.json": WRONG, "ds.json": config()}
    assert mismatch(f"cd other\n{RUN}", **other) == ["other/ds.json"]
    assert mismatch(f"(cd other && {RUN})", **other) == ["other/ds.json"]
    beside = {"a/train.py": TRAINER, "a/ds.json": config()}
    assert mismatch(RUN, "a/run.sh", **beside) == []


# A hostfile


def hosts(launch: str, path: str = "run.sh", **files: str) -> bool:
    """Whether DSL408 sees 8 ranks: the config fits 7."""
    text = config(train_batch_size=28, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=1)
    given = {path: launch + "\n", "train.py": PLAIN, "ds.json": text, **files}
    return bool(findings("DSL408", given, path))


SPREAD = "deepspeed --hostfile hostfile train.py --deepspeed_config ds.json"


@pytest.mark.parametrize(
    ("launch", "path", "hostfile"),
    [
        (SPREAD, "run.sh", "hostfile"),
        (SPREAD.replace(" hostfile", "=./hostfile"), "run.sh", "hostfile"),
        (SPREAD, "scripts/run.sh", "hostfile"),
        (SPREAD.replace(" hostfile", " scripts/hostfile"), "scripts/run.sh", "scripts/hostfile"),
        ("H=hostfile\n" + SPREAD.replace("--hostfile hostfile", "-H $H"), "run.sh", "hostfile"),
        (
            'cd "$(dirname "$0")"\n' + SPREAD.replace("train.py", "../train.py").replace("ds.json", "../ds.json"),
            "scripts/run.sh",
            "scripts/hostfile",
        ),
    ],
)
def test_a_hostfile_is_read_where_the_run_finds_it(launch: str, path: str, hostfile: str) -> None:
    assert hosts(launch, path, **{hostfile: HOSTS})


@pytest.mark.parametrize(
    ("launch", "path", "hostfile"),
    [
        # The run has to start in the top folder, where the script is: there DeepSpeed finds no such file.
        (SPREAD, "scripts/run.sh", "scripts/hostfile"),
        (f'for h in $N; do echo "$h slots=4" >> hostfile; done\n{SPREAD}', "run.sh", "hostfile"),
        (f"python make_hosts.py --out hostfile\n{SPREAD}", "run.sh", "hostfile"),
        (SPREAD.replace(" hostfile", " /job/hostfile"), "run.sh", "hostfile"),
        (SPREAD.replace(" hostfile", " $HOSTFILE"), "run.sh", "hostfile"),
        (SPREAD.replace(" --hostfile hostfile", ""), "run.sh", "hostfile"),
    ],
)
def test_a_hostfile_that_the_run_may_not_see_says_nothing(launch: str, path: str, hostfile: str) -> None:
    assert not hosts(launch, path, **{hostfile: HOSTS})


# A config that is nowhere


def missing(launch: str, path: str = "run.sh", **files: str) -> list[str]:
    given = {path: launch + "\n", "train.py": TRAINER, "conf/zero2.json": config(), **files}
    return [given[path][f.location.span.start : f.location.span.end] for f in findings("DSL443", given, path)]


LOST = RUN.replace("ds.json", "conf/zero3.json")


@pytest.mark.parametrize(
    ("launch", "path"),
    [
        (LOST, "run.sh"),
        (f"cd ..\n{LOST}", "scripts/run.sh"),
        (f'CMD="{LOST}"\n$CMD', "run.sh"),
        (LOST.replace("--deepspeed ", "--deepspeed="), "run.sh"),
        (f'O=(\n  {LOST.partition("train.py ")[2]}\n)\n{LOST.partition(" --deepspeed")[0]} "${{O[@]}}"', "run.sh"),
        ("C=conf/zero3.json\n" + LOST.replace("conf/zero3.json", "$C"), "run.sh"),
        (f"mkdir -p conf out\nexport HF_HOME=/cache\n{LOST}", "run.sh"),
        (f"cp -r /data/wikitext /tmp/wikitext\n{LOST}", "run.sh"),
        (f"git pull\npip install -r requirements.txt\n{LOST}", "run.sh"),
    ],
)
def test_a_missing_config_is_found_however_the_run_is_written(launch: str, path: str) -> None:
    (text,) = missing(launch, path)
    assert text in ("conf/zero3.json", "--deepspeed=conf/zero3.json", "$CMD", "$C", '"${O[@]}"')


@pytest.mark.parametrize(
    "launch",
    [
        LOST.replace("conf", "/mnt/conf"),
        f"cd $WORK\n{LOST}",
        f"cd ../elsewhere\n{LOST}",
        f"cp -r $SHARED/conf .\n{LOST}",
        f"cp $SHARED/*.json conf/\n{LOST}",
        f"rsync -a host:conf ./\n{LOST}",
        f"git clone https://example.org/conf\n{LOST}",
        f"aws s3 sync s3://bucket/conf conf\n{LOST}",
        f"tar xzf configs.tgz -C conf\n{LOST}",
        f"unzip configs.zip\n{LOST}",
        f"python write_configs.py\n{LOST}",
        f"bash prepare.sh\n{LOST}",
        f"if [ -f conf/zero3.json ]; then\n{LOST}\nfi",
        f"docker run -v $D:/w -w /w img {LOST}",
    ],
)
def test_a_config_that_may_be_brought_is_not_missing(launch: str) -> None:
    tools = {
        "write_configs.py": "import json\nfor s in (2, 3):\n    json.dump({}, open(f'conf/zero{s}.json', 'w'))\n",
        "prepare.sh": "sed s/2/3/ conf/zero2.json > conf/zero3.json\n",
    }
    assert missing(launch, **tools) == []


@pytest.mark.parametrize(
    "name",
    [
        "<path>/ds.json",
        "'<your config>.json'",
        "$PATH_TO/ds.json",
        "${PATH_TO_CONFIG}.json",
        "/path/to/ds.json",
        "path/to/ds.json",
        "path_to_ds.json",
        "PATH_TO_CONFIG/ds.json",
        "PATH_TO_DS_CONFIG.json",
        "YOUR_CONFIG.json",
        "your/ds.json",
        "my_ds_config.json",
        "DS_CONFIG_PATH.json",
        "DEEPSPEED_CONFIG.json",
        "xxx.json",
        "XX.json",
        "conf/XXX/ds.json",
        "foo/bar.json",
        "%CONFIG%.json",
        "@config@.json",
        "{config}.json",
        "conf/{{ stage }}.json",
        "[config].json",
        "conf/*.json",
        "conf/zero{2,3}.json",
        ".../ds.json",
        "….json",
    ],
)
@pytest.mark.parametrize("path", ["run.sh", "README.md"])
def test_a_placeholder_is_no_missing_file(name: str, path: str) -> None:
    run = RUN.replace("ds.json", name)
    assert missing(run if path == "run.sh" else f"```bash\n{run}\n```", path) == []
