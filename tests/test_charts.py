from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from small_run import HOSTILE

charts = pytest.importorskip("envsched_dashboard.charts")
graph_view = pytest.importorskip("envsched_dashboard.graph_view")

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
        charts.variance_grid([EVIL], [0], np.full((1, 1), 0.1, dtype=np.float32), span=1, kind="predicted"),
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


def test_colours_of_variance_mean_the_same_at_every_step():
    for values in (np.full((1, 2), 0.01), np.full((1, 2), 0.25)):
        heat = charts.variance_grid(["e"], [0, 1], values.astype(np.float32), span=1, kind="predicted").data[0]
        assert (heat.zmin, heat.zmax) == (0.0, 0.25)


def test_a_gap_is_no_cell_and_a_click_finds_its_cell():
    values = np.array([[0.1, np.nan, 0.2], [np.nan, 0.0, np.nan]], dtype=np.float32)
    heat, overlay = charts.variance_grid(["a", "b"], [0, 1, 2], values, span=1, kind="observed").data
    assert list(overlay.customdata) == [0, 2, 4]
    assert overlay.type == "scatter"
    assert np.isnan(heat.z[0][1])


def test_a_large_grid_is_overlaid_by_webgl():
    values = np.zeros((60, 100), dtype=np.float32)
    figure = charts.variance_grid([str(i) for i in range(60)], list(range(100)), values, span=1, kind="observed")
    assert figure.data[1].type == "scattergl"


def test_graph_colours_span_the_fixed_scale_and_grey_is_not_known():
    found = graph_view.colours(np.array([0.0, 0.25, 1.0, np.nan]))
    assert found == ["#00224e", "#fee838", "#fee838", graph_view.NOT_KNOWN]


def test_the_graph_component_fetches_nothing():
    script = graph_view._script()
    assert "sourceMappingURL" not in script
    assert "innerHTML" not in script.rsplit("// Our side", 1)[1]
