"""ToolWorld: executable tool environments and a small policy that really learns in them (extra `train`).

    words         the lexicon                     environments  APIs with hidden flags
    tasks         instructions and turns          tools         what a call does, and the verifier
    policy        log-linear softmax              rollout       a rollout and its gradient, compiled
    optimiser     Adam
    specs, world  the worlds by name              loop          Learner, GRPO, held-out success
    oracle        schedulers that know p          messages      rollouts as messages
    bfcl_*        BFCL-v3 as a second world       learners      a learner by the world's name
    driving       train: scheduler and learner, measured at equal generated rollouts

A small live GRPO learner, not the training of a language model: what is seen here transfers in direction
at most. Importing this package imports numba.
"""

from .driving import EVALUATED, Curve, train
from .learners import make_learner
from .loop import AnyLearner, Learner, Update
from .oracle import Oracle, make_oracle
from .specs import VARIANTS, WORLDS
from .world import World, make_world

__all__ = [
    "EVALUATED",
    "VARIANTS",
    "WORLDS",
    "AnyLearner",
    "Curve",
    "Learner",
    "Oracle",
    "Update",
    "World",
    "make_learner",
    "make_oracle",
    "make_world",
    "train",
]
