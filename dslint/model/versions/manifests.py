"""Versions in the files a person writes: pyproject.toml, Pipfile, conda, Dockerfile, install lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dslint.core.source import SourceFile, Span
from dslint.model.versions.pythons import base_image, created
from dslint.model.versions.requirements import FOLLOWED, PYTHON, REQUIRED, Statement, library_name, requirement

_NAMES = "|".join((*(re.sub("-", "[-_]", name) for name in (*FOLLOWED, *REQUIRED)), PYTHON, "pytorch-gpu", "pytorch"))


def pyproject(source: SourceFile) -> Iterator[Statement]:
    """PEP 621, dependency groups, poetry, uv and pdm tables of ``pyproject.toml``."""
    data = read_toml(source.text)
    project, tool = _table(data.get("project")), _table(data.get("tool"))
    strings = _Strings(source.text)
    yield from strings.requirements(project.get("dependencies"), certain=True)
    yield from _stated_python(source.text, "requires-python", project.get("requires-python"))
    uv = _table(tool.get("uv"))
    for extra in ("dev-dependencies", "constraint-dependencies", "override-dependencies"):
        yield from strings.requirements(uv.get(extra), certain=extra != "dev-dependencies")
    pdm = _table(tool.get("pdm"))
    for kind, groups in (
        ("extra", project.get("optional-dependencies")),
        ("group", data.get("dependency-groups")),
        ("group", pdm.get("dev-dependencies")),
    ):
        for name, listed in _table(groups).items():
            yield from strings.requirements(listed, certain=False, group=f"{kind} {name}")
    poetry = _table(tool.get("poetry"))
    yield from _poetry(source.text, poetry.get("dependencies"), certain=True)
    yield from _poetry(source.text, poetry.get("dev-dependencies"), certain=False)
    for name, group in _table(poetry.get("group")).items():
        yield from _poetry(source.text, _table(group).get("dependencies"), certain=False, group=f"group {name}")
    for environment in _table(_table(tool.get("hatch")).get("envs")).values():
        for extra in ("dependencies", "extra-dependencies"):
            yield from strings.requirements(_table(environment).get(extra), certain=False)
    yield from _pixi(source.text, _table(tool.get("pixi")))


def pixi(source: SourceFile) -> Iterator[Statement]:
    """``pixi.toml``."""
    yield from _pixi(source.text, read_toml(source.text))


def _pixi(text: str, data: dict[str, Any]) -> Iterator[Statement]:
    """Dependencies from conda and from PyPI, those of features may be in no environment that is used."""
    for part, certain in ((data, True), *((feature, False) for feature in _table(data.get("feature")).values())):
        for key in ("dependencies", "pypi-dependencies"):
            yield from _poetry(text, _table(part).get(key), certain)


def pipfile(source: SourceFile) -> Iterator[Statement]:
    """``Pipfile``."""
    data = read_toml(source.text)
    yield from _poetry(source.text, data.get("packages"), certain=True)
    yield from _poetry(source.text, data.get("dev-packages"), certain=False)
    yield from _stated_python(source.text, "python_version", _table(data.get("requires")).get("python_version"))


def _stated_python(text: str, key: str, stated: Any) -> Iterator[Statement]:
    """``requires-python = ">=3.9"``, ``python_version = "3.10"``."""
    line = re.search(rf"^[ \t]*[\"']?{key}[\"']?[ \t]*=[^\r\n]*", text, re.M)
    if isinstance(stated, str) and line:
        bare = re.fullmatch(r"\d\.\d+", stated.strip())
        yield Statement(PYTHON, f"=={bare[0]}.*" if bare else stated.replace(" ", ""), Span(*line.span()))


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; none where it cannot be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(text))
    except (ValueError, RecursionError):
        return {}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class _Strings:
    """Finds the place of a string that a TOML parser gave without one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.next: dict[str, int] = {}

    def requirements(self, listed: Any, certain: bool, group: str = "") -> Iterator[Statement]:
        """The statements in a list of PEP 508 strings."""
        for item in listed if isinstance(listed, list) else ():
            # The search is dear, and most requirements are about other libraries.
            if not isinstance(item, str) or requirement(item, 0) is None:
                continue
            start = self._find(item)
            found = requirement(item, start, certain) if start >= 0 else None
            if found:
                yield replace(found, group=group) if group else found

    def _find(self, item: str) -> int:
        """The next use of a quoted string that no comment holds."""
        pattern = re.compile(r"^(?:[^#\n\"']|\"[^\"\n]*\"|'[^'\n]*')*?[\"'](" + re.escape(item) + r")[\"']", re.M)
        match = pattern.search(self.text, self.next.get(item, 0))
        if match is None:
            return self.text.find(item)
        self.next[item] = match.end()
        return match.start(1)


