"""Decisions, their reasons and their ends: what comes out of a scheduler."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from .rollouts import task_key

__all__ = [
    "EVIDENCE_STATES",
    "OUTCOME_CODES",
    "Candidate",
    "Decision",
    "Event",
    "Evidence",
    "EvidenceState",
    "Explanation",
    "Outcome",
    "OutcomeCode",
    "Pick",
    "QuotaUse",
    "Relation",
    "Relaxation",
    "Trust",
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


# A step makes thousands of these two; they hold plain values, in which the garbage collector finds nothing.
class Evidence(msgspec.Struct, frozen=True, gc=False):
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


class Candidate(msgspec.Struct, frozen=True, gc=False):
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
    """Part of the predicted mean from own, within, cross, environment, features, global; >= 0, sums to 1."""
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
    """Weight of a neighbour's rollout inside the environment, in `neighbours_unit` of the config, >= 0."""
    tau_cross: float
    """The same of a neighbour's rollout across environments, >= 0."""
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
    features_share: float = 0.0
    """Part of the environment's weight that goes to what the task's features predict, in [0, 1]."""
    loglik_no_features: float | None = None
    """Predictive log likelihood of the best point that ignores features, in nats."""


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
    """Lowest score among the picks of this call that were chosen by score (not drawn uniformly, pinned, for a floor
    or beyond a limit); None when there is none."""
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
