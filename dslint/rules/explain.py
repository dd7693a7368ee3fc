"""Pages about rules, rendered from the rule files: for ``dslint rule`` and ``docs/rules``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from dslint.core.terminal import terminal_width, use_color
from dslint.rules.registry import LoadedRule, load_rule
from dslint.translate import english

if TYPE_CHECKING:
    from dslint.rules.base import Example
    from dslint.translate import Translator

_LANGUAGES = {
    "py": "python",
    "sh": "bash",
    "bash": "bash",
    "sbatch": "bash",
    "slurm": "bash",
    "yml": "yaml",
    "md": "markdown",
    "ipynb": "json",
    "hjson": "json",
    "jsonc": "json",
    "cfg": "ini",
}
_FIXES = {"none": "", "safe": "fixed by `--fix`", "unsafe": "fixed by `--fix --unsafe-fixes`"}


# What everybody wants to know; the other sections of a page come with a flag.
_SHORT = ("What", "Why it hurts", "Fix")
_EVIDENCE = ("Evidence",)
_SECTION = re.compile(r"^\*\*(?P<title>[A-Z][^*\n]*)\.\*\*", re.M)


def explain(
    code: str, stream: IO[str], *, examples: bool = False, evidence: bool = False, translate: Translator = english
) -> None:
    """Write what a rule is about: Markdown as it is to a pipe, typeset on a terminal that takes colour.

    ``examples``: all of them, and when the rule stays quiet; ``evidence``: what was observed.

    Raises:
        UnknownSelector: no rule has this code.
    """
    text = brief(load_rule(code), examples=examples, evidence=evidence, translate=translate)
    if use_color("auto", stream, os.environ):
        text = _typeset(text, terminal_width(stream, os.environ))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))


def markdown(rule: LoadedRule, translate: Translator = english) -> str:
    """The whole page of a rule."""
    parts = [
        *_head(rule, translate),
        _in_language(rule.explanation.strip(), translate),
        *_versions(rule, translate),
        *_experiments(rule, translate),
        *_examples(rule.examples, translate),
        *_references(rule, translate),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def brief(rule: LoadedRule, *, examples: bool = False, evidence: bool = False, translate: Translator = english) -> str:
    """What, why and how to fix, with one example; more of the page where it is asked for."""
    if examples and evidence:
        return markdown(rule, translate)
    wrong = [example for example in rule.examples if example.at]
    shown = rule.examples if examples else tuple(wrong[:1])
    more = [*_examples(shown, translate)]
    if evidence:
        more = [*_versions(rule, translate), *_experiments(rule, translate), *more, *_references(rule, translate)]
    elif not examples and len(rule.examples) > len(shown):
        left = len(rule.examples) - len(shown)
        counts = f"{left} more example{'' if left == 1 else 's'}"
        more.append(
            translate(f"`dslint rule {rule.meta.code} --examples` shows {counts}, `--evidence` what was observed.")
        )
    sections = (_in_language(text, translate) for text in _sections(rule.explanation, examples, evidence))
    return "\n\n".join((*_head(rule, translate), *sections, *more)) + "\n"


def paragraphs(prose: str) -> list[str]:
    """The paragraphs of a page, each on one line, unless it is a list or a piece of code."""
    return [_on_one_line(text) for text in re.split(r"\n{2,}", prose.strip())]


def _on_one_line(paragraph: str) -> str:
    is_laid_out = re.search(r"^(?:\s|[-*] |\||```|\d+\. )", paragraph, re.MULTILINE)
    return paragraph if is_laid_out else " ".join(paragraph.split())


def _in_language(prose: str, translate: Translator) -> str:
    """A section of a page; paragraphs without a translation stay as they are."""
    if translate is english:
        return prose
    texts = re.split(r"\n{2,}", prose)
    return "\n\n".join(
        text if (other := translate(whole)) == whole else other
        for text, whole in zip(texts, map(_on_one_line, texts), strict=True)
    )


def _head(rule: LoadedRule, translate: Translator) -> Iterator[str]:
    meta = rule.meta
    fixed = _FIXES[meta.fix]
    facts = [f"**{meta.severity.value}**", meta.kind, fixed and translate(fixed), translate(f"since {meta.since}")]
    if meta.optional:
        facts.append(translate("off by default"))
    yield f"# {meta.code} {meta.name}"
    yield translate(f"{meta.summary}.")
    yield " · ".join(fact for fact in facts if fact)


def _sections(prose: str, examples: bool, evidence: bool) -> Iterator[str]:
    """The sections of the prose that are asked for, all of it where it has none of those that a page has."""
    starts = list(_SECTION.finditer(prose))
    if not any(match["title"] in _SHORT for match in starts):
        yield prose.strip()
        return
    ends = [match.start() for match in starts[1:]] + [len(prose)]
    for match, end in zip(starts, ends, strict=True):
        title = match["title"]
        is_wanted = title in _SHORT or (evidence if title in _EVIDENCE else examples)
        if is_wanted:
            yield prose[match.start() : end].strip()


def _versions(rule: LoadedRule, translate: Translator) -> Iterator[str]:
    if rule.meta.versions:
        yield f"**{translate('Versions.')}** " + ", ".join(f"`{version}`" for version in rule.meta.versions)


def _experiments(rule: LoadedRule, translate: Translator) -> Iterator[str]:
    from dslint.rules.evidence import of_rule

    found = of_rule(rule.meta.code)
    if rule.meta.no_experiment:
        yield f"**{translate('No experiment.')}** {rule.meta.no_experiment[:1].upper()}{rule.meta.no_experiment[1:]}."
    if not found:
        return
    yield f"## {translate('Experiments')}"
    yield translate(f"`dslint probe --rule {rule.meta.code}` repeats them.")
    rows = [translate("| platform | experiment | verdict | seconds | versions |"), "| --- | --- | --- | --- | --- |"]
    for record in found:
        versions = ", ".join(f"{name} {version}" for name, version in record.versions.items() if name != "python")
        name = f"`{record.experiment}/{record.case}`"
        verdict = f"{record.verdict} (control)" if record.is_control else record.verdict
        rows.append(f"| {record.platform} | {name} | {verdict} | {record.seconds} | {versions} |")
    yield "\n".join(rows)


def _references(rule: LoadedRule, translate: Translator) -> Iterator[str]:
    if rule.meta.references:
        yield f"## {translate('References')}"
        yield "\n".join(
            f"- <{reference}>" if re.fullmatch(r"https?://\S+", reference) else f"- {reference}"
            for reference in rule.meta.references
        )


def _examples(examples: tuple[Example, ...], translate: Translator) -> Iterator[str]:
    wrong = [example for example in examples if example.at]
    right = [example for example in examples if not example.at]
    if wrong:
        yield f"## {translate('Reported')}"
    for example in wrong:
        yield from _example(example, translate)
    if right:
        yield f"## {translate('Not reported')}"
    for example in right:
        yield from _example(example, translate)


def _example(example: Example, translate: Translator) -> Iterator[str]:
    yield "### " + translate(f"{example.title[:1].upper()}{example.title[1:]}")
    if example.settings:
        flags = " ".join(
            f"--{key}" if value is True else f"--{key} {value}" for key, value in sorted(example.settings.items())
        )
        yield translate(f"With `{flags}`:")
    for path, text in example.files.items():
        yield _file(path, text)
    if example.at:
        places = ", ".join(f"`{place}`" for place in example.at)
        yield translate(f"Reported at {places}.")
    if example.fixed:
        yield translate("After the fix:")
        for path, text in example.fixed.items():
            yield _file(path, text)


def _file(path: str, text: str) -> str:
    """A fenced block under its path; the fence is longer than any inside of the text. Carriage returns are shown."""
    text = text.replace("\r", "\u240d")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    suffix = path.rpartition(".")[2].lower()
    return f"`{path}`\n\n{fence}{_LANGUAGES.get(suffix, suffix if '.' in path else 'bash')}\n{text.rstrip()}\n{fence}"


def _typeset(text: str, width: int) -> str:
    from io import StringIO

    from rich.console import Console
    from rich.markdown import Markdown

    out = StringIO()
    console = Console(
        file=out, width=min(width, 100), force_terminal=True, color_system="standard", legacy_windows=False, _environ={}
    )
    console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
    return out.getvalue()
