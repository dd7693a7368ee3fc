"""The real bash judges the static reading of scripts: what dslint says it knows is what bash does."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from dslint.core.source import SourceFile
from dslint.model.shell.commands import Invocation
from dslint.model.shell.values import read_invocations
from dslint.parse.shell import parse_shell

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")

NAMES = ("A", "B", "CC", "N", "L", "E1")
# Set by bash itself or by its start.
OWN = {"PWD", "OLDPWD", "SHLVL", "_", "FUNCNEST"}
# A function that calls itself ends at once instead of filling the memory.
ENVIRONMENT = {"FUNCNEST": "20"}
END = "printf '%s\\0' begin "


@cache
def _empty() -> str:
    """A folder without files, so that no pattern matches."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run_bash(script: str) -> list[str] | None:
    """The words that the last command received, ``None`` when bash did not get there."""
    done = subprocess.run(
        [str(BASH), "--noprofile", "--norc", "-c", script],
        env=ENVIRONMENT,
        cwd=_empty(),
        capture_output=True,
        timeout=20,
        check=False,
    )
    words = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return words[1:-1] if words[0] == "begin" else None


def read(script: str, command: str) -> Invocation | None:
    doc = parse_shell(SourceFile("run.sh", script))
    found = [i for i in read_invocations(doc, lambda raw: command in raw) if i.words and i.words[0].text == command]
    return found[-1] if found else None


def agrees(script: str) -> list[str] | None:
    """bash's words, after checking that every word that dslint knows is one of them at its place."""
    truth = run_bash(script)
    invocation = read(script, "printf")
    if truth is None or invocation is None:
        return truth
    mine = [w.text for w in invocation.words[3:]]
    assert [w.text for w in invocation.words[1:3]] == ["%s\\0", "begin"]
    if None not in mine:
        assert mine == truth, script
        return truth
    # An unknown word may stand for none or several: up to the first and from the last one the words are fixed.
    first = mine.index(None)
    tail = mine[len(mine) - mine[::-1].index(None) :]
    assert mine[:first] == truth[:first], script
    assert tail == truth[len(truth) - len(tail) :], script
    return truth


# -- Scripts -------------------------------------------------------------------------------------------------------

plain_text = st.text("abz019._-/:,+@%=", min_size=1, max_size=6).filter(lambda t: not t.startswith(("-", "=")))
rich_text = st.text("ab1 ._-=:,*?[]{}~#!%^|&;<>()\t\né'", max_size=7)
names = st.sampled_from(NAMES)
numbers = st.integers(-3, 40).map(str)


cuts = st.text("ab1*./-", min_size=1, max_size=3)


def dollars(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        names.map(lambda n: f"${n}"),
        names.map(lambda n: f"${{{n}}}"),
        st.builds("${{{}{}{}}}".format, names, st.sampled_from([":-", "-", ":+", "+"]), inner),
        st.builds("${{{}[{}]}}".format, names, st.sampled_from(["0", "1", "@", "*"])),
        names.map(lambda n: f"${{#{n}}}"),
        names.map(lambda n: f"${{#{n}[@]}}"),
        st.builds("${{{}{}{}}}".format, names, st.sampled_from(["%", "%%", "#", "##"]), cuts),
        st.builds("${{{}[@]:{}}}".format, names, st.sampled_from(["0", "1", "1:1", " 2"])),
        st.sampled_from(["$1", "$2", "${1}", "${1:-d}", "$@", "$*", "$#", "${@:2}", "${@:1:1}"]),
        arithmetic.map(lambda e: f"$(({e}))"),
    )


