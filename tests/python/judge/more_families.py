"""More families of constructs: several base classes, enumerations, named tuples, errors, tables, scopes, loops."""

from __future__ import annotations

from .statements import Place, Statements
from .writing import BOOL, DICT, INT, INTS, SET, STR, STRS, Lines, Scope, indent


def mixins(s: Statements, scope: Scope) -> Lines:
    """A diamond of classes with `super()` along the order of resolution, and hooks of class creation."""
    words = s.words
    root, left, right, leaf = (words.fresh(n) for n in ("Root", "Left", "Right", "Leaf"))
    n = Scope({INT: ["n"]})
    words.define(INT, f"{leaf}().run(<int>)")
    words.define(INT, f"{left}().run(<int>)")
    words.define(INTS, f"{leaf}().trail(<int>)")
    words.define(STRS, f"[c.__name__ for c in {leaf}.__mro__[:-1]]")
    words.define(STRS, f"{root}.known")
    words.define(BOOL, f"issubclass({leaf}, {right})")
    words.define(INT, f"super({leaf}, {leaf}()).run(<int>)")
    lines = [f"class {root}:", "    known = []", "    def __init_subclass__(cls, **options):"]
    lines += ["        super().__init_subclass__(**options)", f"        {root}.known.append(cls.__name__)"]
    lines += [
        "    def run(self, n):",
        f"        return {words.expr(INT, n, 1)}",
        "    def trail(self, n):",
        "        return [n]",
    ]
    for cls, step in ((left, 1), (right, 2)):
        lines += [f"class {cls}({root}):", "    def run(self, n):", f"        return super().run(n + {step}) * 2 % 89"]
        lines += ["    def trail(self, n):", f"        return [{step}, *super().trail(n)]"]
    lines += [f"class {leaf}({left}, {right}):", f"    bonus = {words.rng.randrange(5)}"]
    return [*lines, "    def run(self, n):", "        return super().run(n) + self.bonus"]


def enums(s: Statements, scope: Scope) -> Lines:
    words, mode, pair, use = s.words, s.words.fresh("Mode"), s.words.fresh("Pair"), s.words.fresh("choose")
    words.define(INT, f"{mode}.TRAIN.value")
    words.define(STR, f"{mode}.EVAL.name")
    words.define(INTS, f"[m.value for m in {mode}]")
    words.define(BOOL, f"{mode}(1) is {mode}.TRAIN")
    words.define(INT, f"{use}({mode}.TRAIN, <int>)")
    words.define(INT, f"{use}({mode}.EVAL, <int>)")
    words.define(INT, f"{pair}(<int>, <int>).left")
    words.define(INT, f"{pair}(right=<int>, left=<int>)[1]")
    words.define(INT, f"sum({pair}(<int>, <int>)._replace(left=1))")
    lines = [f"class {mode}(enum.Enum):", "    TRAIN = 1", "    EVAL = 2"]
    if words.maybe(0.5):
        lines += [f"{pair} = collections.namedtuple('{pair}', ['left', 'right'])"]
    else:
        lines += [f"class {pair}(typing.NamedTuple):", "    left: int", "    right: int = 3"]
    lines += [
        f"def {use}(mode, n):",
        "    match mode:",
        f"        case {mode}.TRAIN:",
        f"            return {words.expr(INT, Scope({INT: ['n']}))}",
    ]
    lines += [f"        case {mode}.EVAL if n > 2:", f"            return {words.expr(INT, Scope({INT: ['n']}))}"]
    return [*lines, "    left, right = " + f"{pair}(n, 2)", "    return left - right"]


def errors(s: Statements, scope: Scope) -> Lines:
    """Own exceptions, chains of causes, `finally` that runs on every way out, `else` of a `try`."""
    words, error, check, use = s.words, s.words.fresh("JobError"), s.words.fresh("check"), s.words.fresh("attempt")
    n = Scope({INT: ["n"]})
    words.define(INT, f"{use}(<int>)")
    words.define(INTS, f"[{use}(v) for v in <ints>]")
    lines = [f"class {error}(ValueError):", "    def __init__(self, code, *words):", "        super().__init__(*words)"]
    lines += ["        self.code = code", f"def {check}(n):", f"    if {words.expr(BOOL, n)}:"]
    lines += [f"        raise {error}({words.expr(INT, n, 1)}, 'bad', n)", "    if n > 50:"]
    lines += ["        try:", "            raise KeyError(n)", "        except KeyError as reason:"]
    lines += ["            raise RuntimeError('large') from reason", f"    return {words.expr(INT, n, 1)}"]
    lines += [f"def {use}(n):", "    log = []", "    for again in range(3):", "        try:"]
    lines += [
        f"            found = {check}(n + again)",
        f"        except {error} as error:",
        "            log.append(error.code % 9)",
    ]
    lines += [
        "            continue",
        "        except RuntimeError as error:",
        "            print(type(error.__cause__).__name__)",
    ]
    lines += ["            break", "        else:", "            if found > 3:", "                return found"]
    return [
        *lines,
        "        finally:",
        "            log.append(again)",
        "    else:",
        "        log.append(-1)",
        "    return sum(log)",
    ]


