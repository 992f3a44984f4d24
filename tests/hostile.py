"""Hostile text for the security tests: payloads, a run and a log that hold them in every field, what to look for.

Whatever a payload would become if it were rendered is called `pwn...`, so that it can be told from the page's own.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from envsched_core.config import Config
from envsched_core.importers import ImportOptions, import_run
from envsched_core.records import Cost, Decision, GroupResult, Message, Place, Rollout, TaskSpec, Tool, ToolCall
from envsched_core.scheduler import EnvSched
from envsched_core.store import RunWriter, new_manifest

__all__ = ["FOLDER", "FORMULAS", "PAYLOADS", "RENDERED", "write_hostile_log", "write_hostile_run"]

PAYLOADS = (
    "<script>window.ran='script'</script>",
    "<img class=pwn src=x onerror=\"window.ran='image'\">",
    "</title></style></script><svg class=pwn onload=\"window.ran='svg'\">",
    "<iframe class=pwn srcdoc=\"<script>parent.ran='frame'</script>\"></iframe>",
    '" autofocus onfocus="window.ran=\'attribute\'" class="pwn',
    "<style class=pwn>* { background: url(//elsewhere.invalid/css) !important }</style>",
    "<a class=pwn href=javascript:window.ran='link'>go</a><a href='https://elsewhere.invalid'>pwnplotly</a>",
    "<b>pwnplotly</b><br><i>pwnplotly</i><sup>pwnplotly</sup>",
    "**pwnstrong** _pwnem_ ~~pwndel~~ `pwncode` [pwnlink](https://elsewhere.invalid/link)",
    "![pwnimage](https://elsewhere.invalid/image.png) <https://elsewhere.invalid/auto>",
    "$pwn^{tex}$ $$\\pwntex$$ \\href{https://elsewhere.invalid}{pwn}",
    ":red[pwncolour] :blue-background[pwncolour] :green-badge[pwnbadge] :small[pwnsmall]",
    ":material/bug_report: :smiling_imp:",
    "\n\n# pwnheading\n\n> pwnquote\n\n| pwn | table |\n| --- | --- |\n| pwncell | b |\n\n- pwnitem\n",
    "%{pwn} {{7*7}} ${7*7} {% include 'x' %} %s %n",
    "\u202egnirts\u202c \u2066\u2069 \x00 \x07 \x1b[31mred\x1b[0m \x9b31m \r \u2028 \ufeff \ud7ff \U0001f480",
    "=cmd|' /C calc'!A0",
    "]]> --> */ '); window.ran='string'; ('",
)
"""Texts that mean something to a browser, Markdown, TeX, Plotly, a template, a terminal or a spreadsheet."""

FORMULAS = ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1", "a;=1+1", "a\t=1+1", "a\n=1+1")
FORMULAS += ("\uff1d1+1", "\uff20SUM(A1)", '=HYPERLINK("//elsewhere.invalid")', "-2+3+cmd|' /C calc'!A0")
"""Beginnings of cells that a spreadsheet computes."""

FOLDER = "<img class=pwn src=x onerror=window.ran='folder'> **pwnstrong** $pwn$ :red[pwncolour]"
"""Name of the hostile run's folder; all that a file system allows."""

RENDERED = """() => {
  const found = [], roots = [document];
  for (let k = 0; k < roots.length; k++) {
    for (const e of roots[k].querySelectorAll('*')) {
      if (e.shadowRoot) roots.push(e.shadowRoot);
      if (e.tagName === 'IFRAME' && e.contentDocument) roots.push(e.contentDocument);
      const said = e.outerHTML.slice(0, 120), text = (e.textContent || '').trim();
      if (/(^|\\s)pwn/.test(e.getAttribute('class') || '') || e.id.startsWith('pwn')) found.push(said);
      for (const name of ['href', 'src', 'srcset', 'xlink:href', 'action', 'style'])
        if (/elsewhere\\.invalid|javascript:/.test(e.getAttribute(name) || '')) found.push(said);
      for (const a of e.attributes) if (/^on/.test(a.name) && /ran=/.test(a.value)) found.push(said);
      if (e.matches('.katex, .katex-error')) found.push(said);
      if (/^pwn(strong|em|del|code|link|colour|badge|small)$/.test(text)) found.push(said);
      if (/^pwn(heading|quote|cell|item|plotly)$/.test(text)) found.push(said);
      if (e.matches('[data-testid=stIconMaterial]') && /bug_report/.test(text)) found.push(said);
      if (e.children.length === 0 && /\\u{1F608}/u.test(text)) found.push(said);
    }
  }
  return found;
}"""
"""What of the payloads became an element, in the page, its shadow trees and its frames."""


def _text(field: str, k: int) -> str:
    """The k-th payload under the name of its field; short enough to stay an id."""
    return f"{field}{k} {PAYLOADS[k % len(PAYLOADS)]}"


def _everything(field: str) -> str:
    return f"{field} " + " ".join(PAYLOADS)


