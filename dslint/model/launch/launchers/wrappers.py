"""Programs that run another program: what stands before the launcher is taken off."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch.command import Word
from dslint.model.launch.launchers import tables
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import ASSIGNMENT, Options, flag_name, options, parse_options
from dslint.model.shell.batchjob import MACHINE, is_directive
from dslint.model.shell.slurm import slurm_options


def _takes(values: str) -> Options:
    return options(values, abbreviates=False, guesses=False)


_NONE = _takes("")
# name -> its options and the number of operands before the command it runs.
_WRAPPERS: dict[str, tuple[Options, int]] = {
    "nohup": (_NONE, 0),
    "exec": (_takes("-a"), 0),
    "time": (_takes("-f -o"), 0),
    "command": (_NONE, 0),
    "setsid": (_NONE, 0),
    "unbuffer": (_NONE, 0),
    "nice": (_takes("-n"), 0),
    "ionice": (_takes("-c -n"), 0),
    "stdbuf": (_takes("-i -o -e"), 0),
    "timeout": (_takes("-s --signal -k --kill_after"), 1),
    "sudo": (_takes("-u -g -h -p -C -D"), 0),
    "taskset": (_takes(""), 1),
    "numactl": (_takes("-m -N -C -i --membind --cpunodebind --physcpubind --interleave --preferred"), 0),
    "xvfb-run": (_takes("-n -s"), 0),
    "catchsegv": (_NONE, 0),
    "flock": (_takes("-w --wait --timeout -E --conflict_exit_code"), 1),
    "chrt": (_takes("-T -P -D"), 1),
    "cgexec": (_takes("-g"), 0),
    "prlimit": (_takes("-o"), 0),
    "strace": (_takes("-o -e -p -s -u -a -I -O -P -S"), 0),
    "gdb": (_takes("-ex -x -iex -ix -p"), 0),
    "compute-sanitizer": (_takes("--tool --log_file --kernel_regex --target_processes --launch_timeout"), 0),
    "dumb-init": (_NONE, 0),
    "tini": (_takes("-p -e"), 0),
    "uvx": (_takes("--from --with --python -p --index --index_url --extra_index_url"), 0),
    "screen": (_takes("-S -dmS -c -h -s -T -p"), 0),
    "xargs": (_takes("-n -I -P -L -d -a -E -s"), 0),
}
# Tools whose first words name a sub-command: ``uv run``, ``conda run -n env``, ``nsys profile -o x``.
_RUNNERS: dict[tuple[str, str], Options] = {
    ("uv", "run"): _takes("--with --extra --group --python -p --env_file --project --directory --package"),
    ("poetry", "run"): _NONE,
    ("pdm", "run"): _NONE,
    ("hatch", "run"): _NONE,
    ("pipenv", "run"): _NONE,
    ("pixi", "run"): _takes("-e --environment"),
    ("conda", "run"): _takes("-n --name -p --prefix --cwd"),
    ("mamba", "run"): _takes("-n --name -p --prefix --cwd"),
    ("micromamba", "run"): _takes("-n --name -p --prefix --cwd"),
    ("rye", "run"): _NONE,
    ("dslint", "run"): _takes(
        "--time_limit --select --ignore --extend_select --extend_ignore --per_file_ignores --fail_on --min_confidence"
        " --world_size --nnodes --nproc_per_node --deepspeed_version --transformers_version --accelerate_version"
        " --consumer --output_format --color --config"
    ),
    ("nsys", "profile"): _takes(
        "-o --output -t --trace -s --sample -w --show_output -c --capture_range -f --force_overwrite -y --delay -d"
        " --duration -b --backtrace -e --env_var -x --stop_on_exit -p --nvtx_capture -k --kill -n --inherit_environment"
        " --cuda_graph_trace --cuda_memory_usage --cudabacktrace --capture_range_end --cpuctxsw --export --stats"
        " --gpu_metrics_device --gpu_metrics_devices --gpu_metrics_frequency --osrt_threshold --python_backtrace"
        " --pytorch --python_sampling --samples_per_backtrace --sampling_frequency --session_new"
        " --trace_fork_before_exec --wait --run_as --nic_metrics --gpuctxsw --python_sampling_frequency --command_file"
    ),
    ("nsys", "launch"): _takes("-t --trace --session --session_new -e --env_var -w --show_output"),
    ("py-spy", "record"): _takes("-o --output -d --duration -r --rate -f --format"),
}
_DOCKER = _takes(
    "-v --volume -w --workdir -e --env --env_file --name --network --net --gpus --shm_size --ipc --user -u -p --publish"
    " --mount --ulimit --device --entrypoint -h --hostname --runtime --platform --memory -m --cpus --cpuset_cpus"
    " --label -l --add_host --cap_add --security_opt --pid --restart --log_driver --log_opt --tmpfs --pull"
)
_SINGULARITY = _takes(
    "-B --bind -H --home --pwd --cwd --overlay --env --env_file -W --workdir -S --scratch --mount --app --hostname"
)
_ENROOT = _takes("-e --env -m --mount -r --rc -c --conf")
# Programs that run a command in a container: sub-commands, options, whether the environment of the shell gets in.
_CONTAINERS: dict[str, tuple[frozenset[str], Options, bool]] = {
    "docker": (frozenset({"run", "exec"}), _DOCKER, False),
    "podman": (frozenset({"run", "exec"}), _DOCKER, False),
    "nvidia-docker": (frozenset({"run", "exec"}), _DOCKER, False),
    "singularity": (frozenset({"run", "exec"}), _SINGULARITY, True),
    "apptainer": (frozenset({"run", "exec"}), _SINGULARITY, True),
    "enroot": (frozenset({"start"}), _ENROOT, True),
}
# Programs whose command stands behind ``--``.
_BEHIND_DASHES = {("kubectl", "exec"), ("oc", "exec"), ("ray", "job")}
_COMPOSE = _takes("-f --file -p --project_name --profile --env_file --project_directory")
_SALLOC = options(
    " ".join(tables.SRUN.values), " ".join(tables.SRUN.switches) + " --no_shell", abbreviates=True, guesses=False
)
# The names under which any of these programs is started.
NAMES = frozenset(
    {"env", "salloc", "docker-compose", "docker", *_WRAPPERS, *_CONTAINERS}
    | {name for name, _ in _RUNNERS}
    | {name for name, _ in _BEHIND_DASHES}
)


def unwrap(
    words: Sequence[Word], env: dict[str, Fact[str]], taken: list[tuple[Word, ...]] | None = None
) -> tuple[Word, ...]:
    """The words from the launcher on; assignments of ``env NAME=value`` go into ``env``.

    ``taken`` collects the words of each program that is taken off.
    """
    rest = tuple(words)
    while rest:
        before = rest
        name = program_name(rest[0])
        following = rest[1].text or "" if len(rest) > 1 else ""
        if name == "env":
            rest = _environment(rest[1:], env)
        elif name in _WRAPPERS:
            table, operands = _WRAPPERS[name]
            rest = parse_options(rest[1:], table).rest[operands:]
        elif (name, following) in _RUNNERS:
            rest = parse_options(rest[2:], _RUNNERS[name, following]).rest
        elif name in _CONTAINERS and following in _CONTAINERS[name][0]:
            rest = _container(name, rest[2:], env)
        elif name == "docker-compose" or (name, following) == ("docker", "compose"):
            rest = _composed(rest[1 if "-" in name else 2 :], env)
        elif (name, following) in _BEHIND_DASHES:
            at = next((i for i, w in enumerate(rest) if w.text == "--"), len(rest))
            rest = rest[at + 1 :]
            _forget(env)
        elif name == "salloc":
            parsed = parse_options(rest[1:], _SALLOC)
            env.update(slurm_options(rest[1 : len(rest) - len(parsed.rest)]))
            rest = parsed.rest
        else:
            break
        if taken is not None:
            taken.append(before[: len(before) - len(rest)])
    return rest


def is_container(words: Sequence[Word]) -> bool:
    """A program around the command, with its options, that runs it in a container of an environment of its own."""
    name = (words[0].text or "").rpartition("/")[2] if words else ""
    return name in ("docker-compose", "kubectl", "oc") or (name in _CONTAINERS and not _CONTAINERS[name][2])


def is_isolated(wrappers: Sequence[Sequence[Word]]) -> bool:
    """A program around the command brings an environment of its own: a container, a tool that manages environments."""
    names = {(words[0].text or "").rpartition("/")[2] for words in wrappers if words}
    managed = {name for name, _ in _RUNNERS} - {"nsys", "py-spy", "dslint"}
    return not names.isdisjoint({*managed, *_CONTAINERS, "docker-compose", "kubectl", "oc", "uvx", "sudo"})


def _container(name: str, words: Sequence[Word], env: dict[str, Fact[str]]) -> tuple[Word, ...]:
    """The command behind the image; ``-e NAME=value`` sets what it sees."""
    _, table, inherits = _CONTAINERS[name]
    parsed = parse_options(words, table)
    outside = dict(env)
    if not inherits:
        _forget(env)
    for flag in parsed.flags:
        text = flag.value.text if flag.name in ("-e", "--env") and flag.value is not None else None
        for part in (text or "").split(",") if inherits else [text or ""]:
            variable, glue, value = part.partition("=")
            if glue and flag.value is not None:
                env[variable] = known(value, flag.value.location.labelled(part), *flag.value.origins)
            elif variable in outside:  # ``-e NAME`` hands the variable of the shell on
                env[variable] = outside[variable]
    return parsed.rest[1:]


def _composed(words: Sequence[Word], env: dict[str, Fact[str]]) -> tuple[Word, ...]:
    """``docker compose run SERVICE COMMAND``: the container has the service's environment and what ``-e`` sets."""
    rest = parse_options(words, _COMPOSE).rest
    return _container("docker", rest[1:], env) if rest and rest[0].text in ("run", "exec") else ()


