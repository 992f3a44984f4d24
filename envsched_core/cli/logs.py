"""Commands on logs: import, assess, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from envsched_core.bench.assess import Assessment, assess
from envsched_core.errors import ConfigError, StoreError
from envsched_core.evaluate import Interval
from envsched_core.explanation import several
from envsched_core.importers import (
    FORMATS,
    Carries,
    ImportOptions,
    carried,
    import_run,
    list_formats,
    report_lines,
)
from envsched_core.store import Manifest, list_runs

from .output import Json, bar, print_json, say, table

__all__ = ["Env", "EnvRule", "Format", "JoinFile", "Map", "Reward", "Tasks", "Tools", "add_to", "options_from"]

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Files or folders of one log.", show_default=False)
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="F", help=f"{', '.join(FORMATS)}; by content when not given.")
]
Env = Annotated[str | None, typer.Option("--env", metavar="E", help="Environment, where the log names none.")]
EnvRule = Annotated[
    list[str] | None,
    typer.Option(
        "--env-rule",
        metavar="NAME=PATTERN",
        help="Environment of rows whose prompt the pattern is found in; path:PATTERN looks at the file's path, \\1 in "
        "NAME is the pattern's first group. Repeatable; the first found counts.",
    ),
]
JoinFile = Annotated[
    str | None,
    typer.Option(
        "--join",
        metavar="COLUMN=FILE",
        help="Table with a column that the log has too; its rows name environment, task, text or tools.",
    ),
]
Tasks = Annotated[
    Path | None,
    typer.Option("--tasks", metavar="FILE", help="Task list: texts, tools, calls; joined by environment and task."),
]
Tools = Annotated[Path | None, typer.Option("--tools", metavar="FILE", help="Tool documents.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Column of a field, dots go into objects. Repeatable."),
]
Reward = Annotated[
    str | None, typer.Option("--reward", metavar="NAME", help="Part of the reward, or column, to schedule on.")
]


def options_from(
    format: str | None,
    env: str | None,
    tasks: Path | None,
    tools: Path | None,
    pairs: list[str] | None,
    reward: str | None,
    rules: list[str] | None = None,
    join: str | None = None,
) -> ImportOptions:
    """What the options of a command say of a log.

    Raises:
        ConfigError: a --map, --env-rule or --join is not of its form.
    """
    mapped = [_pair("--map", pair, "FIELD=COLUMN, for instance --map reward=score") for pair in pairs or ()]
    mapping = dict(mapped)
    if len(mapping) < len(dict.fromkeys(mapped)):
        twice = next(field for field, column in mapped if mapping[field] != column)
        raise ConfigError(f"--map names two columns for {twice}: a field is read from one")
    by_pattern = tuple(
        _pair("--env-rule", rule, "NAME=PATTERN, for instance --env-rule 'shop=You are a retail agent'")
        for rule in rules or ()
    )
    column, file = _pair("--join", join, "COLUMN=FILE, for instance --join index=train.parquet") if join else ("", "")
    return ImportOptions(
        format=format,
        env=env,
        tasks=tasks,
        tools=tools,
        mapping=mapping,
        reward=reward,
        env_rules=by_pattern,
        join=(column, Path(file)) if column else None,
    )


def _pair(option: str, given: str, form: str) -> tuple[str, str]:
    """Both sides of the first equals sign.

    Raises:
        ConfigError: one is empty.
    """
    left, sign, right = given.partition("=")
    if not sign or not left or not right:
        raise ConfigError(f"{option} {given}: write {form}")
    return left, right


def import_(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Files or folders of one log.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Run folder to write; must not hold anything.")
    ] = None,
    format: Format = None,
    env: Env = None,
    tasks: Tasks = None,
    tools: Tools = None,
    map: Map = None,
    reward: Reward = None,
    env_rule: EnvRule = None,
    join: JoinFile = None,
    rollouts: Annotated[bool, typer.Option(help="Keep messages and calls, to be read on demand.")] = True,
    list_: Annotated[bool, typer.Option("--list", help="List the formats and what each carries, and leave.")] = False,
    json: Json = False,
) -> None:
    """Read a log into a run folder and report on what it holds; a log that only lists tasks becomes a catalogue."""
    if list_:
        return _print_formats(json)
    if not paths or out is None:
        raise ConfigError("envsched import takes PATH... and --out RUN; --list shows the formats")
    options = options_from(format, env, tasks, tools, map, reward, env_rule, join)
    options = msgspec.structs.replace(options, keep_rollouts=rollouts)
    with bar("importing") as progress:
        report = import_run(paths, out, options, progress)
    if json:
        return print_json({"run": str(out), **msgspec.to_builtins(report)})
    for line in report_lines(report):
        say(line)
    if not report.groups:
        say(f"written to {out}: tasks and their graph, nothing to replay")
        return say(f"next: envsched dashboard --runs {out.parent}")
    say(f"written to {out}; next: envsched replay {out} --out {out}-replay")


MARKS = {"yes": "yes", "some": "some", "no": "-"}


def _print_formats(json: bool) -> None:
    """Every format by name: what it is, what its logs carry, and what to know of them."""
    about, carries = list_formats(), carried()
    fields = [name for name in Carries.__struct_fields__ if name != "limits"]
    if json:
        return print_json(
            {name: {"about": about[name], **msgspec.structs.asdict(carries[name])} for name in carries},
        )
    head = ["format", *(name.replace("_", " ") for name in fields)]
    table([head, *([name, *(MARKS[getattr(found, key)] for key in fields)] for name, found in carries.items())])
    say()
    for name, found in carries.items():
        say(f"{name}: {about[name]}" + (f"; {found.limits}" if found.limits else ""))


def assess_(
    paths: Paths,
    format: Format = None,
    env: Env = None,
    tasks: Tasks = None,
    tools: Tools = None,
    map: Map = None,
    reward: Reward = None,
    env_rule: EnvRule = None,
    join: JoinFile = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Replays of each scheduler; more on small logs.")] = None,
    json: Json = False,
) -> None:
    """The verdict on a log (or run folder): how much was wasted, what would have been avoided, how sure that is."""
    options = options_from(format, env, tasks, tools, map, reward, env_rule, join)
    with bar("assessing") as progress:
        found, report = assess(paths, options, seeds=seeds, progress=progress)
    if json:
        return print_json({**msgspec.to_builtins(found), "report": msgspec.to_builtins(report)})
    _print_assessment(found)


def _print_assessment(found: Assessment) -> None:
    say(found.sentence)
    say()
    sizes = {
        "rollout": found.rollouts,
        "group": found.groups,
        "task": found.tasks,
        "environment": found.environments,
    }
    say(", ".join(several(size, noun) for noun, size in sizes.items()))
    if found.comparable_groups:
        low, high = found.flat.low, found.flat.high
        say(f"rollouts in groups with equal rewards: {found.flat.mean:.1%} (95 % interval {low:.1%} to {high:.1%})")
    for unit in dict.fromkeys(saving.unit for saving in found.savings):
        say()
        rows = [
            [s.scheduler, f"{s.wasted:.1%}", _span(s.avoided, percent=True), _span(s.yield_ratio, percent=False)]
            for s in found.savings
            if s.unit == unit
        ]
        table([[f"per {unit}", "wasted", "avoided of uniform's waste", "mixed groups, uniform = 1"], *rows])
    if found.savings:
        say()
        say(
            f"pool replay, preset {found.preset}: {found.steps} steps of {found.batch_size}, {found.seeds} seeds; "
            "95 % intervals over seeds and tasks"
        )
    for caveat in found.caveats:
        say(f"note: {caveat}")


def _span(interval: Interval, *, percent: bool) -> str:
    form = "{:.0%} ({:.0%} to {:.0%})" if percent else "{:.2f} ({:.2f} to {:.2f})"
    return form.format(*interval)


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of run folders.")],
    json: Json = False,
) -> None:
    """List the runs in a folder; one that cannot be read is listed with its problem."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is no folder; `envsched import` and `envsched replay` write runs")
    found = list_runs(folder)
    if json:
        return print_json([_run(path, manifest) for path, manifest in found])
    if not found:
        return say(f"no runs in {folder}")
    rows = [_row(path, manifest) for path, manifest in found]
    table([["run", "kind", "scheduler", "batch", "seed", "created"], *rows])


def _run(path: Path, manifest: Manifest | StoreError) -> dict[str, Any]:
    if isinstance(manifest, StoreError):
        return {"path": str(path), "problem": str(manifest)}
    names = ("run_id", "kind", "scheduler", "batch_size", "seed", "created", "writer", "simulated", "notes")
    return {"path": str(path), "problem": None} | {name: getattr(manifest, name) for name in names}


def _row(path: Path, manifest: Manifest | StoreError) -> list[str]:
    if isinstance(manifest, StoreError):
        return [path.name, f"unreadable: {manifest}", "", "", "", ""]
    kind = manifest.kind + (" (simulated)" if manifest.simulated else "")
    batch = str(manifest.batch_size or "")
    return [path.name, kind, manifest.scheduler, batch, str(manifest.seed), manifest.created]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("import")(import_)
    app.command("assess")(assess_)
    app.command("runs")(runs)
