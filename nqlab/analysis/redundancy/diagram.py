"""What absorbs what, as a graph in the DOT language and as a table: plain text, drawn by whoever shows it."""

from __future__ import annotations

from itertools import pairwise

from nqlab.analysis.redundancy.rule import Analysis
from nqlab.words import _

# Light enough for dark letters; more groups than colours begin anew, their numbers tell them apart.
_FILLS = ("#56B4E9", "#E69F00", "#7FCDBB", "#F0E442", "#CC79A7", "#D9D9D9", "#FF9E80", "#9FA8DA", "#C5E1A5", "#BCAAA4")
_INK = "#808080"


def dot(analysis: Analysis) -> str:
    """The chain of hidden states, one node each; states of one colour share one S, dashed edges are skips."""
    lines = ["digraph {", 'rankdir=LR; bgcolor="transparent"; nodesep=0.2; ranksep=0.3; margin=0;']
    lines.append(f'node [shape=box, style="filled,rounded", color="{_INK}", fontname="Helvetica", fontsize=20, fontcolor="#111111"];')
    lines.append(f'edge [color="{_INK}", fontcolor="{_INK}", fontname="Helvetica", fontsize=15];')
    lines.append('node [margin="0.1,0.05", width=0.5];')
    for state in analysis.states:
        fill = _FILLS[state.group % len(_FILLS)]
        lines.append(f'{state.name} [label="{state.name}\\nS{state.group}", fillcolor="{fill}", tooltip="{state.title}"];')
    names = [state.name for state in analysis.states]
    lines.append(f'E [label="E, P", shape=plaintext, style="", fontsize=16, fontcolor="{_INK}"]; E -> {names[0]};')
    for left, right in pairwise(names):
        block = _("attn") if left.startswith("x") else _("MLP")
        lines.append(f'{left} -> {right} [label="{block}"];')
    skip = _("skip")
    lines += [f'{left} -> {right} [style=dashed, label="{skip}", constraint=false];' for left, right in analysis.skips]
    lines.append(f'U [label="U", shape=plaintext, style="", fontsize=16, fontcolor="{_INK}"]; {names[-1]} -> U;')
    return "\n".join([*lines, "}"])


def factors(analysis: Analysis) -> list[dict[str, str]]:
    """One row a hidden state: its S, which S it may be, and what becomes of the matrices around it."""
    rows = []
    for state in analysis.states:
        group = analysis.groups[state.group]
        rows.append(
            {
                _("state"): f"{state.name}: {state.title}",
                _("carries"): f"S{state.group} = {group.choice}",
                _("may be"): group.restriction.title,
                _("written by"): ", ".join(new for _name, new in state.writers),
                _("read by"): ", ".join(new for _name, new in state.readers),
            }
        )
    return rows
