"""From the words of a shell command to a launch command: wrappers off, launcher, script, arguments, world size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dslint.core.fact import Fact, absent
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import Flag, LaunchCommand, Word, names_script
from dslint.model.launch.commandlines import (
    SCRIPTS,
    SHELLS,
    Outer,
    Shell,
    folder,
    inside,
    line_of,
    may_be_script,
    shell_of,
)
from dslint.model.launch.launchers import programs as around_programs
from dslint.model.launch.launchers.adapters import BY_HEAD, BY_MODULE, MPI_PAIRS, PLAIN, Adapter, program_name
from dslint.model.launch.launchers.base import Parsed, World, flag_name, last, parse_options, script_flags
from dslint.model.launch.launchers.environment import hand_over
from dslint.model.launch.launchers.frameworks import is_lightning, split_launcher
from dslint.model.launch.launchers.interpreter import is_python, operand_at, starts_python
from dslint.model.launch.launchers.wrappers import unwrap
from dslint.model.shell.batchjob import is_directive
from dslint.model.shell.words import is_plain


@dataclass(frozen=True, slots=True)
class Head:
    """The launcher of a command: its words, its adapter, what follows."""

    adapter: Adapter
    program: str
    rest: tuple[Word, ...]
    # ``python x.py`` and ``python -m x``: the script is known already.
    script: Word | None = None
    is_module: bool = False


def read_command(
    words: Sequence[Word],
    env: Mapping[str, Fact[str]],
    source: SourceFile,
    outer: Outer | None = None,
    cwd: Fact[str] | None = None,
    in_docs: bool = False,
    programs: Collection[str] = (),
) -> LaunchCommand | Shell | None:
    """The launch that these words are, ``None`` when they start no training processes.

    ``programs`` are the names of programs that the project installs and that are scripts of its own.
    """
    seen = dict(env)
    found = unwrap(words, seen)
    rest, around, cwd = found.rest, found.around, folder(found, cwd)
    outer = outer or Outer()
    head = _head(rest, programs) if found.line is None else None
    if head is None:
        shell = line_of(found, outer) if found.line is not None else shell_of(rest, outer)
        if shell is not None and last(shell.flags, "--export") is not None:  # a job finds what a step finds
            hand_over("srun", (), Parsed(shell.flags, ()), seen)
        return inside(shell, found, cwd, None if seen == env else seen) if shell is not None else None
    if head.adapter.wraps:
        parsed = _wrapper_options(head)
        before = dict(seen)
        hand_over(head.adapter.name, head.rest[: len(head.rest) - len(parsed.rest)], parsed, seen)
        set_here = {n: f for n, f in before.items() if n and (f.is_known or f.origins) and not is_directive(n)}
        lost = {name: fact for name, fact in set_here.items() if name not in seen}
        found.withheld.update(lost)
        inner = read_command(parsed.rest, seen, source, Outer(head.adapter.name, parsed), cwd, in_docs, programs)
        if isinstance(inner, Shell):
            handed = inside(inner, found, cwd, None if seen == env else seen)
            return replace(handed, around=replace(handed.around, env=inner.around.env or handed.around.env))
        if inner is None:
            return None
        begin = words[0].location.span.start
        around += [rest[: len(rest) - len(parsed.rest)], *inner.wrappers]
        withheld = {**found.withheld, **inner.withheld}
        inner = replace(inner, wrappers=tuple(around), withheld=withheld)
        return replace(inner, words=tuple(words), location=_place(source, begin, inner.words, words[0].location))
    command = _command(head, seen, outer, rest)
    if command is None or (head.adapter.is_common and not _is_python(command)):
        return None
    place = _place(source, words[0].location.span.start, words, words[0].location)
    command = replace(command, words=tuple(words), wrappers=tuple(around), argv=rest, location=place, in_docs=in_docs)
    return replace(command, cwd=cwd or absent(), withheld=found.withheld)


@lru_cache(maxsize=4096)
def may_begin(first: str) -> bool:
    """Whether :func:`read_command` may find something in a command whose first word is written like this.

    False for ``echo``, ``mkdir``, ``pip``: whatever follows, the other words need not be expanded.
    """
    if not is_plain(first):
        return True
    name = first.rpartition("/")[2]
    known = name in BY_HEAD or name in around_programs.NAMES or name in SHELLS
    return known or first.endswith(SCRIPTS) or is_python(name) or may_be_script(first)


def _is_python(command: LaunchCommand) -> bool:
    script = command.script
    return script is not None and (command.is_module or script.text is None or script.text.endswith(".py"))


def _place(source: SourceFile, begin: int, words: Sequence[Word], single: Location) -> Location:
    end = max(w.location.span.end for w in words)
    return source.location(Span(begin, end)) if end > begin else single


def _head(words: Sequence[Word], programs: Collection[str]) -> Head | None:
    if not words:
        return None
    name = program_name(words[0])
    adapter = BY_HEAD.get(name)
    if adapter is not None:
        return _subcommand(adapter, name, tuple(words[1:]))
    if name in programs:
        return Head(PLAIN, name, tuple(words[1:]), words[0])
    if starts_python(words[0]):
        return _python(name or "python", words)
    return None


def _subcommand(adapter: Adapter, program: str, rest: tuple[Word, ...]) -> Head | None:
    if not adapter.subcommands:
        return Head(adapter, program, rest)
    if rest and rest[0].text in adapter.subcommands:
        return Head(adapter, f"{program} {rest[0].text}", rest[1:])
    return None


def _python(name: str, words: Sequence[Word]) -> Head | None:
    at = operand_at(words)
    if not at:
        return None
    word = words[at]
    text = word.text
    if text == "-m" and at + 1 < len(words):
        module = words[at + 1]
        adapter = BY_MODULE.get(module.text or "")
        if adapter is not None:
            return _subcommand(adapter, f"{name} -m {module.text}", tuple(words[at + 2 :]))
        return Head(PLAIN, name, tuple(words[at + 2 :]), module, is_module=True)
    if text in ("-m", "-c", "-") or word.spreads:
        return None
    found = BY_HEAD.get(program_name(word))
    if found is not None and not (text or "").endswith(".py"):
        return _subcommand(found, f"{name} {text}", tuple(words[at + 1 :]))
    return Head(PLAIN, name, tuple(words[at + 1 :]), word)


def _wrapper_options(head: Head) -> Parsed:
    """The options of srun or mpirun; ``-mca a b`` has two values."""
    words: list[Word] = []
    skip = 0
    for at, word in enumerate(head.rest):
        if skip:
            skip -= 1
        elif head.adapter.name == "mpirun" and word.text in MPI_PAIRS:
            following = head.rest[at + 1].text or "" if at + 1 < len(head.rest) else ""
            skip = 1 if "env" in word.text and "=" in following else 2
        else:
            words.append(word)
    return parse_options(words, head.adapter.options)


def _command(head: Head, env: dict[str, Fact[str]], outer: Outer, words: Sequence[Word]) -> LaunchCommand | None:
    adapter = head.adapter
    place = words[0].location
    parsed = (
        Parsed((), head.rest) if head.script or not adapter.has_script else parse_options(head.rest, adapter.options)
    )
    script, arguments, is_module = head.script, parsed.rest, head.is_module
    if script is None and adapter.has_script:
        if not parsed.rest and not parsed.open and not parsed.flags:
            return None
        script, arguments = (parsed.rest[0], parsed.rest[1:]) if parsed.rest else (None, ())
        arguments = _without_dashes(arguments, adapter.dashes - parsed.dashed)
        is_module = last(parsed.flags, *adapter.module_flags) is not None
    world = _world(adapter, parsed, env, outer, place)
    launcher, flags = adapter.name, parsed.flags
    if launcher == "axolotl" and any(word.text == "--" for word in arguments):
        arguments, flags = split_launcher(arguments)
    elif adapter is PLAIN and is_lightning(parsed):
        launcher = "lightning"
    outer_name, outer_flags = outer.name, outer.parsed.flags
    if adapter is PLAIN and outer.name:  # who starts the processes is around
        launcher, flags, outer_name, outer_flags = outer.name, outer.parsed.flags, "", ()
    return LaunchCommand(
        launcher=launcher,
        program=head.program,
        location=place,
        words=tuple(words),
        launcher_flags=flags,
        outer=outer_name,
        outer_flags=outer_flags,
        script=script,
        is_module=is_module,
        script_args=tuple(arguments),
        script_flags=script_flags(arguments),
        env=env,
        nodes=world.nodes,
        processes_per_node=world.per_node,
        world_size=world.total,
        hides_words=(parsed.open and script is None) or _spreads(arguments),
        unknown_operands=_unknown_operands(arguments),
        hides_options=parsed.open or (script is not None and _is_placeholder(script)),
    )


def _is_placeholder(script: Word) -> bool:
    """The first operand may be options: ``$ANY``, or ``...`` and ``[options]`` of documentation."""
    if script.text is None:
        return not names_script(script)
    return script.text.startswith(("[", "<", "{", "...", "…", "$"))


def _without_dashes(arguments: tuple[Word, ...], count: int) -> tuple[Word, ...]:
    """argparse takes a first ``--``, also right behind the script, for its own; deepspeed reads the words twice."""
    for _ in range(count):
        if arguments and arguments[0].text == "--":
            arguments = arguments[1:]
    return arguments


def _world(adapter: Adapter, parsed: Parsed, env: dict[str, Fact[str]], outer: Outer, place: Location) -> World:
    if adapter is PLAIN and outer.name:
        return BY_HEAD[outer.name].counter(outer.parsed, env, place)
    slurm_launcher = _value(script_flags(parsed.rest), "--launcher") == "slurm"
    if adapter.name == "xtuner" and outer.name and (slurm_launcher or "NPROC_PER_NODE" not in env):
        return BY_HEAD[outer.name].counter(outer.parsed, env, place)
    return adapter.counter(parsed, env, place)


def _value(flags: Sequence[Flag], name: str) -> str | None:
    flag = last(flags, name)
    return flag.value.text if flag is not None and flag.value is not None else None


def _spreads(arguments: Sequence[Word]) -> bool:
    """``$EXTRA_ARGS``, ``"$@"``; in documentation ``[optional arguments]`` and ``...`` stand for the same."""
    return any(
        word.raw.startswith(("[", "...", "…")) or (word.text is None and word.spreads and flag_name(word) is None)
        for word in arguments
    )


def _unknown_operands(arguments: Sequence[Word]) -> int:
    """Unquoted words that stand alone and cannot be read: ``$1``, ``$CONFIG``."""
    count = 0
    previous_is_flag = False
    for word in arguments:
        name = flag_name(word)
        if word.text is None and name is None and not previous_is_flag:
            count += word.raw.startswith("$")
        previous_is_flag = name is not None and "=" not in (word.text or word.raw)
    return count
