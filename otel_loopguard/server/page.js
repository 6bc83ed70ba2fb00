"use strict";
// Lists the sessions of a server, pauses, resumes or aborts them, and answers what they ask. Content is set as text only.

const byId = (id) => document.getElementById(id);
const KEY = "loopguard-token";
const ANSWERS = { modify_plan: "Change plan", skip_task: "Skip task", continue: "Continue", abort: "Abort" };
const rows = new Map();
let shown = null;
let said = "";

async function ask(path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.detail), { status: answer.status, token });
  return found;
}

const pathOf = (session, what = "") => `v1/session${what}?id=${encodeURIComponent(session)}`;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function ago(nanoseconds) {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - nanoseconds / 1e9));
  if (seconds < 60) return `${seconds} s ago`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

// Who listens to the page hears what changed, and not every two seconds what did not.
function say(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function button(label, act) {
  const made = element("button", label);
  made.type = "button";
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await act();
      say("problem", "");
      await refresh();
    } catch (error) {
      say("problem", error.message);
      made.disabled = false;
    }
  });
  return made;
}

function row(session) {
  const made = element("tr");
  const name = element("th", undefined, "name");
  name.scope = "row";
  const named = element("button", session.session, "name");
  named.type = "button";
  named.addEventListener("click", () => look(session.session));
  name.append(named);
  const action = element("td", undefined, "action");
  action.append(element("span", session.action, `badge ${session.action}`));
  const buttons = element("td", undefined, "buttons");
  const post = (what) => () => ask(pathOf(session.session, `/${what}`), { by: "web page" });
  if (session.escalation) {
    const answer = element("button", "Answer");
    answer.type = "button";
    answer.addEventListener("click", () => look(session.session));
    buttons.append(answer, " ");
  }
  if (["deny", "pause", "abort"].includes(session.action)) buttons.append(button("Resume", post("resume")));
  else buttons.append(button("Pause", post("pause")));
  if (session.action !== "abort") buttons.append(" ", button("Abort", post("abort")));
  // The last detector stays known after a resume; it explains nothing that is still in force.
  const why = session.action === "allow" ? "" : [session.detector, session.reason].filter(Boolean).join(": ");
  const steps = element("td", session.steps, "number");
  steps.dataset.unit = session.steps === 1 ? "step" : "steps";
  made.append(name, element("td", session.agent, "agent"), steps,
    element("td", ago(session.last), "seen"), action, element("td", why, "why"), buttons);
  return made;
}

// A row is made anew when it says something else, so that focus and a click in between stay.
function rowOf(session) {
  const facts = JSON.stringify({ ...session, last: 0, since: 0 });
  let known = rows.get(session.session);
  if (known?.facts !== facts) rows.set(session.session, known = { facts, row: row(session) });
  const seen = known.row.querySelector(".seen");
  if (seen.textContent !== ago(session.last)) seen.textContent = ago(session.last);
  return known.row;
}

function list(sessions) {
  const active = document.activeElement;
  const [key] = [...rows].find(([, known]) => known.row.contains(active)) || [];
  const place = key === undefined ? 0 : [...rows.get(key).row.querySelectorAll("button")].indexOf(active);
  const wanted = sessions.map(rowOf);
  const now = [...byId("sessions").children];
  if (wanted.length !== now.length || wanted.some((one, at) => one !== now[at]))
    byId("sessions").replaceChildren(...wanted);
  if (key !== undefined && document.activeElement !== active) {
    const buttons = rows.get(key).row.querySelectorAll("button");
    (buttons[place] || buttons[buttons.length - 1]).focus({ preventScroll: true });
  }
  const names = new Set(sessions.map((one) => one.session));
  for (const name of rows.keys()) if (!names.has(name)) rows.delete(name);
}

async function refresh() {
  try {
    const { sessions, omitted, partial } = await ask("v1/sessions");
    const wanted = byId("filter").value.toLowerCase();
    const matching = sessions.filter((one) =>
      Object.values(one).some((value) => String(value ?? "").toLowerCase().includes(wanted)));
    list(matching);
    const stopped = sessions.filter((one) => ["deny", "pause", "abort"].includes(one.action)).length;
    const lack = partial ? `; others may be missing: ${partial}` : "";
    const more = (omitted ? `, ${omitted} older ones not listed` : "") + lack;
    const part = wanted ? `${matching.length} of ` : "";
    const unit = sessions.length === 1 ? "session" : "sessions";
    say("summary", `${part}${sessions.length} ${unit}, ${stopped} stopped${more}`);
    say("login-error", "");
    byId("empty").hidden = sessions.length > 0;
    byId("unlisted").hidden = !omitted || matching.length > 0;
    byId("login").hidden = true;
    byId("main").hidden = false;
    document.querySelector(".filter").hidden = false;
  } catch (error) {
    const login = error.status === 401;
    byId("login").hidden = !login;
    byId("main").hidden = login;
    say("summary", login ? "Sign in with a token." : `Not connected: ${error.message}`);
    if (login && error.token) say("login-error", "No tenant has this token.");
    return;
  }
  if (shown) await follow(shown);
}

// As somebody asked for it, which ends what was said of the last thing that could not be done.
function look(key) {
  say("problem", "");
  return follow(key);
}

async function follow(key) {
  try {
    await show(key);
  } catch (error) {
    if (error.status) say("problem", error.message);
    else say("summary", `Not connected: ${error.message}`);
    if (error.status === 404 && shown === key) leave();
  }
}

function leave() {
  rows.get(shown)?.row.querySelector("button").focus();
  shown = null;
  byId("detail").hidden = true;
}

// What was typed stays while the same question waits.
function question(key, found) {
  const place = byId("question");
  if (place.dataset.id === (found?.id ?? "")) return;
  const left = place.contains(document.activeElement);
  place.dataset.id = found?.id ?? "";
  place.hidden = !found;
  byId("guidance").value = "";
  byId("answers").replaceChildren(...(found?.suggestions ?? []).map((one) => {
    const made = button(ANSWERS[one.answer] ?? one.answer, () => ask(pathOf(key, "/answer"), {
      answer: one.answer, escalation: found.id, guidance: byId("guidance").value, by: "web page",
    }));
    made.title = one.text;
    return made;
  }));
  if (left) byId("detail-title").focus();
}

async function show(key) {
  const { session } = await ask(pathOf(key));
  const opened = shown !== key;
  const asked = session.package && !session.package.ended ? session.package : null;
  const facts = JSON.stringify({ ...session, last: 0, package: asked?.id });
  if (!opened && said === facts) return;
  said = facts;
  shown = key;
  question(key, asked);
  byId("detail").hidden = false;
  byId("detail-title").textContent = key;
  byId("detail-reason").textContent = asked?.question || session.reason || "Nothing was decided that stops it.";
  const decisions = session.decisions.map((one) =>
    element("li", `step ${one.step + 1}: ${one.action === "allow" ? "note" : one.action} by ${one.detector} (${one.rule}): ${one.message}`));
  byId("detail-decisions").replaceChildren(...decisions);
  const actions = session.actions.map(({ tool, outcome, error_type: error }) =>
    element("li", outcome === "ok" ? tool : `${tool} ${error === "loopguard_deny" ? "refused" : outcome}`));
  byId("detail-actions").replaceChildren(...actions);
  if (opened) byId("detail-title").focus();
}

byId("close").addEventListener("click", leave);
byId("filter").addEventListener("input", refresh);
// Of many sessions the newest are listed: one that is not is found by its name.
byId("filter").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.value) look(event.target.value);
});
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("token").value);
  refresh();
});
say("summary", "Loading…");
refresh();
setInterval(refresh, 2000);
