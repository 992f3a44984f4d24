"""The graph: environment-task pairs, tied within their environment and across environments.

relations.py   DualRelationGraph, and how edges become a symmetric matrix
traces.py      what rollouts showed of each task: calls and where the rewards lie
neighbours.py  nearest rows of a feature matrix: exact in blocks, or through inverted lists where there are many
across.py      cross-environment edges: equal tasks are one row, rows have neighbours, neighbours become tasks
patterns.py    interaction patterns: clusters of the execution patterns
builder.py     GraphBuilder: builds a graph, then renews what changed
"""

from .builder import GraphBuilder
from .relations import DualRelationGraph, Edges
from .traces import Traces

__all__ = ["DualRelationGraph", "Edges", "GraphBuilder", "Traces"]
