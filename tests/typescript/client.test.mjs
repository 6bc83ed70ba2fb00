// The client against a running server, whose address is in LOOPGUARD_URL.
import { BatchSpanProcessor, InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LoopGuardControl, LoopGuardStop } from "../../clients/typescript/dist/index.js";
import { exporterTo } from "../../clients/typescript/dist/mastra.js";
import { Conversation } from "../../clients/typescript/dist/otel.js";

const url = process.env.LOOPGUARD_URL;

// The same call as often as it is asked for, as an agent's exporter sends it.
async function calls(session, count, first = 0) {
  const spans = Array.from({ length: count }, (_, place) => {
    const number = first + place;
    const start = BigInt(Date.now() + number * 10) * 1_000_000n;
    const attributes = {
      "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
      "gen_ai.conversation.id": session, "gen_ai.tool.call.arguments": '{"q":"x"}',
      "gen_ai.tool.call.result": "nothing was found for this query",
    };
    return {
      traceId: Buffer.from(session.padEnd(15, "-") + String.fromCharCode(65 + number), "latin1").toString("hex"),
      spanId: Buffer.from(session.slice(0, 7).padEnd(7, "-") + String.fromCharCode(65 + number), "latin1").toString("hex"),
      name: "execute_tool search", kind: 1,
      startTimeUnixNano: String(start), endTimeUnixNano: String(start + 1_000_000n),
      attributes: Object.entries(attributes).map(([key, stringValue]) => ({ key, value: { stringValue } })),
    };
  });
  const body = { resourceSpans: [{ scopeSpans: [{ scope: { name: "test" }, spans }] }] };
  await post("/v1/traces", body);
}

