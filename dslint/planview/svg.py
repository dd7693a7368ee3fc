"""The graph as a picture: boxes in columns, readable on light and dark pages, nothing in it from elsewhere."""

from __future__ import annotations

from html import escape

from rich.cells import cell_len

from dslint.planview.graph import Edge, Graph, Node
from dslint.planview.layers import Layout, layout

_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SIZE, _CHARACTER, _LINE = 12, 7.25, 17.0
_PAD, _MARGIN, _BETWEEN = 10.0, 14.0, 96.0
_FILLS = {
    "launch": ("#ddf4ff", "#0969da"),
    "script": ("#fff8c5", "#9a6700"),
    "config": ("#dafbe1", "#1a7f37"),
    "accelerate": ("#dafbe1", "#1a7f37"),
    "arguments": ("#fbefff", "#8250df"),
    "versions": ("#eaeef2", "#6e7781"),
}
_TEXT, _ARROW = "#1f2328", "#818b98"


def render(graph: Graph) -> str:
    """The SVG document."""
    heights = {name: len(node.lines) * _LINE + 2 * _PAD for name, node in graph.nodes.items()}
    placed = layout(graph, heights)
    lefts, widths = _columns(graph, placed)
    width = max((lefts[c] + widths[c] for c in lefts), default=0.0) + 2 * _MARGIN
    height = placed.height + 2 * _MARGIN
    body = [
        *(_arrow(edge, graph, placed, lefts, widths) for edge in graph.edges.values()),
        *(_box(node, placed, lefts, widths) for node in graph.nodes.values()),
        *(_label(edge, placed, lefts, widths) for edge in graph.edges.values() if edge.label),
    ]
    launches = sum(node.kind == "launch" for node in graph.nodes.values())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="{_FONT}" font-size="{_SIZE}">\n'
        f"<title>Plan of {launches} launch command{'' if launches == 1 else 's'}</title>\n"
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{_ARROW}"/></marker></defs>\n'
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">\n' + "\n".join(body) + "\n</g>\n</svg>\n"
    )


def _columns(graph: Graph, placed: Layout) -> tuple[dict[int, float], dict[int, float]]:
    """Left edge and width of each column; labels of arrows need room between two."""
    widths: dict[int, float] = {}
    for name, node in graph.nodes.items():
        column = placed.places[name].column
        widths[column] = max(widths.get(column, 0.0), _width(node))
    room: dict[int, float] = {}
    for edge in graph.edges.values():
        column = placed.places[edge.start].column
        room[column] = max(room.get(column, 0.0), cell_len(edge.label) * _CHARACTER + 44)
    lefts: dict[int, float] = {}
    at = 0.0
    for column in sorted(widths):
        lefts[column] = at
        at += widths[column] + min(max(room.get(column, 0.0), 60.0), 2.5 * _BETWEEN)
    return lefts, widths


def _width(node: Node) -> float:
    return max((cell_len(line) for line in node.lines), default=1) * _CHARACTER + 2 * _PAD


def _box(node: Node, placed: Layout, lefts: dict[int, float], widths: dict[int, float]) -> str:
    place = placed.places[node.name]
    fill, stroke = _FILLS[node.kind]
    left, top = lefts[place.column], place.y - place.height / 2
    out = [
        f"<g><title>{escape(': '.join((node.kind, node.lines[0] if node.lines else '')))}</title>"
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{widths[place.column]:.1f}" height="{place.height:.1f}" rx="6" '
        f'fill="{fill}" stroke="{stroke}"/>'
    ]
    for index, line in enumerate(node.lines):
        weight = ' font-weight="600"' if index == 0 and node.kind != "versions" else ""
        base = top + _PAD + (index + 0.76) * _LINE
        out.append(f'<text x="{left + _PAD:.1f}" y="{base:.1f}" fill="{_TEXT}"{weight}>{_text(line)}</text>')
    return "".join(out) + "</g>"


def _arrow(edge: Edge, graph: Graph, placed: Layout, lefts: dict[int, float], widths: dict[int, float]) -> str:
    way = [placed.places[name] for name in placed.paths[edge.start, edge.end]]
    x, y = lefts[way[0].column] + widths[way[0].column], way[0].y
    path = f"M{x:.1f} {y:.1f}"
    for place in way[1:]:
        left = lefts[place.column]
        middle = (x + left) / 2
        path += f" C{middle:.1f} {y:.1f} {middle:.1f} {place.y:.1f} {left:.1f} {place.y:.1f}"
        x, y = left, place.y
        if place.name not in graph.nodes:
            x += widths[place.column]
            path += f" H{x:.1f}"
    return f'<path d="{path}" fill="none" stroke="{_ARROW}" stroke-width="1.4" marker-end="url(#arrow)"/>'


def _label(edge: Edge, placed: Layout, lefts: dict[int, float], widths: dict[int, float]) -> str:
    """The label on a light plate in the middle of the first part of the arrow."""
    first, second = (placed.places[name] for name in placed.paths[edge.start, edge.end][:2])
    x = (lefts[first.column] + widths[first.column] + lefts[second.column]) / 2
    y = (first.y + second.y) / 2
    width = cell_len(edge.label) * _CHARACTER * 11 / 12 + 8
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - 8.5:.1f}" width="{width:.1f}" height="17" rx="4" fill="#f6f8fa"/>'
        f'<text x="{x:.1f}" y="{y + 3.8:.1f}" fill="{_TEXT}" font-size="11" text-anchor="middle">'
        f"{_text(edge.label)}</text>"
    )


def _text(text: str) -> str:
    """Escaped, with runs of blanks kept."""
    return escape(text).replace("  ", " \u00a0")
