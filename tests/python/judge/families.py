"""Families of constructs: each writes definitions at the top of a program, and templates that call them."""

from __future__ import annotations

from collections.abc import Callable

from .statements import Place, Statements
from .writing import BOOL, DICT, INT, INTS, STR, STRS, Lines, Scope, indent

Family = Callable[[Statements, Scope], Lines]


def _body(s: Statements, names: dict[str, str], result: str, size: int = 2) -> Lines:
    """The inside of a function with these parameters, with a `return`."""
    scope = Scope()
    for name, kind in names.items():
        scope.add(kind, name)
    lines = s.block(scope, Place(1, in_function=result, together=False), s.words.rng.randrange(1, size + 1))
    return indent([*lines, f"return {s.words.expr(result, scope)}"])


def functions(s: Statements, scope: Scope) -> Lines:
    """Positional, keyword, keyword-only, default, star parameters."""
    words, name = s.words, s.words.fresh("compute")
    form = words.rng.randrange(6)
    if form == 0:
        words.define(INT, f"{name}(<int>, <int>)")
        return [f"def {name}(a, b):", '    """Add up."""', *_body(s, {"a": INT, "b": INT}, INT)]
    if form == 1:
        words.define(INT, f"{name}(<int>)")
        words.define(INT, f"{name}(<int>, scale=<int>)")
        return [
            f"def {name}(a: int, scale: int = {words.rng.randrange(4)}) -> int:",
            *_body(s, {"a": INT, "scale": INT}, INT),
        ]
    if form == 2:
        for call in ("<int>", "<int>, <int>, tag=<str>", "*<ints>[:3]", "<int>, **{'tag': <str>, 'b': <int>}"):
            words.define(INT, f"{name}({call})")
        head = f"def {name}(*args, tag='t', **options):"
        first = ["    total = sum(args) + len(options)", "    if tag.startswith('t'):", "        total += 1"]
        return [head, *first, *_body(s, {"total": INT, "tag": STR}, INT, 1)]
    if form == 3:
        words.define(STR, f"{name}(<str>, sep=<str>)")
        words.define(STR, f"{name}(text=<str>)")
        return [f"def {name}(text, *, sep='-', times=2):", *_body(s, {"text": STR, "sep": STR, "times": INT}, STR)]
    if form == 4:
        words.define(INTS, f"{name}(<int>)")
        return [f"def {name}(item, seen=[]):", "    seen.append(item)", "    del seen[:-4]", "    return list(seen)"]
    words.define(INT, f"{name}(abs(<int>) % 5)")
    return [f"def {name}(n, /, acc=0):", "    if n <= 0:", "        return acc", f"    return {name}(n - 1, acc + n)"]


def closures(s: Statements, scope: Scope) -> Lines:
    words, name = s.words, s.words.fresh("make")
    words.define(INT, f"{name}(<int>)()")
    words.define(INT, f"{name}(<int>)(<int>)")
    words.define(INTS, f"[f(1) for f in [{name}(<int>), {name}(<int>)]]")
    lines = [f"def {name}(start):", f"    count = {words.expr(INT, Scope({INT: ['start']}), 1)}", "    calls = []"]
    lines += ["    def step(by=1):", "        nonlocal count", "        count += by", "        calls.append(by)"]
    return [*lines, "        return count * len(calls) % 53", "    step()", "    return step"]


def lambdas(s: Statements, scope: Scope) -> Lines:
    words, name, table = s.words, s.words.fresh("pick"), s.words.fresh("TABLE")
    a = Scope({INT: ["a", "b"]})
    words.define(INT, f"{name}(<int>, <int>)")
    words.define(INT, f"{table}['add'](<int>, <int>)")
    words.define(INT, f"{table}.get(<str>, {name})(<int>, <int>)")
    words.define(INT, f"functools.partial({name}, <int>)(<int>)")
    words.define(INT, f"functools.partial({name}, b=<int>)(<int>)")
    words.define(INTS, f"sorted(<ints>, key=lambda x: ({name}(x, 1), x))")
    lines = [f"{name} = lambda a, b=2: {words.expr(INT, a)}"]
    return [*lines, f"{table} = {{'add': lambda a, b: {words.expr(INT, a, 1)}, 'x': {name}, 'max': max}}"]


