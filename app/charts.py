"""The pictures. Each says the same as a table beside it, and no meaning rests on colour alone."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from qualgate_app.text import COLOURS, escape

from qualgate.records import Comparison, Policy
from qualgate.store.queries import FlipCount, PositionDrift

SYMBOLS = {"proven": "circle", "broken": "square", "undecided": "diamond-open"}
CONFIG = {"displayModeBar": False}
FEW = 10  # answers that changed: fewer do not fill the picture


def intervals(comparisons: Sequence[Comparison], policy: Policy) -> go.Figure | None:
    """Each quality rule: the measured difference with its bounds, and the allowed drop. None: nothing to draw."""
    allowed = {rule.id: rule.max_drop for rule in policy.rules if rule.max_drop is not None}
    drawn = [one for one in comparisons if one.rule in allowed and one.difference is not None]
    if not drawn:
        return None
    figure = go.Figure()
    names = [f"{escape(one.metric)} · {escape(one.slice)}" for one in drawn]
    for status in ("proven", "undecided", "broken"):
        rows = [(name, one) for name, one in zip(names, drawn, strict=True) if one.status == status]
        if rows:
            at = [100 * (one.difference or 0.0) for _, one in rows]
            above = [100 * one.upper - x if one.upper is not None else 0 for x, (_, one) in zip(at, rows, strict=True)]
            below = [x - 100 * one.lower if one.lower is not None else 0 for x, (_, one) in zip(at, rows, strict=True)]
            figure.add_scatter(
                x=at,
                y=[name for name, _ in rows],
                error_x={"array": above, "arrayminus": below, "symmetric": False, "thickness": 2, "width": 5},
                mode="markers",
                name=status,
                marker={"size": 10, "color": COLOURS[status], "symbol": SYMBOLS[status]},
                hovertemplate="%{y}: %{x:+.1f} points<extra></extra>",
            )
    figure.add_scatter(
        x=[-100 * allowed[one.rule] for one in drawn],
        y=names,
        mode="markers",
        name="allowed drop",
        marker={"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": "#1f2328"}},
        hovertemplate="allowed: %{x:.1f} points<extra></extra>",
    )
    figure.add_vline(x=0, line_width=1, line_color="#8c959f")
    figure.update_xaxes(title_text="variant − baseline, points", zeroline=False, gridcolor="#eaeef2")
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    return _framed(figure, 90 + 34 * len(drawn))


def flips_by_set(counts: Sequence[FlipCount]) -> go.Figure | None:
    """Right → wrong to the left, wrong → right to the right, for each set."""
    if not any(one.lost or one.gained for one in counts):
        return None
    names = [f"{escape(one.evalset)} · {escape(one.metric)}" for one in counts]
    figure = go.Figure()
    figure.add_bar(
        x=[-one.lost for one in counts],
        y=names,
        orientation="h",
        name="right → wrong",
        marker_color=COLOURS["block"],
        text=[str(one.lost) if one.lost else "" for one in counts],
        textangle=0,
        hovertemplate="%{y}: %{text} right → wrong<extra></extra>",
    )
    figure.add_bar(
        x=[one.gained for one in counts],
        y=names,
        orientation="h",
        name="wrong → right",
        marker_color=COLOURS["approve"],
        text=[str(one.gained) if one.gained else "" for one in counts],
        textangle=0,
        hovertemplate="%{y}: %{text} wrong → right<extra></extra>",
    )
    figure.update_layout(barmode="relative", bargap=0.35)
    most = max(FEW, *(max(one.lost, one.gained) for one in counts)) * 1.05
    figure.update_xaxes(
        range=[-most, most], showticklabels=False, zeroline=True, zerolinecolor="#8c959f", gridcolor="#eaeef2"
    )
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True)
    return _framed(figure, 80 + 30 * len(counts))


def drift_by_position(points: Sequence[PositionDrift]) -> go.Figure | None:
    if not points:
        return None
    figure = go.Figure()
    figure.add_scatter(
        x=[point.position for point in points],
        y=[point.mean for point in points],
        mode="lines",
        line={"color": "#0b5cad", "width": 2},
        customdata=[point.answers for point in points],
        hovertemplate="token %{x}: %{y:.4f} nats over %{customdata} answers<extra></extra>",
        showlegend=False,
    )
    figure.update_xaxes(title_text="token of the baseline's answer", gridcolor="#eaeef2", zeroline=False)
    figure.update_yaxes(title_text="mean KL, nats", gridcolor="#eaeef2", rangemode="tozero")
    return _framed(figure, 260)


def _framed(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 34, "b": 40},
        plot_bgcolor="#ffffff",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        font={"size": 13},
    )
    return figure
