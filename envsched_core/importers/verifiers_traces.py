"""verifiers v1 and prime-rl `traces.jsonl`: one Episode, or one bare Trace, a line.

An episode is one rollout: its reward is the sum of score x weight over the named rewards that were scored (null =
not scored), of the traces of the agent that is trained; without any such trace or score it is missing. Its
environment, group, step and policy stand in the record (`env`, `group`, `run.work`), in older traces in `info`.

prime-rl writes `step_N/train/all` (every episode, as it finishes) and `step_N/train/effective` (what was trained
on). Of the two side by side, `all` is read and `effective` tells which episodes were trained; `effective` alone is
known to hold kept groups only. `step_N/eval` is left out of a folder that is read whole, since nothing was chosen
there. Only the fields named below are decoded: token ids and log-probabilities, most of such a file, are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from envsched_core.records import Message, Place, Tool, ToolCall

from .base import Carries, Context, Drop, ImportOptions, Row, as_rows
from .files import Head, Source, typed_lines
from .identity import Identity
from .messages import calls_from, tools_from
from .values import floats, name, number, prompt, reward, text, whole

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "verifiers v1 and prime-rl traces.jsonl: one Episode or Trace a line (all and effective, stream.jsonl, zstd)"
CARRIES = Carries(
    env="yes",
    task="yes",
    group="some",
    step="some",
    parts="yes",
    tools="yes",
    calls="yes",
    messages="yes",
    cost="yes",
    policy="yes",
    every_group="some",
    limits=(
        "steps and groups in training runs only; the step is that of dispatch; effective alone holds kept groups only; "
        "of several agents the trained one's traces count"
    ),
)
COMPANIONS: tuple[str, ...] = ()
NEEDS: tuple[str, ...] = ()

EPISODE, TRACE = {"task", "traces"}, {"task", "nodes", "rewards"}


class _Node(msgspec.Struct):
    """One message of a trace's graph."""

    message: Any = None
    parent: int | None = None
    sampled: bool = False


class _Trace(msgspec.Struct):
    """What is read of a trace, and of an episode, whose fields stand beside `traces`."""

    id: Any = None
    env: Any = None
    task: Any = None
    group: Any = None
    run: Any = None
    agent: Any = None
    tools: Any = None
    nodes: list[_Node] | None = None
    calls: Any = None
    rewards: Any = None
    metrics: Any = None
    info: Any = None
    ok: bool | None = None
    stop_condition: Any = None
    errors: Any = None
    timing: Any = None
    num_output_tokens: Any = None
    is_truncated: Any = None
    is_timeout: Any = None
    traces: list[_Trace] | None = None


class _Id(msgspec.Struct):
    """The only field that is read of what was trained on."""

    id: Any = None


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether the first lines are episodes or traces."""
    keys = set(head.keys)
    return head.kind == "jsonl" and (keys >= EPISODE or keys >= TRACE)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every episode of one file."""
    folders = PurePosixPath(source.label).parts
    if "eval" in folders[:-1] and any(part.startswith("step_") for part in folders):
        context.notes.add(
            "evaluations during training are left out of a folder read whole; name such a file to read it"
        )
        return
    if _told_elsewhere(source):
        context.notes.add(f"{source.label}: left out, since the folder rollouts has the same episodes")
        return
    log = _Log(source, context)
    if log.kept_alone:
        context.notes.kept_only = (
            f"{source.label} holds what was trained on: groups that a filter or gate took out are not in it"
        )
    elif folders[-2:-1] == ("effective",) and len(folders) > 2:
        context.notes.add("of all and effective side by side, all is read and effective tells what was trained on")
        return
    yield from as_rows(typed_lines(source, _Trace), source, log.row, Identity(source, context, "verifiers"))
    log.remark()


def _told_elsewhere(source: Source) -> bool:
    """Whether a file monitor's stream lies in a run folder that is read whole and has its rollouts by step too."""
    above = PurePosixPath(source.label).parts
    if "monitors" not in above[1:]:
        return False
    depth = len(above) - above.index("monitors", 1)
    return (source.path.parents[depth - 1] / "rollouts").is_dir()


