"""Drives any scheduler over recorded groups, and re-derives what a run recorded.

    replay_pool   recorded groups are the pool: each pick reveals one of its task's groups, once, in log order.
                  Exact on the log; says nothing about how the choice would have changed the policy.
    replay_audit  the log's own order: what would have been picked against what was trained on; no reward is
                  invented for what was not rolled out
    verify        the hash chain first, then every decision re-derived from the events and compared
    explain_run   why, or why not, at any step of a run; next_batch: what to roll out next

A clock is only ever passed in, for the seconds in a result; nothing that is decided or written depends on it.
"""

from .audit import AuditResult, AuditStep, replay_audit
from .pool import (
    RecordedPool,
    ReplayResult,
    ReplayStep,
    Revealed,
    batch_for,
    config_for,
    drive,
    is_mixed,
    load_pool,
    preset_of,
    replay_pool,
)
from .rederive import Weight, config_of, explain_run, next_batch, sampling_weights
from .verify import Difference, VerifyReport, verify

__all__ = [
    "AuditResult",
    "AuditStep",
    "Difference",
    "RecordedPool",
    "ReplayResult",
    "ReplayStep",
    "Revealed",
    "VerifyReport",
    "Weight",
    "batch_for",
    "config_for",
    "config_of",
    "drive",
    "explain_run",
    "is_mixed",
    "load_pool",
    "next_batch",
    "preset_of",
    "replay_audit",
    "replay_pool",
    "sampling_weights",
    "verify",
]
