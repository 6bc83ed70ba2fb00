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
    JOB,
    NONE_IS_GOOD,
    NONE_IS_USUAL,
    ORANGE,
    RED,
    TEMPO,
    TEXT,
    JaegerSearch,
    Query,
    bare,
    board,
    counted,
    lines,
    number,
    rows,
    search,
    source,
    values,
)

UID: Final = "loopguard-operators"
HEALTH: Final = ("The guard's own health", "loopguard-health")

_OF: Final = f'{JOB}, gen_ai_agent_name=~"$agent"'
_STEP: Final = "$__rate_interval"
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
    agents = f"label_values(loopguard_decisions_total{{{JOB}}}, gen_ai_agent_name)"
    made = made.with_variable(values("agent", "Agent", agents, everything=".*"))
    made = made.with_variable(source("tempo", "Tempo", "tempo", "loopguard-tempo"))
    for part in (_now, _decisions, _agents, _tools, _people, _traces):
        made = part(made)
    return made


def _sum(by: str, name: str, labels: str, window: str = _STEP) -> str:
    """How much counters rose, by labels or in all."""
    return f"sum{by and f' by ({by}) '}({counted(name, labels, window)})"


def _now(made: build.Dashboard) -> build.Dashboard:
    aborts, denies = (
        _sum("", "decisions", f'{_REAL}, loopguard_decision_action="{action}"', "$__range")
        for action in ("abort", "deny")
    )
    # A session that waits for an answer is paused, too.
    either = '__name__=~"loopguard_escalation_waiting|loopguard_session_paused"'
    waiting = f"sum(max by (job, instance) ({{{either}, {JOB}}}))"
    saved = _sum("", "saved_tokens", _OF, "$__range")
    stalled = f"sum(loopguard_session_stalled{{{_OF}}})"
    active = f"sum(loopguard_session_active{{{_OF}}})"
    figures = (
        number("Aborted", "Runs that were told to end.", aborts, steps=NONE_IS_GOOD),
        number("Denied", "Calls that were to be refused.", denies, steps=NONE_IS_USUAL),
        number("Stalled now", "Something runs past its limit.", stalled, steps=NONE_IS_GOOD),
        number("Wait for people", "Escalations, or paused sessions: the more of the two.", waiting,
               steps=NONE_IS_USUAL),
        number("Active now", "With an open span; of servers, with a call asked for.", active,
               steps=((None, BLUE),)),
        number("Tokens saved", "Estimate: what the rest of the stopped loops would have taken.",
               saved, steps=((None, GREEN),)),
    )  # fmt: skip
    for figure in figures:
        made = made.with_panel(figure)
    return made


def _decisions(made: build.Dashboard) -> build.Dashboard:
    spoken = _sum("loopguard_decision_action", "decisions", _SPOKEN) + " > 0"
    detected = _sum("loopguard_detector_name", "detector_decisions", _SPOKEN) + " > 0"
    shadow = _sum("", "decisions", f'{_OF}, loopguard_decision_shadow="true"') + " > 0"
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
    decided = bare(counted("detector_decisions", stops, "$__range"))
    stopped = f"sum by ({labels}) ({decided}) >= 0.5"
    action = "loopguard.decision.action=${__data.fields.Action}"
    found = bare(counted("detections", _OF, _STEP))
    detected = f"sum by (job, gen_ai_agent_name) ({found}) > 0"
    sessions = "sum by (gen_ai_agent_name) (loopguard_session_%s{%s}) > 0"
    return (
        made.with_row(build.Row("Agents"))
        .with_panel(
            rows("Stopped agents", "In the time shown; a row leads to its traces.", stopped,
                 _BY_AGENT, links=[search("${__data.fields.Service}", action)])
        )
        .with_panel(
            lines("Detections by agent", "What detectors found, whatever followed.",
                  Query(detected, "{{gen_ai_agent_name}}"), stacked=True,
                  links=[search("${__field.labels.job}", "loopguard.decision.action=hint")])
        )
        .with_panel(
            lines("Sessions", "Active, and of these stalled.",
                  Query(sessions % ("active", _OF), "{{gen_ai_agent_name}}"),
                  Query(sessions % ("stalled", _OF), "{{gen_ai_agent_name}} stalled"))
        )
        .with_panel(
            lines("Loops", "Noticed, and of these stopped.",
                  Query(_sum("", "loops_detected", _OF), "detected"),
                  Query(_sum("", "loops_prevented", _OF), "prevented"))
        )
    )  # fmt: skip


def _tools(made: build.Dashboard) -> build.Dashboard:
    failed, tried = (
        _sum("gen_ai_tool_name", "tool_calls", f"{JOB}{more}")
        for more in (', loopguard_call_outcome="failure"', "")
    )
    calls = _sum("loopguard_call_outcome", "tool_calls", JOB)
    recovered = _sum("", "tool_recoveries", JOB)
    switches = _sum("", "strategy_switches", _OF)
    open_ = f"max by (job, gen_ai_tool_name, gen_ai_agent_name) (loopguard_breaker_open{{{JOB}}})"
    heads = {"job": "Service", "gen_ai_tool_name": "Tool", "gen_ai_agent_name": "Agent",
             "Value": "Open"}  # fmt: skip
    return (
        made.with_row(build.Row("Tools"))
        .with_panel(
            lines("Calls that fail", "Share of the calls of a tool; the ten worst.",
                  Query(f"topk(10, {failed} / ({tried} > 0))", "{{gen_ai_tool_name}}"),
                  unit="percentunit", width=8)
        )
        .with_panel(
            lines("Calls and recoveries",
                  "Successes after a failure in the same session, and changes to another tool.",
                  Query(calls, "{{loopguard_call_outcome}}"), Query(recovered, "recovered"),
                  Query(switches, "other tool"), width=8)
        )
        .with_panel(rows("Breakers", "1 is open: calls are refused.", open_, heads, width=8))
    )  # fmt: skip


def _people(made: build.Dashboard) -> build.Dashboard:
    waits = f"sum by (job) (loopguard_escalation_waiting{{{JOB}}})"
    paused = f"sum by (job) (loopguard_session_paused{{{JOB}}})"
    asked = _sum("loopguard_execution_choice", "execution_choices", JOB)
    answers = f"sum by (loopguard_execution_answer) (loopguard_execution_answers{{{JOB}}})"
    verdicts = f"sum by (loopguard_feedback_verdict) (loopguard_feedback{{{JOB}}})"
    return (
        made.with_row(build.Row("People"))
        .with_panel(
            lines("Who is waited for", "Escalations without an answer, and paused sessions, which "
                  "each server counts that was asked for them.",
                  Query(waits, "{{job}} waits"), Query(paused, "{{job}} paused"), width=8)
        )
        .with_panel(
            lines("Advice before calls", "What `execution.admit` said.",
                  Query(asked, "{{loopguard_execution_choice}}"), stacked=True, width=8)
        )
        .with_panel(
            lines("What people said", "By `sessions.feedback`, of decisions and of advice.",
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
