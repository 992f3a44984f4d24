"""A session for a trainer's own loop: a scheduler, its open picks, and the run folder that records them.

    session = LiveSession.create(Path("runs/mine"), "envsched", config)    or LiveSession.resume(path)
    session.register(tasks)
    for pick in session.ask(32, step=step):      # one call a step, or single pulls: they share the step's ledger
        rewards = ...                            # the trainer's rollouts
        session.observe({"pick_id": pick.pick_id, "rewards": rewards})
    session.release([pick.pick_id], "stale")     # a pick that will give no result

Nothing that a trainer may do by accident raises into its loop; it is counted in `metrics` and put right as far
as it can be: a step that goes back is the current step, a reward that is no number is missing, a task or result
of no use is passed over, an answer to an unknown or ended pick is evidence all the same, text that no file can
hold is mended (intake.py). A full disk is told once; the run goes on deciding, and what it decided meanwhile is
written when there is room again (sink.py).

Resuming gives the same decisions as an unbroken run, byte for byte: the newest snapshot that can be loaded, then
the events after it (restore.py). No step is asked twice: picks without an answer are given back first, and the
interrupted step is not taken beyond its batch, so a pull that returns nothing says that the batch is complete.
"""

from .restore import Resumed
from .session import LiveSession

__all__ = ["LiveSession", "Resumed"]
