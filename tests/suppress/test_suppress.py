"""Suppression comments and per-file ignores: what they reach, what they must not reach, and when they are unused."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslint.core.finding import Finding, Severity
from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile, Span
from dslint.parse.python import comment_spans
from dslint.parse.shell import parse_shell
from dslint.rules.index import RULES
from dslint.rules.own import METAS
from dslint.settings import make_settings
from dslint.suppress.comments import Suppressions
from dslint.suppress.directives import parse_comment
from dslint.suppress.files import FileIgnores, per_file_ignores
from dslint.suppress.logical import python_statements, shell_commands

# The codes of dslint itself are always there, whichever rules a checkout has.
CODE = "DSL902"
NAME = "unreadable-file"


def finding(source: SourceFile, needle: str, code: str = CODE, end: str = "", pointer: str | None = None) -> Finding:
    start = source.text.index(needle)
    last = source.text.index(end, start) + len(end) if end else start + len(needle)
    name = METAS[code].name
    return Finding(code, name, Severity.ERROR, "m", source.location(Span(start, last)), pointer=pointer)


def python(text: str) -> tuple[SourceFile, Suppressions]:
    source = SourceFile("train.py", textwrap.dedent(text))
    comments = comment_spans(source.text)
    return source, Suppressions.from_comments(source, comments, python_statements(source.text))


def shell(text: str) -> tuple[SourceFile, Suppressions]:
    source = SourceFile("run.sh", textwrap.dedent(text))
    return source, Suppressions.from_comments(source, parse_shell(source).comments, shell_commands(source.text))


def is_suppressed(read: Callable[[str], tuple[SourceFile, Suppressions]], text: str, **more: str) -> bool:
    source, suppressions = read(text)
    kept, suppressed = suppressions.apply([finding(source, "TARGET", **more)])
    assert len(kept) + len(suppressed) == 1
    return bool(suppressed)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# noqa: DSL902",
        "# noqa:DSL902",
        "# noqa: E501,DSL902",
        "# noqa: E501, DSL902",
        "# noqa: E501 DSL902",
        "# noqa: DSL9",
        "# noqa: dsl902",
        "# noqa: DSL902 the file is written by the job",
        "# type: ignore  # noqa: DSL902",
        "# noqa: DSL902  # type: ignore",
        "# dslint: ignore",
        "# dslint: ignore it is written by the job",
        "# dslint: ignore[DSL902]",
        "# dslint:ignore[DSL902]",
        "# dslint: ignore[unreadable-file] written by the job",
        "# dslint: ignore[DSL900, DSL902]",
        "# dslint: ignore[DSL9]",
        "# dslint: ignore[ALL]",
        "# fmt: skip  # dslint: ignore[DSL902]",
    ],
)
def test_directive_at_the_end_of_the_line_suppresses(comment: str) -> None:
    assert is_suppressed(python, f"x = TARGET  {comment}\n")


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: E501",
        "# noqa: DSL901",
        "# dslint: ignore[DSL901]",
        "# dslint: ignore[DSL9O2]",
        "# dslint: ignore[DSL902",
        "# dslint: ignore[]",
        "# dslint: ignored by the job",
        "# dslint reads this",
        "# noqable",
        "# write `# noqa` here",
        "# ignore",
    ],
)
def test_anything_else_does_not(comment: str) -> None:
    assert not is_suppressed(python, f"x = TARGET  {comment}\n")


@pytest.mark.parametrize(
    "text",
    [
        'x = TARGET("# noqa")\n',
        'x = TARGET("""\n# dslint: ignore\n""")\n',
        "x = TARGET('# dslint: ignore[DSL902]')\n",
        '"""\n# dslint: ignore-file\n"""\nx = TARGET\n',
        'x = TARGET(f"# noqa {1}")\n',
    ],
)
def test_directive_text_inside_a_string_does_not_suppress(text: str) -> None:
    assert not is_suppressed(python, text)


