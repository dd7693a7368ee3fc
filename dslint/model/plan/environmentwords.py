"""Variables of the environment behind the script, where they are words for it: `train.py MASTER_ADDR=node0`."""

from __future__ import annotations

import re

from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.plan.files import Files
from dslint.model.plan.scriptrun import near_sources

# What torch, NCCL, CUDA, Lightning and OpenMP read in the environment and nowhere else.
_WORD = re.compile(
    r"(?P<name>MASTER_ADDR|MASTER_PORT|NODE_RANK|GROUP_RANK|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE"
    r"|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES|NCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|GLOO_SOCKET_IFNAME|OMP_NUM_THREADS"
    r"|TORCH_DISTRIBUTED_DEBUG|PYTORCH_(?:CUDA_)?ALLOC_CONF)=."
)
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
# The script puts words of its command line into the environment itself.
_PUTS = re.compile(
    r"environ\.update\(|environ\[\s*[a-z_]\w*(?:\[\d\])?\s*\]\s*=|environ\.setdefault\(\s*[a-z_]\w*\s*,|putenv\("
)
_IN_ENVIRONMENT = r"(?:environ(?:\.\w+\(|\[)|getenv\()\s*[\"']{0}[\"']"
_USED = r"[\"']{0}[\"']|\.{0}\b|^\s*{0}\s*[:=]"
_CONFIG = (".yaml", ".yml", ".json", ".toml")


def environment_words(command: LaunchCommand, script: str | None, files: Files) -> tuple[tuple[str, Word], ...]:
    """The words with the names of such variables, where neither the script nor a config that it gets has the name."""
    found = [(m["name"], word) for word in _plain(command) if (m := _WORD.match(word.raw.strip("\"'"))) is not None]
    source = files.workspace.read(script) if found and script is not None and script.endswith(".py") else None
    if source is None:
        return ()
    code = [re.sub(r"#[^\n]*", "", text.text) for text in near_sources(source, files.workspace)]
    if any(map(_PUTS.search, code)):
        return ()
    given = [word.text or "" for word in command.script_args]
    configs = [files.find(text) for text in given if text.endswith(_CONFIG)]
    texts = [text.text for path in configs if path is not None and (text := files.workspace.read(path)) is not None]
    return tuple((name, word) for name, word in found if name not in command.env and not _knows(name, code, texts))


def _plain(command: LaunchCommand) -> list[Word]:
    """The words of the script that are no values of an option: `--env A=1 B=2` takes them."""
    found: list[Word] = []
    takes = False
    for word in command.script_args:
        text = word.raw.strip("\"'")
        if text.startswith("-"):
            takes = "=" not in text
        elif not _ASSIGNS.match(text):
            takes = False
        elif not takes:
            found.append(word)
    return found


def _knows(name: str, code: list[str], configs: list[str]) -> bool:
    """The code asks for the name elsewhere than in the environment, or a config has such a key."""
    read, used = re.compile(_IN_ENVIRONMENT.format(name)), re.compile(_USED.format(name), re.MULTILINE)
    if any(used.search(read.sub("", text)) for text in code):
        return True
    return any(re.search(rf"\b{name}\b", text) for text in configs)