def decorators(s: Statements, scope: Scope) -> Lines:
    words, deco, name = s.words, s.words.fresh("traced"), s.words.fresh("work")
    words.define(INT, f"{name}(<int>, by=<int>)")
    words.define(STR, f"{name}.__name__")
    if words.maybe(0.5):
        lines = [f"def {deco}(function):", "    @functools.wraps(function)", "    def wrapper(*args, **kwargs):"]
        lines += ["        wrapper.calls += 1", "        return function(*args, **kwargs) + wrapper.calls"]
        lines += ["    wrapper.calls = 0", "    return wrapper", f"@{deco}"]
    else:
        lines = [f"def {deco}(limit=3, *, label='t'):", "    def decorate(function):"]
        lines += ["        def wrapper(*args, **kwargs):", "            value = function(*args, **kwargs)"]
        lines += ["            return min(value, limit)", "        return wrapper", "    return decorate"]
        lines.append(f"@{deco}({words.rng.randrange(9)}, label='x')")
    return [*lines, f"def {name}(a, by=1):", *_body(s, {"a": INT, "by": INT}, INT, 1)]


def classes(s: Statements, scope: Scope) -> Lines:
    """A base class, a class that inherits, `super()`, properties, class and static methods."""
    words, base, sub = s.words, s.words.fresh("Base"), s.words.fresh("Special")
    fields = Scope({INT: ["self.size", "n"], STR: ["self.name"], INTS: ["self.items"]})
    for cls in (base, sub):
        words.define(INT, f"{cls}(<int>).total(<int>)")
        words.define(INT, f"{cls}(<int>, name=<str>).double")
        words.define(STR, f"{cls}(<int>, <str>).label()")
        words.define(INT, f"{cls}.make(<ints>).size")
        words.define(INT, f"{cls}.clip(<int>)")
        words.define(INTS, f"{cls}(<int>).items")
        words.define(BOOL, f"isinstance({cls}(<int>), {base})")
        words.define(INT, f"getattr({cls}(<int>), 'size', 0)")
    words.define(INT, f"{base}.LIMIT")
    lines = [f"class {base}:", f"    LIMIT = {words.rng.randrange(9)}", "    def __init__(self, size, name='base'):"]
    lines += ["        self.size = size", "        self.name = name", "        self.items = [size]"]
    lines += ["    def total(self, n):", *indent(_method(s, fields, INT))]
    lines += ["    @property", "    def double(self):", f"        return {words.expr(INT, _of_self(fields), 1)}"]
    lines += ["    @double.setter", "    def double(self, value):", "        self.size = value // 2"]
    lines += ["    def label(self):", "        return f'{type(self).__name__}:{self.name}'[:20]"]
    lines += ["    @classmethod", "    def make(cls, items):", "        return cls(len(items), name=cls.__name__)"]
    lines += ["    @staticmethod", "    def clip(v):", "        return max(0, min(v, 9))"]
    lines += ["", f"class {sub}({base}):", "    def __init__(self, size, name='special', **options):"]
    lines += ["        super().__init__(size + 1, name)", "        self.options = options"]
    lines += ["    def total(self, n):", "        found = super().total(n) + self.LIMIT"]
    lines += ["        self.items.append(found % 7)", "        return found"]
    if words.maybe(0.5):
        lines += ["    def label(self):", "        return super().label().upper()"]
    return lines


def _of_self(fields: Scope) -> Scope:
    return Scope({kind: [n for n in names if n.startswith("self")] for kind, names in fields.names.items()})


def _method(s: Statements, fields: Scope, result: str) -> Lines:
    lines = s.block(fields.child(), Place(1, in_function=result, together=False), 1)
    return indent([*lines, f"return {s.words.expr(result, fields, 1)}"])


