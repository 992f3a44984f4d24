"""The frozen facts that pass between modules, and nothing else.

Every record is immutable and JSON-able (msgspec); field order is part of the file format, so new
fields go to the end of a record and carry a default. A doc line under each field gives its unit and
range. Rewards in a `GroupResult` are as the log gave them; everything predicted is on the [0, 1] scale
(moments.py says how rewards are mapped).
"""

from .decisions import (
    EVIDENCE_STATES,
    OUTCOME_CODES,
    Candidate,
    Decision,
    Event,
    Evidence,
    EvidenceState,
    Explanation,
    Outcome,
    OutcomeCode,
    Pick,
    QuotaUse,
    Relation,
    Relaxation,
    Trust,
)
from .rollouts import Cost, GroupResult, Message, Place, Rollout, TaskSpec, Tool, ToolCall, task_key

__all__ = [
    "EVIDENCE_STATES",
    "OUTCOME_CODES",
    "Candidate",
    "Cost",
    "Decision",
    "Event",
    "Evidence",
    "EvidenceState",
    "Explanation",
    "GroupResult",
    "Message",
    "Outcome",
    "OutcomeCode",
    "Pick",
    "Place",
    "QuotaUse",
    "Relation",
    "Relaxation",
    "Rollout",
    "TaskSpec",
    "Tool",
    "ToolCall",
    "Trust",
    "task_key",
]