class _Log:
    """Turns the episodes of one file into rows."""

    def __init__(self, source: Source, context: Context) -> None:
        self.label, self.notes, self.options = source.label, context.notes, context.options
        folder = PurePosixPath(source.label).parent
        self.run = str(folder) if folder.name else source.label
        self.env = _env_of_folder(source.path)
        beside = source.path.parent
        whole_log = beside.with_name("all") / source.path.name
        named_itself = len(PurePosixPath(source.label).parts) < 3
        self.kept_alone = beside.name == "effective" and (named_itself or not whole_log.is_file())
        trained = beside.with_name("effective") / source.path.name
        self.trained: set[str] | None = {"*"} if self.kept_alone else None
        if beside.name == "all" and trained.is_file() and not source.growing:
            self.trained = _ids(trained)
        self.tools: dict[int, tuple[Tool, ...]] = {}
        self.several = 0

    def row(self, episode: _Trace, place: Place, mark: int) -> Row:
        """One episode, or bare trace, as a row."""
        traces = self._scored(episode.traces) if episode.traces is not None else [episode]
        last = traces[-1] if traces else _Trace()
        run, info = _map(episode.run), _map(last.info)
        work = _map(run.get("work"))
        task = _map(episode.task or last.task)
        data = _map(task.get("data"))
        episode_id = name(episode.id)
        parts = _parts(last)
        messages = self._messages(last) if self.options.keep_rollouts else ()
        calls = tuple(call for trace in traces for call in _calls(trace))
        step = work.get("step", run.get("step", info.get("step")))
        return Row(
            place,
            self._env(episode, info),
            _task_id(task, data),
            (_total(traces, self.options.reward),),
            group=self._group(episode, info, step),
            step=whole(step, "step"),
            policy_version=_policy(work, info, last),
            trained=None if self.trained is None else "*" in self.trained or episode_id in self.trained,
            mark=(hash(episode_id) or 1) if episode_id else 0,
            text=prompt(data.get("prompt")) or _asked(last),
            tools=self._tools(last),
            verifier=" + ".join(sorted(map(str, _map(last.rewards)))),
            parts=parts,
            messages=messages,
            calls=calls if traces else None,
            tokens=_tokens(traces),
            seconds=_seconds(last),
            turns=float(sum(node.sampled for trace in traces for node in trace.nodes or ())) if traces else None,
            tool_calls=float(len(calls)) if traces else None,
            status=_status(episode, traces),
        )

    def _scored(self, traces: list[_Trace]) -> list[_Trace]:
        """The traces that the reward is of: those of the first agent that is trained."""
        trained = [trace for trace in traces if _map(trace.agent).get("trainable") is not False]
        agents = [name(_map(trace.agent).get("name")) for trace in trained]
        chosen = [trace for trace, agent in zip(trained, agents, strict=True) if agent == agents[0]]
        self.several += len(chosen) > 1 or len(set(agents)) > 1
        return chosen

    def _env(self, episode: _Trace, info: Mapping[str, Any]) -> str:
        """The name in the mix, else the package's, else the run folder's."""
        env = _map(episode.env)
        return name(env.get("name") or env.get("id") or info.get("env_name") or info.get("env_id")) or self.env

    def _group(self, episode: _Trace, info: Mapping[str, Any], step: Any) -> str | None:
        """The draw; an evaluation has none, and all its rollouts of a task are one."""
        found = name(_map(episode.group).get("id") or info.get("group_id"))
        return found if found is not None or step is not None else self.run

    def _tools(self, trace: _Trace) -> tuple[Tool, ...]:
        """The tools at hand; equal lists, which nearly all traces have, are made once."""
        if not trace.tools:
            return ()
        key = hash(repr(trace.tools))
        found = self.tools.get(key)
        if found is None:
            found = self.tools[key] = tools_from(trace.tools)
        return found

    def _messages(self, trace: _Trace) -> tuple[Message, ...]:
        """The messages of the last branch."""
        return tuple(_message(node.message) for node in _branch(trace.nodes or []))

    def remark(self) -> None:
        """Say what was taken for granted."""
        if self.several:
            self.notes.add(
                f"{self.label}: {self.several:,} episodes have several traces or agents; the mean of the first trained "
                "agent's counts, and its last trace is shown"
            )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _ids(path: Path) -> set[str]:
    """Ids of the episodes in a file."""
    found = (record.value.id for record in typed_lines(Source(path), _Id) if not record.problem)
    return {str(one) for one in map(name, found) if one is not None}


def _env_of_folder(path: Path) -> str:
    """The environment in `{env}--{model}--{harness}--{id}/traces.jsonl`, the evaluation's own naming."""
    folder = path.parent.name
    return (name(folder.partition("--")[0]) or "") if "--" in folder else ""


