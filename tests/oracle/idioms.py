"""What people write between ranks: pairs that match although they look odd, and twins that do not."""

from __future__ import annotations

from collections.abc import Callable

from oracle.style import Style

Lines = list[str]


def _indent(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines]


def draw(style: Style, body: Callable[[], Lines], in_loop: bool) -> tuple[Lines, dict[str, Lines]]:
    """Lines, and the helpers that they need."""
    name = style.pick(
        [
            "staggered",
            "same",
            "swapped",
            "own_root",
            "decision",
            "by_match",
            "first",
            "by_turns",
            "correlated",
            "two_ifs",
        ]
    )
    style.tags.add(name)
    if name == "first":
        return _first(style, body)
    makers = {
        "staggered": _staggered,
        "same": _same,
        "swapped": _swapped,
        "own_root": _own_root,
        "decision": _decision,
        "by_match": _by_match,
        "by_turns": _by_turns,
        "correlated": _correlated,
        "two_ifs": _two_ifs,
    }
    return makers[name](style), {}


def _staggered(style: Style) -> Lines:
    barrier = f"    {style.op('barrier')}()"
    end = [f"if {style.main()}:", barrier]
    if style.maybe(0.2):
        end = []
    return [f"if {style.others()}:", barrier, "data = model.load()", *end]


def _two_ifs(style: Style) -> Lines:
    """The same operation behind two tests that exclude each other."""
    call = style.pick([f"{style.op('barrier')}()", f"{style.op('all_reduce')}(grads)"])
    return [f"if {style.main()}:", "    print('main')", f"    {call}", f"if {style.others()}:", f"    {call}"]


def _same(style: Style) -> Lines:
    op = style.op("broadcast_object_list")
    mine, theirs = "    objects = [args.path]", "    objects = [None]"
    call = f"    {op}(objects, src=0)"
    other = call if style.maybe(0.75) else f"    {style.op('barrier')}()"
    return [f"if {style.main()}:", mine, call, "else:", theirs, other]


def _swapped(style: Style) -> Lines:
    first, second = f"    {style.op('all_reduce')}(grads)", f"    {style.op('all_reduce')}(stats)"
    if style.maybe(0.5):
        first, second = f"    {style.op('barrier')}()", f"    {style.op('broadcast')}(stats, src=0)"
    arms = [first, second], [second, first] if style.maybe(0.7) else [first, second]
    return [f"if {style.main()}:", *arms[0], "else:", *arms[1]]


def _own_root(style: Style) -> Lines:
    if style.maybe(0.5):
        return [
            f"for source in range({style.op('get_world_size')}()):",
            f"    {style.op('broadcast')}(stats, src=source)",
        ]
    return [f"{style.op('broadcast')}(stats, src={style.rank})"]


def _decision(style: Style) -> Lines:
    """Rank 0 decides, and says it to the others or not."""
    tell = [f"{style.op('broadcast_object_list')}(stop, src=0)"] if style.maybe(0.7) else []
    return [
        "stop = [False]",
        f"if {style.main()}:",
        "    stop[0] = os.path.exists(args.path)",
        *tell,
        "if stop[0]:",
        f"    {style.op('barrier')}()",
    ]


def _by_match(style: Style) -> Lines:
    if style.maybe(0.4):
        arms = ["    case 'fast':", f"        {style.op('barrier')}()", "    case _:", "        print('full')"]
        return ["match args.mode:", *arms]
    other = f"{style.op('all_reduce')}(grads)" if style.maybe(0.5) else "print('worker')"
    arms = ["    case 0:", f"        {style.op('all_reduce')}(grads)", "    case _:", f"        {other}"]
    return [f"match {style.rank}:", *arms]


def _by_turns(style: Style) -> Lines:
    """One rank after the other."""
    inside, outside = [f"    if {style.rank} == turn:", "        print('loading')"], f"{style.op('barrier')}()"
    where = "    " if style.maybe(0.7) else "        "
    return [f"for turn in range({style.op('get_world_size')}()):", *inside, where + outside]


def _correlated(style: Style) -> Lines:
    flag, other = style.flag(), style.flag()
    call = f"    {style.op('barrier')}()"
    second = flag if style.maybe(0.7) else other
    return [f"if {flag} and {style.main()}:", call, f"if {second} and {style.others()}:", call]


def _first(style: Style, body: Callable[[], Lines]) -> tuple[Lines, dict[str, Lines]]:
    """A context manager that lets rank 0 go first, whole or with a half missing."""
    barrier = f"        {style.op('barrier')}()"
    get_rank = style.op("get_rank")
    end = [f"    if {get_rank}() == 0:", barrier] if style.maybe(0.8) else []
    function = [
        "@contextlib.contextmanager",
        "def main_process_first():",
        f"    if {get_rank}() != 0:",
        barrier,
        "    yield",
        *end,
    ]
    inside = ["data = model.load()"] if style.maybe(0.6) else body()
    if any(line.lstrip().startswith(("return", "break", "continue", "sys.", "raise", "exit")) for line in inside):
        inside = ["data = model.load()"]
    return ["with main_process_first():", *_indent(inside)], {"main_process_first": function}


def agreed(style: Style, test: str) -> Lines:
    """The ranks agree on a test of their data before they act on it."""
    way = style.pick(["continue", "break"])
    shape = style.rng.random()
    if shape < 0.4:
        return [
            f"bad = torch.tensor(float({test}))",
            f"{style.op('all_reduce')}(bad, op={style.op('ReduceOp')}.MAX)",
            style.pick(["if bad.item() > 0:", "if bad > 0:", "if bad:"]),
            f"    {way}",
        ]
    if shape < 0.6:
        return [
            f"found = [None] * {style.op('get_world_size')}()",
            f"{style.op('all_gather_object')}(found, bool({test}))",
            "if any(found):",
            f"    {way}",
        ]
    if shape < 0.8:
        return [
            f"skip = torch.tensor([1.0 if {test} else 0.0])",
            f"{style.op('all_reduce')}(skip)",
            "if skip.item():",
            f"    {way}",
        ]
    # The flag is made, but nobody asks the others.
    return [f"bad = torch.tensor(float({test}))", "if bad.item() > 0:", f"    {way}"]


def strided(style: Style, body: Lines) -> Lines:
    """A loop over the items of this rank."""
    world = f"{style.op('get_world_size')}()"
    style.tags.add("strided")
    shape = style.rng.random()
    if shape < 0.35:
        return [f"for item in range({style.rank}, args.num_items, {world}):", *_indent(body)]
    if shape < 0.6:
        return [f"for item in items[{style.rank}::{world}]:", *_indent(body)]
    if shape < 0.75:
        return [
            "for i, item in enumerate(items):",
            f"    if i % {world} != {style.rank}:",
            "        continue",
            *_indent(body),
        ]
    padded = [f"total = math.ceil(args.num_items / {world}) * {world}"]
    return [*padded, f"for item in range({style.rank}, total, {world}):", *_indent(body)]
