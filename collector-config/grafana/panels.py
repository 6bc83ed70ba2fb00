"""Panels, variables and links as both dashboards have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import common as look
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
JAEGER: Final = dashboard.DataSourceRef(type_val="jaeger", uid="${traces}")
TEMPO: Final = dashboard.DataSourceRef(type_val="tempo", uid="${tempo}")

JOB: Final = 'job=~"(.+/)?$job"'
"""Chosen services: `$job` is the name that Jaeger knows, before which a job has its namespace."""

GREEN, YELLOW, ORANGE, RED, BLUE, TEXT = "green", "yellow", "orange", "red", "blue", "text"

Steps = Sequence[tuple[float | None, str]]
"""Colours by the value from which they hold; the first has None."""

CALM: Final[Steps] = ((None, TEXT),)
NONE_IS_GOOD: Final[Steps] = ((None, GREEN), (1, RED))
NONE_IS_USUAL: Final[Steps] = ((None, GREEN), (1, ORANGE))
_NO_COLORS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Query:
    """One PromQL expression.

    Attributes:
        expr: The expression; `$job`, `$agent`, `$__rate_interval` and `$__range` stand for values.
        legend: What a line is called, with labels as `{{label}}`.
        exemplar: Whether points that lead to traces are shown.
    """

    expr: str
    legend: str = ""
    exemplar: bool = False

    def built(self, ref: str, *, instant: bool) -> prometheus.Dataquery:
        """As the foundation SDK wants it."""
        query = prometheus.Dataquery().ref_id(ref).expr(self.expr).datasource(PROMETHEUS)
        query = query.legend_format(self.legend) if self.legend else query
        query = query.exemplar(True) if self.exemplar else query
        return query.instant() if instant else query.range()


def counted(name: str, labels: str, window: str) -> str:
    """How much counters rose in a window.

    One that is new in it rose from 0: many begin with their first event, and those of a process
    that ends soon are seen once, of which increase() makes nothing. What was there before in the
    time shown is not new after a gap.
    """
    one = f"loopguard_{name}_total{{{labels}}}"
    known = f"last_over_time({one}[$__range] offset {window})"
    return f"last_over_time({one}[{window}]) unless {known} or increase({one}[{window}])"


def bare(expr: str) -> str:
    """The same with the name in Jaeger as `job`, for links."""
    return f'label_replace({expr}, "job", "$1", "job", ".+/(.+)")'


def thresholds(steps: Steps) -> build.ThresholdsConfig:
    """Colours by value."""
    found = [dashboard.Threshold(value=value, color=color) for value, color in steps]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(found)


def number(  # noqa: PLR0913
    title: str, about: str, expr: str, *, unit: str = "short", steps: Steps = CALM, width: int = 4
) -> stat.Panel:
    """One figure over the time that is shown, or as it is now."""
    reduced = look.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(PROMETHEUS)
        .with_target(Query(expr).built("A", instant=True))
        .reduce_options(reduced)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .unit(unit)
        .decimals(0 if unit == "short" else 1)
        .thresholds(thresholds(steps))
        .no_value("0" if unit == "short" else "none")
        .span(width)
        .height(4)
    )


def state(
    title: str, about: str, expr: str, words: Mapping[str, tuple[str, str]], width: int = 4
) -> stat.Panel:
    """One figure that is shown as a word: text and colour by value."""
    mapped = {
        value: dashboard.ValueMappingResult(text=text, color=color, index=place)
        for place, (value, (text, color)) in enumerate(words.items())
    }
    panel = number(title, about, expr, width=width).mappings([dashboard.ValueMap(options=mapped)])
    return panel.no_value("none")


def lines(  # noqa: PLR0913
    title: str,
    about: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    width: int = 12,
    limit: float | None = None,
    links: Iterable[build.DashboardLink] = (),
    colors: Mapping[str, str] = _NO_COLORS,
) -> timeseries.Panel:
    """Lines over time, or bars that are stacked; `limit` is the value at which an alert fires."""
    panel = _plain(title, about).unit(unit).span(width).data_links(list(links))
    for name, color in colors.items():
        fixed = {"mode": "fixed", "fixedColor": color}
        changes = [dashboard.DynamicConfigValue(id_val="color", value=fixed)]
        panel = panel.override_by_name(name, changes)
    for query, ref in zip(queries, map(chr, count(ord("A"))), strict=False):
        panel = panel.with_target(query.built(ref, instant=False))
    if stacked:
        bars = look.StackingConfig().mode(common.StackingMode.NORMAL)
        panel = panel.draw_style(common.GraphDrawStyle.BARS).stacking(bars).fill_opacity(70)
    if limit is not None:
        drawn = look.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(thresholds(((None, GREEN), (limit, RED)))).thresholds_style(drawn)
    return panel


def _plain(title: str, about: str) -> timeseries.Panel:
    legend = look.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
    shown = look.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    return (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(PROMETHEUS)
        .min(0)
        .legend(legend.placement(common.LegendPlacement.BOTTOM).show_legend(True))
        .tooltip(shown.sort(common.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(10)
        .span_nulls(False)
        .height(8)
    )


def rows(  # noqa: PLR0913
    title: str,
    about: str,
    expr: str,
    names: Mapping[str, str],
    *,
    width: int = 12,
    links: Iterable[build.DashboardLink] = (),
) -> table.Panel:
    """A table of an instant query; `names` has the heading of each label, and of `Value`."""
    query = Query(expr).built("A", instant=True).format(PromQueryFormat.TABLE)
    order = look.TableSortByFieldState().display_name(names["Value"]).desc(True)
    return (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(PROMETHEUS)
        .with_target(query)
        .with_transformation(_columns(names))
        .sort_by([order])
        .decimals(0)
        .span(width)
        .height(8)
        .data_links(list(links))
    )


def _columns(names: Mapping[str, str]) -> dashboard.DataTransformerConfig:
    arranged = {
        "excludeByName": {"Time": True},
        "indexByName": {label: place for place, label in enumerate(names)},
        "renameByName": dict(names),
    }
    return dashboard.DataTransformerConfig(id_val="organize", options=arranged)


class JaegerSearch(variants.Dataquery, Builder[variants.Dataquery]):
    """A search in Jaeger, for which the foundation SDK has no builder.

    Args:
        service: Name of the service; a variable that stands for one.
        tags: What spans must have, as `key=value`.
        limit: Traces at most.
    """

    def __init__(self, service: str, tags: str, limit: int = 20) -> None:
        self._query = {"service": service, "tags": tags, "limit": limit}

    def build(self) -> variants.Dataquery:
        """Itself."""
        return self

    def to_json(self) -> dict[str, object]:
        """As Grafana's data source reads it."""
        return {"refId": "A", "datasource": JAEGER, "queryType": "search", **self._query}


