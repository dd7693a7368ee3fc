"""The grammar of random programs: statements with collectives, guards around them, helpers they call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oracle import exchanges, helpers, idioms
from oracle.style import Style

Lines = list[str]
LOCAL = (
    "print('step done')",
    "history.append(1)",
    "torch.save(model.state_dict(), args.out)",
    "model.eval()",
    "log.info('saved')",
    "model.train()",
)
_COLLECTIVES = (
    ("{barrier}()", 5),
    ("{all_reduce}(grads)", 4),
    ("{all_reduce}(stats, op={ReduceOp}.SUM)", 2),
    ("{broadcast}(stats, src=0)", 3),
    ("{broadcast_object_list}(objects, src=0)", 2),
    ("{all_gather_object}(found, history)", 2),
    ("{all_gather}(parts, stats)", 2),
    ("{reduce}(stats, dst=0)", 1),
    ("work = {all_reduce}(grads, async_op=True)", 1),
)
_OF_ACCELERATE = (
    ("accelerator.wait_for_everyone()", 5),
    ("accelerator.gather(stats)", 3),
    ("accelerator.reduce(grads)", 2),
)


def indent(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines]


@dataclass
class Place:
    """Where a statement stands. ``behind``: a test on the rank is around it; ``rooms``: what is left of nesting."""

    rooms: int = 2
    loop: str = ""
    behind: bool = False
    returns: bool = True
    names: frozenset[str] = frozenset()

    def inside(self, **changes: object) -> Place:
        values = {**self.__dict__, "rooms": self.rooms - 1, **changes}
        return Place(**values)  # type: ignore[arg-type]


class Grammar:
    """Draws the statements of one program."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.helpers: dict[str, Lines] = {}

    def block(self, place: Place, size: int) -> Lines:
        lines: Lines = []
        for _ in range(size):
            lines += self.statement(place)
        return lines

    def statement(self, place: Place) -> Lines:
        choices: list[tuple[Callable[[Place], Lines], float]] = [
            (self.local, 2),
            (self.collective, 2.5 if not place.behind else 1),
            (self.helper, 1.2),
        ]
        if place.rooms > 0:
            choices += [
                (self.guarded, 3 if not place.behind else 0.4),
                (self.uniform, 1.5),
                (self.left_early, 1.3 if not place.behind else 0.3),
                (self.idiom, 1.5 if not place.behind else 0),
                (self.exchange, 1.2 if not place.behind else 0),
                (self.wrapped, 0.8),
                (self.by_data, 2 if place.loop == "batch" else 0),
                (self.loop, 1.2 if not place.loop else 0.2),
            ]
        makers, weights = zip(*choices, strict=True)
        return self.style.rng.choices(makers, weights)[0](place)

    def local(self, place: Place) -> Lines:
        return [self.style.pick(LOCAL)]

    def collective(self, place: Place) -> Lines:
        style = self.style
        texts, weights = zip(*(_OF_ACCELERATE if style.accelerate else _COLLECTIVES), strict=True)
        text = style.rng.choices(texts, weights)[0]
        names = [part.split("}")[0] for part in text.split("{")[1:]]
        text = text.format(**{name: style.op(name) for name in names})
        if not style.accelerate and "async" not in text and style.maybe(0.07):
            style.tags.add("subgroup")
            return [text[:-1] + (", " if text[-2] != "(" else "") + "group=group)"]
        return [text]

    def body(self, place: Place, chance: float) -> Lines:
        """What stands in a branch; with a collective by chance, else local work."""
        if self.style.maybe(chance):
            return self.block(place.inside(), self.style.rng.choice((1, 1, 2)))
        return [self.style.pick(LOCAL) for _ in range(self.style.rng.choice((1, 1, 2)))]

    def test(self, place: Place) -> str:
        """A test on the rank, alone or with a flag."""
        style = self.style
        kind = style.rng.choices(("main", "others", "some", "set"), (6, 3, 1, 0.5))[0]
        text = {"main": style.main, "others": style.others, "some": style.some, "set": style.unknown_set}[kind]()
        joined = style.rng.random()
        if joined < 0.1:
            return f"{text} and {style.uniform()}"
        if joined < 0.2:
            return f"{style.uniform()} and {text}"
        if joined < 0.24:
            style.tags.add("or")
            return f"{text} or {style.flag()}"
        if joined < 0.27:
            return f"not ({text})"
        return text

    def guarded(self, place: Place) -> Lines:
        style = self.style
        inner = place.inside(behind=True)
        lines = [f"if {self.test(place)}:", *indent(self.body(inner, 0.4))]
        shape = style.rng.random()
        if shape < 0.12:
            lines += [f"elif {style.some()}:", *indent(self.body(inner, 0.3))]
        elif shape < 0.2:
            lines += [f"elif {style.flag()}:", *indent(self.body(inner, 0.4))]
        if shape < 0.05 or 0.6 < shape < 0.8:
            lines += ["else:", *indent(self.body(inner, 0.4))]
        return lines

    def uniform(self, place: Place) -> Lines:
        lines = [f"if {self.style.uniform()}:", *indent(self.body(place, 0.7))]
        if self.style.maybe(0.3):
            lines += ["else:", *indent(self.body(place, 0.6))]
        return lines

    def left_early(self, place: Place) -> Lines:
        """``if rank != 0: return``: some ranks leave, or all of them by a flag."""
        style = self.style
        ways = ["return"] if place.returns else []
        ways += ["continue", "break", "continue"] if place.loop else []
        ways += [style.pick(["sys.exit(0)", "raise SystemExit", "exit()", "raise ValueError('bad')"])]
        way = style.pick(ways)
        test = self.test(place) if style.maybe(0.55) else style.uniform()
        first = [style.pick(LOCAL)] if style.maybe(0.3) else []
        return [f"if {test}:", *indent([*first, way])]

    def by_data(self, place: Place) -> Lines:
        """A test of the batch or the loss, with or without asking the other ranks first."""
        style = self.style
        fact, test = style.data()
        before = ["loss = model(batch)"] if fact == "nan" else []
        if style.maybe(0.45) and not style.accelerate:
            style.tags.add("agreed flag")
            return [*before, *idioms.agreed(style, test)]
        way = style.pick(["continue", "continue", "break", *(["return"] if place.returns else [])])
        if style.maybe(0.3):
            return [*before, f"if {test}:", *indent(self.body(place, 0.5))]
        return [*before, f"if {test}:", f"    {way}"]

    def loop(self, place: Place) -> Lines:
        style = self.style
        kind = style.rng.random()
        size = style.rng.choice((1, 2, 2, 3))
        if kind < 0.45:
            head = style.pick(["for batch in loader:", "for i, batch in enumerate(loader):"])
            return [head, *indent(self.block(place.inside(loop="batch"), size))]
        if kind < 0.75:
            return ["for step in range(args.steps):", *indent(self.block(place.inside(loop="steps"), size))]
        if kind < 0.9 and not style.accelerate:
            return idioms.strided(style, self.block(place.inside(loop="strided", rooms=0), 1))
        inner = place.inside(loop="while")
        return ["done = 0", "while done < args.steps:", "    done += 1", *indent(self.block(inner, size))]

    def wrapped(self, place: Place) -> Lines:
        style = self.style
        kind = style.rng.random()
        inside = self.body(place, 0.7)
        if kind < 0.35:
            return ["try:", *indent(inside), "finally:", *indent(self.body(place, 0.3))]
        if kind < 0.5 and place.loop == "batch" and not style.accelerate:
            style.tags.add("swallowed")
            way = style.pick(["continue", "print('skipped')", "raise"])
            return ["try:", "    loss = model(batch)", *indent(inside), "except RuntimeError:", f"    {way}"]
        return [style.pick(["with torch.no_grad():", "with open(args.path) as f:"]), *indent(inside)]

    def helper(self, place: Place) -> Lines:
        """A call of a function of the file; one that is made of guards is only called where all ranks come."""
        call, needed = helpers.draw(self.style, place.behind)
        for name, lines in needed.items():
            self.helpers.setdefault(name, lines)
        return call

    def idiom(self, place: Place) -> Lines:
        if self.style.accelerate:
            return self.collective(place)
        lines, needed = idioms.draw(self.style, lambda: self.body(place, 0.5), bool(place.loop))
        self.helpers.update(needed)
        return lines

    def exchange(self, place: Place) -> Lines:
        if self.style.accelerate:
            return self.collective(place)
        lines, needed = exchanges.draw(self.style, bool(place.loop), place.loop == "batch")
        self.helpers.update(needed)
        return lines
