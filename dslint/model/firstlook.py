"""First looks: the tests of the bytes of a file that decide whether anything further is loaded or parsed for it.

Each is false only where the reader that it stands before finds nothing. This module imports no reader: a run over
plain configs pays for none of them.
"""

from __future__ import annotations

import re
from collections.abc import Set

# fmt: off
_LAUNCHERS = (
    "torchrun", "torch.distributed", "deepspeed", "accelerate", "srun", "mpirun", "mpiexec", "xtuner", "swift",
    "megatron", "llamafactory", "lmf", "axolotl", "colossalai", "composer", "horovodrun",
)
# fmt: on
# Also the words of a list: ``["python", "train.py"]``.
_PYTHON = r"python[\d.]*[\"']?,?\s+(?:-|\S*\.py|[\"'$<{])"
# Tools whose names are parts of other words; and what people call programs of a project that train.
_TOOLS = (
    r"\btrl[ \t]+(?:sft|dpo|grpo|kto|reward|rloo)\b|(?<![\w./-])[a-z]\w*(?:-\w+)*-(?:train|eval|generate)(?![\w./-])"
)
# Programs that run a script of Python themselves.
RUN_PYTHON = (
    "uv", "pdm", "coverage", "memray", "viztracer", "scalene", "kernprof", "kernprof.py", "pyinstrument",
    "line_profiler", "ipdb", "pudb", "debugpy",
)  # fmt: skip
_RUN = rf"(?<![\w./-])(?:{'|'.join(map(re.escape, RUN_PYTHON))})[ \t][^\n|;&]*(?:\.py\b|[ \t](?:-m|--module)[ \t])"
LAUNCHER = "|".join([*map(re.escape, _LAUNCHERS), _PYTHON, _TOOLS, _RUN])
# A shell script that is called: ``bash tools/dist_train.sh configs/x.py 8``, ``sbatch job.slurm``; also as the words of
# a list: ``["bash", "run.sh"]``, an item ``- bash`` before an item ``- run.sh``.
_BEHIND = r"(?:[ \t]+|[\"'],[ \t]*|,[ \t]*|[\"']?[ \t\r]*\n[ \t]*-[ \t]+)"
CALL = (
    rf"(?:\b(?:ba|z)?sh|\bsbatch){_BEHIND}"
    r"(?:[^\n#;|&<>]*\.(?:sh|bash|slurm|sbatch)\b|(?:-\S+[ \t]+)*[\"']?\$\{?\w)"
    r"|(?:^|[;&|\s\[])[\"']?\.{0,2}/[\w./-]+\.sh\b"
    r"|\b(?:docker|podman|nerdctl)[ \t]+(?:container[ \t]+)?run\b"
)
# ``word in raw`` is many times faster than an expression with alternatives.
_LAUNCHER_BYTES = tuple(name.encode() for name in _LAUNCHERS)
_PYTHON_BYTES = re.compile(_PYTHON.encode())
_TOOLS_BYTES = re.compile(_TOOLS.encode())
_RUN_WORDS = tuple(f"{name} ".encode() for name in RUN_PYTHON)
_RUN_BYTES = re.compile(_RUN.encode())
_CALL_BYTES = re.compile(CALL.encode())
_CALL_WORDS = (b"sh ", b"sh\t", b"sbatch", b".sh", b"docker", b"podman", b"nerdctl")
_DEEPSPEED = (b"deepspeed", b"deepSpeed", b"Deepspeed", b"DeepSpeed")
_COMMAND_KEYS = re.compile(
    rb"^[ \t-]*[\"']?(?:run|script|bash|commands?|cmds|args|entrypoint)[\"']?[ \t]*:(?:[ \t\r]*$|[ \t]+[^\s#])", re.M
)
_STARTERS = (b"subprocess.", b"os.system(", b"os.popen(", b"sp.run(", b"session.run(")
# Libraries that hand a job to a cluster.
SUBMITS = ("submitit", "sagemaker")
_SUBMITS = tuple(name.encode() for name in SUBMITS)
_LAUNCHERS_IN_PYTHON = re.compile(
    rb"[\"' ](?:torchrun|deepspeed|srun|mpirun|xtuner|accelerate[\"', ]+launch|torch\.distributed\.(?:run|launch))"
    rb"[\"' ,]"
)
_SHELL_CELLS = re.compile(rb"(?:\"|\\n)[ \t]*(?:![^=]|%%(?:bash|sh|script)|%sh)")
_NAMES_CONFIG = re.compile(
    rb"(?:^|[{,])[ \t]*[\"']?deepspeed[\"']?[ \t]*:[ \t]*[\"']?[^\s\"'{},]+\.(?:json|hjson)\b", re.M
)
# Keys that no dict but a DeepSpeed config has, and what hands a dict over.
_DICT_KEYS = re.compile(
    rb"[\"'(,\s](?:zero_optimization|train_micro_batch_size_per_gpu|train_batch_size|steps_per_print|wall_clock_breakdown"
    rb"|zero_allow_untested_optimizer|hybrid_engine)(?:\\?[\"']\s*[:\]]|\s*=\s*(?:dict\(|\{))"
)
# One of them stands in every file with a DeepSpeed config in it; behind one of the keys there is a colon.
_SECTION_WORDS = (b"eepspeed", b"eepSpeed", b"ds_config", b"zero_opt", b"steps_per_print", b"micro_batch_size_per_gpu")
_SECTION_KEYS = re.compile(
    rb"(?:zero_\w+|train_\w*batch_size\w*|steps_per_print|wall_clock_breakdown|gradient_clipping|bf16|fp16|bfloat16|optimizer"
    rb"|scheduler|\w+_accumulation_steps|offload_\w+|overlap_comm|activation_checkpointing"
    rb"|stage|cpu_checkpointing|partition_activations)[\"']?[ \t]*:"
)
_MOST_SECTION_BYTES = 300_000
_HANDS_OVER = (b"deepspeed", b"DeepSpeed", b"ds_config", b"ds_conf")
_HEREDOC_KEYS = re.compile(
    r"[\"'](?:zero_optimization|train_micro_batch_size_per_gpu|train_batch_size|steps_per_print|zero_allow_untested"
    r"|wall_clock_breakdown|gradient_clipping|bf16|fp16)[\"']\s*:"
)
# Programs that make a file of others or of a text, or change it.
_TOOL = r"sed|jq|envsubst|echo|printf|cat|cp|mv|tee|sponge|install|python[\d.]*"
_MAKERS = re.compile(rf"(?<![\w.-])(?:{_TOOL})(?![\w.-])")
_MAKERS_BYTES = re.compile(
    rb"(?<![\w.-])(?:sed|jq|envsubst|echo|printf|python[\d.]*[ \t]+-[ \tc]|python[\d.]*[ \t]*<<)"
)
_CONFIG = re.compile(r"(?i:deepspeed|ds_?conf|ds_?cfg|zero_?[0-3]|zero_optimization)")
_CONFIG_BYTES = re.compile(_CONFIG.pattern.encode())
_HEREDOC_BYTES = re.compile(_HEREDOC_KEYS.pattern.encode())