def tables(s: Statements, scope: Scope) -> Lines:
    """Tables of functions, nested containers, `*` and `**` of them, walrus in comprehensions, sorting by keys."""
    words, rows, table, walk = s.words, s.words.fresh("ROWS"), s.words.fresh("STEPS"), s.words.fresh("walk")
    doubled = words.fresh("doubled")
    words.define(INTS, f"[row['n'] for row in {rows}]")
    words.define(STRS, f"[row['name'] for row in sorted({rows}, key=lambda row: (-row['n'], row['name']))]")
    words.define(INT, f"{walk}(<int>)")
    words.define(INT, f"{walk}x(<int>)")
    words.define(DICT, f"{{row['name']: row['n'] for row in {rows} if row['n'] > <int>}}")
    words.define(INT, f"{rows}[0]['at'][1]")
    words.define(INTS, f"{doubled}(<ints>)")
    words.define(SET, f"{{row['n'] for row in {rows}}}")
    words.define(BOOL, f"{doubled}(<ints>) == []")
    words.define(INTS, "[*range(2), *<ints>][:5]")
    words.define(INTS, "[max(pair) for pair in zip(<ints>, <ints>)]")
    words.define(INTS, "list(map(max, [[1, *<ints>], [2, *<ints>]]))")
    words.define(INT, "len({**<dict>, **<dict>})")
    lines = [f"{rows} = ["]
    for nth in range(words.rng.randrange(2, 4)):
        lines.append(f"    {{'name': 'r{nth}', 'n': {words.expr(INT, Scope(), 1)}, 'at': ({nth}, {nth + 1})}},")
    lines += ["]", f"{table} = [abs, lambda n: {words.expr(INT, Scope({INT: ['n']}), 1)}, functools.partial(max, 2)]"]
    lines += [f"def {walk}(n):", f"    for step in {table}:", "        n = step(n) % 61", "    return n"]
    lines += [f"def {doubled}(items):", "    if any((hit := v) > 4 for v in items):", "        print('hit', hit)"]
    lines += ["    found = [y for x in items if (y := x * 2) > 3]", "    return found[:5]"]
    return [
        *lines,
        f"def {walk}x(n):",
        f"    for key, (low, high) in [(row['name'], row['at']) for row in {rows}]:",
        "        n += high - low + len(key)",
        "    return n",
    ]


def scopes(s: Statements, scope: Scope) -> Lines:
    """Names that hide others: class bodies, comprehensions, `global`, functions that bind late."""
    words, name, cls, late = s.words, s.words.fresh("level"), s.words.fresh("Scope"), s.words.fresh("late")
    words.define(INT, f"{late}()[0](<int>)")
    words.define(INTS, f"[f(1) for f in {late}()]")
    words.define(INT, f"{cls}.total")
    words.define(INT, f"{cls}().read()")
    words.define(INT, f"{cls}.read.__get__({cls}())()")
    lines = [f"{name} = {words.rng.randrange(9)}", f"class {cls}:", f"    {name} = {name} + 10"]
    lines += [f"    total = sum(v for v in range({name} % 4))", "    for part in range(2):", "        total += part"]
    lines += ["    def read(self):", f"        return {name} + self.{name}", f"def {late}():"]
    lines += ["    made = [lambda n: n + k for k in range(3)]", f"    made.append(lambda n, k={name}: n + k)"]
    lines += [
        "    def shift():",
        f"        global {name}",
        f"        {name} = ({name} + 1) % 9",
        f"        return {name}",
    ]
    return [*lines, "    made.append(lambda n: n * shift())", "    k = 100", "    return made"]


def loops(s: Statements, scope: Scope) -> Lines:
    """Loops with `else`, `break` and `continue` in many ways."""
    words, search, grid = s.words, s.words.fresh("search"), s.words.fresh("grid")
    words.define(INT, f"{search}(<ints>, <int>)")
    words.define(INT, f"{grid}(abs(<int>) % 4)")
    inside = Scope({INT: ["at", "item", "want"]})
    lines = [
        f"def {search}(items, want):",
        "    for at, item in enumerate(items):",
        f"        if {words.expr(BOOL, inside)}:",
    ]
    lines += ["            continue", "        if item == want:", "            break", "    else:", "        at = -1"]
    lines += [
        "    while at > 0:",
        "        at -= 2",
        f"        if {words.expr(BOOL, Scope({INT: ['at', 'want']}), 1)}:",
    ]
    lines += [
        "            break",
        "    else:",
        "        return at * 10",
        "    return at",
        f"def {grid}(n):",
        "    total = 0",
    ]
    body = s.block(Scope({INT: ["total", "x", "y"]}), Place(0, in_loop=True, together=False), 2)
    lines += [
        "    for x in range(n):",
        "        for y in range(x, n):",
        *indent(indent(indent(body))),
        "            total += x * y % 5",
    ]
    return [*lines, "    return total"]


MORE = {"mixins": mixins, "enums": enums, "errors": errors, "tables": tables, "scopes": scopes, "loops": loops}
