"""Launch documents: the shell text of a file (or of one fenced block) and the launch commands in it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from dslint.core.source import Location, SourceFile
from dslint.model.firstlook import may_call, may_launch
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.commandlines import IMAGE_DECIDES, Outer
from dslint.model.launch.console import console_scripts
from dslint.model.launch.lostaddresses import LostAddress, lost_addresses
from dslint.model.launch.lostcalls import LostCall, lost_calls
from dslint.model.launch.nested import Locate, TextReader
from dslint.model.launch.parties import Party, run_parties
from dslint.model.launch.slurmjob import of_queue
from dslint.model.launch.submissions import Submission, submissions, submitted_as
from dslint.model.launch.unseen import Unseen, unseen_variables
from dslint.model.plan.tree import clone_names, file_in_image, top_of
from dslint.model.shell.flow.choices import Flow
from dslint.model.shell.scope import Scope
from dslint.model.workspace import Workspace
from dslint.parse.markdown import fences, indented_blocks, without_prompts
from dslint.parse.shell import ShellDoc, as_bash_reads, parse_shell

if TYPE_CHECKING:
    from dslint.model.embedded.heredoc import WrittenConfig
    from dslint.model.launch.sources.snippet import Snippet

# The reader of each format in ``sources/``.
SNIPPETS = {
    "makefile": "makefile",
    "dockerfile": "dockerfile",
    "yaml": "yamlfile",
    "script": "pythonfile",
    "vscode": "vscode",
    "tasks": "tasks",
    "justfile": "justfile",
    "notebook": "notebook",
}
# Formats whose text is none of a shell: places are right, edits would not fit.
_REWRITTEN = frozenset({"makefile", "justfile", "tasks", "notebook"})
# A fence without a language is a shell block when a line of it begins like a launch.
_BEGINS = re.compile(
    r"^[ \t]*(?:(?:\$|>>>)[ \t]+)?(?:export[ \t]|(?:\w+=\S*[ \t]+)*(?:\S*/)?"
    r"(?:torchrun|deepspeed|accelerate[ \t]+launch|srun|mpirun|mpiexec|xtuner[ \t]+train"
    r"|trl[ \t]+\w+|[a-z]\w*(?:-\w+)*-(?:train|eval|generate)"
    r"|swift[ \t]+\w+|llamafactory-cli|axolotl[ \t]+train|colossalai[ \t]+run|composer[ \t]+-|horovodrun"
    r"|python3?[ \t]+(?:-m[ \t]|\S+\.py)))",
    re.MULTILINE,
)


@dataclass(slots=True)
class LaunchDoc:
    """One shell text with its launch commands, in the order of the text.

    A text that stands inside another one (a heredoc, ``bash -c '...'``) has no commands: they are with the outer one.
    """

    source: SourceFile
    shell: ShellDoc
    commands: tuple[LaunchCommand, ...]
    in_docs: bool = False
    # DeepSpeed configs that the script writes with heredocs.
    written: tuple[WrittenConfig, ...] = ()
    # The text stands inside another one, which may have expanded its variables.
    is_inner: bool = False
    # What scripts of the project start that this text calls with arguments or variables; they stand in those scripts.
    called: tuple[LaunchCommand, ...] = ()
    # The text stands in the file in another form (a list of words, ``$$`` of make): edits would not fit.
    is_rewritten: bool = False
    # Of a script with the line ends of Windows: the commands as they are meant.
    meant: tuple[LaunchCommand, ...] = ()
    # The shell ends a pipe with the first exit code that is not 0, whatever the text says.
    has_pipefail: bool = False
    # Calls of scripts that are nowhere, while one of nearly the same name is there.
    lost_calls: tuple[LostCall, ...] = ()
    # Calls of scripts that are not followed, because too many commands are called already.
    left_out: tuple[Location, ...] = ()
    # The containers of one job that the file starts: told once for all texts of a file.
    parties: tuple[Party, ...] = ()
    # Addresses at which containers or pods do not find each other.
    lost_addresses: tuple[LostAddress, ...] = ()
    # The jobs that the text hands to a queue, and the calls in other scripts that make it a job.
    submissions: tuple[Submission, ...] = ()
    submitted_as: tuple[Submission, ...] = ()
    # Variables that a command line in quotes asks for and does not find.
    unseen: tuple[Unseen, ...] = ()


def read_launch_docs(source: SourceFile, kind: str, workspace: Workspace | None = None) -> list[LaunchDoc]:
    """The launch documents of a file: one of a ``shell`` script, one per fenced block of ``markdown``, one per recipe
    of a ``makefile`` or ``justfile``, instruction of a ``dockerfile``, scalar of a ``yaml`` file, call of a ``script``,
    configuration of ``vscode``, task of a file of ``tasks``, line or cell of a ``notebook`` (its cells as one text).

    With a ``workspace`` the files of the project that a script sources or calls are followed.
    """
    if kind == "shell":
        return _script(source, workspace)
    if kind in SNIPPETS:
        return _of_snippets(source, kind, workspace)
    docs = []
    fenced = list(fences(source.text))
    others = _of_others(source, workspace)
    for fence in (*fenced, *indented_blocks(source.text, fenced)):
        if others(fence.span.start):
            continue
        wanted = fence.is_shell or (fence.language in ("", "text") and _BEGINS.search(fence.text))
        raw = fence.text.encode("utf-8", "surrogatepass") if wanted else b""
        if may_launch(raw) or may_call(raw):
            docs += _read(source, without_prompts(fence.text), fence.span.start, True, workspace)
    return docs


# An item of a list that begins with a name: ``* __mmdetection__: at commit `b0d845f`, run``.
_ITEM = re.compile(r"^[ \t]*[-*+][ \t]+(?:__|\*\*|\[)([\w./ -]+)(?:__|\*\*|\])", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]", re.MULTILINE)
_AT_COMMIT = re.compile(r"\b(?:at|use|with) commit\b")


def _of_others(source: SourceFile, workspace: Workspace | None) -> Callable[[int], bool]:
    """Whether the block at an offset stands in an item about another code base than this project.

    Where a list compares implementations, one item is called like the project; or an item says at which commit.
    """
    items = [(m.start(), m[1].strip()) for m in _ITEM.finditer(source.text)]
    if not items or workspace is None:
        return lambda _: False
    own = clone_names(top_of(source.path, workspace), workspace)
    ours = any(_plain_name(name) in own for _, name in items)

    def is_of_another(at: int) -> bool:
        start, name = next(((s, n) for s, n in reversed(items) if s < at), (-1, ""))
        if start < 0 or _plain_name(name) in own or _HEADING.search(source.text, start, at):
            return False
        between = source.text[start:at]
        is_inside = source.text[source.text.rfind("\n", 0, at) + 1 : at + 1][:1].isspace()
        return is_inside and (ours or _AT_COMMIT.search(between) is not None)

    return is_of_another


def _plain_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.rpartition("/")[2]).lower()


def _of_snippets(source: SourceFile, kind: str, workspace: Workspace | None) -> list[LaunchDoc]:
    """The commands inside a file of another format."""
    module = import_module(f"dslint.model.launch.sources.{SNIPPETS[kind]}")
    snippets: Iterator[Snippet] = getattr(module, f"{kind if kind != 'script' else 'python'}_snippets")(source)
    docs = []
    for snippet in snippets:
        shell = parse_shell(source, snippet.text, snippet.base, snippet.anchor)
        shell.written = snippet.written
        reader = TextReader(False, locator(workspace), (source.path,), programs=_programs(source, workspace))
        commands = reader.script(shell, snippet.scope(), Outer(), snippet.machine, 0)
        is_rewritten = snippet.anchor is not None or kind in _REWRITTEN
        # Rules about the text itself look at text that stands in the file as the shell reads it.
        shown = parse_shell(source, "", snippet.base) if is_rewritten else shell
        if commands or reader.called:
            doc = LaunchDoc(source, shown, tuple(commands), is_rewritten=is_rewritten)
            doc.unseen = tuple(unseen_variables(shell, () if is_rewritten else reader.quoted, frozenset))
            doc.called, doc.left_out = tuple(reader.called), tuple(reader.left_out)
            doc.has_pipefail = snippet.has_pipefail
            docs.append(doc)
    return [*docs, *_of_services(source)] if kind == "yaml" else docs


def _of_services(source: SourceFile) -> Iterator[LaunchDoc]:
    """What a file of containers says about all of them together."""
    from dslint.model.launch.sources.composeparties import compose_parties
    from dslint.model.launch.sources.podaddresses import pod_addresses

    parties = compose_parties(source)
    lost = (*lost_addresses(parties), *pod_addresses(source))
    if parties or lost:
        yield LaunchDoc(source, parse_shell(source, "", 0), (), is_rewritten=True, parties=parties, lost_addresses=lost)


def _script(source: SourceFile, workspace: Workspace | None) -> list[LaunchDoc]:
    """A shell script; one with the line ends of Windows is read twice, as bash does and as it is meant."""
    text = as_bash_reads(source.text)
    docs = _read(source, text, 0, False, workspace)
    if text is not source.text:
        meant = _read(source, source.text, 0, False, workspace)
        docs[0].meant = (*meant[0].commands, *meant[0].called)
        docs[0].commands = tuple([replace(command, has_returns=True) for command in docs[0].commands])
        docs[0].called, docs[0].written = (), meant[0].written
        return docs[:1]
    return docs


def _read(source: SourceFile, text: str, base: int, in_docs: bool, workspace: Workspace | None) -> list[LaunchDoc]:
    shell = parse_shell(source, text, base)

    reader = TextReader(in_docs, locator(workspace), (source.path,), programs=_programs(source, workspace))
    scope = Scope(script=None if in_docs else source.path, flow=Flow(in_docs=in_docs))
    commands = reader.script(shell, scope, Outer(), {}, 0)
    inner = [LaunchDoc(source, text, (), in_docs, is_inner=True) for text in reader.inner]
    doc = LaunchDoc(source, shell, tuple(commands), in_docs, tuple(reader.written), called=tuple(reader.called))
    doc.left_out = tuple(reader.left_out)
    doc.parties = run_parties(shell)
    doc.lost_addresses = tuple(lost_addresses(doc.parties))
    doc.lost_calls = lost_calls(reader.calls, source, workspace, in_docs=in_docs)
    _submitted(doc, reader, workspace)
    return [doc, *inner]


def _submitted(doc: LaunchDoc, reader: TextReader, workspace: Workspace | None) -> None:
    """What the text hands to a queue, how others hand the text to one, and the variables that depend on that."""
    find, path = locator(workspace), doc.source.path
    doc.submissions = submissions(doc.shell, find)
    if not doc.in_docs and any(not of_queue(command.env, "ARRAY").is_absent for command in doc.commands):
        doc.submitted_as = tuple(submitted_as(path, workspace, find))

    def handed() -> frozenset[str]:
        calls = () if doc.in_docs else submitted_as(path, workspace, find)
        return frozenset(name for call in calls for name in (*call.inherited, *call.handed))

    doc.unseen = tuple(unseen_variables(doc.shell, reader.quoted, handed))


def _programs(source: SourceFile, workspace: Workspace | None) -> Collection[str]:
    """The names of programs that the project around a file installs."""
    return console_scripts(source.path, workspace) if workspace is not None else ()


def locator(workspace: Workspace | None) -> Locate:
    """Finds the files that a script sources and calls; none without a workspace."""

    def locate(path: str, scope: Scope, script: str) -> SourceFile | None:
        if workspace is None:
            return None
        return (
            _found_at_start(path, scope, workspace) if workspace.is_start else _sourced(path, scope, script, workspace)
        )

    return locate


def _found_at_start(path: str, scope: Scope, workspace: Workspace) -> SourceFile | None:
    """The file that a path means where the command is started."""
    if not path or (scope.cwd.is_unknown and not path.startswith("/")):
        return None
    found = workspace.at(scope.cwd.get_or(""), path)
    return workspace.read(found) if workspace.is_file(found) else None


def _sourced(path: str, scope: Scope, script: str, workspace: Workspace) -> SourceFile | None:
    """The one file that ``source PATH`` can mean, wherever in the project the script is started.

    In an image of which the project is a part the path may begin with any folder.
    """
    if scope.cwd.is_unknown and scope.cwd.reason == IMAGE_DECIDES and path and not path.startswith("~"):
        found = file_in_image(path, script, workspace)
        return workspace.read(found) if found is not None else None
    if not path or path.startswith(("/", "~")) or scope.cwd.is_unknown:
        return None
    folders = workspace.bases(script)
    if scope.cwd.is_known:
        folders = (*(posixpath.join(folder, scope.cwd.get()) for folder in folders), *folders)
    named = {workspace.normal(posixpath.join(f, path)) for f in folders}
    files = [name for name in sorted(named) if workspace.is_file(name)]
    return workspace.read(files[0]) if len(files) == 1 else None