# Blanks for all bytes that no name holds; those above 127 are parts of letters.
_NAMES_ONLY = bytes(byte if byte > 127 or chr(byte).isalnum() or byte == ord("_") else ord(" ") for byte in range(256))


def names_in(raw: bytes) -> set[bytes]:
    """The different names, words and numbers of a text."""
    return set(raw.translate(_NAMES_ONLY).split())


def may_name(raw: bytes, names: Set[bytes]) -> bool:
    """Whether a script may hold one of some names: any notebook may, for in its JSON ``\\n`` stands before a name."""
    return raw.lstrip()[:1] == b"{" or not names.isdisjoint(names_in(raw))


def may_launch(raw: bytes) -> bool:
    """Whether a file can hold a launch command."""
    if any(name in raw for name in _LAUNCHER_BYTES):
        return True
    if b"python" in raw and _PYTHON_BYTES.search(raw) is not None:
        return True
    if any(word in raw for word in (b"trl ", b"-train", b"-eval", b"-generate")) and _TOOLS_BYTES.search(raw):
        return True
    return any(word in raw for word in _RUN_WORDS) and _RUN_BYTES.search(raw) is not None


def text_may_launch(text: str) -> bool:
    """The same for a text that is decoded."""
    return may_launch(text.encode("utf-8", "surrogatepass"))


