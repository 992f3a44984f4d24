"""EnvSched decides which environment-task pairs of agent RL deserve the next rollouts, and shows why.

    from envsched_core import Config, EnvSched, GroupResult, TaskSpec

    scheduler = EnvSched(Config(batch_size=64))
    scheduler.register([TaskSpec("airline", "17", text="Cancel my flight."), ...])
    decision = scheduler.ask(64, step=0)                 # decision.picks: what to roll out
    scheduler.observe([GroupResult("g0", "airline", "17", rewards=(0.0, 1.0, 0.0, 1.0)), ...])

The house, top to bottom; each module imports only from those above it (tests/test_architecture.py):

    errors, limits, outgoing  what can go wrong; what is too much to read; texts made safe for CSV and terminals
    records, config           the facts that pass between modules; every knob
    passes                    sums, ranks and the largest of N numbers, block by block
    fused                     formulas over long arrays, one compiled loop each where numba is installed
    keyed, catalogue          draws that are hashes of what they are for; tasks and their indices
    moments                   what was seen: discounted counts and sums per task and environment
    similarity, graph         what tasks have in common; the two relations between them
    features, regression      what is known of a task before any rollout, and what it predicts, learned online
    prediction, propagation   a belief's mean, spread and likelihood; sums carried along both relations
    costs                     what a group is expected to cost
    predictor, evidence       mean, variance, uncertainty, the exact share of every source; whose rollouts spoke
    ledger, problem           open picks; everything that a step's batch depends on
    placebo                   a relation of the graph falsified, to see what the true one is worth
    scores, selection         what a task adds to a batch; the batch: exact lazy greedy under quotas
    settled                   how every task stands once a batch is chosen
    recording, explanation    a batch becomes a Decision with every reason in it; sentences
    scheduler, baselines      the contract and EnvSched; its peers behind the same contract
    evaluate                  scores and intervals, plain numbers
    store                     the run folder: write, resume, read, check
    replay                    pool replay, audit, verify, explain any step, next batch
    live                      LiveSession: what a trainer's loop needs around a scheduler, on record, resumable
    importers                 logs in
    adapters                  live hooks, one module a trainer; none is imported
    testbed                   ToolWorld: executable tool environments, and a small policy that learns in them
    shadow                    follows a log being written: what would have been picked beside what was
    bench                     assess: the verdict on a log; learn: the closed loop; the recorded run
    views                     read models for the dashboard
    cli                       the command `envsched`

Importing this package loads numpy, scipy and msgspec, nothing heavier.
"""

from .baselines import make_scheduler
from .config import Config, config_from
from .errors import EnvSchedError
from .importers import import_run
from .records import Candidate, Cost, Decision, Explanation, GroupResult, Pick, TaskSpec, Tool
from .replay import replay_audit, replay_pool, verify
from .scheduler import EnvSched, Scheduler
from .store import RunReader, RunWriter

__all__ = [
    "Candidate",
    "Config",
    "Cost",
    "Decision",
    "EnvSched",
    "EnvSchedError",
    "Explanation",
    "GroupResult",
    "Pick",
    "RunReader",
    "RunWriter",
    "Scheduler",
    "TaskSpec",
    "Tool",
    "config_from",
    "import_run",
    "make_scheduler",
    "replay_audit",
    "replay_pool",
    "verify",
]