def _task_id(task: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The stable key; where an older writer has none, the source's own id, the hash, or a hash of the data."""
    key = task.get("key") or data.get("id") or data.get("name") or task.get("hash")
    rest = {field: value for field, value in data.items() if field != "idx"}  # only a row number
    return name(key) or (name(rest) if rest else "") or ""


def _total(traces: list[_Trace], part: str | None) -> float | None:
    """The mean over traces of their summed rewards, or of the part that the user chose; None when none was scored."""
    scores = [score for trace in traces if (score := _score(trace, part)) is not None]
    return sum(scores) / len(scores) if scores else None


def _score(trace: _Trace, part: str | None) -> float | None:
    """One trace's reward: score x weight over all rewards that were scored."""
    rewards = _map(trace.rewards)
    if part is not None:
        found = rewards.get(part, _map(trace.metrics).get(part))
        return reward(found.get("score") if isinstance(found, dict) else found)
    scored = [(reward(one.get("score")), one.get("weight", 1.0)) for one in rewards.values() if isinstance(one, dict)]
    scored += [(reward(one), 1.0) for one in rewards.values() if isinstance(one, int | float)]
    known = [score * weight for score, weight in scored if score is not None and isinstance(weight, int | float)]
    return reward(sum(known)) if known else None


def _parts(trace: _Trace) -> dict[str, float]:
    """Named rewards as they were scored, and metrics."""
    return floats(trace.metrics) | floats(trace.rewards)


def _policy(work: Mapping[str, Any], info: Mapping[str, Any], trace: _Trace) -> str | None:
    """The weights in force when the episode began; of an evaluation, the model."""
    span = _map(work.get("policy"))
    version = span.get("start", info.get("policy_version"))
    if version is not None:
        return name(version)
    first = trace.calls[0] if isinstance(trace.calls, list) and trace.calls else None
    return name(_map(_map(trace.agent).get("config")).get("model") or _map(first).get("model"))


def _branch(nodes: list[_Node]) -> list[_Node]:
    """The nodes from the root to the last leaf; all of them when nothing tells the parents."""
    if all(node.parent is None for node in nodes):
        return nodes
    path: list[_Node] = []
    at: int | None = len(nodes) - 1  # no node stands behind the last one, so it is a leaf
    while at is not None and 0 <= at < len(nodes) and len(path) < len(nodes):
        path.append(nodes[at])
        at = nodes[at].parent
    return path[::-1]


def _asked(trace: _Trace) -> str:
    """What the first messages ask, where the task's data does not say."""
    asked = []
    for node in trace.nodes or ():
        if node.sampled or _map(node.message).get("role") == "assistant":
            break
        asked.append(node.message)
    return prompt(asked) if asked else ""


def _message(message: Any) -> Message:
    found = _map(message)
    said, thought = text(found.get("content")), text(found.get("reasoning_content"))
    content = f"{thought}\n\n{said}".strip() if thought else said
    return Message(str(found.get("role") or "unknown"), content, calls_from(found.get("tool_calls") or ()))


def _calls(trace: _Trace) -> Iterator[ToolCall]:
    """Tool calls of the messages that the model wrote, in order."""
    for node in trace.nodes or ():
        if node.sampled and isinstance(node.message, dict) and node.message.get("tool_calls"):
            yield from calls_from(node.message["tool_calls"])


def _tokens(traces: list[_Trace]) -> float | None:
    """Generated tokens, as the trace counts them or its model calls do."""
    counts = [number(trace.num_output_tokens) or _used(trace) for trace in traces]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _used(trace: _Trace) -> float | None:
    usages = [_map(_map(call).get("usage")) for call in trace.calls] if isinstance(trace.calls, list) else []
    known = [amount for usage in usages if (amount := number(usage.get("completion_tokens"))) is not None]
    return sum(known) if known else None


def _seconds(trace: _Trace) -> float | None:
    """Wall time of the agent, in seconds; the writer puts 0 where it did not measure."""
    span = _map(_map(trace.timing).get("agent"))
    begin, end = number(span.get("start")), number(span.get("end"))
    return end - begin if begin and end and end >= begin else None


def _status(episode: _Trace, traces: list[_Trace]) -> str:
    """How it ended, in the log's own words."""
    for one in (episode, *traces):
        if isinstance(one.errors, list) and one.errors and one.ok is not True:
            last = _map(one.errors[-1])
            return f"error: {text(last.get('type'))} {text(last.get('message'))}".strip()
    if episode.is_timeout is True or any(trace.is_timeout is True for trace in traces):
        return "timeout"
    last_trace = traces[-1] if traces else episode
    return "truncated" if last_trace.is_truncated is True else text(last_trace.stop_condition)