def objects(s: Statements, scope: Scope) -> Lines:
    """Special methods, slots, attributes by name."""
    words, cls = s.words, s.words.fresh("Bag")
    words.define(INT, f"len({cls}(<ints>))")
    words.define(INT, f"{cls}([1, *<ints>])[0]")
    words.define(INT, f"sum({cls}(<ints>))")
    words.define(BOOL, f"<int> in {cls}(<ints>)")
    words.define(BOOL, f"{cls}(<ints>) == {cls}(<ints>)")
    words.define(INT, f"({cls}(<ints>) + {cls}(<ints>)).count")
    words.define(INT, f"{cls}(<ints>)(<int>)")
    words.define(STR, f"str({cls}(<ints>))[:12]")
    words.define(INT, f"{cls}(<ints>).missing")
    lines = [f"class {cls}:", "    def __init__(self, items):", "        self._items = list(items)[:6]"]
    lines += ["        self.count = len(self._items)", "    def __len__(self):", "        return self.count"]
    lines += ["    def __iter__(self):", "        for item in self._items:", "            yield item"]
    lines += ["    def __getitem__(self, index):", "        return self._items[index]"]
    lines += ["    def __contains__(self, item):", "        return any(item == other for other in self._items)"]
    lines += [
        "    def __eq__(self, other):",
        "        return isinstance(other, type(self)) and self._items == other._items",
    ]
    lines += ["    def __add__(self, other):", f"        return {cls}([*self, *other])"]
    lines += ["    def __call__(self, by):", f"        return {words.expr(INT, Scope({INT: ['by', 'self.count']}), 1)}"]
    lines += [
        "    def __getattr__(self, name):",
        "        if name.startswith('_'):",
        "            raise AttributeError(name)",
    ]
    return [*lines, "        return len(name)", "    def __repr__(self):", "        return f'Bag({self._items})'"]


def generators(s: Statements, scope: Scope) -> Lines:
    words, name, outer = s.words, s.words.fresh("produce"), s.words.fresh("chain")
    words.define(INTS, f"list({name}(abs(<int>) % 5))")
    words.define(INT, f"sum({outer}(<ints>))")
    words.define(INT, f"next({name}(3), 0)")
    words.define(INTS, f"[v for v in {outer}(<ints>) if v > <int>][:5]")
    words.define(INTS, f"sorted({name}(2))")
    lines = [
        f"def {name}(n):",
        "    at = 0",
        "    while at < n:",
        f"        yield {words.expr(INT, Scope({INT: ['at', 'n']}), 1)}",
    ]
    lines += ["        at += 1", f"def {outer}(items):", "    got = yield len(items)", "    if got is None:"]
    return [*lines, f"        yield from {name}(2)", "    for item in items[:3]:", "        yield item", "    return 7"]


def contexts(s: Statements, scope: Scope) -> Lines:
    """Context managers: a class, and one of contextlib; used by a function."""
    words, cls, managed, use = s.words, s.words.fresh("Timer"), s.words.fresh("scoped"), s.words.fresh("within")
    words.define(INT, f"{use}(<int>)")
    lines = [f"class {cls}:", "    def __init__(self, n):", "        self.n = n", "    def __enter__(self):"]
    lines += ["        self.n += 1", "        return self", "    def __exit__(self, kind, error, trace):"]
    lines += ["        self.n -= 1", "        return kind is KeyError", "@contextlib.contextmanager"]
    lines += [f"def {managed}(value):", "    before = value", "    try:", "        yield before + 1", "    finally:"]
    lines += ["        print('closed', before)", f"def {use}(a):", f"    with {cls}(a) as timer, {managed}(a) as b:"]
    inside = Scope({INT: ["a", "b", "timer.n"]})
    lines += [f"        if {words.expr(BOOL, inside, 1)}:", "            raise KeyError('left')"]
    lines += [f"        a = {words.expr(INT, inside)}", "    with contextlib.suppress(ValueError):"]
    return [*lines, "        if a > 3:", "            raise ValueError", "        a += 1", "    return a + timer.n"]


def dataclass_family(s: Statements, scope: Scope) -> Lines:
    words, cls, sub = s.words, s.words.fresh("Config"), s.words.fresh("TrainConfig")
    frozen = words.pick(("", "(frozen=True)", "(order=True)"))
    words.define(INT, f"{cls}(<int>).steps")
    words.define(INT, f"{cls}(steps=<int>, name=<str>).scaled(<int>)")
    words.define(STR, f"{sub}(<int>).name")
    words.define(DICT, f"{{k: v for k, v in dataclasses.asdict({sub}(<int>)).items() if isinstance(v, int)}}")
    words.define(BOOL, f"{cls}(<int>) == {cls}(<int>)")
    words.define(INT, f"dataclasses.replace({cls}(<int>), steps=<int>).steps")
    words.define(INTS, f"{sub}(<int>, extra=<ints>).extra")
    lines = [f"@dataclasses.dataclass{frozen}", f"class {cls}:", "    steps: int", "    name: str = 'run'"]
    lines += ["    extra: list = dataclasses.field(default_factory=list)", "    def scaled(self, by):"]
    lines += [f"        return {words.expr(INT, Scope({INT: ['self.steps', 'by'], STR: ['self.name']}), 1)}"]
    return [*lines, f"@dataclasses.dataclass{frozen}", f"class {sub}({cls}):", "    warmup: int = 2"]