def _forget(env: dict[str, Fact[str]]) -> None:
    """Another machine or image: it may have any variable, but not those of this shell."""
    facts = {name: fact for name, fact in env.items() if is_directive(name) and not name.startswith(MACHINE)}
    env.clear()
    env.update(facts)
    env[""] = unknown("the image or the other machine may set any variable")


def _environment(words: Sequence[Word], env: dict[str, Fact[str]]) -> tuple[Word, ...]:
    at = 0
    while at < len(words):
        word = words[at]
        match = ASSIGNMENT.match(word.text if word.text is not None else word.raw)
        if match and word.text is not None:
            env[match[1]] = known(match[2], word.location.labelled(word.text), *word.origins)
        elif match:
            env[match[1]] = unknown(f"`{match[1]}` is computed", word.location)
        elif word.text in ("-u", "-C", "-S", "--unset", "--chdir"):
            at += 1
            if word.text in ("-u", "--unset") and at < len(words):
                env.pop(words[at].text or "", None)
        elif word.text is not None and word.text.startswith("--unset="):
            env.pop(word.text.partition("=")[2], None)
        elif word.text in ("-i", "-", "--ignore-environment"):
            kept = {name: fact for name, fact in env.items() if is_directive(name)}
            env.clear()
            env.update(kept)
        elif flag_name(word) is None and not word.spreads:
            break
        at += 1
    return tuple(words[at:])