def _poetry(text: str, table: Any, certain: bool, group: str = "") -> Iterator[Statement]:
    """A table ``deepspeed = "^0.12"`` or ``deepspeed = {version = "0.12.6", optional = true}``."""
    for name, value in _table(table).items():
        library = library_name(name)
        if library is None:
            continue
        constraint = _table(value).get("version") if isinstance(value, dict) else value
        taken_from, tag = _origin(value)
        if not isinstance(constraint, str):
            if not (taken_from or tag):
                continue
            constraint = tag
        line = re.search(r"^[ \t]*[\"']?" + re.escape(name) + r"[\"']?[ \t]*=[^\r\n]*", text, re.M)
        table_head = re.search(r"\." + re.escape(name) + r"[\"']?\][^\[]*?^[ \t]*(version[ \t]*=[^\r\n]*)", text, re.M)
        if line:
            span = Span(*line.span())
        elif table_head:
            span = Span(*table_head.span(1))
        else:
            continue
        optional = bool(_table(value).get("optional") or _table(value).get("markers"))
        certain_here = certain and not optional
        yield Statement(library, _pep440(constraint), span, certain_here, taken_from=taken_from, group=group)


def _origin(value: Any) -> tuple[str, str]:
    """Where ``{git = ..., tag = ...}`` and ``{path = ...}`` take a library from, and the release that a tag names."""
    table = _table(value)
    if table.get("path"):
        return "folder", ""
    if not table.get("git"):
        return "", ""
    tag = re.fullmatch(r"v?(\d+(?:\.\d+)+)", str(table.get("tag", "")))
    if tag:
        return "", tag[1]
    is_head = not (table.get("rev") or table.get("tag")) and table.get("branch", "main") in ("main", "master")
    return ("git" if is_head else "commit"), ""


_NUMBERS = re.compile(r"(\^|~|)\s*(\d+(?:\.\d+)*)$")


def _pep440(constraint: str) -> str:
    """A poetry or Pipfile constraint as PEP 440: ``^0.12.6`` -> ``>=0.12.6,<0.13``; empty for what has no such form."""
    parts = []
    for part in constraint.split(","):
        match = _NUMBERS.match(part.strip())
        if match and match[1]:
            numbers = [int(n) for n in match[2].split(".")]
            keep = _caret(numbers) if match[1] == "^" else min(2, len(numbers))
            upper = [*numbers[: keep - 1], numbers[keep - 1] + 1]
            parts += [f">={match[2]}", "<" + ".".join(map(str, upper))]
        elif match:
            parts.append(f"=={match[2]}")
        elif re.match(r"\d+(\.\d+)*\.\*$", part.strip()):
            parts.append(f"=={part.strip()}")
        elif re.match(r"\s*(==|!=|>=|<=|>|<|~=)\s*\d[\w.+*]*\s*$", part):
            parts.append(part.strip().replace(" ", ""))
        else:
            return ""
    return ",".join(parts)


def _caret(numbers: list[int]) -> int:
    """How many leading numbers a caret constraint keeps: up to the first that is not zero."""
    for index, number in enumerate(numbers):
        if number:
            return index + 1
    return len(numbers)


_PIP_PART = re.compile(
    r"^(?P<indent>[ \t]*)-[ \t]*pip[ \t]*:[ \t]*\n(?:(?P=indent)[ \t]+[^\n]*(?:\n|$)|[ \t]*(?:#[^\n]*)?\n)*", re.M
)
_CONDA = re.compile(
    rf"^[ \t]*-[ \t]*[\"']?(?:[\w-]+::)?(?P<name>{_NAMES})(?![\w.-])(?:\[[^\]\n]*\])?[ \t]*(?P<rest>[^\"'#;\r\n]*)",
    re.M | re.I,
)


def conda(source: SourceFile) -> Iterator[Statement]:
    """``environment.yml``: conda's ``name=1.2`` and, under ``pip:``, PEP 508, which one command installs."""
    pip = _PIP_PART.search(source.text)
    for match in _CONDA.finditer(source.text):
        library = library_name(match["name"])
        rest = match["rest"].strip()
        end = match.end("rest") - (len(match["rest"]) - len(match["rest"].rstrip()))
        if library:
            group = f"command {pip.start()}" if pip is not None and pip.start() < match.start() < pip.end() else ""
            yield Statement(library, _from_conda(rest) if rest else "", Span(match.start("name"), end), group=group)