async function post(path, body = {}) {
  const answer = await fetch(url + path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  assert.equal(answer.status, 200, await answer.text());
}

test("a session that nobody stopped is allowed", async () => {
  const control = new LoopGuardControl({ session: "quiet", url });
  assert.equal((await control.check()).action, "allow");
  assert.equal(await control.hint(), undefined);
  assert.equal(await control.refuses("search"), undefined);
});

for (const ms of [Infinity, 2 ** 53, 1500.5]) {
  test(`a question may take ${ms} ms`, async () => {
    const control = new LoopGuardControl({ session: "patient", url, timeoutMs: ms, pauseLimitMs: ms });
    assert.equal((await control.gate()).action, "allow");
  });
}

for (const ms of [-1, NaN, "soon"]) {
  test(`${ms} ms are refused at the start`, () => {
    for (const name of ["timeoutMs", "pauseLimitMs"]) {
      assert.throws(() => new LoopGuardControl({ session: "wrong", url, [name]: ms }), new RegExp(`${name} is ${ms}`));
    }
  });
}

test("a hint is given once, a denied call is refused, others are not", async () => {
  const control = new LoopGuardControl({ session: "denied", url });
  await calls("denied", 3);
  assert.match(await control.hint(), /search/);
  assert.equal(await control.hint(), undefined);
  await calls("denied", 1, 3);
  for (const args of [{ q: "x" }, '{"q": "x"}', undefined]) {
    assert.equal((await control.refuses("search", args)).action, "deny");
  }
  assert.equal(await control.refuses("search", { q: "y" }), undefined);
  const knot = {};
  knot.q = knot;
  assert.equal((await control.refuses("search", knot)).action, "deny");
  assert.equal(await control.refuses("write", { q: "x" }), undefined);
  assert.equal((await control.check()).action, "deny");
});

for (const session of ["..", "a/b", "a/abort", "%2F", "+&id=x"]) {
  test(`a session of any key is followed: ${session}`, async () => {
    await calls(session, 1);
    const id = encodeURIComponent(session);
    const control = new LoopGuardControl({ session, url });
    assert.equal((await control.refresh()).session, session);
    const signal = control.abortSignal();
    await post(`/v1/session/abort?id=${id}`, { by: "ann", reason: "enough" });
    await assert.rejects(control.check(), LoopGuardStop);
    while (!signal.aborted) await sleep(10);
  });
}

test("a session with half a surrogate pair is the one that exporters write", async () => {
  await calls("cut \ufffd", 3);
  const control = new LoopGuardControl({ session: "cut \ud83d", url });
  assert.equal((await control.refresh()).action, "hint");
});

test("an abort ends the run, and fires the signal", async () => {
  const control = new LoopGuardControl({ session: "aborted", url });
  await calls("aborted", 1);
  const signal = control.abortSignal();
  await sleep(100);
  assert.equal(signal.aborted, false);
  const fired = new Promise((resolve) => signal.addEventListener("abort", resolve));
  await post("/v1/sessions/aborted/abort", { by: "ann", reason: "enough" });
  await fired;
  assert.ok(signal.reason instanceof LoopGuardStop);
  await assert.rejects(control.check(), /^LoopGuardStop: enough \(session aborted aborted\)/);
});

test("a gate waits while the session is paused", async () => {
  const control = new LoopGuardControl({ session: "paused", url });
  await calls("paused", 1);
  await post("/v1/sessions/paused/pause", { by: "ann" });
  const passed = control.gate();
  await sleep(200);
  await post("/v1/sessions/paused/resume", { by: "ann", guidance: "look in b.ts" });
  assert.equal((await passed).action, "hint");
  assert.match(await control.hint(), /look in b.ts/);
  await post("/v1/sessions/paused/pause", { by: "ann" });
  const impatient = new LoopGuardControl({ session: "paused", url, pauseLimitMs: 300 });
  await assert.rejects(impatient.gate(), LoopGuardStop);
});

test("a server that does not answer stops nobody, and is told of once", async () => {
  const problems = [];
  const control = new LoopGuardControl({
    session: "x", url: "http://127.0.0.1:1", onProblem: (message) => problems.push(message),
  });
  assert.equal((await control.check()).action, "allow");
  assert.equal((await control.gate()).action, "allow");
  assert.equal(problems.length, 1);
  assert.match(problems[0], / 127\.0\.0\.1:1: fetch failed: bad port; the run goes on unguarded/);
});

for (const onProblem of [() => { throw new Error("no log"); }, async () => { throw new Error("no log"); }]) {
  test("a listener that fails ends neither the run nor Node", async () => {
    const control = new LoopGuardControl({ session: "x", url: "http://127.0.0.1:1", onProblem });
    assert.equal((await control.gate()).action, "allow");
    const following = new LoopGuardControl({ session: "x", url: "http://127.0.0.1:1", onProblem });
    following.abortSignal();
    await sleep(20);
    following.close();
  });
}

const LONG = `{"action":"deny","stops":true,"hint":null,"version":"v","decision":null}${" ".repeat(2 ** 21)}`;
for (const body of [LONG, "null", "[]", "7", '"x"', "{}", '{"action":"deny","stops":true}', "<html>\u001b[2J", ""]) {
  test(`an answer of another program is none: ${JSON.stringify(body).slice(0, 80)}`, async () => {
    const told = [];
    const control = new LoopGuardControl({
      session: "other", url, fetch: async () => new Response(body), onProblem: (text) => told.push(text),
    });
    assert.equal((await control.gate()).action, "allow");
    assert.equal(await control.hint(), undefined);
    assert.equal(await control.refuses("search"), undefined);
    const signal = control.abortSignal();
    await sleep(20);
    control.close();
    assert.equal(signal.aborted, false);
    assert.equal(told.length, 1);
    assert.doesNotMatch(told[0], /\u001b/);
  });
}

test("a server that answers at once is not asked without a pause", async () => {
  let asked = 0;
  const paused = {
    session: "fast", action: "pause", stops: true, reason: null, hint: null, by: null, until: null,
    decision: null, version: "",
  };
  const answer = async () => {
    asked += 1;
    return Response.json({ ...paused, version: String(asked) });
  };
  const control = new LoopGuardControl({ session: "fast", url, fetch: answer, pauseLimitMs: 1_100 });
  control.abortSignal();
  await assert.rejects(control.gate(), LoopGuardStop);
  control.close();
  assert.ok(asked < 30, `asked ${asked} times`);
});

// Answers as it is told, then no more.
function answers(...rows) {
  return async () => {
    const row = rows.shift();
    if (row === undefined) throw new Error("it is gone");
    return Response.json({ session: "gone", stops: true, reason: "why", hint: null, by: null, until: null, decision: null, version: "1", ...row });
  };
}

test("a server that is gone refuses nothing any more, and an abort that is known stays", async () => {
  const onProblem = () => {};
  const denied = new LoopGuardControl({ session: "gone", url, onProblem, fetch: answers({ action: "deny" }) });
  assert.equal((await denied.refuses("search")).action, "deny");
  assert.equal(await denied.refuses("search"), undefined);
  const aborted = new LoopGuardControl({ session: "gone", url, onProblem, fetch: answers({ action: "abort" }) });
  for (let asked = 0; asked < 2; asked += 1) await assert.rejects(aborted.check(), LoopGuardStop);
});

test("a pause outlives an answer that does not come", async () => {
  const flaky = answers({ action: "pause" }, { action: "pause", session: 7, stops: "no" }, { action: "hint", hint: "go on", version: "2" });
  const control = new LoopGuardControl({ session: "gone", url, onProblem: () => {}, fetch: flaky });
  assert.equal((await control.gate()).action, "hint");
});

test("a warning of the server is told once", async () => {
  const told = [];
  const late = { action: "allow", stops: false, warning: "spans come late" };
  const control = new LoopGuardControl({ session: "gone", url, onProblem: (text) => told.push(text), fetch: answers(late, late) });
  await control.check();
  await control.check();
  assert.deepEqual(told, ["otel-loopguard: spans come late"]);
});

test("spans carry the conversation that they start in", async () => {
  const exporter = new InMemorySpanExporter();
  const conversation = new Conversation();
  const spanProcessors = [conversation, new SimpleSpanProcessor(exporter)];
  const tracer = new NodeTracerProvider({ spanProcessors }).getTracer("test");
  const run = async (name) => {
    await sleep(1);
    tracer.startSpan(name).end();
  };
  await Promise.all([run("none"), ...["a", "b"].map((id) => conversation.run(id, () => run(id)))]);
  const found = exporter.getFinishedSpans().map((span) => [span.name, span.attributes["gen_ai.conversation.id"]]);
  assert.deepEqual(found.sort(), [["a", "a"], ["b", "b"], ["none", undefined]]);
});

test("spans that are handed on one by one wait for no answer to the one before", async () => {
  const sent = [];
  const silent = { export: (spans) => sent.push(...spans.map(({ name }) => name)), shutdown: async () => {} };
  const oneByOne = new BatchSpanProcessor(exporterTo(new SimpleSpanProcessor(silent)), { maxExportBatchSize: 1 });
  const tracer = new NodeTracerProvider({ spanProcessors: [oneByOne] }).getTracer("test");
  for (const name of ["a", "b", "c"]) tracer.startSpan(name).end();
  await oneByOne.forceFlush();
  assert.deepEqual(sent, ["a", "b", "c"]);
});

test("an address that is empty in the environment is the one by default", async () => {
  const asked = [];
  const answers = async (to) => asked.push(to) && new Response("{}");
  process.env.LOOPGUARD_URL = "";
  await new LoopGuardControl({ session: "chat-1", fetch: answers, onProblem: () => {} }).check();
  process.env.LOOPGUARD_URL = url;
  assert.ok(asked[0].startsWith("http://127.0.0.1:4318/"));
});
