"""Programs that run another program: what stands before its command, where that begins, and what it finds there.

One row a program. A row is the only place that says how such a program reads its words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dslint.model.launch.command import canonical
from dslint.model.launch.launchers import tables
from dslint.model.launch.launchers.base import Options, options

# What stands behind the options of a program: the words of a command; the same, or a script of Python, or ``-m`` and
# a module; only these two; a command line for a shell, in one word or in several; a line that is typed into one.
COMMAND, EITHER, PYTHON, LINE, TYPED = "command", "either", "python", "line", "typed"


@dataclass(frozen=True, slots=True)
class Program:
    """How one program reads its words, up to the command that it runs.

    ``names`` are the words that name it, ``module``: also behind ``python -m``. ``verbs``: one of these sub-commands
    must follow (several words where it takes several), with the options ``outer`` in front of each. ``table`` are its
    options, ``operands`` the words that it takes itself, ``runs`` what stands behind them; ``behind_dashes``: a ``--``
    stands before it. ``line`` are options whose value is the command line, ``instead`` those that name the program of
    the command, ``folder`` those that name the directory.

    ``arrives``: the command finds the variables of the shell, but for the options ``withholds`` and ``keeps``, which
    turn that round. ``sets`` are options with variables for it, ``json`` one with a runtime environment of Ray,
    ``from_file`` those that read some from a file, ``renamed`` how the names of variables begin that it finds without
    that; ``assigns``: ``NAME=value`` may stand before it. ``adds``: it may find further ones.
    ``is_elsewhere``: it runs in an image or on another machine. ``is_managed``: with packages of its own.
    """

    names: str
    values: str = ""
    verbs: tuple[str, ...] = ()
    outer: str = ""
    operands: int = 0
    runs: str = COMMAND
    module: bool = False
    behind_dashes: bool = False
    line: str = ""
    instead: str = ""
    folder: str = ""
    arrives: bool = True
    withholds: str = ""
    keeps: str = ""
    sets: str = ""
    assigns: bool = False
    json: str = ""
    from_file: str = ""
    renamed: tuple[str, ...] = ()
    adds: bool = False
    is_elsewhere: bool = False
    is_managed: bool = False
    # An option that says how many GPUs the command finds: ``4``, ``"device=0,1"``, ``A100:8``.
    gpus: str = ""
    # Words that end the command, and whether it fills words of its own in.
    ends: str = ""
    fills: str = ""
    # The first word may begin with the name of an environment: ``hatch run gpu:torchrun``.
    has_prefix: bool = False
    table: Options = field(init=False)
    before: Options = field(init=False)

    def __post_init__(self) -> None:
        """Make the tables of options."""
        own = " ".join((self.values, self.line, self.instead, self.folder, self.sets, self.json, self.from_file))
        object.__setattr__(self, "table", _table(own))
        object.__setattr__(self, "before", _table(self.outer))


def _table(values: str) -> Options:
    return options(" ".join(map(canonical, values.split())), abbreviates=False, guesses=False)


# Limits, priorities and terminals around a command on the same machine.
_AROUND = (
    Program("nohup setsid command unbuffer catchsegv dumb-init"),
    Program("time", "-f -o --format --output"),
    Program("exec", "-a"),
    Program("nice", "-n --adjustment"),
    Program("ionice", "-c -n --class --classdata"),
    Program("stdbuf", "-i -o -e --input --output --error"),
    Program("timeout", "-s --signal -k --kill-after", operands=1),
    Program("taskset", operands=1),
    Program("numactl", "-m -N -C -i -p --membind --cpunodebind --physcpubind --interleave --preferred"),
    Program("xvfb-run", "-n -s"),
    Program("flock", "-w --wait --timeout -E --conflict-exit-code", operands=1, line="-c --command"),
    Program("chrt", "-T -P -D", operands=1),
    Program("cgexec", "-g"),
    Program("prlimit", "-o"),
    Program("tini", "-p -e"),
    Program("gosu su-exec", operands=1, adds=True),
    Program("proxychains proxychains4", "-f"),
    Program("ts tsp", "-G -g -L -D -N -W"),
    Program("hwloc-bind", operands=1),
    Program("script", "-o -T -I -O -B -E -m -t", operands=1, line="-c --command"),
    Program("watch", "-n --interval -q", runs=LINE),
    Program(
        "sudo",
        "-u -g -h -p -C -R -T -U --user --group --host --prompt --close-from --chroot --command-timeout --other-user",
        folder="-D --chdir",
        arrives=False,
        keeps="-E --preserve-env",
        assigns=True,
    ),
    Program("su runuser", "-s -g -G -w", operands=2, line="-c --command", arrives=False, keeps="-m -p"),
    Program(
        "systemd-run",
        "-p --property --unit -u --slice --uid --gid -d -H -M --description --on-active --on-calendar",
        sets="-E --setenv",
        folder="--working-directory",
        arrives=False,
        keeps="--scope",
    ),
)
# Profilers and debuggers around any command.
_NSYS = (
    "-o --output -t --trace -s --sample -w --show-output -c --capture-range -f --force-overwrite -y --delay -d"
    " --duration -b --backtrace -e --env-var -x --stop-on-exit -p --nvtx-capture -k --kill -n --inherit-environment"
    " --cuda-graph-trace --cuda-memory-usage --cudabacktrace --capture-range-end --cpuctxsw --export --stats"
    " --gpu-metrics-device --gpu-metrics-devices --gpu-metrics-frequency --osrt-threshold --python-backtrace"
    " --pytorch --python-sampling --samples-per-backtrace --sampling-frequency --session-new"
    " --trace-fork-before-exec --wait --run-as --nic-metrics --gpuctxsw --python-sampling-frequency --command-file"
)
_PROFILERS = (
    Program("nsys", _NSYS, verbs=("profile",)),
    Program("nsys", "-t --trace --session --session-new -e --env-var -w --show-output", verbs=("launch",)),
    Program(
        "ncu nv-nsight-cu-cli",
        "--set -o --export --target-processes -k --kernel-name -c --launch-count -s --launch-skip --section --metrics"
        " --nvtx-include --nvtx-exclude --kernel-id --launch-skip-before-match --devices --target-processes-filter"
        " --replay-mode --cache-control --clock-control --log-file --config-file-path --mode --graph-profiling"
        " --kernel-name-base --page --print-summary --rule --section-folder --app-replay-match --app-replay-buffer"
        " --range-filter --check-exit-code --import-source --source-folders --call-stack-type --pm-sampling-interval",
    ),
    Program("nvprof", "-o --export-profile --log-file -m --metrics -e --events -t --timeout --kernels --devices"
            " --unified-memory-profiling --profile-from-start --openacc-profiling --cpu-profiling"),
    Program("rocprof", "-i -o -d -t -m --timestamp --basenames --ctx-limit --heartbeat --trace-start --trace-period"),
    Program("rocprofv3 rocprof-sys-run rocprof-sys-sample omnitrace-run", behind_dashes=True),
    Program("omniperf rocprof-compute", verbs=("profile",), behind_dashes=True),
    Program("py-spy", "-o --output -d --duration -r --rate -f --format", verbs=("record", "top")),
    Program("perf", "-e --event -o --output -F --freq -C --cpu --call-graph -m", verbs=("record", "stat")),
    Program("vtune", behind_dashes=True),
    Program("strace", "-o -e -p -s -u -a -I -O -P -S"),
    Program("gdb", "-ex -x -iex -ix -p"),
    Program("compute-sanitizer", "--tool --log-file --kernel-regex --target-processes --launch-timeout"),
    Program("dslint", "--time-limit --select --ignore --extend-select --extend-ignore --per-file-ignores --fail-on"
            " --min-confidence --world-size --nnodes --nproc-per-node --deepspeed-version --transformers-version"
            " --accelerate-version --consumer --output-format --color --config", verbs=("run",)),
)  # fmt: skip
# Profilers, debuggers and tools of coverage that run a script of Python themselves.
_OF_PYTHON = (
    Program("coverage", "--source --omit --include --rcfile --context --concurrency --data-file --source-pkgs",
            verbs=("run",), runs=PYTHON, module=True),
    Program("memray", "-o --output --live-port", verbs=("run",), runs=PYTHON, module=True),
    Program("viztracer", "-o --output_file --tracer_entries --max_stack_depth --include_files --exclude_files --plugins"
            " --min_duration --output_dir --log_func_with_objprint", runs=PYTHON, module=True),
    Program("scalene", "--outfile --cpu-percent-threshold --cpu-sampling-rate --profile-only --profile-exclude"
            " --malloc-threshold --program-path --column-width --profile-interval", runs=PYTHON, module=True),
    Program("kernprof kernprof.py", "-o --outfile -s --setup -p --prof-mod -u --unit -i --output-interval",
            runs=PYTHON),
    Program("line_profiler", "-o --outfile -s --setup -p --prof-mod -u --unit", runs=PYTHON, module=True),
    Program("pyinstrument", "-o --outfile -r --renderer -i --interval -p --render-option --load --load-prev",
            runs=PYTHON, module=True),
    Program("cProfile profile", "-o --outfile -s --sort", runs=PYTHON, module=True),
    Program("pdb ipdb pudb", "-c --command", runs=PYTHON, module=True),
    Program("debugpy", "--listen --connect --log-to --log-to-stderr --parent-session-pid --adapter-access-token"
            " --configure-subProcess --configure-qt", runs=PYTHON, module=True),
    Program("torch.utils.bottleneck", runs=PYTHON, module=True),
    Program("trace", "-f --file -C --coverdir --ignore-module --ignore-dir", runs=PYTHON, module=True),
)  # fmt: skip
# Tools that manage environments of packages.
_UV = (
    "--with --with-editable --with-requirements -w --extra --no-extra --group --no-group --only-group --python -p"
    " --package --index --default-index -i --index-url --extra-index-url -f --find-links --index-strategy"
    " --keyring-provider --resolution --prerelease --exclude-newer --link-mode -C --config-setting --config-file"
    " --cache-dir --color -P --upgrade-package --reinstall-package --refresh-package --python-platform"
    " --no-build-package --no-binary-package --allow-insecure-host --fork-strategy --from --project"
)
_CONDA = "-n --name -p --prefix"
_MANAGERS = (
    Program("uv", _UV, verbs=("run",), outer=f"{_UV} --directory", runs=EITHER, folder="--directory",
            from_file="--env-file"),
    Program("uv", _UV, verbs=("tool run",), outer=_UV, from_file="--env-file"),
    Program("uvx", _UV, from_file="--env-file"),
    Program("poetry", verbs=("run",), outer="-C --directory -P --project"),
    Program("pdm", "-p --project --venv", verbs=("run",), outer="-c --config", runs=EITHER),
    Program("hatch", "-e --env -i --include -x --exclude", verbs=("run", "env run"), outer="-e --env -p --project"
            " --data-dir --cache-dir --config", has_prefix=True),
    Program("pipenv", verbs=("run",), outer="--python --pypi-mirror"),
    Program("pixi", "-e --environment -m --manifest-path -w --workspace --auth-file --color --concurrent-downloads"
            " --concurrent-solves --pypi-keyring-provider", verbs=("run", "exec"), outer="--color",
            withholds="--clean-env"),
    Program("conda mamba", _CONDA, verbs=("run",), folder="--cwd"),
    Program("micromamba", f"{_CONDA} -r --root-prefix --rc-file -a --attach --label", verbs=("run",),
            outer="-r --root-prefix --rc-file", folder="--cwd", sets="-e --env", withholds="--clean-env"),
    Program("rye", verbs=("run",)),
)  # fmt: skip
# Tools that add variables.
_SECRETS = (
    Program("dotenv", verbs=("run",), outer="-f --file -q --quote -e --export", adds=True),
    Program("direnv", verbs=("exec",), operands=1, adds=True),
    Program("op infisical doppler", verbs=("run",), behind_dashes=True, adds=True),
    Program("aws-vault chamber", verbs=("exec",), behind_dashes=True, adds=True),
)  # fmt: skip
# Programs that run the command in a container, on another machine or in another session.
_DOCKER = (
    "-v --volume -w --workdir --name --network --net --gpus --shm-size --ipc --user -u -p --publish --mount"
    " --ulimit --device -h --hostname --runtime --platform --memory -m --cpus --cpuset-cpus --cpuset-mems --label"
    " -l --label-file --add-host --cap-add --cap-drop --security-opt --pid --restart --log-driver --log-opt"
    " --tmpfs --pull --group-add --dns --expose --link --ip --mac-address --network-alias --volumes-from --volume-"
    " driver --userns --uts --cgroupns --cgroup-parent --cidfile --cpu-shares -c --cpu-quota --cpu-period"
    " --memory-swap --memory-reservation --oom-score-adj --pids-limit --stop-signal --stop-timeout --storage-opt"
    " --sysctl --device-cgroup-rule -a --attach --detach-keys --annotation --blkio-weight --health-cmd --init-path"
    " --hooks-dir --secret --arch --os --authfile"
)
_CONTAINER = Program(
    "docker podman nvidia-docker nerdctl",
    _DOCKER,
    verbs=("run", "exec", "container run", "container exec"),
    outer="--context -c -H --host --config -l --log-level --namespace -n --root --url --connection",
    operands=1,
    instead="--entrypoint",
    arrives=False,
    sets="-e --env",
    from_file="--env-file",
    is_elsewhere=True,
    gpus="--gpus",
)
_COMPOSE = "-f --file -p --project-name --profile --env-file --project-directory --ansi --parallel --progress"
_MACHINES = "-w -x -l -t -u -R -f -g -h -H -p -o -e -O --hosts --host --user --timeout --par"
_SKY = (
    "-c --cluster --gpus -t --instance-type --num-nodes --cloud --infra --region --zone --workdir -n --name --cpus"
    " --memory --disk-size --image-id -i --idle-minutes-to-autostop --ports --priority --pool"
)
_ELSEWHERE = (
    _CONTAINER,
    replace(_CONTAINER, names="docker podman", verbs=("compose run", "compose exec"),
            outer=f"{_COMPOSE} --context -H --host"),
    replace(_CONTAINER, names="docker-compose podman-compose", verbs=("run", "exec"), outer=_COMPOSE),
    Program(
        "singularity apptainer",
        "-B --bind -H --home --overlay -W --workdir -S --scratch --mount --app --hostname --fusemount"
        " --security --apply-cgroups --network --dns --pem-path --memory --cpus",
        verbs=("exec", "run"), outer="-c --config", operands=1, sets="--env", from_file="--env-file",
        folder="--pwd --cwd", withholds="-e --cleanenv -C --containall", is_managed=True,
        renamed=("SINGULARITYENV_", "APPTAINERENV_"),
    ),
    Program("enroot", "-m --mount -r --rc -c --conf", verbs=("start",), operands=1, sets="-e --env", is_managed=True),
    Program("kubectl oc", verbs=("exec", "run", "debug"), behind_dashes=True, arrives=False, is_elsewhere=True),
    Program("ray", "--address --submission-id --working-dir --metadata-json --entrypoint-num-cpus --headers --verify"
            " --entrypoint-num-gpus --entrypoint-memory --entrypoint-resources --log-style --log-color",
            verbs=("job submit",), behind_dashes=True, arrives=False, json="--runtime-env-json",
            from_file="--runtime-env", is_elsewhere=True),
    Program("ray", "--port-forward -p -n --cluster-name", verbs=("exec",), operands=1, runs=LINE, arrives=False,
            is_elsewhere=True),
    Program("runai", verbs=("submit", "training submit", "training pytorch submit"), behind_dashes=True, arrives=False,
            is_elsewhere=True),
    Program("sky", _SKY, verbs=("launch", "jobs launch"), runs=LINE, arrives=False, sets="--env --secret",
            from_file="--env-file", is_elsewhere=True),
    Program("sky", _SKY, verbs=("exec",), operands=1, runs=LINE, arrives=False, sets="--env --secret",
            from_file="--env-file", is_elsewhere=True),
    Program("ssh", "-p -i -l -o -F -J -L -R -D -b -c -E -e -I -m -O -Q -S -W -w -B", operands=1, runs=LINE,
            arrives=False, is_elsewhere=True),
    Program("pdsh clush pssh parallel-ssh", _MACHINES, runs=LINE, arrives=False, is_elsewhere=True),
    Program("gcloud", "--worker --zone --project --region", operands=1, line="--command",
            verbs=("compute ssh", "compute tpus tpu-vm ssh", "alpha compute tpus tpu-vm ssh"), arrives=False,
            is_elsewhere=True),
    Program("tmux", "-s -n -t -c -x -y -e -F -l -p", outer="-L -S -f", runs=LINE, arrives=False, is_elsewhere=True,
            verbs=("new", "new-session", "neww", "new-window", "split-window", "splitw", "respawn-pane")),
    Program("tmux", "-t -N", outer="-L -S -f", runs=TYPED, arrives=False, is_elsewhere=True,
            verbs=("send", "send-keys")),
    Program("screen", "-c -h -T -p -S -t -s -r -d", verbs=("-X stuff",), outer="-S -p -r -d -x", runs=TYPED,
            arrives=False, is_elsewhere=True),
    Program("screen", "-S -dmS -c -h -s -T -p -t -Logfile"),
)  # fmt: skip
# Programs that start a command several times, with words that they fill in.
_MANY = (
    Program("xargs", "-n --max-args -I -P --max-procs -L --max-lines -d --delimiter -a --arg-file -E -s --max-chars"
            " --process-slot-var", fills="-I"),
    Program("parallel", "-j --jobs -S --sshlogin --sshloginfile --slf -I -N -n --max-args -L -a --arg-file --colsep -C"
            " --delay --joblog --results --retries --timeout --tmpdir -d --delimiter --memfree --load --nice --workdir"
            " --wd --env --halt --tagstring --rpl --basefile --bf --block --recstart --recend -s --max-chars -P"
            " --max-procs --max-replace-args --tag-string --line-buffer-size", runs=LINE,
            ends="::: :::: :::+ ::::+", fills="{}"),
)  # fmt: skip
PROGRAMS = (
    *_AROUND,
    *_PROFILERS,
    *_OF_PYTHON,
    *(replace(program, is_managed=True) for program in _MANAGERS),
    *_SECRETS,
    *_ELSEWHERE,
    *_MANY,
)
# These read the options of ``srun``; what they ask of Slurm holds for the command.
SALLOC = options(
    " ".join(tables.SRUN.values), " ".join(tables.SRUN.switches) + " --no_shell", abbreviates=True, guesses=False
)
# ``sbatch`` reads the options of ``srun`` and a few of its own.
SBATCH = options(
    " ".join(tables.SRUN.values - {"-W", "--wait"})
    + " --wrap --array --mail_type --mail_user --export_file --get_user_env",
    " ".join(tables.SRUN.switches) + " -W --wait --parsable --requeue --no_requeue --hold -H --test_only",
    guesses=False,
)
# ``qsub`` of PBS and of Grid Engine.
QSUB = options(
    "-a -A -c -C -e -h -I -J -l -m -M -N -o -p -P -pe -q -r -S -t -u -v -w -W -wd -hold_jid -tc",
    "-f -k -V -X -x -z -cwd -terse",
    guesses=False,
)


def _by_name() -> dict[str, tuple[Program, ...]]:
    found: dict[str, tuple[Program, ...]] = {}
    for program in PROGRAMS:
        for name in program.names.split():
            found[name] = (*found.get(name, ()), program)
    return found


BY_NAME = _by_name()
BY_MODULE = {name: p for p in PROGRAMS if p.module for name in p.names.split()}
# The names under which any of these programs is started; modules are no programs.
NAMES = frozenset({"env", "salloc", *BY_NAME}) - {"cProfile", "profile", "torch.utils.bottleneck", "trace", "pdb"}
