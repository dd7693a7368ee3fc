"""The parser of the script that a command starts, as the interpreter sees it where it parses the command line."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from dslint.core.source import Location
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.parser.options import Option, ScriptParser
from dslint.model.plan.parser.several import because as because_of
from dslint.model.plan.parser.several import joined
from dslint.model.plan.parser.wordtests import takes_words_beside
from dslint.model.plan.scriptrun import command_lines
from dslint.model.trainerargs import has_all_fields
from dslint.model.workspace import Workspace
from dslint.python.commandlines import CommandLine
from dslint.python.events import Event

# The fields of a class of transformers that release notes speak of.
_KNOWN_CLASSES = ("TrainingArguments", "Seq2SeqTrainingArguments")


def script_parser(path: str, workspace: Workspace) -> ScriptParser | None:
    """What the command line of a script may hold; ``None`` when nothing in view parses it. Each script is read once."""
    if not path.endswith(".py"):
        return None
    return workspace.memo("parser", path, lambda _: _read(path, workspace))


def _read(path: str, workspace: Workspace) -> ScriptParser | None:
    found, missed, run = command_lines(path, workspace)
    own = [(event, line) for event, line in found if line.parser is not None]
    kinds = [line.kind for _, line in found if line.parser is None and line.kind and not line.own_words]
    strange = any(line.parser is None and not line.kind and not line.own_words for _, line in found)
    of_process = [pair for pair in own if pair[1].parses and not pair[1].own_words]
    parsing = of_process or [pair for pair in own if pair[1].parses]
    if not parsing:
        reason = f"{kinds[0]} makes the options from functions and files" if kinds else ""
        return ScriptParser(kinds[0], open_because=reason) if kinds else None
    event = parsing[0][0]
    line = joined(parsing, set(certain_events(run)) if run is not None and len(parsing) > 1 else ())
    files = [of_file for of_file, other in own if _reads_file(of_file, other)]
    parser = _parser(event.module.location(event.node), line, reads_file=bool(files))
    if run is not None and takes_words_beside(run.entry.tree, files):
        parser = replace(parser, takes_words_beside_file=True)
    if len({line.parser for _, line in parsing}) > 1:
        parser = replace(parser, is_joined=True)
    because = because_of(parsing, line)
    if not because and parser.libraries and _has_own_copy(path, workspace):
        because = "the project carries its own copy of transformers"
    if not because and strange:
        because = "a parser that is not in view parses the command line"
    if not because and kinds:
        because = f"{kinds[0]} reads the command line as well"
    because = because or parser.open_because or missed
    return replace(parser, is_closed=not because, open_because=because)


def _has_own_copy(path: str, workspace: Workspace) -> bool:
    """Whether a project has the sources of transformers, perhaps with other fields."""
    folders = (posixpath.join(base, part) for base in workspace.bases(path) for part in ("", "src"))
    return any(workspace.is_file(posixpath.join(folder, "transformers/training_args.py")) for folder in folders)


def _reads_file(event: Event, line: CommandLine) -> bool:
    return not line.parses and event.api.rpartition(".")[2] != "parse_dict"


def _parser(place: Location, line: CommandLine, *, reads_file: bool) -> ScriptParser:
    options = list(line.options)
    if line.helps:
        options.insert(0, Option("help", ("-h", "--help"), place, action="help"))
    if line.reads_config:  # the file may give what is required
        options = [replace(option, required=False) for option in options]
        options.append(Option("config", ("--config",), place))
    pairs, because = _classes(line)
    commands = tuple((name, _of_command(inner, place)) for name, inner in line.commands.items())
    return ScriptParser(
        line.kind, False, tuple(options), because, place, line.abbreviates, tuple(pairs), reads_file, commands,
        line.command,
    )  # fmt: skip


def _of_command(line: CommandLine, place: Location) -> ScriptParser:
    """The parser of a command; ``place`` is where the one above it parses."""
    found = _parser(place, line, reads_file=False)
    because = line.open_because or found.open_because
    return replace(found, is_closed=not because, open_because=because)


def _classes(line: CommandLine) -> tuple[list[tuple[str, str]], str]:
    """The (library, class) pairs whose fields are options, and why not all of them are known."""
    pairs: list[tuple[str, str]] = []
    because = ""
    for path in line.classes:
        library, _, _ = path.partition(".")
        name = path.rpartition(".")[2]
        if library == "trl" or (library == "transformers" and name in _KNOWN_CLASSES):
            pairs.append((library, name))
            if not has_all_fields((library, name)):
                because = because or f"not all fields of `{path}` are known"
        else:
            because = because or f"the fields of `{path}` are not in view"
    return pairs, because
