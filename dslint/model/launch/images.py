"""What ``docker run IMAGE WORDS`` starts where the image is one of the project: its ``ENTRYPOINT`` with these words."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.model.launch.command import Word
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import last, options, parse_options
from dslint.model.launch.launchers.wrappers import image_at
from dslint.model.launch.sources.dockerfile import entry_words
from dslint.model.shell.commands import Invocation
from dslint.model.shell.scope import Scope
from dslint.model.shell.values import read_statements
from dslint.parse.shell import ShellDoc

if TYPE_CHECKING:
    from dslint.core.source import SourceFile

FindFile = Callable[[str, Scope], "SourceFile | None"]
_ENGINES = ("docker", "podman", "nerdctl", "nvidia-docker", "buildah")
_BUILD = options(
    "-t --tag -f --file --build_arg --target --platform --cache_from --cache_to --progress --secret --ssh --network"
    " --label --shm_size -o --output --iidfile --builder --build_context --isolation -m --memory",
    guesses=False,
)
# Where the one Dockerfile of a project stands.
_USUAL = ("Dockerfile", "docker/Dockerfile", "../Dockerfile")


def with_entrypoint(invocation: Invocation, shell: ShellDoc, find_file: FindFile) -> tuple[Word, ...] | None:
    """The words of the command with those of the entry point in front of its own.

    ``None`` for other commands, and where nobody can say which file the image is built from: the text builds it, or
    the words behind it begin with an option, so that it has an entry point.
    """
    words = invocation.words
    at = image_at(words)
    if at is None or at + 1 >= len(words):
        return None
    image = words[at]
    paths = list(_built(shell, image, find_file))
    if not paths and (words[at + 1].text or "").startswith("-"):
        paths = list(_USUAL)
    for path in paths:
        source = find_file(path, invocation.scope)
        if source is not None:
            entry = [replace(image, text=text, spreads=False, why="") for text in entry_words(source)]
            return (*words[: at + 1], *entry, *words[at + 1 :]) if entry else None
    return None


def _built(shell: ShellDoc, image: Word, find_file: FindFile) -> Iterator[str]:
    """The Dockerfiles of which the text builds an image of this name."""
    if image.text is None or " build" not in shell.text:
        return
    scope = Scope(script=shell.source.path)
    for item in read_statements(shell, lambda raw: " build" in raw, scope, find_file):
        words = item.words if isinstance(item, Invocation) else ()
        verb = next((at for at, word in enumerate(words[:3]) if word.text == "build"), 0)
        if not verb or program_name(words[0]) not in _ENGINES:
            continue
        parsed = parse_options(words[verb + 1 :], _BUILD)
        tags = [flag.value.text for flag in parsed.flags if flag.name in ("-t", "--tag") and flag.value is not None]
        if _plain(image.text) in map(_plain, tags):
            file = last(parsed.flags, "-f", "--file")
            yield _text(file.value if file is not None else None) or posixpath.join(_folder(parsed.rest), "Dockerfile")


def _plain(tag: str | None) -> str:
    return (tag or "").removesuffix(":latest")


def _text(word: Word | None) -> str:
    return (word.text or "") if word is not None else ""


def _folder(rest: Sequence[Word]) -> str:
    folder = _text(rest[0]) if rest else ""
    return "" if folder in ("", ".", "./", "-") else folder
