"""Adapters: EnvSched inside a trainer's own loop, one module a trainer. README.md has the lines to paste.

    slime        SlimeSource: a data source, and the hook that sees all samples
    verl         VerlRows: a data set for 0.7.1 to 0.9 (V0 observes by itself; V1 by VerlSampler or `verl_reward`)
    trl          GRPOMixin: the sampler and the reward functions of GRPOTrainer
    prime_rl     PrimeSource: in the place of TrainSource
    skyrl        SkyRows and SkyGenerator: the data set and around the generator
    tinker       TinkerDataset: batches of group builders that report
    own_loop     Scenarios: ART, and any loop of one's own
    ray          RayScheduler: one named actor that all workers of a cluster report to

Duck-typed: importing this package imports no trainer, no torch and no ray. What all of them share: `desk` (one run,
resumed or new, for all parts of a trainer), `slots` (index -> pick, the same ever after), `groups` (groups from single
rewards), `reading` (rewards, prompts and rows of any shape). Nothing that a rollout holds raises into a trainer.
"""

from .desk import Desk, TasksChanged, open_desk
from .groups import Groups, Open
from .own_loop import Scenarios
from .prime_rl import PrimeSource
from .ray import RayScheduler
from .skyrl import SkyGenerator, SkyRows
from .slime import SlimeSource
from .slots import Slot, Slots
from .tinker import TinkerDataset
from .trl import GRPOMixin
from .verl import VerlRows, VerlSampler, verl_reward

__all__ = [
    "Desk",
    "GRPOMixin",
    "Groups",
    "Open",
    "PrimeSource",
    "RayScheduler",
    "Scenarios",
    "SkyGenerator",
    "SkyRows",
    "SlimeSource",
    "Slot",
    "Slots",
    "TasksChanged",
    "TinkerDataset",
    "VerlRows",
    "VerlSampler",
    "open_desk",
    "verl_reward",
]
