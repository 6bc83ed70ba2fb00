"""The dashboard for those who run the guard: what it costs, what it loses, whether it is well."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from panels import (
    GREEN,
    JOB,
    NONE_IS_GOOD,
    ORANGE,
    RED,
    Query,
    board,
    counted,
    lines,
    number,
    rows,
    state,
)

UID: Final = "loopguard-health"
AGENTS: Final = ("Agents", "loopguard-operators")

_STEP: Final = "[$__rate_interval]"
_LOST: Final = f'{JOB}, error_type!=""'


def health() -> build.Dashboard:
    """The whole dashboard."""
    about = "What the guard costs, what it loses on the way, and whether its store is there."
    made = board("Loop guard: its own health", UID, about, AGENTS)
    for part in (_now, _cost, _held, _store, _export, _estimates, _collector, _servers):
        made = part(made)
    return made


def _quantile(quantile: float, name: str, labels: str = JOB, by: str = "le") -> str:
    rate = f"sum by ({by}) (rate({name}_bucket{{{labels}}}[$__rate_interval]))"
    return f"histogram_quantile({quantile:g}, {rate})"


def _now(made: build.Dashboard) -> build.Dashboard:
    p99 = (
        "histogram_quantile(0.99, sum by (le) "
        f"(rate(loopguard_evaluation_duration_seconds_bucket{{{JOB}}}[$__range])))"
    )
    losing = ("exporter_exported", "events", "store_writes", "verdicts")
    lost = " + ".join(f"(sum({counted(name, _LOST, '$__range')}) or vector(0))" for name in losing)
    faults = f"sum({counted('faults', JOB, '$__range')}) or vector(0)"
    words = {"0": ("available", GREEN), "1": ("degraded", ORANGE), "2": ("unavailable", RED)}
    figures = (
        state("Store", "The worst of all processes; none without a store.", _worst(), words,
              width=6),
        number("p99 of a step", "One of a hundred takes the guard so long.", p99, unit="s",
               steps=((None, GREEN), (0.001, ORANGE), (0.005, RED)), width=6),
        number("Lost", "Decisions, log events, writes to the store, and verdicts.", lost,
               steps=NONE_IS_GOOD, width=6),
        number("Faults swallowed", "Of the guard's own code, or of code given to it.", faults,
               steps=NONE_IS_GOOD, width=6),
    )  # fmt: skip
    for figure in figures:
        made = made.with_panel(figure)
    return made


def _worst() -> str:
    # A process counts its guards: a server has one for each tenant.
    status = f'(max(loopguard_store_status{{{JOB}, loopguard_store_state="%s"}}) > bool 0)'
    return f"{status % 'degraded'} + 2 * {status % 'unavailable'}"


def _cost(made: build.Dashboard) -> build.Dashboard:
    duration = "loopguard_evaluation_duration_seconds"
    steps = f"sum by (loopguard_step_kind) (rate(loopguard_steps_total{{{JOB}}}{_STEP}))"
    return (
        made.with_row(build.Row("Cost"))
        .with_panel(
            lines("What the guard costs", "Per ended span, on whichever thread. Points lead to "
                  "traces.", Query(_quantile(0.5, duration), "half"),
                  Query(_quantile(0.9, duration), "9 of 10"),
                  Query(_quantile(0.99, duration), "99 of 100", exemplar=True),
                  unit="s", limit=0.005)
        )
        .with_panel(
            lines("Steps per second", "What was read off spans, by kind.",
                  Query(steps, "{{loopguard_step_kind}}"), stacked=True)
        )
    )  # fmt: skip


def _held(made: build.Dashboard) -> build.Dashboard:
    used = (
        "max by (loopguard_resource_name, loopguard_resource_statistic) "
        f"(loopguard_resource_utilization_percent{{{JOB}}})"
    )
    faults = (
        f"sum by (loopguard_fault_place, error_type) ({counted('faults', JOB, '$__range')}) >= 0.5"
    )
    heads = {"loopguard_fault_place": "Place", "error_type": "Error", "Value": "Times"}
    return (
        made.with_panel(
            lines("Held in memory", "Sessions, those that were forgotten for want of room, and "
                  "open spans that are watched.",
                  Query(f"sum(loopguard_session_known{{{JOB}}})", "sessions"),
                  Query(f"sum({counted('session_evictions', JOB, '$__rate_interval')})",
                        "forgotten"),
                  Query(f"sum(loopguard_step_open{{{JOB}}})", "open spans"), width=8)
        )
        .with_panel(
            lines("The machine", "As `execution.admit` samples it; without that, nothing.",
                  Query(used, "{{loopguard_resource_name}} {{loopguard_resource_statistic}}"),
                  unit="percent", width=8)
        )
        .with_panel(rows("Faults", "Swallowed; the log has one line per kind.", faults, heads,
                         width=8))
    )  # fmt: skip


def _store(made: build.Dashboard) -> build.Dashboard:
    duration = "loopguard_store_operation_duration_seconds"
    name = "db_operation_name"
    calls = f"sum by (%s) (rate({duration}_count{{%s}}[$__rate_interval]))"
    size, capacity = (f"loopguard_store_queue_{end}{{{JOB}}}" for end in ("size", "capacity"))
    return (
        made.with_row(build.Row("Store"))
        .with_panel(
            lines("Calls of the store", "99 of 100, and half, are answered within.",
                  Query(_quantile(0.99, duration, by=f"le, {name}"), "{{db_operation_name}} p99"),
                  Query(_quantile(0.5, duration, by=f"le, {name}"), "{{db_operation_name}} p50"),
                  unit="s", width=8)
        )
        .with_panel(
            lines("Calls per second", "And those that fail.",
                  Query(calls % (name, f'{JOB}, error_type=""'), "{{db_operation_name}}"),
                  Query(calls % ("error_type", _LOST), "{{error_type}}"), width=8)
        )
        .with_panel(
            lines("Queue of writes", "Share that is full in the fullest process; full, it drops.",
                  Query(f"max by (job) ({size} / {capacity})", "{{job}}"),
                  unit="percentunit", limit=0.8, width=8)
        )
    )  # fmt: skip


def _total(name: str, labels: str) -> str:
    return f"sum(rate(loopguard_{name}_total{{{labels}}}[$__rate_interval]))"


def _export(made: build.Dashboard) -> build.Dashboard:
    rate = "sum by (%s) (rate(loopguard_%s_total{%s}[$__rate_interval]))"
    good = f'{JOB}, error_type=""'
    size, capacity = (f"loopguard_exporter_queue_{name}{{{JOB}}}" for name in ("size", "capacity"))
    return (
        made.with_row(build.Row("On the way out"))
        .with_panel(
            lines("Handed on per second", "Spans and decisions by LoopGuardSpanExporter, log "
                  "events, writes. Of servers only writes: what they send on is below.",
                  Query(rate % ("job", "exporter_spans", good), "spans {{job}}"),
                  Query(rate % ("job", "exporter_exported", good), "decisions {{job}}"),
                  Query(rate % ("job", "events", good), "events {{job}}"),
                  Query(rate % ("job", "store_writes", good), "writes {{job}}"), width=8)
        )
        .with_panel(
            lines("Lost per second", "And writes that are tried again, of which none is lost yet.",
                  Query(_total("exporter_exported", _LOST), "decisions"),
                  Query(_total("events", _LOST), "events"),
                  Query(_total("store_writes", _LOST), "writes"),
                  Query(_total("verdicts", _LOST), "verdicts"),
                  Query(_total("store_retries", JOB), "tried again"), width=8)
        )
        .with_panel(
            lines("Decisions that wait for their spans", "Share of the queue.",
                  Query(f"max by (job) ({size} / {capacity})", "{{job}}"),
                  unit="percentunit", limit=0.8, width=8)
        )
    )  # fmt: skip


def _estimates(made: build.Dashboard) -> build.Dashboard:
    error = "loopguard_estimate_error_percent"
    sources = (
        "sum by (loopguard_estimate_source) "
        f"(rate(loopguard_estimates_total{{{JOB}}}[$__rate_interval]))"
    )
    return (
        made.with_row(build.Row("Estimates"))
        .with_panel(
            lines("How far estimates are off", "In percent of what the call took.",
                  Query(_quantile(0.5, error), "half"), Query(_quantile(0.9, error), "9 of 10"),
                  unit="percent", limit=200)
        )
        .with_panel(
            lines("Estimates per second", "Those for `execution.admit`, by what they rest on.",
                  Query(sources, "{{loopguard_estimate_source}}"), stacked=True)
        )
    )  # fmt: skip


def _collector(made: build.Dashboard) -> build.Dashboard:
    kinds = {"spans": "spans", "log_records": "logs", "metric_points": "metrics"}

    def rates(name: str, said: str = "") -> list[Query]:
        """How fast a counter rises, for spans, logs and metrics; its name ends in _total or not."""
        return [
            Query(
                f'sum(rate({{__name__=~"otelcol_{name}_{kind}(_total)?"}}[$__rate_interval]))',
                f"{word} {said}".strip(),
            )
            for kind, word in kinds.items()
        ]

    full = "max by (exporter) (otelcol_exporter_queue_size / otelcol_exporter_queue_capacity)"
    lost = rates("exporter_send_failed", "failed") + rates("exporter_enqueue_failed", "not queued")
    return (
        made.with_row(build.Row("Collector"))
        .with_panel(
            lines("Taken in per second", "And refused, if anything is.",
                  *rates("receiver_accepted"), *rates("receiver_refused", "refused"), width=8)
        )
        .with_panel(
            lines("Sent per second", "And lost, if anything is.",
                  *rates("exporter_sent"), *lost, width=8)
        )
        .with_panel(
            lines("Queues", "Share that is full.", Query(full, "{{exporter}}"),
                  unit="percentunit", limit=0.8, width=8)
        )
    )  # fmt: skip


def _servers(made: build.Dashboard) -> build.Dashboard:
    of = "loopguard_server_{}".format
    rate = "sum by (%s) (rate(%s{%s}[$__rate_interval]))"
    delay, forward = of("judging_delay_seconds"), of("forward_duration_seconds")
    shares = (
        ("memory", of("held_usage_bytes"), of("held_limit_bytes")),
        *((f"to be {done}", of(f"{name}_queue_size"), of(f"{name}_queue_capacity"))
          for name, done in (("judging", "judged"), ("forward", "sent on"))),
    )  # fmt: skip
    full = [
        Query(f"max(sum by (job, instance) ({used}{{{JOB}}})"
              f" / sum by (job, instance) ({most}{{{JOB}}}))", word)
        for word, used, most in shares
    ]  # fmt: skip
    requests = rate % ("http_route, rpc_method", of("request_duration_seconds_count"), JOB)
    checks = f"min by (instance, loopguard_server_check) ({of('ready')}{{{JOB}}})"
    leases = rate % ("loopguard_server_lease", of("leases_total"), JOB)
    return (
        made.with_row(build.Row("Servers"))
        .with_panel(
            lines("Requests per second", "By route, over HTTP and gRPC.",
                  Query(requests, "{{http_route}}{{rpc_method}}"), stacked=True, width=8)
        )
        .with_panel(
            lines("Refused per second", "By cause; and what the next hop did not take.",
                  Query(rate % ("error_type", of("refusals_total"), JOB), "{{error_type}}"),
                  Query(rate % ("error_type", f"{forward}_count", _LOST),
                        "next hop: {{error_type}}"), width=8)
        )
        .with_panel(
            lines("Checks of readiness", "1 holds, 0 fails; the lowest of all that are chosen.",
                  Query(checks, "{{loopguard_server_check}} {{instance}}"), width=8)
        )
        .with_panel(
            lines("How late steps are judged", "The later, the later an agent is warned.",
                  Query(_quantile(0.5, delay), "half"), Query(_quantile(0.95, delay), "95 of 100"),
                  Query(_quantile(0.95, forward), "next hop, 95 of 100"), unit="s", width=8)
        )
        .with_panel(
            lines("What is full", "Share at the fullest server; full, it refuses.", *full,
                  unit="percentunit", width=8)
        )
        .with_panel(
            lines("Leases of sessions per second", "Of workers that share a store.",
                  Query(leases, "{{loopguard_server_lease}}"), width=8)
        )
    )  # fmt: skip