def search(service: str, tags: str) -> build.DashboardLink:
    """A link to Explore that searches the traces of a service for a tag, in the time shown."""
    query = {"refId": "A", "queryType": "search", "service": service, "tags": tags, "limit": 50}
    shown = {"from": "${__from}", "to": "${__to}"}
    pane = {"datasource": "${traces}", "queries": [query], "range": shown}
    text = quote(json.dumps({"a": pane}, separators=(",", ":")), safe="${}")
    link = build.DashboardLink("Traces").url(f"/explore?schemaVersion=1&orgId=1&panes={text}")
    return link.target_blank(True)


def source(name: str, label: str, kind: str, uid: str) -> build.DatasourceVariable:
    """A variable that stands for a data source; the provisioned one at first."""
    current = dashboard.VariableOption(selected=True, text=label, value=uid)
    return build.DatasourceVariable(name).label(label).type(kind).current(current)


def values(
    name: str, label: str, query: str, *, part: str = "", everything: str | None = None
) -> build.QueryVariable:
    """A variable that stands for some or all values of a label, or for a part of them."""
    current = dashboard.VariableOption(selected=True, text="All", value="$__all")
    variable = (
        build.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query(query)
        .regex(part)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(current)
    )
    return variable if everything is None else variable.all_value(everything)


def board(title: str, uid: str, about: str, other: tuple[str, str]) -> build.Dashboard:
    """An empty dashboard with its variables, alerts as annotations, and a link to the other."""
    alerts = build.AnnotationQuery().name("Alerts").datasource(PROMETHEUS).icon_color(RED)
    alerts = alerts.enable(True).expr('ALERTS{alertname=~"LoopGuard.+", alertstate="firing"}')
    services = "label_values(loopguard_session_known, job)"
    link = build.DashboardLink(other[0]).type(dashboard.DashboardLinkType.LINK)
    return (
        build.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["loopguard"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(source("datasource", "Metrics", "prometheus", "loopguard-prom"))
        .with_variable(source("traces", "Traces", "jaeger", "loopguard-jaeger"))
        .with_variable(values("job", "Service", services, part="/([^/]+)$/"))
        .annotation(alerts)
        .link(link.url(f"/d/{other[1]}").keep_time(True).include_vars(True))
    )
