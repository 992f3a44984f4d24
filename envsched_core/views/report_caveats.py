"""What to know before trusting a report: logged or simulated, biased or complete, and how sure its figures are."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from envsched_core.importers import ImportReport

from .nearly_flat import NEARLY_FLAT, nearly_flat
from .report_facts import Savings
from .report_words import count, kind_caveat, percent, without_folders
from .run_view import RunView
from .summary import Summary

__all__ = ["caveats"]

NOTES = 10
"""Notes of an import that are shown."""


def caveats(view: RunView, told: Summary, saved: Savings, *, predicts: bool) -> tuple[str, ...]:
    """Plain sentences, the weightiest first; those of the run's writer come last and are untrusted text.

    `predicts`: whether picks were chosen by prediction.
    """
    found = _import_report(view, told)
    warned = found.warnings() if found is not None else []
    return tuple(
        [
            *kind_caveat(told, view.manifest.simulated),
            *_completeness(told, found),
            *_reading(view, told),
            *_intervals(told, saved, predicts=predicts),
            *(f"Said by the run: {without_folders(note)}" for note in view.manifest.notes if note not in warned),
        ]
    )


def _completeness(told: Summary, found: ImportReport | None) -> Iterator[str]:
    """Biased or complete."""
    if told.kind in ("live", "shadow"):
        ended = told.picks - told.answered - told.open
        yield (
            f"Complete? Of {count(told.picks)} picks {count(told.answered)} were answered, {count(max(ended, 0))} "
            f"released or expired without a result, {count(told.open)} still wait. Picks without a result are in no "
            "share of this report."
        )
        return
    if found is None:
        yield "Complete? How the log was read is not on record, so whether it leaves anything out is not known."
        return
    yield from (_sentence(f"The import warns: {without_folders(said)}") for said in found.warnings())
    yield from (_sentence(f"Said by the import: {without_folders(note)}") for note in found.notes[:NOTES])
    if len(found.notes) > NOTES:
        yield f"The import said {count(len(found.notes) - NOTES)} more; `envsched import` prints them."
    if not found.kept_only and found.flat_groups is not None:
        yield (
            f"Complete? The log keeps flat groups too ({percent(found.flat_groups)} of "
            f"{count(found.comparable_groups)} groups with two or more rewards), so it does not look filtered."
        )
    if found.dropped or found.missing:
        yield (
            f"{count(found.dropped)} of {count(found.rows)} rows of the log could not be used, and "
            f"{count(found.missing)} of {count(found.rollouts)} rollouts have no usable reward."
        )


def _import_report(view: RunView, told: Summary) -> ImportReport | None:
    """How the log was read that the run is or was made from; None where that is not known."""
    source = None if told.kind in ("live", "shadow") else view if told.kind == "import" else view.source()
    raw = source.manifest.report if source is not None else {}
    try:
        return msgspec.convert(raw, ImportReport) if raw else None
    except msgspec.ValidationError:  # written by another version: its words are not ours to guess
        return None


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _reading(view: RunView, told: Summary) -> Iterator[str]:
    """What of the run folder could not be read, was not counted, or counts though it hardly differs."""
    unread = view.health().unread
    if unread:
        yield f"Damaged? {count(unread)} lines or files of the run could not be read; any figure may be short of them."
    near, mixed = nearly_flat(view)
    if near:
        yield (
            f"{count(near)} of {count(mixed)} mixed groups differ by less than {NEARLY_FLAT} of the reward range "
            "(standard deviation). They count as mixed, since any difference gives GRPO a gradient; it may be noise."
        )
    if told.duplicates:
        yield f"{count(told.duplicates)} results came twice and count once."
    if view.manifest.ranges_observed:
        yield "The range that rewards are mapped by is what was observed, not what was declared."
    if told.planned_steps and told.steps < told.planned_steps:
        yield f"Not finished: {count(told.steps)} of {count(told.planned_steps)} planned steps are on record."


def _intervals(told: Summary, saved: Savings, *, predicts: bool) -> Iterator[str]:
    """How sure is sure."""
    if told.groups:
        yield (
            "Intervals are 95 % and come from drawing the run's own tasks anew (of a block of steps: from its number "
            "of groups). They cover which tasks happened to be there, not another seed, policy or training run."
        )
    if saved.against == "pool":
        yield "The comparison with uniform draws is an expectation over the whole log, not a second run."
    if saved.against == "draws":
        yield (
            f"The comparison with uniform draws rests on {count(saved.reference)} of them. They profit from whatever "
            "the scheduled picks taught the policy, so they do not show where uniform picking alone would have led."
        )
    if predicts and told.draws < told.picks:
        yield "Predictions are judged on picks only, and picks are chosen by prediction: no fair sample of all tasks."
