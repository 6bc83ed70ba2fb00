"use strict";
// Lists the sessions of a server, and pauses, resumes or aborts them. Content is set as text only.

const byId = (id) => document.getElementById(id);
const KEY = "loopguard-token";
let shown = null;

async function ask(path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const found = await answer.json();
  if (answer.status === 401) throw Object.assign(new Error(found.detail), { login: true });
  if (!answer.ok) throw new Error(found.detail);
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

function button(label, act) {
  const made = element("button", label);
  made.type = "button";
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await act();
      await refresh();
    } catch (error) {
      byId("summary").textContent = error.message;
      made.disabled = false;
    }
  });
  return made;
}

function row(session) {
  const made = element("tr");
  const name = element("td", undefined, "name");
  const open = element("button", session.session, "name");
  open.type = "button";
  open.addEventListener("click", () => show(session.session));
  name.append(open);
  const action = element("td", undefined, "action");
  action.append(element("span", session.action, `badge ${session.action}`));
  const buttons = element("td", undefined, "buttons");
  const post = (what) => () => ask(pathOf(session.session, `/${what}`), { by: "web page" });
  if (["deny", "pause", "abort"].includes(session.action)) buttons.append(button("Resume", post("resume")));
  else buttons.append(button("Pause", post("pause")));
  if (session.action !== "abort") buttons.append(" ", button("Abort", post("abort")));
  // The last detector stays known after a resume; it explains nothing that is still in force.
  const why = session.action === "allow" ? "" : [session.detector, session.reason].filter(Boolean).join(": ");
  made.append(name, element("td", session.agent, "agent"), element("td", session.steps, "number"),
    element("td", ago(session.last), "seen"), action, element("td", why, "why"), buttons);
  return made;
}

async function refresh() {
  try {
    const { sessions, omitted } = await ask("v1/sessions");
    const wanted = byId("filter").value.toLowerCase();
    const matching = sessions.filter((one) => JSON.stringify(one).toLowerCase().includes(wanted));
    byId("sessions").replaceChildren(...matching.map(row));
    const stopped = sessions.filter((one) => ["deny", "pause", "abort"].includes(one.action)).length;
    const more = omitted ? `, ${omitted} older ones not listed` : "";
    byId("summary").textContent = `${sessions.length} sessions, ${stopped} stopped${more}`;
    byId("empty").hidden = sessions.length > 0;
    byId("login").hidden = true;
    byId("main").hidden = false;
    if (shown) await show(shown);
  } catch (error) {
    byId("login").hidden = !error.login;
    byId("main").hidden = Boolean(error.login);
    byId("summary").textContent = error.login ? "Sign in with a token." : `Not connected: ${error.message}`;
  }
}

async function show(key) {
  const { session } = await ask(pathOf(key));
  shown = key;
  byId("detail").hidden = false;
  byId("detail-title").textContent = key;
  byId("detail-reason").textContent = session.reason || "Nothing was decided that stops it.";
  const decisions = session.decisions.map((one) =>
    element("li", `step ${one.step + 1}: ${one.action === "allow" ? "note" : one.action} by ${one.detector} (${one.rule}): ${one.message}`));
  byId("detail-decisions").replaceChildren(...decisions);
  const actions = session.actions.map((one) =>
    element("li", `${one.tool || one.name || one.kind}${one.failed ? " failed" : ""}`));
  byId("detail-actions").replaceChildren(...actions);
}

byId("close").addEventListener("click", () => {
  shown = null;
  byId("detail").hidden = true;
});
byId("filter").addEventListener("input", refresh);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("token").value);
  refresh();
});
refresh();
setInterval(refresh, 2000);
