"""The frozen facts that pass between modules, and nothing else.

Every record is immutable and JSON-able (msgspec); field order is part of the file format, so new
fields go to the end of a record and carry a default. A doc line under each field gives its unit and
range. Rewards in a `GroupResult` are as the log gave them; everything predicted is on the [0, 1] scale
(moments.py says how rewards are mapped).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

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

EvidenceState = Literal["prior only", "environment only", "neighbours", "own history"]
Relation = Literal["own", "within", "cross"]
OutcomeCode = Literal[
    "selected",
    "uniform_draw",
    "quota_full",
    "too_similar",
    "below_cutoff",
    "in_flight",
    "cooling_down",
    "unavailable",
]
EVIDENCE_STATES: tuple[str, ...] = get_args(EvidenceState)
OUTCOME_CODES: tuple[str, ...] = get_args(OutcomeCode)


def task_key(env: str, task: str) -> str:
    """The one spelling of an environment-task pair: ``ENV::TASK``."""
    return f"{env}::{task}"


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as the environment documents it."""

    name: str
    description: str = ""
    parameters: tuple[str, ...] = ()
    """Names of its parameters."""


class TaskSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment-task pair as it is known before any rollout: a node of the graph."""

    env: str
    task: str
    """Stable id inside the environment."""
    text: str = ""
    """The prompt or instruction; untrusted text."""
    tools: tuple[Tool, ...] = ()
    state: tuple[str, ...] = ()
    """Names of the state objects (tables, APIs) it works on."""
    verifier: str = ""
    """Name of what computes the reward; empty when unknown."""
    calls: tuple[str, ...] | None = None
    """Reference call path: tool names in order; None when the catalogue has none."""
    draws: int | None = None
    """How many groups can ever be drawn (a recorded task has so many groups); None = no limit."""

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a whole group cost, summed over its rollouts; None where the log does not say."""

    tokens: float | None = None
    """Generated tokens, >= 0."""
    seconds: float | None = None
    """Summed wall time of its rollouts in seconds, >= 0."""
    turns: float | None = None
    """Assistant turns, >= 0."""
    tool_calls: float | None = None
    """Tool calls, >= 0."""


class Place(msgspec.Struct, frozen=True):
    """Where a rollout stands in the log that was imported."""

    file: str
    line: int
    """1-based line, or 1-based position in an array."""


class GroupResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rollouts of one task at one step: the only way evidence enters a scheduler."""

    group_id: str
    """Unique in a run; the same id observed twice counts once."""
    env: str
    task: str
    rewards: tuple[float, ...]
    """One finite reward per scored rollout [G], on the environment's own scale."""
    step: int | None = None
    """The step whose batch it belongs to; None = the step at which it is observed."""
    missing: int = 0
    """Rollouts of the group without a usable reward (null, NaN, infinite, failed)."""
    status: Literal["ok", "partial", "error"] = "ok"
    """partial: some rollouts are missing; error: all are."""
    policy_version: str | None = None
    trained: bool | None = None
    """Whether the trainer used it; None when the log does not say."""
    pick_id: str | None = None
    """The pick it answers, when the trainer knows it; else the oldest open pick of its task is meant."""
    cost: Cost | None = None
    calls: tuple[tuple[str, ...], ...] = ()
    """Observed tool names in order, one tuple per rollout; empty when the log has none."""
    places: tuple[Place, ...] = ()
    """Where its rollouts stand in the imported log."""
    offsets: tuple[int, ...] = ()
    """Byte offsets of its rollouts in the run folder's rollouts file; empty when not kept."""

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call of a rollout."""

    name: str
    arguments: str = ""
    """As text (JSON where the log had JSON); untrusted."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a rollout; untrusted text."""

    role: str
    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class Rollout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the log said of one rollout; read only on demand."""

    group_id: str
    env: str
    task: str
    index: int
    """0-based position in its group."""
    reward: float | None
    """None when missing."""
    reward_parts: dict[str, float] = {}
    """Named parts of the reward where the log has them."""
    messages: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """All tool calls in order (those of `messages`, or the log's own list)."""
    tokens: float | None = None
    seconds: float | None = None
    status: str = ""
    """The log's own word: error text, stop reason, truncated; empty when it says nothing."""
    place: Place | None = None


class Evidence(msgspec.Struct, frozen=True):
    """One task whose past rollouts spoke for a candidate."""

    env: str
    task: str
    relation: Relation
    weight: float
    """Edge weight in [0, 1]; 1 for own history."""
    share: float
    """Its part of the candidate's predicted mean, in [0, 1]."""
    mean: float
    """Its own discounted mean reward, in [0, 1]."""
    rollouts: float
    """Its own discounted number of rollouts, >= 0."""
    last_step: int
    """Step at which it was last observed."""


class Candidate(msgspec.Struct, frozen=True):
    """One task in one decision: what was predicted, what it scored, and what became of it."""

    env: str
    task: str
    kept_as: Literal["pick", "near_miss", "sample"]
    """Why it is on record: picked, close to the cut-off or blocked, or in the random sample of the rest."""
    outcome: OutcomeCode
    position: int | None
    """0-based order of the pick within its step; None when not picked."""
    pick_id: str | None
    score: float
    """What candidates are ranked by; the sum of `terms` to 1e-9."""
    rank: int
    """1-based rank over all available tasks before any pick of the step, without quotas or penalties."""
    terms: dict[str, float]
    """Signed parts of the score by name."""
    mean: float
    """Predicted mean reward, in [0, 1]."""
    variance: float
    """Predicted within-task reward variance, in [0, 0.25]."""
    sd: float
    """Standard deviation of the variance prediction, >= 0."""
    low: float
    """Lower end of the 90 % interval of the mean."""
    high: float
    """Upper end of the 90 % interval of the mean."""
    usable: float
    """Chance that a group of `group_size` rollouts is mixed, in [0, 1]."""
    shares: dict[str, float]
    """Part of the predicted mean from own, within, cross, environment, global; >= 0, sums to 1."""
    rollouts: float
    """Equivalent rollouts behind the prediction, > 0."""
    state: EvidenceState
    groups: int
    """Groups of this task observed before this decision."""
    last_step: int | None
    """Step at which it was last observed; None = never."""
    details: dict[str, float | str]
    """The numbers behind the outcome: margin, quota_limit, quota_used, similar_to, similarity, blocked_at, ..."""
    evidence: tuple[Evidence, ...]
    """Strongest evidence first: at most 8 for a pick, 3 for a near miss, 1 for the sample."""

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)


