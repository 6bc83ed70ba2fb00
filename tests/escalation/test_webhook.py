"""The webhook: signed, tried again, answered, and never in the way."""

import base64
import gzip
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier

from otel_loopguard import Action, LoopGuard, LoopGuardSettingsError, Settings, control
from otel_loopguard.escalation.webhook import Webhook
from tests.escalation.agents import asked, stuck, until, watched
from tests.escalation.hooks import Hook, served
from tests.stores.servers import free_port
from tests.tables import content, rows

SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four b").decode()


@pytest.fixture
def hook() -> Iterator[Hook]:
    with served(Hook()) as found:
        yield found


def carrier(guard: LoopGuard) -> Webhook:
    found = guard.escalation().escalations.webhook
    assert found is not None
    return found


def delivered(url: str, **settings: Any) -> LoopGuard:
    """A guard whose session `a` is stuck, once its webhook has the message or was given up."""
    guard = watched(webhook_url=url, **settings)
    stuck(guard, "a")
    assert carrier(guard).flush(60)
    return guard


@pytest.mark.parametrize(
    ("secret", "verifier"),
    [(SECRET, Verifier(SECRET)), ("a plain secret of text", Verifier(b"a plain secret of text"))],
    ids=["Base64", "text"],
)
def test_a_post_that_a_library_verifies(hook: Hook, secret: str, verifier: Verifier) -> None:
    """Standard Webhooks: the reference library takes the signature, and no forged one."""
    guard = delivered(hook.url, webhook_secret=secret)
    headers, body = hook.posts[0]
    found = verifier.verify(body, headers)
    assert found["type"] == "loopguard.escalation"
    assert found["data"]["session"] == "a"
    assert found["data"]["id"] == asked(guard)[0].id
    assert "Session a is paused" in found["text"]
    assert headers["webhook-id"] == f"esc_{found['data']['id']}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert b"secret" not in body
    with pytest.raises(Exception, match=r"[Nn]o matching signature"):
        verifier.verify(body.replace(b"search", b"delete"), headers)


@pytest.mark.parametrize("said", ["<!channel>", "@all", "[look](https://attacker.test)"])
def test_a_name_mentions_nobody_and_is_no_link(hook: Hook, said: str) -> None:
    """A model could call everybody by the name of a tool that there is not."""
    guard = watched(webhook_url=hook.url)
    stuck(guard, "a", tool=said)
    until(lambda: hook.posts)
    found = json.loads(hook.posts[0][1])
    assert said not in found["text"]
    assert said in found["text"].replace("\u200b", "")
    assert said in json.dumps(found["data"])


def test_its_reply_is_the_answer(hook: Hook) -> None:
    """`abort` in the reply aborts, with who and why."""
    hook.answer = lambda _: (200, b'{"answer": "abort", "guidance": "enough", "by": "ops"}')
    guard = watched(webhook_url=hook.url)
    stuck(guard, "a")
    until(lambda: guard.flag_of("a").control.action is Action.ABORT)
    assert "webhook-signature" not in hook.posts[0][0]  # there is no secret
    now = guard.flag_of("a").control
    assert (now.by, now.reason) == ("ops", "ops answered abort: enough")


PACKED = gzip.compress(b'{"answer": "abort"}', mtime=0)