def registry(s: Statements, scope: Scope) -> Lines:
    words, table, deco, build = s.words, s.words.fresh("REGISTRY"), s.words.fresh("register"), s.words.fresh("build")
    one, two = words.fresh("Adam"), words.fresh("sgd")
    words.define(INT, f"{build}('adam', <int>)")
    words.define(INT, f"{build}(<str>, <int>)")
    words.define(INT, f"{table}['sgd'](<int>)")
    words.define(STRS, f"sorted({table})")
    lines = [f"{table} = {{}}", f"def {deco}(name):", "    def add(item):", f"        {table}[name] = item"]
    lines += ["        return item", "    return add", f"@{deco}('adam')", f"class {one}:"]
    lines += ["    def __init__(self, n):", "        self.n = n", "    def __int__(self):", "        return self.n + 1"]
    lines += [f"@{deco}('sgd')", f"def {two}(n):", *_body(s, {"n": INT}, INT, 1), f"def {build}(name, n):"]
    return [*lines, f"    made = {table}.get(name, {two})(n)", "    return int(made)"]


def state(s: Statements, scope: Scope) -> Lines:
    """State of the module: globals, a counter, attributes by name."""
    words, count, table, bump = s.words, s.words.fresh("COUNT"), s.words.fresh("STATE"), s.words.fresh("bump")
    words.define(INT, f"{bump}(<int>)")
    words.define(INT, f"{table}['n']")
    words.define(INT, f"{bump}.__defaults__[0]")
    lines = [f"{count} = 0", f"{table} = {{'n': 1, 'log': []}}", f"def {bump}(by, extra=2):", f"    global {count}"]
    lines += [f"    {count} += 1", f"    {table}['n'] = by % 7", f"    {table}['log'].append(by % 3)"]
    lines += [f"    if len({table}['log']) > 5:", f"        {table}['log'].clear()"]
    lines += [
        "    holder = type('Holder', (), {})()",
        "    setattr(holder, 'x', by)",
        "    if hasattr(holder, 'y'):",
    ]
    return [*lines, "        del holder.y", f"    return {count} + getattr(holder, 'x', 0) + len({table}['log'])"]


def arguments(s: Statements, scope: Scope) -> Lines:
    words, parse = s.words, s.words.fresh("parse")
    lines = [f"def {parse}():", "    parser = argparse.ArgumentParser()"]
    lines += [
        "    parser.add_argument('--steps', type=int, default=3)",
        "    parser.add_argument('--name', default='x')",
    ]
    lines += [
        "    parser.add_argument('--debug', action='store_true')",
        "    parser.add_argument('--local-rank', type=int, default=-1)",
    ]
    lines += [
        "    parser.add_argument('--sizes', type=int, nargs='*', default=[])",
        "    args, _ = parser.parse_known_args()",
    ]
    lines += ["    if args.steps > 50:", "        args.steps = 50", "    return args", f"ARGS{parse} = {parse}()"]
    for kind, name in ((INT, "steps"), (STR, "name"), (BOOL, "debug"), (INTS, "sizes"), (INT, "local_rank")):
        words.define(kind, f"ARGS{parse}.{name}")
    words.define(STR, f"vars(ARGS{parse}).get('name', '')")
    return lines


def environment(s: Statements, scope: Scope) -> Lines:
    words, read = s.words, s.words.fresh("env")
    words.define(INT, f"{read}('RANK', <int>)")
    words.define(INT, f"{read}('MY_STEPS', <int>)")
    words.define(INT, "int(os.environ['WORLD_SIZE'])")
    words.define(STR, "os.environ.get('MODE', 'none')")
    words.define(BOOL, "'DEBUG' in os.environ")
    lines = [f"def {read}(name, default=0):", "    value = os.environ.get(name)", "    if value is None:"]
    return [
        *lines,
        "        return default",
        "    try:",
        "        return int(value)",
        "    except ValueError:",
        "        return -1",
    ]


BASIC: dict[str, Family] = {
    "functions": functions,
    "closures": closures,
    "lambdas": lambdas,
    "decorators": decorators,
    "classes": classes,
    "objects": objects,
    "generators": generators,
    "contexts": contexts,
    "dataclasses": dataclass_family,
    "registry": registry,
    "state": state,
    "arguments": arguments,
    "environment": environment,
}
