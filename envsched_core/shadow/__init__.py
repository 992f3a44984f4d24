"""Shadow mode: beside a trainer that knows nothing of it, what EnvSched would have picked.

    shadow = Shadow([Path("logs/rollouts")], Path("runs/shadow"))
    for step in follow(shadow, until_idle=600): ...

A log that another process writes is read as it grows (importers/growing.py). Groups wait until their step is over
(waiting.py): when a row of a later step has come, when nothing was written for `settle` seconds, or at the end of
a log that is finished. Then the scheduler is asked for as many picks as the step has groups, told what was really
rolled out, and its other picks are released as not rolled out; no reward is invented (steps.py). Rows that come
later for a group that was taken are counted, whole groups that come later are observed without a decision.

A step far above all others that only one group speaks for (one mistyped number would make every other step over)
waits until a second group or a step near it has come, and is left out if the log ends before.

In a log without steps, groups are taken when they have `group_size` rollouts (if that is given), else when nothing
is written any more; each `batch_size` of them, in log order, are a step.

The run folder is an ordinary one of kind `shadow`; shadow.json in it says how far each file was taken, never beyond
the first row whose group is not on record, so a process that is killed at any moment goes on where it was. To go on
with another scheduler, batch size or log is refused.
"""

from .follow import follow
from .steps import Shadow, ShadowPlan, ShadowStep

__all__ = ["Shadow", "ShadowPlan", "ShadowStep", "follow"]
