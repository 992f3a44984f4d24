from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_run import HOSTILE

charts = pytest.importorskip("envsched_dashboard.charts")
graph_view = pytest.importorskip("envsched_dashboard.graph_view")
cells_view = pytest.importorskip("envsched_dashboard.cells_view")

OURS = [Path(charts.__file__).parent / name for name in ("in_view.js", "cells_view/cells.js")]
EVIL = "<a href='x'>$x$ %{y}\nnext</a>"


def test_labels_neutralise_html_latex_and_templates():
    safe = charts.label(EVIL)
    assert not set("<>$\n") & set(safe.replace("&#36;", ""))
    assert "%{" not in safe
    assert charts.label("x" * 100).endswith("…")
    assert len(charts.label("x" * 100)) == 48


def composition() -> pd.DataFrame:
    return pd.DataFrame(
        {"env": [EVIL, "b"], "picks": [3, 1], "limit_picks": [3.0, np.nan], "expected": [2.0, 2.0], "blocked": [1, 0]}
    )


def rivals() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "rank": [1, 2],
            "env": ["e", "e"],
            "task": [HOSTILE, "t"],
            "score": [1.0, 0.5],
            "outcome": ["selected", "quota_full"],
            "this": [True, False],
        }
    )


def quota_hits() -> pd.DataFrame:
    return pd.DataFrame({"step": [1], "env": [EVIL], "limit_picks": [3], "used": [3], "blocked": [2], "price": [0.1]})


@pytest.mark.parametrize(
    "figure",
    [
        charts.composition(composition()),
        charts.rivals(rivals(), 0.7),
        charts.quota_hits(quota_hits()),
        charts.waterfall({EVIL: 1.0}, 1.0, 0.5),
        charts.evidence_split({EVIL: 1.0}),
    ],
)
def test_no_chart_carries_markup_of_a_log(figure):
    text = figure.to_json()
    assert "<a href" not in text
    assert "<script" not in text
    assert "$x" not in text


def test_a_waterfall_adds_up_to_the_score():
    figure = charts.waterfall({"exploitation_variance": 0.8, "similarity_penalty": -0.3, "tie_break": 1e-11}, 0.5, 0.4)
    trace = figure.data[0]
    assert list(trace.measure) == ["relative", "relative", "total"]
    assert sum(trace.x[:-1]) == pytest.approx(trace.x[-1])
    assert figure.layout.shapes[0].x0 == 0.4


def test_a_share_without_width_is_left_to_the_table():
    figure = charts.evidence_split({"own": 0.6, "features": 0.396, "within": 0.003, "global": 0.001})
    assert [trace.x[0] for trace in figure.data] == [0.6, 0.003, 0.396]


def test_the_components_fetch_nothing_and_write_no_html():
    script = graph_view._script()
    assert "sourceMappingURL" not in script
    own = script.rsplit("// Our side", 1)[1]
    for text in (own, *(file.read_text(encoding="utf-8") for file in OURS)):
        assert not [
            word for word in ("innerHTML", "outerHTML", "insertAdjacent", "fetch(", "import(", "http") if word in text
        ]


def test_the_place_of_the_cells_is_as_high_as_they_draw_themselves():
    script = (Path(charts.__file__).parent / "cells_view/cells.js").read_text()
    drawn = {name: int(size) for name, size in re.findall(r"\b([A-Z_]+) = (\d+)", script)}
    names = ("TOP", "BELOW", "LEAST_ROW", "MOST_ROW", "LEAST_HEIGHT")
    assert {name: getattr(cells_view, name) for name in names} == {name: drawn[name] for name in names}
