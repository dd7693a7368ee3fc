"""Programs that run another program: what stands before the launcher is taken off, as their rows say."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch.command import Flag, Word, canonical
from dslint.model.launch.launchers import programs
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import Options, Parsed, flag_name, last, parse_options
from dslint.model.launch.launchers.counts import MACHINE_GPUS
from dslint.model.launch.launchers.envwords import EMPTIES, environment, forget
from dslint.model.launch.launchers.interpreter import module_at
from dslint.model.launch.launchers.programs import BY_MODULE, BY_NAME, EITHER, LINE, PYTHON, TYPED, Program
from dslint.model.shell.batchjob import is_directive
from dslint.model.shell.slurm import slurm_options

_MODULE = ("-m", "--module")
_SCRIPT = ("-s", "--script", "--gui-script")
# ``{}``, ``{1}``, ``{.}``, ``{%}`` of GNU parallel.
_FIELDS = re.compile(r"\{[\d.%#/+-]*\}")
_TYPED_END = re.compile(r"(?:\\n|\\r|\^M|\\015|\s)+$")
_ENVIRONMENT = re.compile(r"[\w.+-]+:(?=\w)")
# Between the commands of tmux.
_NEXT = ";"
_MOST = 99
# How many words stand in front of a program: ``sudo -E``, ``exec``.
_FRONT = 4


@dataclass(slots=True)
class Unwrapped:
    """The words from the launcher on, and what the programs around have done.

    ``around`` are the words of each of them. ``line``: the program that hands ``rest`` to a shell, as a text. ``fills``
    matches what it fills in there. ``folder`` is the directory that they change to, ``is_elsewhere``: an image or
    another machine decides over it. ``withheld`` are the variables of the shell that the command does not find.
    """

    rest: tuple[Word, ...]
    around: list[tuple[Word, ...]] = field(default_factory=list)
    line: Program | None = None
    fills: re.Pattern[str] | None = None
    folder: str = ""
    is_elsewhere: bool = False
    withheld: dict[str, Fact[str]] = field(default_factory=dict)


def unwrap(words: Sequence[Word], env: dict[str, Fact[str]]) -> Unwrapped:
    """Take all programs around a command off; ``env`` becomes what the command finds."""
    out = Unwrapped(tuple(words))
    while out.rest and out.line is None:
        before = out.rest
        name = program_name(before[0])
        if name == "env":
            was = dict(env)
            behind = environment(before[1:], env)
            own = len(before) - len(behind)
            if any(word.text in EMPTIES for word in before[1:own]):
                out.withheld.update({n: f for n, f in was.items() if n and f.is_known and n not in env})
        elif name == "salloc":
            parsed = parse_options(before[1:], programs.SALLOC)
            env.update(slurm_options(before[1 : len(before) - len(parsed.rest)]))
            behind = parsed.rest
            own = len(before) - len(behind)
        else:
            found, behind = _row_of(name, before)
            if found is None:
                break
            reader = _Reader(found, out, env)
            behind = reader.command(behind)
            own = len(before) - reader.left
        out.around.append(before[:own])
        out.rest = behind
    return out


def image_at(words: Sequence[Word]) -> int | None:
    """Where ``docker run`` names its image, whose own entry point gets the words behind it."""
    for at, word in enumerate(words[:_FRONT]):
        row, behind = _row_of(program_name(word), tuple(words[at:]))
        if row is None or not row.instead:
            continue
        verbs = [other.text for other in words[at : len(words) - len(behind)]]
        parsed = parse_options(behind, row.table)
        is_own = "exec" not in verbs and "compose" not in verbs and not program_name(word).endswith("-compose")
        if is_own and parsed.rest and not parsed.open and not _has(parsed.flags, row.instead):
            return len(words) - len(parsed.rest)
    return None


def is_isolated(wrappers: Sequence[Sequence[Word]]) -> bool:
    """A program around the command brings an environment of its own: a container, a tool that manages environments."""
    names = {(words[0].text or "").rpartition("/")[2] for words in wrappers if words}
    return any(row.is_managed or row.is_elsewhere or not row.arrives for name in names for row in BY_NAME.get(name, ()))


def _row_of(name: str, words: tuple[Word, ...]) -> tuple[Program | None, tuple[Word, ...]]:
    """The row of a program whose words these are, and the words behind its name and sub-command."""
    for row in BY_NAME.get(name, ()):
        if name in programs.NAMES and (found := _behind_verbs(words[1:], row)) is not None:
            return row, found
    at = module_at(words)
    module = BY_MODULE.get(words[at].text or "") if at else None
    if module is not None and (found := _behind_verbs(words[at + 1 :], module)) is not None:
        return module, found
    following = next((i for i, word in enumerate(words) if word.text == _NEXT), 0) if name == "tmux" else 0
    return _row_of(name, (words[0], *words[following + 1 :])) if following else (None, ())


def _behind_verbs(words: tuple[Word, ...], row: Program) -> tuple[Word, ...] | None:
    """The words behind the sub-command; ``None`` where none of the row's stands there."""
    if not row.verbs:
        return words
    for verb in row.verbs:
        rest = words
        for part in verb.split():
            rest = parse_options(rest, row.before, (part,)).rest
            if not rest or rest[0].text != part:
                break
            rest = rest[1:]
        else:
            # Of the commands of tmux this one may start nothing, and the next one something.
            if row.names != "tmux" or not rest or _takes_words(rest, row):
                return rest
    return None