def test_directive_on_any_line_of_a_statement_holds_for_all_of_it() -> None:
    text = """\
        run(
            a,  # first
            TARGET,
            b,
        ){}
        other()
        """
    assert is_suppressed(python, text.format("  # noqa: DSL902"))
    assert is_suppressed(python, text.format("").replace("a,  # first", "a,  # noqa: DSL902"))
    assert is_suppressed(python, text.format("").replace("run(", "run(  # noqa: DSL902"))
    assert not is_suppressed(python, text.format("").replace("other()", "other()  # noqa: DSL902"))


def test_directive_inside_a_loop_does_not_reach_a_finding_on_the_loop() -> None:
    text = """\
        for x in TARGET:{head}
            a(x)
            b(x){body}
        """
    loop = {"end": "b(x)"}
    assert is_suppressed(python, text.format(head="  # noqa: DSL902", body=""), **loop)
    assert not is_suppressed(python, text.format(head="", body="  # noqa: DSL902"), **loop)


def test_own_line_directive_applies_to_the_next_statement_only() -> None:
    text = """\
        # dslint: ignore[DSL902] reason
        # more words

        first(
            {},
        )
        second({})
        """
    assert is_suppressed(python, text.format("TARGET", ""))
    assert not is_suppressed(python, text.format("", "TARGET"))
    assert is_suppressed(python, "# noqa: DSL902\nx = TARGET\n")


def test_blanket_noqa_on_its_own_line_is_nothing_as_in_flake8() -> None:
    assert not is_suppressed(python, "# noqa\nx = TARGET\n")


def test_file_level_directives() -> None:
    for comment in (
        "# dslint: ignore-file",
        "# dslint: ignore-file[DSL902] generated",
        "# dslint: ignore-file[unreadable-file]",
        "# flake8: noqa",
        "# flake8: noqa: E501,DSL902",
    ):
        assert is_suppressed(python, f"import os\n\n{comment}\nimport sys\n\nx = TARGET\n"), comment
    for comment in ("# dslint: ignore-file[DSL901]", "# flake8: noqa: E501", "y = 1  # flake8: noqa"):
        assert not is_suppressed(python, f"{comment}\nx = TARGET\n"), comment


def test_shell_command_over_several_lines() -> None:
    text = """\
        set -e
        {above}
        torchrun \\
            --nproc_per_node 8 \\
            TARGET \\
            --x 1{behind}
        echo done{after}
        """
    directive = "# dslint: ignore[DSL902]"
    assert is_suppressed(shell, text.format(above=directive, behind="", after=""))
    assert is_suppressed(shell, text.format(above="", behind=f"  {directive}", after=""))
    assert not is_suppressed(shell, text.format(above="", behind="", after=f"  {directive}"))
    assert not is_suppressed(shell, text.format(above="", behind="", after="").replace("--x 1", "'# noqa'"))


def test_json_and_yaml_comments() -> None:
    text = '{\n  // dslint: ignore[DSL902]\n  "TARGET": 1,\n  "b": 2 /* noqa */\n}\n'
    source = SourceFile("ds.jsonc", text)
    comments = [Span(text.index("//"), text.index('\n  "TARGET')), Span(text.index("/*"), text.index("*/") + 2)]
    suppressions = Suppressions.from_comments(source, comments)
    kept, suppressed = suppressions.apply([finding(source, '"TARGET"'), finding(source, '"b"')])
    assert not kept
    assert len(suppressed) == 2


def test_only_findings_of_the_same_file_are_touched() -> None:
    source, suppressions = python("x = TARGET  # noqa\n")
    other = SourceFile("other.py", source.text)
    assert suppressions.apply([finding(other, "TARGET")])[1] == []


def test_reason_and_place_are_kept() -> None:
    for comment, reason in [
        ("# dslint: ignore[DSL902] written by the job", "written by the job"),
        ("# dslint: ignore: see issue #12", "see issue #12"),
        ("# noqa: DSL902 - the job writes it  # type: ignore", "the job writes it"),
        ("# noqa", ""),
    ]:
        source, suppressions = python(f"x = TARGET  {comment}\n")
        suppressed = suppressions.apply([finding(source, "TARGET")])[1][0]
        assert (suppressed.reason, suppressed.kind) == (reason, "inSource")
        assert suppressed.location is not None
        assert suppressed.location.region.column == 13