def _from_conda(rest: str) -> str:
    exact = re.match(r"(?:==|=)?\s*(\d[\w.+]*)(=[\w.*]+)?$", rest)
    if exact and (rest.startswith("==") or exact[2]):
        return f"=={exact[1]}"
    if exact and (rest.startswith("=") or rest[0].isdigit()):
        # ``name=1.2`` is any 1.2.x for conda, and ``name=1.2.3`` in practice 1.2.3
        whole = exact[1].count(".") >= 2
        return f"=={exact[1]}" if whole else f"=={exact[1]}.*"
    star = re.match(r"=?=?\s*(\d[\d.]*)\.\*$", rest)
    if star:
        return f"=={star[1]}.*"
    return _pep440(rest) if rest[0] in "<>!~" else ""


_INSTALL = re.compile(
    r"\b(?:pip3?|mim|uv|conda|mamba|pixi|poetry|pdm)\s+(?:-\S+\s+)*(?:pip\s+)?(?:install|add|sync)\b", re.I
)
_PIP = re.compile(r"pip|uv|mim", re.I)
_PREVIEW = re.compile(r"[ \t]--pre\b|[ \t]--prerelease[= ]allow|/whl/(?:nightly|test)\b")
_COMMAND = re.compile(r"(?:\\\r?\n|[^\n;&|])*")
_WORD = re.compile(r"(?:[^\s\"'`\\]|\"[^\"\n]*\"|'[^'\n]*')+")
# ``ARG NAME=value`` and ``ENV NAME value`` of a Dockerfile, assignments of a shell.
_ASSIGNED = re.compile(
    r"^[ \t]*(?:(?:ARG|ENV|export|local|readonly)[ \t]+)?([A-Za-z_]\w*)(?:=|(?<=\w)[ \t]+(?=[\d.]+[ \t]*$))"
    r"[\"']?([^\s\"'$`;&|]*)[\"']?[ \t]*(?:#.*)?$",
    re.M,
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_MARKED_OFF = re.compile(r"#|//|<!--")


def installs(source: SourceFile) -> Iterator[Statement]:
    """The words after ``pip install`` in a Dockerfile, a shell script or a text, line continuations included.

    A variable that the file sets once is read; with any other one the word says nothing.
    """
    text = source.text
    variables: dict[str, str] | None = None
    for install in _INSTALL.finditer(text):
        if _MARKED_OFF.match(text[text.rfind("\n", 0, install.start()) + 1 : install.start()].lstrip()):
            continue
        command = _COMMAND.match(text, install.end())
        # What one command installs, pip and uv resolve at once.
        is_joint = _PIP.match(install[0]) and command and "--no-dep" not in command[0]
        group = f"command {install.start()}" if is_joint else ""
        preview = "preview" if command and _PREVIEW.search(command[0]) else ""
        for word in _WORD.finditer(text, install.end(), command.end() if command else install.end()):
            plain = word[0].replace('"', "").replace("'", "").rstrip(".,:)")
            if "$" in plain:
                variables = _assigned(text) if variables is None else variables
                plain = _filled(plain, variables)
            found = requirement(plain, word.start()) if "$" not in plain else None
            if found:
                origin = found.taken_from or ("" if found.specifier else preview)
                yield replace(found, span=_without_quotes(text, word), group=group, taken_from=origin)
    yield from created(source)


def dockerfile(source: SourceFile) -> Iterator[Statement]:
    """What a Dockerfile installs, and what its base image comes with where it installs no other release."""
    installed = list(installs(source))
    stated = {statement.name for statement in installed if statement.specifier}
    yield from (found for found in base_image(source) if found.name not in stated)
    yield from installed


def _assigned(text: str) -> dict[str, str]:
    """Variables with one value in the whole file."""
    values: dict[str, set[str]] = {}
    for match in _ASSIGNED.finditer(text):
        values.setdefault(match[1], set()).add(match[2])
    return {name: next(iter(found)) for name, found in values.items() if len(found) == 1}


def _filled(word: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[3]) or match[2] or match[0]

    return _VARIABLE.sub(value, word)


def _without_quotes(text: str, word: re.Match[str]) -> Span:
    start, end = word.start(), word.start() + len(word[0].rstrip(".,:)"))
    quoted = end - start > 1 and text[start] in "\"'" and text[end - 1] == text[start]
    return Span(start + 1, end - 1) if quoted else Span(start, end)