def _takes_words(words: tuple[Word, ...], row: Program) -> bool:
    rest = parse_options(words, row.table).rest
    return bool(rest) and rest[0].text != _NEXT


class _Reader:
    """Reads the words of one program, up to its command."""

    def __init__(self, row: Program, out: Unwrapped, env: dict[str, Fact[str]]) -> None:
        self.row = row
        self.out = out
        self.env = env
        # How many words the command has.
        self.left = 0

    def command(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """The words of the command, for which the environment is made."""
        row = self.row
        parsed, line = self._parsed(words)
        self._hand_in(parsed.flags)
        rest = parsed.rest
        self._move(parsed.flags)
        if row.assigns:
            rest = environment(rest, self.env)
        for name in [name for name in self.out.withheld if name in self.env]:
            del self.out.withheld[name]
        if line is not None:
            self.out.line = row
            return (line,)
        self.left = max(len(rest) - row.operands, 0) if row.instead else len(rest)
        return self._what_runs(self._instead(parsed.flags, rest), parsed)

    def _parsed(self, words: tuple[Word, ...]) -> tuple[Parsed, Word | None]:
        """The options and what stands behind the operands; the command line, where an option holds it."""
        row = self.row
        stops = (*_MODULE, *_SCRIPT) if row.runs == EITHER else _MODULE if row.runs == PYTHON else ()
        if row.behind_dashes:
            at = next((i for i, word in enumerate(words) if word.text == "--"), None)
            if at is not None:
                return replace(_between(words[:at], row.table), rest=words[at + 1 :]), None
        if row.line:
            parsed = _between(words, row.table, row.operands)
            held = last(parsed.flags, *map(canonical, row.line.split()))
            return parsed, held.value if held is not None else None
        parsed = parse_options(words, row.table, stops)
        return replace(parsed, rest=parsed.rest[row.operands :] if not row.instead else parsed.rest), None

    def _instead(self, flags: Sequence[Flag], rest: tuple[Word, ...]) -> tuple[Word, ...]:
        """``docker run --entrypoint torchrun IMAGE ARGS``."""
        if not self.row.instead:
            return rest
        given = last(flags, *map(canonical, self.row.instead.split()))
        rest = rest[self.row.operands :]
        is_known = given is not None and given.value is not None and given.value.text != ""
        return (given.value, *rest) if is_known and given is not None and given.value is not None else rest

    def _what_runs(self, rest: tuple[Word, ...], parsed: Parsed) -> tuple[Word, ...]:
        row = self.row
        ends = row.ends.split()
        at = next((i for i, word in enumerate(rest) if word.text in ends), len(rest)) if ends else len(rest)
        rest = rest[:at]
        if not rest:
            return ()
        if row.names == "tmux":
            rest = rest[: next((i for i, word in enumerate(rest) if word.text == _NEXT), len(rest))]
        if row.fills:
            given = last(parsed.flags, row.fills) if row.fills.startswith("-") else None
            text = given.value.text if given is not None and given.value is not None else None
            self.out.fills = re.compile(re.escape(text)) if text else _FIELDS
        first = rest[0].text or ""
        if row.runs == TYPED:
            self.out.line = row
            typed = _TYPED_END.sub("", first)
            return rest[:1] if typed == first else (replace(rest[0], text=typed, raw=typed),)
        if row.runs == LINE and (len(rest) == 1 or all(word.text is not None for word in rest)):
            self.out.line = row
            return rest
        if row.runs in (PYTHON, EITHER):
            rest = _interpreted(rest, is_python=row.runs == PYTHON or (first.endswith(".py") and "://" not in first))
        elif row.has_prefix and (found := _ENVIRONMENT.match(first)):
            rest = (replace(rest[0], text=first[found.end() :]), *rest[1:])
        elif row.runs == LINE:
            rest = environment(rest, self.env)
        return _filled(rest, self.out.fills, row) if row.fills else rest

    def _move(self, flags: Sequence[Flag]) -> None:
        given = last(flags, *map(canonical, self.row.folder.split())) if self.row.folder else None
        if self.row.is_elsewhere:
            self.out.is_elsewhere = True
        elif given is not None:
            text = given.value.text if given.value is not None else None
            self.out.folder = posixpath.join(self.out.folder, text) if text is not None else "$"

    def _hand_in(self, flags: Sequence[Flag]) -> None:
        """Make the environment that the command finds."""
        row, env = self.row, self.env
        outside = dict(env)
        arrives = row.arrives if not _has(flags, row.withholds) else False
        if not (arrives or _has(flags, row.keeps)):
            lost = {name: fact for name, fact in env.items() if name and not is_directive(name) and fact.is_known}
            self.out.withheld.update(lost)
            forget(env)
        elif row.adds or _has(flags, row.from_file):
            env[""] = unknown(f"`{row.names.split()[0]}` may set any variable")
        for prefix in row.renamed:
            for name in [name for name in outside if name.startswith(prefix)]:
                env[name[len(prefix) :]] = outside[name]
        names = set(map(canonical, row.sets.split()))
        for flag in flags:
            if flag.value is not None and flag.name in names:
                self._set(flag.value, outside, splits=row.arrives)
            elif flag.value is not None and row.json and flag.name == canonical(row.json):
                self._runtime(flag.value)
        if _has(flags, row.from_file):
            self.out.withheld.clear()
        given = last(flags, row.gpus) if row.gpus else None
        if given is not None and given.value is not None:
            self._limit(given.value)

    def _limit(self, word: Word) -> None:
        """The command finds these GPUs alone."""
        text = (word.text or "").strip("\"'")
        named = text.removeprefix("device=").split(",") if text.startswith("device=") else []
        count = str(len(named)) if named else text.rpartition(":")[2]
        if re.fullmatch(r"[1-9]\d{0,2}", count) and (named or re.fullmatch(r"(?:[A-Za-z][\w.-]*:)?\d+", text)):
            self.env[MACHINE_GPUS] = known(count, word.location.labelled(f"{self.row.gpus} {text}"), *word.origins)

    def _set(self, word: Word, outside: Mapping[str, Fact[str]], *, splits: bool) -> None:
        """``-e NAME=value``; ``-e NAME`` hands the variable of the shell on."""
        for part in (word.text or "").split(",") if splits else [word.text or ""]:
            variable, glue, value = part.partition("=")
            if glue:
                self.env[variable] = known(value, word.location.labelled(part), *word.origins)
            elif variable in outside:
                self.env[variable] = outside[variable]
        if word.text is None:
            name = re.match(r"[\"']?(\w+)(?:=|$)", word.raw)
            if name is None:
                self.out.withheld.clear()
            else:
                self.env[name[1]] = unknown(f"`{name[1]}` is computed", word.location)

    def _runtime(self, word: Word) -> None:
        """``{"env_vars": {"NAME": "value"}}``, the runtime environment of Ray."""
        try:
            data = json.loads(word.text or "")
        except ValueError:
            data = None
        given = data.get("env_vars", {}) if isinstance(data, dict) else None
        if not isinstance(given, dict):
            self.out.withheld.clear()
            return
        for name, value in given.items():
            if isinstance(value, str):
                self.env[name] = known(value, word.location.labelled(f"{name}={value}"), *word.origins)


def _has(flags: Sequence[Flag], names: str) -> bool:
    """One of these options is given, also among others: ``-E`` in ``-nE``."""
    wanted = set(map(canonical, names.split()))
    letters = {name[1] for name in wanted if len(name) == 2}
    return any(
        flag.name in wanted or (flag.name[:2] != "--" and not letters.isdisjoint(flag.name[1:])) for flag in flags
    )


def _between(words: tuple[Word, ...], table: Options, operands: int = _MOST) -> Parsed:
    """Options that may stand between operands as well."""
    flags: list[Flag] = []
    parsed = parse_options(words, table)
    while True:
        flags += parsed.flags
        if not operands or not parsed.rest:
            return Parsed(tuple(flags), parsed.rest, parsed.open, parsed.dashed)
        operands -= 1
        parsed = parse_options(parsed.rest[1:], table)


def _interpreted(rest: tuple[Word, ...], *, is_python: bool) -> tuple[Word, ...]:
    """The words as Python is started with them: a script, ``-m`` and a module; others are a command."""
    first = rest[0]
    python = Word("python", "python", first.location)
    if flag_name(first) in _MODULE:
        return (python, replace(first, text="-m"), *rest[1:]) if len(rest) > 1 else ()
    if flag_name(first) in _SCRIPT:
        return (python, *rest[1:])
    return (python, *rest) if is_python else rest


def _filled(rest: tuple[Word, ...], fills: re.Pattern[str] | None, row: Program) -> tuple[Word, ...]:
    """What a program fills into the command is not known; without a place for it, it stands behind."""
    why = f"`{row.names.split()[0]}` fills it in"
    found = [fills is not None and fills.search(word.text or "") is not None for word in rest]
    done = [replace(w, text=None, why=why) if here else w for w, here in zip(rest, found, strict=True)]
    behind = () if any(found) else (Word(None, "$_", rest[-1].location, spreads=True, why=why),)
    return (*done, *behind)