def hostile_tasks(envs: int = 6, each: int = 6) -> list[TaskSpec]:
    """Every payload as environment, task, text, tool, parameter, state, verifier and call."""
    tools = [Tool(_text("tool", k), _everything("about"), (_text("parameter", k),)) for k in range(len(PAYLOADS))]
    return [
        TaskSpec(
            _text("env", 3 * e), _text("task", e * each + t), _everything("text"),
            (tools[(e + t) % len(tools)], tools[t]), (_text("state", e),), _text("verifier", t),
            (tools[t].name, tools[(t + 1) % 3].name),
        )
        for e in range(envs)
        for t in range(each)
    ]  # fmt: skip


def _rollouts(group: GroupResult) -> list[Rollout]:
    calls = (ToolCall(_text("call", 1), _everything("arguments")),)
    messages = (Message(_text("role", 8), _everything("said"), calls),)
    return [
        Rollout(
            group.group_id, group.env, group.task, i, reward, {_text("part", 8): reward}, messages, calls, 10.0, 1.0,
            _text("status", 8), Place(_text("file", 8), i + 1),
        )
        for i, reward in enumerate(group.rewards)
    ]  # fmt: skip


def _hostile_decision(decision: Decision) -> Decision:
    """The decision with payloads as names where a log may have any: outcomes, terms, shares, details."""
    numbers = {_text("name", k): 0.25 for k in range(len(PAYLOADS))}
    candidates = [
        msgspec.structs.replace(
            c, terms=c.terms | numbers, shares=c.shares | numbers,
            details=c.details | numbers | {"how": _text("how", 8), "reason": _text("reason", 8)},
        )
        for c in decision.candidates
    ]  # fmt: skip
    counts = decision.counts | {_text("outcome", k): 1 for k in range(len(PAYLOADS))}
    return msgspec.structs.replace(
        decision, counts=counts, candidates=tuple(candidates), scheduler=_text("scheduler", 8),
        config_digest=_text("digest", 8), expired=(_text("expired", 8),),
    )  # fmt: skip


def write_hostile_run(folder: Path, steps: int = 3) -> Path:
    """A live run with graph, decisions, groups, rollouts and notes, a payload wherever a log or trainer has a word."""
    path = folder / FOLDER
    config = Config(batch_size=6, seed=5, tau_within_grid=(1.0,), tau_cross_grid=(0.5,), learn_trust=False)
    tasks, scheduler = hostile_tasks(), EnvSched(config)
    scheduler.register(tasks)
    facts = msgspec.to_builtins(config) | {_text("knob", 8): _everything("value")}
    manifest = new_manifest(
        _everything("run"), "live", scheduler=_everything("scheduler"), config=facts, batch_size=6,
        source={"run_id": _everything("source"), "path": "../../../../etc"}, notes=tuple(PAYLOADS),
        reward_ranges={tasks[0].env: (0.0, 1.0)}, report={"drop_reasons": {text: 1 for text in PAYLOADS}},
    )  # fmt: skip
    with RunWriter.create(path, msgspec.structs.replace(manifest, writer=_everything("writer"))) as writer:
        writer.add_tasks(tasks)
        assert scheduler.graph is not None
        writer.add_graph(scheduler.graph, None)
        for step in range(steps):
            decision = scheduler.ask(6, step=step, policy_version=_text("policy", step + 8))
            writer.asked(_hostile_decision(decision))
            scores = scheduler.scores()
            assert scores is not None
            writer.add_scores(scores)
            results = []
            for i, pick in enumerate(decision.picks[: 6 - step]):
                bare = GroupResult(
                    _text(f"group{step}-{i}-", 8), pick.env, pick.task, (0.0, 1.0, float(i % 2), 0.0), step=step,
                    policy_version=_text("policy", 8), calls=((_text("call", 8),),) * 4, cost=Cost(40.0, 4.0, 4.0, 4.0),
                    places=tuple(Place(_text("file", 8), n + 1) for n in range(4)),
                )  # fmt: skip
                results.append(msgspec.structs.replace(bare, offsets=tuple(writer.add_rollouts(_rollouts(bare)))))
            scheduler.observe(results)
            writer.observed(results, step)
            writer.note(step, {_text("note", 8): _everything("note"), "metric": _text("metric", 8), "value": 1.0})
    return path


def write_hostile_log(folder: Path, name: str = "<b class=pwn>log**pwnstrong**.jsonl") -> Path:
    """A log with a payload in every column, also as names of columns, and rows that must be dropped."""
    rows = [
        {
            "env": _text("env", k), "task": _text("task", k), "reward": float(k % 3 == n), "step": n,
            "prompt": _everything("text"), "group": _text("group", k), "policy_version": _text("policy", k),
            "verifier": _text("verifier", k), "status": _text("status", k), _text("column", k): _text("cell", k),
            "reward_parts": {_text("part", k): 0.5}, "tools": [{"name": _text("tool", k), "description": text}],
            "messages": [{"role": _text("role", k), "content": text, "tool_calls": [
                {"function": {"name": _text("call", k), "arguments": text}}]}],
        }
        for k, text in enumerate(PAYLOADS)
        for n in range(3)
    ]  # fmt: skip
    bad = [{"env": text, "task": text, "reward": text} for text in PAYLOADS]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *bad]), encoding="utf-8")
    return path


def write_hostile_import(folder: Path) -> Path:
    """The hostile log, imported into a run folder of `folder`."""
    log = write_hostile_log(folder.parent / "hostile log")
    import_run([log], folder / "imported", ImportOptions())
    return folder / "imported"
