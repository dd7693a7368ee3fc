"""``dslint completion SHELL``: a completion script made from the parsers, so that it knows every flag."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.commandline import Parser

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
bash:  dslint completion bash > ~/.local/share/bash-completion/completions/dslint
zsh:   dslint completion zsh > "${fpath[1]}/_dslint"
fish:  dslint completion fish > ~/.config/fish/completions/dslint.fish
"""


def completion_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint completion``."""
    parser = Parser(
        prog="dslint completion",
        description="Print a completion script for a shell.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete for")
    return parser


def main(arguments: list[str]) -> int:
    """Print the script of the shell that the arguments name."""
    shell = completion_parser().parse_args(arguments).shell
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    sys.stdout.write(made(_described()))
    return 0


@dataclass(frozen=True, slots=True)
class _Flag:
    """An option: its names, what it takes (``None``: nothing; empty: anything, files as a rule), what it does."""

    names: tuple[str, ...]
    values: tuple[str, ...] | None
    help: str
    takes_rules: bool = False


@dataclass(frozen=True, slots=True)
class _Command:
    """A command with its options, and the words that may stand in it."""

    name: str
    flags: tuple[_Flag, ...]
    words: tuple[str, ...]
    help: str


def _described() -> list[_Command]:
    from dslint.arguments import COMMANDS
    from dslint.commands import parser_of

    return [_command(name, parser_of(name)) for name in COMMANDS]


def _command(name: str, parser: argparse.ArgumentParser) -> _Command:
    flags: list[_Flag] = []
    words: list[str] = []
    for action in parser._actions:
        values = tuple(map(str, action.choices)) if action.choices is not None else ()
        if action.option_strings:
            takes = None if action.nargs == 0 else values
            takes_rules = action.metavar in ("RULE", "RULES")
            flags.append(_Flag(tuple(action.option_strings), takes, _first(action.help), takes_rules))
        else:
            words += values
    if name in ("rule", "rules"):
        words += _codes()
    return _Command(name, tuple(flags), tuple(words), _first(parser.description))


def _codes() -> list[str]:
    from dslint.rules.registry import all_rules

    return [rule.code for rule in all_rules()]


def _first(text: str | None) -> str:
    """The beginning of a help text, without what means something to a shell."""
    line = " ".join((text or "").split()).partition(";")[0].partition(" (")[0]
    return "".join(character for character in line if character not in "'\"`[]:\\$")


def _flag_names(command: _Command) -> str:
    return " ".join(name for flag in command.flags for name in flag.names)


def _bash(commands: list[_Command]) -> str:
    lines = [
        "_dslint() {",
        "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=check",
    ]
    names = " ".join(command.name for command in commands)
    lines += [
        f'  case " {names} " in *" ${{COMP_WORDS[1]}} "*) [ "$COMP_CWORD" -gt 1 ] && command=${{COMP_WORDS[1]}} ;; esac'
    ]
    # Bash takes the `=` of --flag=value for a word of its own.
    lines += [
        '  [ "$current" = = ] && current= || { [ "$previous" = = ] && previous=${COMP_WORDS[COMP_CWORD-2]}; }',
        '  local flags= words= before=; case "$current" in *,*) before=${current%,*}, ;; esac',
        '  case "$command $previous" in',
    ]
    lines += _bash_rules(commands)
    for command in commands:
        for flag in command.flags:
            if flag.values:
                pattern = "|".join(f'"{command.name} {name}"' for name in flag.names)
                lines.append(
                    f'    {pattern}) COMPREPLY=($(compgen -W "{" ".join(flag.values)}" -- "$current")); return ;;'
                )
    lines += ["  esac", '  case "$command" in']
    lines += [f'    {c.name}) flags="{_flag_names(c)}" words="{" ".join(c.words)}" ;;' for c in commands]
    lines += ["  esac", f'  [ "$COMP_CWORD" -eq 1 ] && words="$words {names}"']
    lines += ['  case "$current" in']
    lines += ['    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;']
    lines += ['    *) COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current")) ;;', "  esac", "}"]
    lines += ["complete -o filenames -F _dslint dslint"]
    return "\n".join(lines) + "\n"


def _bash_rules(commands: list[_Command]) -> list[str]:
    """Codes of rules, also behind others and a comma."""
    flags = [(command, flag) for command in commands for flag in command.flags if flag.takes_rules]
    pattern = "|".join(f'"{command.name} {name}"' for command, flag in flags for name in flag.names)
    made = f'compgen -P "$before" -W "{" ".join(_codes())}" -- "${{current##*,}}"'
    return [f"    {pattern}) COMPREPLY=($({made})); return ;;"]


def _zsh(commands: list[_Command]) -> str:
    lines = ["#compdef dslint", "", "_dslint() {", "  local -a commands", "  local command=check", "  commands=("]
    lines += [f"    '{c.name}:{c.help}'" for c in commands]
    lines += [
        "  )",
        "  if (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then",
        "    _describe command commands",
        "    _files",
    ]
    lines += ["    return", "  fi", "  if [[ -n ${commands[(r)${words[2]}:*]} ]]; then", "    command=${words[2]}"]
    lines += ["    shift words", "    (( CURRENT-- ))", "  fi", "  case $command in"]
    for command in commands:
        lines.append(f"    {command.name})")
        rest = f"'*:word:({' '.join(command.words)})'" if command.words else "'*:path:_files'"
        lines += [
            "      _arguments -s -S \\",
            *(f"        {spec} \\" for spec in _zsh_flags(command)),
            f"        {rest}",
            "      ;;",
        ]
    lines += [
        "  esac",
        "}",
        "",
        'if [[ $funcstack[1] == _dslint ]]; then _dslint "$@"; else compdef _dslint dslint; fi',
    ]
    return "\n".join(lines) + "\n"


def _zsh_flags(command: _Command) -> Iterator[str]:
    for flag in command.flags:
        takes = "" if flag.values is None else f":value:({' '.join(flag.values)})" if flag.values else ":value:_files"
        for name in flag.names:
            yield f"'*{name}[{flag.help}]{takes}'"


def _fish(commands: list[_Command]) -> str:
    names = " ".join(command.name for command in commands)
    lines = []
    for command in commands:
        lines.append(f"complete -c dslint -n '__fish_use_subcommand' -a '{command.name}' -d '{command.help}'")
        of = f"__fish_seen_subcommand_from {command.name}"
        if command.name == "check":
            of = f"{of}; or not __fish_seen_subcommand_from {names}"
        if command.words:
            lines.append(f"complete -c dslint -f -n \"{of}\" -a '{' '.join(command.words)}'")
        for flag in command.flags:
            spelled = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in flag.names)
            takes = "" if flag.values is None else f" -x -a '{' '.join(flag.values)}'" if flag.values else " -r"
            lines.append(f"complete -c dslint -n \"{of}\" {spelled}{takes} -d '{flag.help}'")
    return "\n".join(lines) + "\n"
