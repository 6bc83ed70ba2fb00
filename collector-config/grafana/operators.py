"""The dashboard for those who run agents: what was stopped, what hangs, who is waited for."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import table, tempo
from grafana_foundation_sdk.models.tempo import SearchTableType
from panels import (
    BLUE,
    GREEN,
    JAEGER,
    NONE_IS_GOOD,
    NONE_IS_USUAL,
    ORANGE,
    RED,
    TEMPO,
    TEXT,
    JaegerSearch,
    Query,
    board,
    lines,
    number,
    rows,
    search,
    source,
    values,
)

UID: Final = "loopguard-operators"
HEALTH: Final = ("The guard's own health", "loopguard-health")

_OF: Final = 'job=~"$job", gen_ai_agent_name=~"$agent"'
_JOB: Final = 'job=~"$job"'
_STEP: Final = "[$__rate_interval]"
_REAL: Final = f'{_OF}, loopguard_decision_shadow!="true"'
_STOPS: Final = "deny|pause|abort"
_SPOKEN: Final = f'{_REAL}, loopguard_decision_action!="allow"'
_ACTIONS: Final = {
    "hint": "light-yellow",
    "steer": "dark-yellow",
    "ask": "purple",
    "deny": ORANGE,
    "pause": BLUE,
    "abort": RED,
    "shadow": TEXT,
}
_BY_AGENT: Final = {
    "job": "Service",
    "gen_ai_agent_name": "Agent",
    "loopguard_detector_name": "Detector",
    "loopguard_decision_action": "Action",
    "Value": "Decisions",
}


def operators() -> build.Dashboard:
    """The whole dashboard."""
    about = "What agents do, what was decided about them, and who is waited for."
    made = board("Loop guard: agents", UID, about, HEALTH)
    agents = f"label_values(loopguard_decisions_total{{{_JOB}}}, gen_ai_agent_name)"
    made = made.with_variable(values("agent", "Agent", agents, everything=".*"))
    made = made.with_variable(source("tempo", "Tempo", "tempo", "loopguard-tempo"))
    for part in (_now, _decisions, _agents, _tools, _people, _traces):
        made = part(made)
    return made


def _now(made: build.Dashboard) -> build.Dashboard:
    decisions = f"sum(increase(loopguard_decisions_total{{{_REAL}, %s}}[$__range]))"
    aborts, denies = (
        decisions % f'loopguard_decision_action="{action}"' for action in ("abort", "deny")
    )
    waiting = (
        f"sum(loopguard_escalation_waiting{{{_JOB}}}) + sum(loopguard_session_paused{{{_JOB}}})"
    )
    saved = f"sum(increase(loopguard_saved_tokens_total{{{_OF}}}[$__range]))"
    stalled = f"sum(loopguard_session_stalled{{{_OF}}})"
    active = f"sum(loopguard_session_active{{{_OF}}})"
    figures = (
        number("Aborted", "Runs that were told to end.", aborts, steps=NONE_IS_GOOD),
        number("Denied", "Calls that were to be refused.", denies, steps=NONE_IS_USUAL),
        number("Stalled now", "Something runs past its limit.", stalled, steps=NONE_IS_GOOD),
        number("Wait for people", "Escalations, and sessions that are paused.", waiting,
               steps=NONE_IS_USUAL),
        number("Active now", "Sessions with an open span.", active, steps=((None, BLUE),)),
        number("Tokens saved", "Estimate: what the rest of the stopped loops would have taken.",
               saved, steps=((None, GREEN),)),
    )  # fmt: skip
    for figure in figures:
        made = made.with_panel(figure)
    return made


def _decisions(made: build.Dashboard) -> build.Dashboard:
    by = "sum by (%s) (increase(loopguard_%s_total{%s}[$__rate_interval])) > 0"
    spoken = by % ("loopguard_decision_action", "decisions", _SPOKEN)
    detected = by % ("loopguard_detector_name", "detector_decisions", _SPOKEN)
    noted = f'{_OF}, loopguard_decision_shadow="true"'
    shadow = f"sum(increase(loopguard_decisions_total{{{noted}}}[$__rate_interval])) > 0"
    return (
        made.with_row(build.Row("Decisions"))
        .with_panel(
            lines(
                "Decisions by action",
                "Hints and stronger. What was only noted in mode `shadow` is a line of its own.",
                Query(spoken, "{{loopguard_decision_action}}"),
                Query(shadow, "shadow"),
                stacked=True,
                colors=_ACTIONS,
            )
        )
        .with_panel(
            lines(
                "Decisions by detector",
                "The same by what was noticed.",
                Query(detected, "{{loopguard_detector_name}}"),
                stacked=True,
            )
        )
    )


def _agents(made: build.Dashboard) -> build.Dashboard:
    stops = f'{_REAL}, loopguard_decision_action=~"{_STOPS}"'
    labels = ", ".join(label for label in _BY_AGENT if label != "Value")
    decided = f"loopguard_detector_decisions_total{{{stops}}}"
    # The second branch: a series that is born at 1 has no earlier sample for increase().
    stopped = (
        f"sum by ({labels}) (increase({decided}[$__range])) >= 0.5 "
        f"or sum by ({labels}) ({decided} unless {decided} offset $__range) > 0"
    )
    action = "loopguard.decision.action=${__data.fields.Action}"
    detected = "sum by (job, gen_ai_agent_name) (rate(loopguard_detections_total{%s}%s))"
    loops = "sum(increase(loopguard_loops_%s_total{%s}[$__rate_interval]))"
    sessions = "sum by (gen_ai_agent_name) (loopguard_session_%s{%s}) > 0"
    return (
        made.with_row(build.Row("Agents"))
        .with_panel(
            rows("Stopped agents", "In the time shown; a row leads to its traces.", stopped,
                 _BY_AGENT, links=[search("${__data.fields.Service}", action)])
        )
        .with_panel(
            lines("Detections per minute", "What detectors found, whatever followed.",
                  Query(f"60 * {detected % (_OF, _STEP)}", "{{gen_ai_agent_name}}"),
                  links=[search("${__field.labels.job}", "loopguard.decision.action=hint")])
        )
        .with_panel(
            lines("Sessions", "Active, and of these stalled.",
                  Query(sessions % ("active", _OF), "{{gen_ai_agent_name}}"),
                  Query(sessions % ("stalled", _OF), "{{gen_ai_agent_name}} stalled"))
        )
        .with_panel(
            lines("Loops", "Noticed, and of these stopped.",
                  Query(loops % ("detected", _OF), "detected"),
                  Query(loops % ("prevented", _OF), "prevented"))
        )
    )  # fmt: skip


def _tools(made: build.Dashboard) -> build.Dashboard:
    calls = f"sum by (%s) (rate(loopguard_tool_calls_total{{{_JOB}%s}}[$__rate_interval]))"
    failed = calls % ("gen_ai_tool_name", ', loopguard_call_outcome="failure"')
    tried = calls % ("gen_ai_tool_name", "")
    recovered = f"sum(rate(loopguard_tool_recoveries_total{{{_JOB}}}[$__rate_interval]))"
    switches = f"sum(rate(loopguard_strategy_switches_total{{{_OF}}}[$__rate_interval]))"
    open_ = f"sum by (job, gen_ai_tool_name, gen_ai_agent_name) (loopguard_breaker_open{{{_JOB}}})"
    heads = {"job": "Service", "gen_ai_tool_name": "Tool", "gen_ai_agent_name": "Agent",
             "Value": "Open"}  # fmt: skip
    return (
        made.with_row(build.Row("Tools"))
        .with_panel(
            lines("Calls that fail", "Share of the calls of a tool; the ten worst.",
                  Query(f"topk(10, {failed} / {tried})", "{{gen_ai_tool_name}}"),
                  unit="percentunit", width=8)
        )
        .with_panel(
            lines("Calls and recoveries per minute",
                  "Successes after a failure in the same session, and changes to another tool.",
                  Query(f"60 * {calls % ('loopguard_call_outcome', '')}",
                        "{{loopguard_call_outcome}}"),
                  Query(f"60 * {recovered}", "recovered"),
                  Query(f"60 * {switches}", "other tool"), width=8)
        )
        .with_panel(rows("Breakers", "1 is open: calls are refused.", open_, heads, width=8))
    )  # fmt: skip


def _people(made: build.Dashboard) -> build.Dashboard:
    waits = f"sum by (job) (loopguard_escalation_waiting{{{_JOB}}})"
    paused = f"sum by (job) (loopguard_session_paused{{{_JOB}}})"
    asked = f"sum by (%s) (increase(loopguard_%s_total{{{_JOB}}}[$__rate_interval]))"
    answers = f"sum by (loopguard_execution_answer) (loopguard_execution_answers{{{_JOB}}})"
    verdicts = f"sum by (loopguard_feedback_verdict) (loopguard_feedback{{{_JOB}}})"
    return (
        made.with_row(build.Row("People"))
        .with_panel(
            lines("Who is waited for", "Escalations without an answer, and paused sessions.",
                  Query(waits, "{{job}} waits"), Query(paused, "{{job}} paused"), width=8)
        )
        .with_panel(
            lines("Advice before calls", "What `execution.admit` said.",
                  Query(asked % ("loopguard_execution_choice", "execution_choices"),
                        "{{loopguard_execution_choice}}"), stacked=True, width=8)
        )
        .with_panel(
            lines("What people said", "Of decisions, and of advice.",
                  Query(verdicts, "{{loopguard_feedback_verdict}}"),
                  Query(answers, "{{loopguard_execution_answer}}"), width=8)
        )
    )  # fmt: skip


def _traces(made: build.Dashboard) -> build.Dashboard:
    aborted = "loopguard.decision.action=abort"
    found = (
        table.Panel()
        .title("Aborted runs of $job")
        .description("The newest traces with an abort; a trace id leads to its waterfall.")
        .datasource(JAEGER)
        .with_target(JaegerSearch("$job", aborted))
        .repeat("job")
        .repeat_direction("h")
        .span(12)
        .height(8)
    )
    stopped = 'resource.service.name =~ "$job" && span.loopguard.decision.action =~ "deny|abort"'
    query = tempo.TempoQuery().ref_id("A").datasource(TEMPO).query_type("traceql").limit(20)
    asked = query.query(f"{{ {stopped} }}").table_type(SearchTableType.SPANS)
    spans = table.Panel().title("Stopped calls").datasource(TEMPO).with_target(asked)
    spans = spans.description("The newest spans with a deny or an abort.").span(24).height(8)
    return made.with_row(build.Row("Traces in Jaeger").collapsed(True).with_panel(found)).with_row(
        build.Row("Traces in Tempo").collapsed(True).with_panel(spans)
    )
