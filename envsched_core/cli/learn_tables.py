"""What `bench learn` prints: for each world two tables (learning; cost and cold start), and the mean over worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .output import number, say, table

if TYPE_CHECKING:  # they import numba
    from envsched_core.bench.curves import Score
    from envsched_core.bench.learn import LearnReport, WorldsReport
    from envsched_core.bench.overall import Overall

__all__ = ["print_worlds"]

SHOWN = (10, 20, 40, 80, 120)
"""Steps of a curve that a terminal shows."""

Three = tuple[float, float, float]


def print_worlds(report: WorldsReport) -> None:
    """All tables, then the notes."""
    for one in report.worlds.values():
        _print_world(one)
    if report.overall:
        _print_overall(report.overall, len(report.worlds))
    for note in report.notes:
        say(f"note: {note}")


def _print_world(report: LearnReport) -> None:
    pairs = f"{len(report.world_seeds)} worlds x {report.seeds} seeds"
    name = "BFCL-v3 multi-turn" if report.world == "bfcl" else f"ToolWorld {report.world}"
    say(f"{name}: {report.steps} steps of {report.batch_size} x {report.group_size} generated rollouts, {pairs}")
    say()
    steps = [step for step in next(iter(report.schedulers.values())).curve if step]
    shown: list[int] = [step for step in steps if step in SHOWN] or steps[-3:]
    head = ["", *map(str, shown), "area", "area vs uniform", "head-room", "envsched minus it", "at 40 vs uniform"]
    rows = [_learning(name, found, shown) for name, found in report.schedulers.items()]
    table([[*head, "at end vs uniform"], *rows])
    say()
    head = ["", "head-room at 40", "to uniform's best", "to 95 %", "flat", "mixed early", "x uniform's"]
    head += ["within trusted", "cross trusted"]
    rows = [_spent(name, found) for name, found in report.schedulers.items()]
    equal = ["at equal calls vs uniform", "envsched minus it"]
    table([[*head, "tasks", "updates", "rollouts", "calls", *equal], *rows])
    say()


def _learning(name: str, found: Score, shown: list[int]) -> list[str]:
    return [
        name,
        *(number(found.curve[step]) for step in shown),
        number(found.area),
        _span(found.difference_area),
        _share(found.headroom_captured),
        _span(found.envsched_minus),
        _span(found.difference_at_40),
        _span(found.difference_at_end),
    ]


def _spent(name: str, found: Score) -> list[str]:
    return [
        name,
        _share(found.headroom_captured_at_40),
        number(found.steps_to_uniform_best, 1),
        number(found.steps_to_95_percent, 1),
        f"{found.zero_variance_share:.0%}",
        f"{found.early_informative_share:.0%}",
        _times(found.early_informative_ratio),
        f"{found.trusted_within:.0%}",
        f"{found.trusted_cross:.0%}",
        *(number(round(n)) for n in (found.tasks_seen, found.updates, found.rollouts, found.tool_calls)),
        _span(found.difference_at_equal_calls),
        _span(found.envsched_minus_at_equal_calls),
    ]


def _print_overall(rows: Mapping[str, Overall], worlds: int) -> None:
    say(f"mean over these {worlds} worlds")
    say()
    head = ["", "head-room", "area vs uniform", "envsched minus it", "mixed early x uniform's", "calls x uniform's"]
    equal = ["at equal calls vs uniform", "envsched minus it"]
    table(
        [
            [*head, *equal],
            *(
                [
                    name,
                    _share_span(one.headroom_captured),
                    _span(one.difference_area),
                    _span(one.envsched_minus),
                    _times(one.early_informative_ratio),
                    _times(one.tool_calls_ratio),
                    _span(one.difference_at_equal_calls),
                    _span(one.envsched_minus_at_equal_calls),
                ]
                for name, one in rows.items()
            ),
        ]
    )
    say()


def _span(three: Three | None) -> str:
    return "n/a" if three is None else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*three)


def _times(three: Three | None) -> str:
    return "n/a" if three is None else "{:.2f} [{:.2f}, {:.2f}]".format(*three)


def _share_span(three: Three | None) -> str:
    return "n/a" if three is None else "{:.0%} [{:.0%}, {:.0%}]".format(*three)


def _share(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.0%}"