@pytest.mark.parametrize(("status", "body", "encoding", "told"), rows(__file__, "ignored"))
def test_what_is_no_answer_changes_nothing(  # noqa: PLR0917
    hook: Hook, status: str, body: str, encoding: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was posted once, and the session waits on."""
    hook.answer = lambda _: (int(status), PACKED if body == "packed" else content(body))
    hook.sent = {"content-encoding": content(encoding).decode()} if encoding else {}
    guard = delivered(hook.url, tuning={"delivery": {"retry_s": 0.01}})
    assert [headers["accept-encoding"] for headers, _ in hook.posts] == ["identity"]
    now = guard.flag_of("a").control
    assert (now.action, now.by) == (Action.PAUSE, "policy")
    assert content(told).decode() in caplog.text
    assert guard.faults.counts == {}


def test_tried_again_until_it_goes_well(hook: Hook) -> None:
    """5xx and 429 are tried again, with the same id and a new signature."""
    hook.answer = lambda number: ({1: 500, 2: 429}.get(number, 200), b'{"answer": "continue"}')
    again = {"delivery": {"retry_s": 0.02}}
    guard = watched(webhook_url=hook.url, webhook_secret=SECRET, tuning=again)
    stuck(guard, "a")
    until(lambda: guard.flag_of("a").control.action is Action.ALLOW)
    assert len(hook.posts) == 3
    assert len({headers["webhook-id"] for headers, _ in hook.posts}) == 1
    for headers, body in hook.posts:
        Verifier(SECRET).verify(body, headers)


def test_one_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    """The agent is not held, attempts end, it is told where and why, without the address."""
    url = f"http://user:pass@127.0.0.1:{free_port()}/hook?token=t"
    guard = delivered(url, tuning={"delivery": {"retry_s": 0.01, "attempts": 3}})
    told = [one.getMessage() for one in caplog.records if ": webhook " in one.getMessage()]
    assert len(told) == 3
    assert "127.0.0.1: escalation" in told[0]
    assert "pass" not in "".join(told)
    assert "token" not in "".join(told)
    assert guard.flag_of("a").control.action is Action.PAUSE


@pytest.mark.parametrize(
    "slow", [{}, {"drip_s": 0.02}, {"drip_headers_s": 0.05}], ids=["silent", "dripping", "headers"]
)
def test_a_slow_one(hook: Hook, slow: dict[str, float]) -> None:
    """It is left at the limit of the whole post; other channels do not wait for it."""
    vars(hook).update(slow)
    hook.answer = lambda _: (time.sleep(0 if slow else 0.8), (200, b" " * 500))[1]
    seen: list[str] = []
    forget = control.on_escalation(lambda found: seen.append(found.session))
    guard = watched(webhook_url=hook.url, tuning={"delivery": {"timeout_s": 0.2, "attempts": 1}})
    stuck(guard, "a")
    until(lambda: seen == ["a"])
    assert carrier(guard).flush(60)
    assert guard.faults.counts == {}
    forget()


def test_it_posts_where_no_thread_is_left(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that would shut a slow connection: the limits of httpx hold all the same."""

    def start(_timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", start)
    guard = delivered(hook.url)
    assert guard.faults.counts == {}


def test_an_answer_that_comes_too_late_changes_nothing(hook: Hook) -> None:
    hook.answer = lambda _: (control.resume("a", by="bob"), (200, b'{"answer": "abort"}'))[1]
    guard = delivered(hook.url)
    assert guard.flag_of("a").control.action is Action.ALLOW
    assert guard.faults.counts == {}


def test_not_tried_after_the_limit() -> None:
    """After the fallback nobody needs to be asked any more."""
    url = f"http://127.0.0.1:{free_port()}/"
    delivered(url, tuning={"delivery": {"retry_s": 30}}, pause_limit_s=5)


def test_the_queue_is_bounded(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    """More than `tuning.delivery.queue` are dropped, which is logged, and nobody waits."""
    let_on = threading.Event()
    hook.answer = lambda _: (let_on.wait(60), (200, b""))[1]
    guard = watched(webhook_url=hook.url, tuning={"delivery": {"queue": 2}})
    for name in "abcdef":
        stuck(guard, name)
    assert caplog.text.count("was not delivered: too many wait") >= 3
    assert len(control.escalations()) == 6
    # What still waits would be tried again, and logged, in the middle of other tests.
    let_on.set()
    assert carrier(guard).flush(60)
    # On a slow machine one may be tried again.
    assert len({headers["webhook-id"] for headers, _ in hook.posts}) <= 3


@pytest.mark.parametrize(("settings", "part"), rows(__file__, "unusable"))
def test_what_cannot_be_used_is_refused(settings: str, part: str) -> None:
    """When the guard is made, without what may be secret."""
    with pytest.raises(LoopGuardSettingsError, match=part) as told:
        LoopGuard(Settings(**json.loads(settings)))
    assert "secret-path" not in str(told.value)


def test_httpx_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the message says what to install."""
    import sys

    for name in ("otel_loopguard._util.http", "otel_loopguard.escalation.webhook"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(LoopGuardSettingsError, match=r"otel-loopguard\[webhook\]"):
        LoopGuard(Settings(webhook_url="http://h"))


def test_posts_are_nobodys_spans(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that posts tells instrumentations to look away."""
    from opentelemetry import context

    from otel_loopguard._util import http

    seen: list[object] = []
    real = http.Endpoint.send

    def send(self: http.Endpoint, *given: Any, **named: Any) -> tuple[int, bytes]:
        seen.append(context.get_value("suppress_instrumentation"))
        return real(self, *given, **named)

    monkeypatch.setattr(http.Endpoint, "send", send)
    delivered(hook.url)
    assert seen == [True]


def test_no_more_than_64_kib_are_read(hook: Hook) -> None:
    """Of a reply without end the beginning is enough: the post was delivered."""
    sent = threading.Event()
    hook.answer = lambda _: (200, b"x" * 50_000_000)
    hook.over = sent.set
    delivered(hook.url)
    until(sent.is_set)


def test_a_guard_that_could_not_be_made_disturbs_no_other() -> None:
    """Its error, as long as somebody has it, holds the guard; changes of flags raise nothing."""
    with pytest.raises(LoopGuardSettingsError) as error:
        watched(webhook_url="ftp://h/x")
    guard = watched()
    guard.bind(1, "a")
    assert control.pause("a", by="anna")
    assert guard.flag_of("a").control.by == "anna"
    del error
