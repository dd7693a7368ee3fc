"""The real bash judges the static reading of scripts: what dslint says it knows is what bash does."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from shell_helpers import read_invocations

from dslint.core.source import SourceFile
from dslint.model.shell.commands import Invocation
from dslint.parse.shell import parse_shell

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")

NAMES = ("A", "B", "CC", "N", "L", "E1")
# Set by bash itself or by its start.
OWN = {"PWD", "OLDPWD", "SHLVL", "_", "FUNCNEST"}
# A function that calls itself ends at once instead of filling the memory.
ENVIRONMENT = {"FUNCNEST": "20"}
BINARY = ["**", "<<", ">>", "<", "<=", "==", "!=", ">", ">=", "&&", "||", "&", "|", "^", ","]
# Of an arithmetic command, unlike an expansion, only the status tells.
GAVE_UP = re.compile(
    rb"^[^:\n]+: (?:line (\d+): )?(?!(?:\(\(|let|\[\[): ).*(?:error token is|invalid indirect expansion"
    rb"|invalid variable name|bad substitution|substring expression < 0|maximum function nesting level exceeded)",
    re.MULTILINE,
)
END = "printf '%s\\0' begin "


@cache
def _empty() -> str:
    """A folder without files, so that no pattern matches."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _output(arguments: list[str], environment: Mapping[str, str], patience: float) -> bytes | None:
    """What bash prints; ``None`` when it takes too long: then its children end with it, which would fork for ever.

    ``None`` too where an expansion fails (``$((08))``, ``${!A}`` of a name that is not set) in the middle of a line or
    block: bash leaves it half done and goes on behind it, and dslint takes it that a script runs. The same where
    ``FUNCNEST`` ends a function that calls itself for ever.
    """
    with subprocess.Popen(
        [str(BASH), *arguments],
        env=environment,
        cwd=_empty(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as bash:
        try:
            printed, said = bash.communicate(timeout=patience)
            return None if _gave_up(arguments[-1], said) else printed
        except subprocess.TimeoutExpired:  # a loop whose counter a loop inside sets back, a function that calls itself
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)


def _gave_up(script: str, said: bytes) -> bool:
    lines = [int(number or 1) - 1 for number in GAVE_UP.findall(said)]
    statements = [c for c in parse_shell(SourceFile("run.sh", script)).root.children if c.is_named] if lines else []
    for line in lines:
        here = [s for s in statements if s.start_point[0] <= line <= s.end_point[0]]
        is_alone = len(here) == 1 and here[0].type in ("variable_assignment", "declaration_command", "command")
        if not is_alone or any(c.type == "variable_assignment" for c in here[0].children):
            return True
    return False


def run_bash(script: str, inputs: Mapping[str, str] | None = None, patience: float = 3) -> list[str] | None:
    """The words that the last command received, ``None`` when bash did not get there.

    ``inputs`` are variables of the caller; ``patience`` is in seconds.
    """
    printed = _output(["--noprofile", "--norc", "-c", script], {**ENVIRONMENT, **(inputs or {})}, patience)
    if printed is None:
        return None
    words = printed.decode("utf-8", "surrogateescape").split("\0")
    return words[1:-1] if words[0] == "begin" else None


def read(script: str, command: str) -> list[Invocation]:
    """The ways that the command may look."""
    doc = parse_shell(SourceFile("run.sh", script))
    return [i for i in read_invocations(doc, lambda raw: command in raw) if i.words and i.words[0].text == command]


def agrees(script: str, inputs: Mapping[str, str] | None = None) -> list[str] | None:
    """bash's words, after checking that they are among what dslint says the command may receive."""
    truth = run_bash(script, inputs)
    mine = [tuple(w.text for w in i.words[3:]) for i in read(script, "printf") if texts(i)[1:3] == ["%s\\0", "begin"]]
    # Over odd blanks and brackets the grammar may lose the command: only what is said is judged.
    if truth is not None and (mine or inputs is not None):
        assert any(fits(words, truth) for words in mine), f"{script}\n{inputs}\nbash: {truth}\ndslint: {mine}"
    return truth


def texts(invocation: Invocation) -> list[str | None]:
    return [w.text for w in invocation.words]


def fits(mine: Sequence[str | None], truth: list[str]) -> bool:
    """Every word that dslint knows is the word at its place."""
    if None not in mine:
        return list(mine) == truth
    # An unknown word may stand for none or several: up to the first and from the last one the words are fixed.
    first = mine.index(None)
    tail = list(mine[len(mine) - mine[::-1].index(None) :])
    return list(mine[:first]) == truth[:first] and tail == truth[len(truth) - len(tail) :]


# -- Scripts -------------------------------------------------------------------------------------------------------

plain_text = st.text("abz019._-/:,+@%=", min_size=1, max_size=6).filter(lambda t: not t.startswith(("-", "=")))
rich_text = st.text("ab1 ._-=:,*?[]{}~#!%^|&;<>()\t\né'", max_size=7)
names = st.sampled_from(NAMES)
numbers = st.integers(-3, 40).map(str)


cuts = st.text("ab1*./-", min_size=1, max_size=3)


# Commands whose output is worked out.
operand = st.one_of(
    st.text("ab1./,-_", min_size=1, max_size=6).filter(lambda t: t[0] != "-"), names.map(lambda n: f'"${n}"')
)
plain_operand = st.one_of(st.text("ab1_", min_size=1, max_size=4), st.integers(-3, 12).map(str))
sources = st.one_of(
    operand.map("echo {}".format),
    st.builds("echo {} {}".format, operand, operand),
    st.builds("echo -n {}".format, operand),
    st.builds("printf '%s\\n' {} {}".format, operand, operand),
    st.builds("printf '{}' {}".format, st.sampled_from(["%s,", "%02d", "%d-%s", "a%%b"]), plain_operand),
    st.builds("seq {}".format, st.integers(-2, 5)),
    st.builds("seq {} {}".format, st.integers(-2, 5), st.integers(-2, 9)),
    st.builds("seq -s, {} {} {}".format, st.integers(0, 5), st.sampled_from([1, 2, -1]), st.integers(0, 9)),
    st.builds(
        "expr {} {} {}".format, plain_operand, st.sampled_from(["+", "-", "'*'", "/", "%", "=", "'<'"]), plain_operand
    ),
    st.builds("basename {}".format, operand),
    st.builds("basename {} {}".format, operand, st.sampled_from(["b", ".a", "1"])),
    st.builds("dirname {}".format, operand),
)
filters = st.sampled_from(
    [
        "tr a-z A-Z", "tr '[:lower:]' '[:upper:]'", "tr , ' '", "tr , '\\n'", "tr -d ab", "tr -s a", "tr ab x",
        "cut -d, -f1", "cut -d , -f 2-", "cut -f1 -d/", "cut -c1-2", "cut -c 2-", "head -n 1", "head -1", "tail -n 1",
        "wc -l", "wc -w", "wc -c", "sed 's/a/x/'", "sed s/a/x/g", "sed 's#/#_#g'", "sed 's/^a//'", "sed 's/[0-9]*$//'",
        "awk '{print $1}'", "awk -F, '{print NF}'", "awk -F, '{print $2}'", "awk '{print $NF}'", "grep -o a", "xargs",
    ]
)  # fmt: skip
outputs = st.builds(lambda head, rest: " | ".join([head, *rest]), sources, st.lists(filters, max_size=2))

patterns = st.lists(
    st.one_of(
        st.text("ab1./-", min_size=1, max_size=2),
        st.sampled_from(
            ["*", "?", "[ab]", "[!a]", "[0-9]", "[a-zA-Z]", "[[:digit:]]", "'*'", '"?"', "$A", '"$B"', "\\*"]
        ),
    ),
    min_size=1,
    max_size=3,
).map("".join)
offsets = st.sampled_from(["0", "1", "2", " -1", " -2", "1+1", "9"])


def dollars(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("${{{}{}}}".format, names, st.sampled_from(["^", "^^", ",", ",,", "^^[ab]", ",,?"])),
        st.builds("${{{}{}{}}}".format, names, st.sampled_from(["%", "%%", "#", "##"]), patterns),
        st.builds(
            "${{{}{}{}/{}}}".format,
            names,
            st.sampled_from(["/", "//", "/#", "/%"]),
            patterns,
            st.one_of(cuts, st.sampled_from(["", "$A", "x"])),
        ),
        st.builds("${{{}:{}}}".format, names, offsets),
        st.builds("${{{}:{}:{}}}".format, names, offsets, offsets),
        st.builds(
            "${{{}[{}]{}}}".format,
            names,
            st.sampled_from(["@", "*", "0", "-1", "1+1", "$N"]),
            st.sampled_from(["", "^^", "%b", "/a/x", "/#/p", ":1", ": -1:1", "#a"]),
        ),
        st.sampled_from(["${M[a]}", "${M[$A]}", "${#M[@]}", "$M", "${M[x y]}", '"${M[@]}"', '"${!M[@]}"']),
        names.map(lambda n: f"${{!{n}}}"),
        names.map(lambda n: f"${{!{n}[@]}}"),
        names.map(lambda n: f"${n}"),
        names.map(lambda n: f"${{{n}}}"),
        st.builds("${{{}{}{}}}".format, names, st.sampled_from([":-", "-", ":+", "+"]), inner),
        st.builds("${{{}[{}]}}".format, names, st.sampled_from(["0", "1", "@", "*"])),
        names.map(lambda n: f"${{#{n}}}"),
        names.map(lambda n: f"${{#{n}[@]}}"),
        st.builds("${{{}{}{}}}".format, names, st.sampled_from(["%", "%%", "#", "##"]), cuts),
        st.builds("${{{}[@]:{}}}".format, names, st.sampled_from(["0", "1", "1:1", " 2"])),
        outputs.map(lambda c: f"$({c})"),
        outputs.filter(lambda c: not set(c) & set("\\`")).map(lambda c: f"`{c}`"),
        st.sampled_from(["$1", "$2", "${1}", "${1:-d}", "$@", "$*", "$#", "${@:2}", "${@:1:1}"]),
        arithmetic.map(lambda e: f"$(({e}))"),
    )


operands = st.one_of(
    names,
    names.map(lambda n: f"${n}"),
    st.integers(0, 99).map(str),
    st.sampled_from(["010", "0x1F", "${A}", "${#L[@]}", "$(expr 2 + 3)"]),
)
arithmetic = st.recursive(
    operands,
    lambda e: st.one_of(
        st.builds("{} {} {}".format, e, st.sampled_from("+-*/%"), e),
        st.builds("{} {} {}".format, e, st.sampled_from(BINARY), e),
        st.builds("{} ? {} : {}".format, e, e, e),
        e.map("({})".format),
        st.builds("{}{}".format, st.sampled_from("-!~+"), e),
    ),
    max_leaves=4,
)
double_quoted = st.lists(
    st.one_of(rich_text, dollars(plain_text), st.sampled_from(['\\"', "\\$", "\\\\", "\\n", "\\\n", "$"])), max_size=4
).map(lambda parts: '"' + "".join(parts) + '"')
single_quoted = rich_text.map(lambda t: "'" + t.replace("'", "") + "'")
escaped = st.sampled_from(["\\ ", "\\$", "\\\\", '\\"', "\\*", "\\a", "\\\n"])
ansi = st.sampled_from(["$'a\\tb'", "$'it\\'s'", "$'\\x41\\n'", "$'\\101\\e'", "$'\\q\\\\'", '$"a b"'])
braced = st.one_of(
    st.sampled_from(
        ["{1..4}", "{01..10..3}", "{a..e}", "{3..1}", "{a,b{1,2},}", "{,x}", "{a}", "{}", "{a,$A}", "{1..$N}"]
    ),
    st.builds("{{{},{}}}".format, plain_text, st.sampled_from(["'x y'", '"$A"', "b", "{1..2}"])),
)
tildes = st.sampled_from(["~", "~/x", "--x=~/y", "a:~", "x=~", "A=~/z", "'~'"])
bare = st.one_of(
    plain_text,
    braced,
    tildes,
    st.text("a1{},.*?[]~=!#-", min_size=1, max_size=5).filter(lambda t: not t.startswith("#")),
)
words = st.lists(
    st.one_of(bare, single_quoted, double_quoted, escaped, ansi, dollars(plain_text), dollars(single_quoted)),
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
    st.builds("printf -v {} '%s-%d' {} 3".format, names, plain_text),
    st.builds("read -r {} {} <<< {}".format, names, names, words),
    st.builds("IFS=, read -ra L <<< {}".format, words),
    st.builds("mapfile -t L <<< {}".format, words),
    st.builds("mapfile -t L < <(printf '%s\\n' {})".format, words),
    st.builds("{}[{}]={}".format, names, st.sampled_from(["0", "1", "2", "N", "-1", "$N"]), words),
    st.builds("declare -A M=([a]={} [b]={})".format, plain_text, words),
    st.builds("declare -A M; M[{}]={}".format, st.sampled_from(["a", "0", "$A", "'x y'"]), plain_text),
    st.builds("L=([1]={} [0]={})".format, plain_text, plain_text),
    st.builds("let {}=N+2 {}+=1".format, names, names),
    st.builds("declare -i {}={}".format, names, st.sampled_from(["2+3", "N*2", "7", "$N"])),
    st.builds("declare {}={}".format, names, bare),
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
@example("true && for B in x y; do\nA=${!A}\ndone\nA=\n" + END + "${B^}\n")
def test_every_word_that_is_known_is_the_word_that_bash_passes(script: str) -> None:
    assume(agrees(script) is not None)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.lists(statements, max_size=5), prefix=st.builds("{}={}".format, names, words))
@example(body=["A=", "unset A", "IFS=, read -ra L <<< $((A + $A))"], prefix="A=0")
def test_every_variable_that_is_known_is_what_the_command_finds(body: list[str], prefix: str) -> None:
    script = "\n".join([*body, f"{prefix} /usr/bin/env -0"]) + "\n"
    invocations = read(script, "/usr/bin/env")
    done = (_output(["-c", script], ENVIRONMENT, 3) or b"").decode("utf-8", "surrogateescape")
    # ``set -a`` exports functions too.
    truth = dict(x.split("=", 1) for x in done.split("\0") if "=" in x and not x.startswith("BASH_FUNC_"))
    assume(truth and invocations)
    assert any(found_by(i, truth) for i in invocations), f"{script}\n{truth}"


def found_by(invocation: Invocation, truth: Mapping[str, str]) -> bool:
    """The command finds what dslint says it does."""
    known = all(truth.get(n) == f.get() for n, f in invocation.env.items() if f.is_known)
    return known and ("" in invocation.env or truth.keys() <= invocation.env.keys() | OWN)


# -- Scripts whose way depends on what the caller sets --------------------------------------------------------------

INPUTS = ("I", "J", "K")
pick = st.sampled_from
inputs_or_names = names | pick(INPUTS)
globs = pick(["a", "a*", "?", "[0-9]", "'a'", '"$A"', "$B"])
signs = pick(["-eq", "-ne", "-lt", "-gt", "-le", "-ge"])
double_signs = pick(["<", ">", "==", "!=", "<=", ">="])
zero = st.integers(0, 2)
flags = pick(["a", "b", "1", "2", "x y", ""])
atoms = st.one_of(
    st.builds('[ "${}" {} {} ]'.format, pick(INPUTS), pick(["=", "==", "!="]), pick("ab1")),
    st.builds(
        "[[ ${} {} {} ]]".format,
        inputs_or_names,
        pick(["==", "!="]),
        pick(["a", "a*", "?", "[0-9]", "'a'", '"$A"', "$B"]),
    ),
    st.builds('[ {} "${}" ]'.format, pick(["-z", "-n"]), inputs_or_names),
    st.builds("[[ {} ${} ]]".format, pick(["-z", "-n", "-v"]), pick(INPUTS)).map(lambda t: t.replace("-v $", "-v ")),
    st.builds(
        "[ ${} {} {} ]".format,
        pick(["N", "I"]),
        signs,
        st.integers(0, 3),
    ),
    st.builds("[[ ${} =~ {} ]]".format, inputs_or_names, pick(["a", "^[0-9]+$", "^a.*", "(a|b)"])),
    st.builds(
        "(( {} {} {} ))".format,
        pick(["N", "$N", "N + 1", "I"]),
        double_signs,
        st.integers(0, 3),
    ),
    st.builds('test "${}" = {}'.format, inputs_or_names, pick("ab")),
    st.builds("[ $I ]".format),
    st.builds('[ "$I" = a -o "$J" = {} ]'.format, pick("ab")),
    pick(["true", "false", "! true", "A=a", "test -f nothing", "[ -d . ]"]),
)
tests = st.recursive(
    atoms,
    lambda t: st.one_of(st.builds("{} && {}".format, t, t), st.builds("{} || {}".format, t, t), t.map("! {}".format)),
    max_leaves=3,
)
# What the caller sets is never given a default: dslint takes a default for what runs (``I=${I:-4}``).
settings_of = st.one_of(
    st.builds("{}={}".format, names, pick(["a", "b", "1", "2", "'x y'", '"x$I"', '"$A$B"', "$N", '"$J $A"', ""])),
    st.builds("N={}".format, pick(["0", "1", "2", "$((N + 1))", "1$I"])),
    st.builds("L+=({})".format, pick(["a", "--x 1", '"$I"', "$A"])),
    st.builds('{}+=" {}"'.format, names, pick(["a", "--x=1", "$I", "$B"])),
    st.builds("export {}={}".format, names, pick("ab")),
    st.builds("unset {}".format, names),
    st.builds("f {}".format, pick(["", "a", '"$I"', "$A b", "$L"])),
    st.builds(": ${{{}:=4}}".format, pick(["A", "B"])),
    pick(
        [
            "break",
            "continue",
            "return",
            "exit",
            "((N++))",
            "((N+=2))",
            "shift",
            "set -- a $I",
            "true",
            "cd .",
            "break 2",
        ]
    ),
)


def ways(body: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Statements that run one part or another, or one several times."""
    item = pick(["a", "b|1", "'a'", "a*", "*", "x*", "?", '"$A"', "1|2|''"])
    return st.one_of(
        st.builds("if {}; then\n{}\nfi".format, tests, body),
        st.builds("if {}; then\n{}\nelse\n{}\nfi".format, tests, body, body),
        st.builds("if {}; then\n{}\nelif {}; then\n{}\nelse\n{}\nfi".format, tests, body, tests, body, body),
        st.builds("{} && {}".format, tests, settings_of),
        st.builds("{} || {}".format, tests, settings_of),
        st.builds("{} && {} || {}".format, tests, settings_of, settings_of),
        st.builds(
            'case "${}" in\n{}) {}\n;;\n{}) {}\n{}\n*) {};;\nesac'.format,
            inputs_or_names,
            item,
            body,
            item,
            body,
            pick([";;", ";&"]),
            body,
        ),
        st.builds("case ${} in\n{}) {}\n;;\n{}) {}\nesac".format, inputs_or_names, item, body, item, body),
        st.builds(
            "for {} in {}; do\n{}\ndone".format,
            names,
            pick(["a b", "1 2 3", "$I", '"${L[@]}"', "a $A", ""]),
            body,
        ),
        # No statement sets the counters: bash must come to an end.
        st.builds("for (({0}={1}; {0}<{2}; {0}++)); do\n{3}\ndone".format, pick("QR"), zero, pick("23I"), body),
        st.builds("{0}=0; while [ ${0} -lt 3 ]; do {0}=$(({0}+1))\n{1}\ndone".format, pick("VW"), body),
        body.map("f() {{\n{}\n}}\nf b".format),
        st.builds("f() {{\nlocal A=$1\n{}\n{}\n}}\nf $I".format, body, body),
        body.map("( {}\n)".format),
        body.map("{{ {}\n}}".format),
        body.map("{} | cat".format),
        st.builds("{}\n{}".format, body, body),
    )


branching = st.recursive(settings_of, ways, max_leaves=6)
uses = st.lists(
    pick(["$A", '"$B"', "$CC", '"$N"', '"${L[@]}"', "$L", "$Q", "-$I", '"$J"', "$1", "$#", "${A:-d}", "${L[*]}"]),
    max_size=4,
)
START = "f() {{ {}; }}\nA={}\nB=b\nCC=1\nN=1\nE1=1\nL=(l)\n"


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    start=st.builds(START.format, settings_of, flags.map("'{}'".format)),
    body=st.lists(branching, min_size=1, max_size=4),
    arguments=uses,
    inputs=st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(INPUTS, flags)), min_size=1, max_size=3),
)
# A function that calls itself for ever: no run of it says what stands behind.
@example(start=START.format("f ", "'a'"), body=["{ f \nA=b\n}"], arguments=["$A"], inputs=[{}])
def test_what_bash_does_is_among_the_alternatives(
    start: str, body: list[str], arguments: list[str], inputs: list[dict[str, str]]
) -> None:
    script = start + "\n".join([*body, END + " ".join(arguments)]) + "\n"
    for values in inputs:
        agrees(script, values)


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
    truth = run_bash(script, patience=60)
    (invocation,) = read(script, "printf")
    assert truth is not None
    assert texts(invocation)[3:] == truth, script


SETUP = """
M=Qwen/Qwen2.5-7B-Instruct
C=configs/zero3.json
D=0,1,2,3
N=4 K=2
E=
L=(a.json 'b c.json' d.yaml)
P=M
declare -A T=(["c d"]=1 [e]=2)
T[f]=3
read -r R1 R2 <<< "x y z"
IFS=, read -ra IDS <<< "$D"
mapfile -t F < <(printf '%s\n' a 'b c')
printf -v Q '%02d' 7
let W=N*K
declare -i I=N+2
G=(a b)
G[2]=c
G[0]=d
H=([1]=y [0]=x)
set -- one 'two words' three
"""


EXPANSIONS = r"""
${T[e]}
"${T[c d]}"
${#T[@]}
${T[f]}
${T[none]}
$R1
$R2
${#IDS[@]}
${IDS[3]}
"${F[@]}"
$Q
$W
$I
"${G[@]}"
${H[*]}
${M,,}
${M^^}
${P,}
${E^}
${L[0]^^}
"${L[@]^^}"
${M##*/}
${M%%-*}
${M%-*}
${C%.json}
"${C%.*}"
${C%.$X}
${M#Q?en}
${D%[0-9]}
"${L[@]%.json}"
${M//\//_}
${D//,/ }
"${D//,/ }"
${M/Qwen/LLaMA}
${M/#Qwen/x}
${C/%json/yaml}
${D//[0-9]/x}
${M//[^a-zA-Z0-9]/-}
"${L[@]/#/--f=}"
"${L[@]/%/;}"
${D//,}
${M/$P/$N}
${M//'/'/:}
${D/*/x}
${M:0:4}
${M:5}
${M: -8}
${M:(-8)}
${M:0:-9}
${M:$N:$K}
${M:N-1}
${E:0:2}
"${M:1:3}"
${#M}
${#L[@]}
${#L[1]}
${#}
${#E}
${!P}
"${!L[@]}"
${L[-1]}
${L[N-3]}
"${L[$K]}"
"${L[@]:-x}"
"${L[@]-x y}"
"${@:-none}"
${L[@]:-x}
"${L[@]:1:2}"
"${L[@]: -1}"
"${@:2}"
"${@: -1}"
"${L[*]}"
x"${L[@]}"y
"--a=${L[@]}"
$'a\tb\''
$((N > K))
$((N == 4 ? 8 : 16))
$((2 ** 10))
$((1 << N))
$((N % 3))
$((~N & 0xff))
$((!N || K))
$(($N * ${#L[@]}))
$((${X:-8} / K))
$(( (N+K) * $(expr 2 + 3) ))
$((N, K))
$[N*K]
$(($# + 1))
{1..4}
{a,b}$N
{01..03}
x{,y}
--f={a,b}.json
{a,b{1,2}}
{1..$N}
{}
--x=~/y
a:~
$"a b"
$(basename $M)
$(dirname $C)
$(basename $C .json)
$(expr $N \* $K)
`expr $N + 1`
$(seq -s, 0 3)
$(seq 1 3)
$(echo $D | tr ',' '\n' | wc -l)
$(echo $M | cut -d/ -f2 | tr A-Z a-z)
$(echo $D | awk -F, '{print NF}')
$(echo "$M" | sed 's#/#--#g')
$(echo $D | cut -d, -f1-2)
$(printf '%02d' $N)
$(tr a-z A-Z <<< $C)
$(IFS=,; echo "${L[*]}")
$(echo $D | grep -o , | wc -l)
$(head -n 1 <<< "$M")
"""


@pytest.mark.parametrize("word", EXPANSIONS.strip().splitlines())
def test_every_expansion_of_launch_scripts_is_known(word: str) -> None:
    script = f"{SETUP}{END} {word}\n".replace("$X", "json")
    truth = run_bash(script, patience=60)
    invocation = read(script, "printf")[-1]
    assert truth is not None
    assert texts(invocation)[3:] == truth


UNKNOWN_EXPANSIONS = r"""
$?
$$
$!
$-
${RANDOM:-4}
${HOME:-x}
${M//a/&}
~/x
x=~/y
$'\u00e9'
${!NO}
$(date)
$(hostname)
$(nvidia-smi -L | wc -l)
$(echo $M | sort)
$(cat f)
$(echo a > f)
$(< f)
$(nproc)
$(echo -e 'a\tb')
$(echo x | sed 's/\(x\)/\1/')
$((N++))
$((N / 0))
$((08))
${M:1:-90}
{a,b
$(seq 1 99999)
$(cut -d, -f1)
$(echo a || echo b)
$(echo a &)
$(M=1; echo $M)
${NO[@]:-x}
$(f $M)
${L[9]:0:q}
"""


@pytest.mark.parametrize("word", UNKNOWN_EXPANSIONS.strip().splitlines())
def test_what_only_a_run_knows_is_unknown(word: str) -> None:
    invocation = read(f"{SETUP}{END} {word}\n", "printf")[-1]
    assert None in texts(invocation)[3:]
