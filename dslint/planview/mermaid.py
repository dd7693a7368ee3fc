"""The graph for Markdown: a Mermaid flowchart."""

from __future__ import annotations

import re

from dslint.planview.graph import Graph

# Characters that mean something to Mermaid or to the HTML that it makes.
_SPECIAL = re.compile(r"[\"#&<>`\\|{}\[\]*_~$^;]|^[-+.\d]|^\W")
_CLASSES = {
    "launch": "fill:#ddf4ff,stroke:#0969da,color:#1f2328",
    "script": "fill:#fff8c5,stroke:#9a6700,color:#1f2328",
    "config": "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
    "accelerate": "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
    "arguments": "fill:#fbefff,stroke:#8250df,color:#1f2328",
    "versions": "fill:#eaeef2,stroke:#6e7781,color:#1f2328",
}


def render(graph: Graph) -> str:
    """The flowchart, to stand in a fence of the language ``mermaid``."""
    names = {name: f"n{index}" for index, name in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for name, node in graph.nodes.items():
        lines.append(f'  {names[name]}["{"<br/>".join(map(_escaped, node.lines))}"]:::{node.kind}')
    for edge in graph.edges.values():
        label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
        lines.append(f"  {names[edge.start]} -->{label} {names[edge.end]}")
    used = {node.kind for node in graph.nodes.values()}
    lines += [f"  classDef {kind} {style}" for kind, style in _CLASSES.items() if kind in used]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """The text with every special character as its number."""
    return _SPECIAL.sub(lambda match: "".join(f"#{ord(c)};" for c in match[0]), text)
