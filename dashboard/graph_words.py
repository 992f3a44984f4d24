"""Sentences of the Graph page: how much of the whole a map shows and why not more, and why there is none; pure."""

from __future__ import annotations

from . import words
from .loading import EnvironmentMap, GraphMap

__all__ = ["ABSENT", "environment_sizes", "no_edges", "sizes", "too_many"]

ABSENT = {
    "log": "There is no graph here: this is a log, which gets one when it is replayed.",
    "scheduler": "There is no graph here: the scheduler of this run uses none.",
    "damaged": "The graph of this step cannot be read; Log health says which file, and why.",
}
"""Why a map has no graph -> a sentence."""


def sizes(found: GraphMap, what: str, relations: tuple[str, ...], weight: float, *, around: bool, fair: bool) -> str:
    """How many of the tasks (`what`) and edges are drawn, and why not more."""
    own = len(found.nodes) if around else int(found.nodes["centre"].sum())
    said = [words.size_note(own, found.nodes_total, what)]
    if own < found.nodes_total:
        said.append("Those with the strongest ties are drawn." if around else "Those with most ties are drawn.")
    counts = found.edges["relation"].value_counts()
    for name, title, heavy, total in (
        ("within", "within", found.within_heavy, found.within_total),
        ("cross", "across", found.cross_heavy, found.cross_total),
    ):
        text = f"Edges {title}: {words.count(counts.get(name, 0))} of {words.count(total)}"
        if name not in relations:
            text += " (switched off)"
        elif heavy < total:
            text += f" ({words.count(heavy)} weigh {weight:g} or more)"
        said.append(text + ".")
    if len(found.edges) < _wanted(found, relations):
        said.append(f"{'The strongest' if not fair else FAIR} are drawn; the GraphML file has all.")
    if len(found.nodes) > own:
        said.append(f"With {words.count(len(found.nodes) - own)} tasks of other environments at their ends.")
    return " ".join([*said, f"Graph version {found.version}."])


FAIR = "The strongest of each environment and of each pair of environments"


def _wanted(found: GraphMap, relations: tuple[str, ...]) -> int:
    """Edges that the controls let through."""
    return sum(
        heavy for name, heavy in (("within", found.within_heavy), ("cross", found.cross_heavy)) if name in relations
    )


def no_edges(found: GraphMap, relations: tuple[str, ...], weight: float) -> str:
    """Why a map shows no edge; empty where it shows one."""
    if found.within_total + found.cross_total == 0:
        return "These tasks have no edges in the graph of this step."
    if not relations:
        return "Both kinds of edges are switched off."
    if found.edges.empty:
        return (
            f"No edge of these kinds weighs {weight:g} or more here; the strongest of any kind weighs "
            f"{found.heaviest:.2f}."
        )
    return ""


def environment_sizes(found: EnvironmentMap, weight: float) -> str:
    """How many of the environments and of the pairs between them are drawn, and why not more."""
    tied = int(found.edges["edges"].sum())
    said = [words.size_note(len(found.nodes), found.envs_total, "environments")]
    if len(found.nodes) < found.envs_total:
        said.append("Those with most tasks are drawn.")
    heavy = f" ({words.count(found.cross_heavy)} weigh {weight:g} or more)" if weight else ""
    said.append(
        f"Pairs tied by cross edges: {words.count(len(found.edges))} of {words.count(found.pairs_total)}, with "
        f"{words.count(tied)} of {words.count(found.cross_total)} cross edges{heavy}."
    )
    if len(found.edges) < found.pairs_total:
        said.append("The pairs with most edges are drawn.")
    return " ".join([*said, f"Graph version {found.version}."])


def too_many(tasks: int, most: int) -> str:
    """Why environments are drawn and not their tasks; empty where the tasks could be."""
    if tasks <= most:
        return ""
    return (
        f"{words.count(tasks)} tasks are more than the {words.count(most)} that are drawn one by one, so their "
        "environments are. Filter by environment, open one, or find a task."
    )