def text_may_start(text: str) -> bool:
    """Whether a piece of shell text can launch something, or call a script that does."""
    raw = text.encode("utf-8", "surrogatepass")
    return may_launch(raw) or may_call(raw)


def may_call(raw: bytes) -> bool:
    """Whether a shell text can call a script that launches, with arguments or variables of its own."""
    return any(word in raw for word in _CALL_WORDS) and _CALL_BYTES.search(raw) is not None


def may_hold_commands(raw: bytes) -> bool:
    """Whether a YAML file may hold launch commands: of a workflow, a container, a cluster."""
    return _COMMAND_KEYS.search(raw) is not None and (may_launch(raw) or may_call(raw))


def may_start_containers(raw: bytes) -> bool:
    """Whether a text may start containers that are told of each other: ``docker run -e MASTER_ADDR=...``, compose."""
    if not (b"MASTER_ADDR" in raw or b"WORLD_SIZE" in raw):
        return False
    return b"services:" in raw or (b" run " in raw and (b"docker" in raw or b"podman" in raw))


def may_start_processes(raw: bytes) -> bool:
    """Whether a Python file may start a launcher with a command line of its own."""
    if any(word in raw for word in _STARTERS) and _LAUNCHERS_IN_PYTHON.search(raw) is not None:
        return True
    return any(word in raw for word in _SUBMITS) and (b"update_parameters" in raw or b"instance_count" in raw)


def may_run_shell(raw: bytes) -> bool:
    """Whether a notebook may hand lines or cells to a shell."""
    return _SHELL_CELLS.search(raw) is not None


def may_be_vscode(raw: bytes) -> bool:
    """Whether a JSON file holds what VS Code starts."""
    return b'"configurations"' in raw or b'"tasks"' in raw


def may_name_config(raw: bytes) -> bool:
    """Whether a script may hand a config file over."""
    return (b".json" in raw or b".hjson" in raw) and any(word in raw for word in _DEEPSPEED)


def may_be_recipe(raw: bytes) -> bool:
    """Whether a YAML or JSON file may name a DeepSpeed config as one of its arguments."""
    return b"deepspeed" in raw and _NAMES_CONFIG.search(raw) is not None


def may_hold_config(raw: bytes) -> bool:
    """Whether a script can hold a DeepSpeed config as a dict."""
    return any(word in raw for word in _HANDS_OVER) and _DICT_KEYS.search(raw) is not None


def holds_config(text: str) -> bool:
    """The same for a text that is decoded."""
    return "eep" in text and may_hold_config(text.encode("utf-8", "surrogatepass"))


def may_hold_section(raw: bytes) -> bool:
    """Whether a YAML file can be a DeepSpeed config, or hold one as a section."""
    if not any(word in raw for word in _SECTION_WORDS):
        return False
    return b"{%" not in raw and len(raw) < _MOST_SECTION_BYTES and _SECTION_KEYS.search(raw) is not None


def may_write_config(raw: bytes) -> bool:
    """Whether a shell script can write a DeepSpeed config."""
    if b"<<" in raw and _HEREDOC_BYTES.search(raw) is not None:
        return True
    return _MAKERS_BYTES.search(raw) is not None and _CONFIG_BYTES.search(raw) is not None


def makes_config(text: str) -> bool:
    """Whether a script may make a DeepSpeed config of other files or texts."""
    return may_change(text) and _CONFIG.search(text) is not None


def may_change(raw: str) -> bool:
    """Whether a command may write or change a file."""
    return _MAKERS.search(raw) is not None


def makes_files(first: str) -> bool:
    """Whether a command that begins with this word may write or change a file."""
    return re.fullmatch(_TOOL, first.rpartition("/")[2]) is not None


def may_be_config(body: str) -> bool:
    """Whether a heredoc may hold a DeepSpeed config."""
    return _HEREDOC_KEYS.search(body) is not None


def may_train(raw: bytes) -> bool:
    """A script that names one of the libraries that this is about."""
    return any(word in raw for word in (b"torch", b"deepspeed", b"accelerate", b"transformers", b"lightning"))