operands = st.one_of(names, names.map(lambda n: f"${n}"), st.integers(0, 99).map(str), st.sampled_from(["010", "0x1F"]))
arithmetic = st.recursive(
    operands,
    lambda e: st.one_of(
        st.builds("{} {} {}".format, e, st.sampled_from("+-*/%"), e), e.map("({})".format), e.map("-{}".format)
    ),
    max_leaves=4,
)
double_quoted = st.lists(
    st.one_of(rich_text, dollars(plain_text), st.sampled_from(['\\"', "\\$", "\\\\", "\\n", "\\\n", "$"])), max_size=4
).map(lambda parts: '"' + "".join(parts) + '"')
single_quoted = rich_text.map(lambda t: "'" + t.replace("'", "") + "'")
escaped = st.sampled_from(["\\ ", "\\$", "\\\\", '\\"', "\\*", "\\a", "\\\n"])
bare = st.one_of(plain_text, st.text("a1{},.*?[]~=!#-", min_size=1, max_size=5).filter(lambda t: not t.startswith("#")))
words = st.lists(
    st.one_of(bare, single_quoted, double_quoted, escaped, dollars(plain_text), dollars(single_quoted)),
    min_size=1,
    max_size=4,
).map("".join)
values = st.one_of(words, numbers, st.just(""))
lists = st.lists(words, max_size=3).map(lambda items: "(" + " ".join(items) + ")")
assignments = st.builds(
    "{}{}{}{}".format, st.sampled_from(["", "", "export ", "readonly_"]), names, st.sampled_from(["=", "+="]), values
).map(lambda t: t.replace("readonly_", "")) | st.builds("{}{}{}".format, names, st.sampled_from(["=", "+="]), lists)


def blocks(body: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        body.map("if true; then\n{}\nfi".format),
        body.map("if false; then\n{}\nfi".format),
        st.builds('if [ -n "$A" ]; then\n{}\nelse\n{}\nfi'.format, body, body),
        st.builds("for {} in x y; do\n{}\ndone".format, names, body),
        body.map("while false; do\n{}\ndone".format),
        body.map("( {} )".format),
        body.map("{{ {}\n}}".format),
        body.map("f() {{\n{}\n}}".format),
        st.builds("{}() {{\n{}\n{}\n}}".format, st.sampled_from("fg"), body, body),
        body.map("true && {}".format),
        body.map("false && {}".format),
        body.map("false || {}".format),
        body.map("{} | cat".format),
        body.map("{} &\nwait".format),
        st.builds("case $A in\na) {}\n;;\n*) {}\n;;\nesac".format, body, body),
    )


others = st.one_of(
    names.map("unset {}".format),
    names.map("export {}".format),
    st.just("f 2>/dev/null"),
    st.builds(
        "{} {} 2>/dev/null".format, st.sampled_from(["f", "g", "A=9 f"]), st.lists(words, max_size=3).map(" ".join)
    ),
    st.builds("local {} 2>/dev/null".format, names),
    st.builds("local {}={} 2>/dev/null".format, names, plain_text),
    st.just("return 2>/dev/null"),
    st.just("shift 2 2>/dev/null"),
    st.builds("set -- {}".format, words),
    st.builds("read {} <<< '{}'".format, names, plain_text),
    st.builds(": ${{{}:={}}}".format, names, plain_text),
    st.builds("(({} = 5))".format, names),
    st.builds(": $(({}++))".format, names),
    names.map("eval {}=evil".format),
    names.map("printf -v {} x".format),
    names.map("IFS=b; {}=abc".format),
    st.builds("{}={} true".format, names, words),
    st.builds("{}=$(echo {})".format, names, plain_text),
    st.just("set -a"),
    st.just("set -- x y"),
    st.just("# a comment"),
    st.just("shift 2>/dev/null"),
)
statements = st.recursive(st.one_of(assignments, assignments, others), blocks, max_leaves=3)
scripts = st.builds(
    lambda body, prefix, args: "\n".join([*body, prefix + END + " ".join(args)]) + "\n",
    st.lists(statements, max_size=6),
    st.one_of(st.just(""), st.just(""), st.builds("{}={} ".format, names, words)),
    st.lists(words, max_size=4),
)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
@example('A=1\nB="$A 2"\n' + END + '$B "$B"\n')
@example("L=(a 'b c')\nL+=(d)\n" + END + '"${L[@]}" ${L[@]} ${#L[@]}\n')
@example("A=1\nf() { A=2; }\nf\n" + END + "$A\n")
@example('f() { local A=$1; shift; L=("$@"); }\nA=1\nf 2 "b c" d\n' + END + '$A "${L[@]}"\n')
@example("f() { return; }\ng() { A=1; f; A=2; }\ng\n" + END + "$A\n")
@example("A='x  y'\n" + END + "p$A'q'\n")
def test_every_word_that_is_known_is_the_word_that_bash_passes(script: str) -> None:
    assume(agrees(script) is not None)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.lists(statements, max_size=5), prefix=st.builds("{}={}".format, names, words))
