"""The rules of the house that a newcomer can see, each held by a test."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import envsched_core

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "envsched_core"
DASHBOARD = ROOT / "dashboard"

LAYERS = [
    *("errors", "limits", "outgoing", "records", "config", "passes", "fused", "keyed", "catalogue", "moments"),
    *("similarity", "graph", "features", "regression", "prediction", "propagation", "costs", "predictor"),
    *("evidence", "ledger"),
    *("problem", "placebo", "scores", "selection", "settled", "recording", "explanation", "scheduler", "baselines"),
    *("evaluate", "store", "replay", "live"),
    *("importers", "adapters", "testbed", "shadow", "bench", "views", "cli"),
]
"""Each module imports only from those before it."""

TOUCH_FILES = {"store", "importers", "shadow", "bench", "views", "cli"}
PURE = set(LAYERS[: LAYERS.index("live")]) - {"store"}
"""No clock, thread, network or unseeded randomness: the same calls give the same decisions."""

HEAVY = {"duckdb", "numba", "pandas", "pyarrow", "sklearn"}
"""May be imported inside functions, so that `import envsched_core` stays light."""

core_files = sorted(CORE.rglob("*.py"))
all_files = core_files + sorted(DASHBOARD.rglob("*.py")) + sorted((ROOT / "tests").rglob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def layer(path: Path) -> str:
    return path.relative_to(CORE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute dotted names of everything a file imports."""
    package = ("envsched_core", *path.relative_to(CORE).parts[:-1]) if path.is_relative_to(CORE) else ()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted text of everything a file calls, with its line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", core_files, ids=name)
def test_imports_point_down(path):
    if path == CORE / "__init__.py":
        return
    allowed = set(LAYERS[: LAYERS.index(layer(path)) + 1]) | {"__version__"}
    for target, _ in imported(path):
        if target.startswith("envsched_core."):
            assert target.split(".")[1] in allowed, f"{name(path)} imports {target}"


@pytest.mark.parametrize("path", core_files, ids=name)
def test_only_named_modules_touch_files(path):
    if layer(path) in TOUCH_FILES:
        return
    doors = {"open", "mkdir", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "unlink"}
    numpy_doors = {"np.load", "np.save", "np.savez", "np.savez_compressed", "np.memmap", "np.fromfile"}
    for called, line in calls(path):
        assert called.split(".")[-1] not in doors, f"{name(path)}:{line} {called}"
        assert called not in numpy_doors, f"{name(path)}:{line} {called}"


@pytest.mark.parametrize("path", core_files, ids=name)
def test_deciding_knows_no_clock_thread_network_or_unseeded_draw(path):
    if layer(path) not in PURE:
        return
    banned = {"asyncio", "datetime", "multiprocessing", "random", "requests", "secrets", "socket", "subprocess"}
    banned |= {"threading", "time", "urllib", "uuid"}
    for target, _ in imported(path):
        assert target.split(".")[0] not in banned, f"{name(path)} imports {target}"
    seeded = ("np.random.default_rng", "np.random.Generator", "np.random.Philox", "np.random.SeedSequence")
    for called, line in calls(path):
        assert not called.startswith("np.random.") or called.startswith(seeded), f"{name(path)}:{line} {called}"


@pytest.mark.parametrize("path", core_files, ids=name)
def test_only_the_dashboard_knows_streamlit(path):
    banned = {"streamlit", "plotly", "pyvis", "networkx", "torch", "envsched_dashboard"}
    assert not [target for target, _ in imported(path) if target.split(".")[0] in banned]


@pytest.mark.parametrize("path", sorted(DASHBOARD.rglob("*.py")), ids=name)
def test_only_loading_knows_the_views(path):
    if path.name != "loading.py":
        assert not [target for target, _ in imported(path) if target.startswith("envsched_core.views")]


@pytest.mark.parametrize("path", core_files, ids=name)
def test_imports_stand_at_the_top(path):
    top = set(map(id, tree(path).body))
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.ImportFrom) and id(inner) not in top:
                assert (inner.module or "").split(".")[0] in HEAVY, f"{name(path)}:{inner.lineno}"
            if isinstance(inner, ast.Import):
                assert {alias.name.split(".")[0] for alias in inner.names} <= HEAVY, f"{name(path)}:{inner.lineno}"


@pytest.mark.parametrize("path", all_files, ids=name)
def test_no_pickle(path):
    banned = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    assert not [target for target, _ in imported(path) if target.split(".")[0] in banned]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert ast.unparse(node.value) == "False", f"{name(path)}:{node.value.lineno}"


@pytest.mark.parametrize("path", [p for p in all_files if not p.is_relative_to(ROOT / "tests")], ids=name)
def test_no_assert_for_input_and_no_broad_except_without_its_reason(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.Assert), f"{name(path)}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else ""
            broad = caught in {"", "Exception", "BaseException"}
            reason = "#" in "".join(lines[node.lineno - 1 : node.lineno + 1])
            assert not broad or reason, f"{name(path)}:{node.lineno} gives no reason"


@pytest.mark.parametrize("path", all_files, ids=name)
def test_files_and_functions_stay_short(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= 400
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 50, f"{name(path)}:{node.lineno} {node.name} has {length} lines"


def test_every_module_says_what_it_promises():
    assert not [name(path) for path in all_files if path.parent.name != "tests" and not ast.get_docstring(tree(path))]


def test_import_stays_light():
    heavy = ["streamlit", "plotly", "pandas", "duckdb", "sklearn", "torch", "pyarrow"]
    code = f"import envsched_core, sys; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_public_names_are_few_and_exact():
    public = [key for key, value in vars(envsched_core).items() if not key.startswith("_") and not _module(value)]
    assert sorted(envsched_core.__all__) == envsched_core.__all__ == sorted(public)
    assert 6 <= len(public) <= 20


def _module(value: object) -> bool:
    return type(value).__name__ in {"module", "_Feature"}


def test_every_package_is_shipped():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {"envsched_core": CORE, "envsched_dashboard": DASHBOARD, "envsched_data": ROOT / "data"}
    found = {
        ".".join([package, *init.parent.relative_to(folder).parts])
        for package, folder in folders.items()
        for init in folder.rglob("__init__.py")
    }
    assert set(project["packages"]) == found
