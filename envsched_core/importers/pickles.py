"""Pickles: what they are told by, and why they are never loaded.

To load a pickle is to run what its writer put into it. slime writes its rollouts as such (`rollout_{n}.pt`), so
they are turned into JSON lines where the trainer runs, by a script that a person can read first.
"""

from __future__ import annotations

from .files import Head

__all__ = ["CONVERTER", "is_pickle", "why_not_loaded"]

CONVERTER = """\
import json, sys, torch
for path in sys.argv[1:]:
    dump = torch.load(path, map_location="cpu", weights_only=False)
    with open(path.removesuffix(".pt") + ".jsonl", "w") as lines:
        for sample in dump["samples"]:
            kept = {key: value for key, value in sample.items() if key not in ("tokens", "loss_mask")}
            row = {"slime_iteration": dump["rollout_id"], "slime_eval": "eval_" in path, **kept}
            lines.write(json.dumps(row, default=str) + "\\n")
"""
"""Writes the samples of slime's dumps as JSON lines beside them."""

PROTOCOLS = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
"""How a pickle begins."""


def is_pickle(head: Head) -> bool:
    """Whether a file is a pickle, by itself or inside PyTorch's archive."""
    if head.kind == "zip":
        return any(key.endswith("/data.pkl") or key == "data.pkl" for key in head.keys)
    if head.kind not in ("other", "csv"):
        return False
    with head.path.open("rb") as stream:
        return stream.read(2) in PROTOCOLS


def why_not_loaded() -> str:
    """What to say of a pickle, with the script that makes a log of it."""
    return (
        "a pickle, which is never loaded, because loading one runs what its writer put into it. If slime wrote it "
        "(--save-debug-rollout-data), run this where the trainer runs, python convert.py rollout_*.pt, and import "
        f"the .jsonl files:\n{CONVERTER}"
    )