def test_every_variable_that_is_known_is_what_the_command_finds(body: list[str], prefix: str) -> None:
    script = "\n".join([*body, f"{prefix} /usr/bin/env -0"]) + "\n"
    invocation = read(script, "/usr/bin/env")
    done = subprocess.run(
        [str(BASH), "-c", script], env=ENVIRONMENT, cwd=_empty(), capture_output=True, timeout=20, check=False
    ).stdout.decode("utf-8", "surrogateescape")
    # ``set -a`` exports functions too.
    truth = dict(x.split("=", 1) for x in done.split("\0") if "=" in x and not x.startswith("BASH_FUNC_"))
    assume(invocation is not None and truth)
    assert invocation is not None
    for name, fact in invocation.env.items():
        if fact.is_known:
            assert truth.get(name) == fact.get(), script
    if "" not in invocation.env:
        assert truth.keys() <= invocation.env.keys() | OWN, script


# -- Plain forms are known, not only never wrong -------------------------------------------------------------------

simple = st.text("abz019._-/", min_size=1, max_size=6).filter(lambda t: not t.startswith("-"))
blanks = st.text("ab1 ", min_size=1, max_size=6)


@st.composite
def plain_scripts(draw: st.DrawFn) -> str:
    """Assignments in a row and a command that uses them, in the forms that launch scripts are made of."""
    lines: list[str] = []
    texts: list[str] = []
    counts: list[str] = []
    for index in range(draw(st.integers(1, 5))):
        name = f"V{index}"
        known = [f"${t}" for t in texts] + [f"${{{t}}}" for t in texts]
        form = draw(st.sampled_from(["bare", "single", "double", "number", "sum", "default", "export", "join"]))
        if form in ("number", "sum"):
            value = str(draw(st.integers(0, 64)))
            if form == "sum" and counts:
                value = f"$(({draw(st.sampled_from(counts))} * {value} + 1))"
            counts.append(name)
        elif form in ("double", "join") and known:
            value = f'"{draw(blanks)}{draw(st.sampled_from(known))} x"'
        elif form == "single":
            value = f"'{draw(blanks)}'"
        elif form == "default":
            value = f"${{UNSET_{index}:-{draw(simple)}}}"
        else:
            value = draw(simple)
        lines.append(f"{'export ' if form == 'export' else ''}{name}={value}")
        texts.append(name)
    uses = [form.format(t) for t in texts for form in ("${}", '"${}"', "${{{}}}", "--x=${{{}}}", 'p"${}"')]
    if draw(st.booleans()):
        lines.append("L=(" + " ".join(draw(st.lists(st.one_of(simple, st.sampled_from(uses)), max_size=3))) + ")")
        uses += ['"${L[@]}"', "${L[@]}"]
    arguments = draw(st.lists(st.one_of(simple, st.sampled_from(uses)), min_size=1, max_size=5))
    joint = draw(st.sampled_from([" ", " \\\n  "]))
    return "\n".join(lines) + "\n" + END + joint.join(arguments) + draw(st.sampled_from(["", " 2>&1", " | cat"])) + "\n"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=plain_scripts())
def test_plain_forms_are_known_completely(script: str) -> None:
    truth = run_bash(script)
    invocation = read(script, "printf")
    assert truth is not None
    assert invocation is not None
    assert [w.text for w in invocation.words[3:]] == truth, script