class Trust(msgspec.Struct, frozen=True):
    """How much each source of evidence is trusted, as learned online (predictor.py)."""

    kappa_env: float
    """Weight of the environment's mean, as a multiple of its concentration, > 0."""
    tau_within: float
    """Weight of a neighbour's rollout inside the environment, >= 0."""
    tau_cross: float
    """Weight of a neighbour's rollout across environments, >= 0."""
    half_life: float
    """Steps after which a rollout counts half; 0 = never ages."""
    loglik: float
    """Discounted predictive log likelihood of the point in use, in nats."""
    loglik_no_within: float
    """The same of the best point that ignores within-environment edges."""
    loglik_no_cross: float
    """The same of the best point that ignores cross-environment edges."""
    groups: int
    """Groups scored so far."""


class QuotaUse(msgspec.Struct, frozen=True):
    """One environment's quota in one step."""

    env: str
    limit: int
    """Most picks allowed this step."""
    floor: int
    """Fewest picks wanted this step."""
    used: int
    """Picks taken this step, earlier asks of the step included."""
    price: float
    """Shadow price: the largest gap between a score it blocked and the score taken instead; 0 when it did not bind."""
    blocked: int
    """How many candidates it blocked."""


class Relaxation(msgspec.Struct, frozen=True):
    """A limit that could not be kept, and what was done."""

    kind: Literal["quota", "floor", "cool_down", "shortfall"]
    env: str
    """Empty when it concerns the whole batch."""
    limit: int
    used: int


class Pick(msgspec.Struct, frozen=True):
    """One task that the trainer should roll out."""

    pick_id: str
    env: str
    task: str
    position: int

    @property
    def key(self) -> str:
        """``ENV::TASK``."""
        return task_key(self.env, self.task)


class Decision(msgspec.Struct, frozen=True):
    """One answer of `ask`, with everything needed to explain it. Holds no clock reading."""

    step: int
    policy_version: str | None
    scheduler: str
    config_digest: str
    seed: int
    asked: int
    """How many picks the call asked for."""
    pool: int
    """Tasks registered [N]."""
    eligible: int
    """Tasks that could be picked when the step began."""
    cutoff: float | None
    """Lowest score among the picks of this call that were not uniform draws; None when there is none."""
    graph_version: int
    """0 = no graph."""
    trust: Trust | None
    """None for schedulers that predict nothing."""
    counts: dict[str, int]
    """Outcome code -> how many tasks of the whole pool ended with it."""
    sample_rate: float
    """Chance that a task outside picks and near misses is on record, in [0, 1]."""
    certificate: float | None
    """F(S) over an upper bound of the best F, in [0, 1]; None with a draw, or when the call was not a whole step."""
    quotas: tuple[QuotaUse, ...]
    """Environments that were picked from, or whose quota bound."""
    relaxed: tuple[Relaxation, ...]
    expired: tuple[str, ...]
    """Open picks that ended here because no result came in time."""
    candidates: tuple[Candidate, ...]
    """Picks in order, then near misses by score, then the random sample."""

    @property
    def picks(self) -> tuple[Pick, ...]:
        """The tasks to roll out, in pick order."""
        return tuple(
            Pick(c.pick_id or "", c.env, c.task, c.position or 0) for c in self.candidates if c.kept_as == "pick"
        )


class Explanation(msgspec.Struct, frozen=True):
    """Why, or why not, one task was picked at one step; plain data."""

    step: int
    env: str
    task: str
    picked: bool
    verdict: str
    """One plain sentence with the numbers."""
    candidate: Candidate
    cutoff: float | None
    """The score that had to be reached; None when every pick was a uniform draw."""
    runner_up: str | None
    """Key of the best task that was not picked; None when there is none on record."""
    runner_up_score: float | None
    trust: Trust | None
    quota: QuotaUse | None
    """The quota of its environment, if it was picked from or bound."""
    source: Literal["recorded", "re-derived"]
    """Whether the numbers were written when the batch was chosen, or computed again from the events."""


class Outcome(msgspec.Struct, frozen=True):
    """How a pick ended."""

    step: int
    env: str
    task: str
    pick_id: str
    ended: Literal["open", "observed", "released", "expired"]
    reason: str = ""
    """Why it was released."""
    rewards: tuple[float, ...] = ()
    variance: float | None = None
    """Population variance of the mapped rewards, in [0, 0.25]; None unless observed with two or more."""


class Event(msgspec.Struct, frozen=True):
    """One line of the event log."""

    seq: int
    """0-based, without gaps."""
    kind: str
    """registered, graph, asked, observed, released, resumed or note; a reader passes over others and counts them."""
    step: int | None
    data: Any
    """The payload: a Decision for `asked`, a GroupResult for `observed`."""
    hash: str
    """BLAKE2b-128 (hex) of the previous line's hash and this line without its hash."""