def unused(text: str, judged: Callable[[str], bool] | None = None, needles: tuple[str, ...] = ()) -> list[Finding]:
    source, suppressions = python(text)
    suppressions.apply([finding(source, n) for n in needles])
    return suppressions.unused(judged) if judged else suppressions.unused()


def fixed(text: str, **more: tuple[str, ...]) -> str:
    found = unused(text, **more)  # type: ignore[arg-type]
    return apply_edits(text, [edit for f in found if f.fix for edit in f.fix.edits])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # noqa: DSL902\n", "x = 1\n"),
        ("x = 1  # noqa: DSL902", "x = 1"),
        ("x = 1  # noqa: DSL902 because\n", "x = 1\n"),
        ("x = 1  # noqa: E501,DSL902\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # noqa: DSL902, E501 why\n", "x = 1  # noqa: E501 why\n"),
        ("x = 1  # type: ignore  # noqa: DSL902\n", "x = 1  # type: ignore\n"),
        ("x = 1  # noqa: DSL902  # type: ignore\n", "x = 1  # type: ignore\n"),
        ("a = 0\n# dslint: ignore[DSL902] old\nx = 1\n", "a = 0\nx = 1\n"),
        ("if x:\n    # dslint: ignore[DSL902]\n    y()\n", "if x:\n    y()\n"),
        ("x = 1  # dslint: ignore\n", "x = 1\n"),
        ("# dslint: ignore-file[DSL902]\nx = 1\n", "x = 1\n"),
        ("x = 1  # dslint: ignore[DSL900, DSL902] old\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
    ],
)
def test_unused_directive_is_reported_and_its_fix_deletes_it(before: str, after: str) -> None:
    assert [f.code for f in unused(before)] == ["DSL903"]
    assert fixed(before) == after
    assert unused(after) == []


def test_only_the_idle_part_of_a_directive_goes() -> None:
    text = "TARGET()  # dslint: ignore[DSL900, unreadable-file] why\n"
    found = unused(text, needles=("TARGET",))
    assert [f.message for f in found] == ["no finding of `DSL900` here, so it would only hide the next real mistake"]
    assert fixed(text, needles=("TARGET",)) == "TARGET()  # dslint: ignore[unreadable-file] why\n"


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # noqa\n",
        "x = 1  # noqa: E501\n",
        "# flake8: noqa\n",
        "x = 1  # dslint: ignore[DSL903]\n",
        's = "# noqa: DSL902"\n',
        "# dslint: finds mistakes in configs\n",
    ],
)
def test_what_is_not_ours_or_may_be_needed_is_not_unused(text: str) -> None:
    assert unused(text) == []


def test_used_directives_are_not_reported() -> None:
    for comment in ("# noqa: DSL902", "# dslint: ignore", "# dslint: ignore[DSL9]", "# dslint: ignore-file"):
        assert unused(f"TARGET()  {comment}\n", needles=("TARGET",)) == []


def test_rules_that_did_not_run_cannot_make_their_suppression_unused() -> None:
    names = [rule.code for rule in RULES if not rule.code.startswith("DSL9")]
    if not names:
        pytest.skip("no rule besides those of dslint itself")
    text = f"x = 1  # noqa: {names[0]}\n"
    assert unused(text, judged=lambda code: code != names[0]) == []
    assert len(unused(text)) == 1
    assert unused("x = 1  # dslint: ignore\n", judged=lambda code: code != names[0]) == []


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# noqa: DSL9O2", "unknown rule `DSL9O"),
        ("# dslint: ignore[unreadable-fil]", "did you mean `unreadable-file`?"),
        ("# dslint: ingore[DSL902]", "did you mean `dslint: ignore`?"),
        ("# dslint: disable", "did you mean `dslint: ignore`?"),
        ("# dslint: ignore[DSL902", "lacks its closing bracket"),
        ("# dslint: ignore[]", "names no rule"),
    ],
)
def test_a_mistyped_directive_is_reported_but_not_deleted(comment: str, words: str) -> None:
    (found,) = unused(f"x = 1  {comment}\n")
    assert words in found.message
    assert found.fix is None


def test_comment_inside_a_continued_command_is_not_deleted() -> None:
    source, suppressions = shell("torchrun \\\n# noqa: DSL902\n  train.py\n")
    (found,) = suppressions.unused()
    assert found.fix is None
    assert source.text.splitlines()[found.location.region.line - 1] == "# noqa: DSL902"


def config(pointer: str) -> Finding:
    source = SourceFile("configs/zero2.json", '{"TARGET": 1}')
    return finding(source, "TARGET", pointer=pointer)


@pytest.mark.parametrize(
    ("table", "ignored"),
    [
        ({"configs/zero2.json": ["DSL902"]}, True),
        ({"*.json": ["DSL9"]}, True),
        ({"configs/": ["unreadable-file"]}, True),
        ({"configs/*.json": ["ALL"]}, True),
        ({"other/*.json": ["ALL"]}, False),
        ({"*.json": ["DSL901"]}, False),
        ({"!scripts/**": ["DSL902"]}, True),
        ({"!configs/**": ["DSL902"]}, False),
        ({"*.json": ["DSL902:/zero_optimization/overlap_comm"]}, True),
        ({"*.json": ["DSL902:/zero_optimization"]}, True),
        ({"*.json": ["DSL902:/"]}, True),
        ({"*.json": ["DSL902:/zero_opt"]}, False),
        ({"*.json": ["DSL902:/zero_optimization/overlap_comm/x"]}, False),
        ({"*.json": ["DSL902:/fp16"]}, False),
    ],
)
def test_per_file_ignores_by_pattern_rule_and_pointer(
    table: dict[str, list[str]], ignored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = make_settings({"per-file-ignores": table}, tmp_path)
    assert per_file_ignores(settings, config("/zero_optimization/overlap_comm")) is ignored
    kept, suppressed = FileIgnores(settings).apply([config("/zero_optimization/overlap_comm")])
    assert (len(kept), [s.kind for s in suppressed]) == ((0, ["external"]) if ignored else (1, []))


def test_patterns_are_relative_to_the_settings_and_not_to_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    settings = make_settings({"per-file-ignores": {"sub/configs/zero2.json": ["DSL902"]}}, tmp_path)
    assert per_file_ignores(settings, config("/a"))


def test_unused_entry_for_one_file_is_reported_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslint.settings import load_settings

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dslint.per-file-ignores]\n"*.json" = ["DSL901"]\n"configs/zero2.json" = ["DSL902:/b", "DSL902:/a"]\n'
    )
    ignores = FileIgnores(load_settings(tmp_path, {}, None, False, {}))
    ignores.apply([config("/a")])
    (found,) = ignores.unused({"configs/zero2.json"}, lambda code: True)
    assert str(found.location) == "pyproject.toml:3"
    assert "`DSL902:/b`" in found.message
    assert ignores.unused({"elsewhere.json"}, lambda code: True) == []


@given(st.text(alphabet="#/* noqadslint:ignore-file[]DSL9E501,\"'`", max_size=60))
def test_no_comment_text_breaks_the_reader(text: str) -> None:
    for directive in parse_comment(text, Span(0, len(text)), True):
        assert 0 <= directive.span.start <= directive.span.end <= len(text)
        for selector in directive.selectors:
            assert text[selector.span.start : selector.span.end] == selector.text


@given(st.text(alphabet="a =(#):\"'\\\n\r\t\f|&DSLnoqa902", max_size=80))
def test_any_text_can_be_asked_for_suppressions_and_fixes_apply(text: str) -> None:
    for read in (python, shell):
        source, suppressions = read(text)
        suppressions.apply([])
        for found in suppressions.unused():
            if found.fix:
                apply_edits(source.text, found.fix.edits)
