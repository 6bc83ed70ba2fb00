"""Families of healthy runs: what agents do all day, and a guard must leave alone.

In none of them may anything be stopped. `HINTED` names those in which a hint may be given.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape

HINTED: Final = frozenset(
    "poll_that_spins_for_a_while everybody_is_looked_up "
    "everybody_is_looked_up_by_a_tool_that_raises press_one_key_many_times "
    "cut_result_of_a_growing_log click_that_adds_one move_step_by_step many_hosts_are_down "
    "poll_while_a_model_thinks poll_and_a_look_at_the_log keys_and_screenshots".split()
)
"""Families in which a hint may be given: without a pause, or where nobody can tell."""

CLOCKED: Final = frozenset(
    "look_on_a_schedule several_looks_on_a_schedule log_that_stands_still_for_a_while "
    "poll_and_a_look_at_the_log retries_with_patience retries_that_back_off "
    "side_by_side_alike".split()
)
"""Families that only a clock distinguishes from a loop."""
CUT: Final = frozenset({"cut_result_of_a_growing_log"})
"""Families in which nothing may stand behind an outcome: a limit cut it."""

_PENDING: Final = (
    "running",
    "queued",
    "PENDING",
    "in progress",
    "not ready",
    "Not finished yet.",
    "still running",
    "202",
    '{"status": "running"}',
    '{"state": "QUEUED", "error": null, "completed": 0, "failed": 0}',
    '{"job": {"id": "j-7", "phase": "Pending"}}',
    '{"done": false}',
    '{"status_code": 202, "body": ""}',
    "<status>running</status>",
    '<job id="7"><state>IN_PROGRESS</state></job>',
    "HTTP/1.1 202 Accepted",
    "Job j-7 is being processed, please check back later.",
    "The report is not ready yet.",
    "Build 77: waiting for a runner",
    "rendering",
    "Awaiting review by a maintainer",
)
_JOBS: Final = (
    "job_status", "get_job", "check_build", "poll_task", "fetch_report", "deployment", "get_export",
    "ci_run", "await_result", "render",
)  # fmt: skip


def poll_while_a_model_thinks(tape: Tape) -> None:
    """A pending answer nineteen times, asked for as fast as a model takes a turn."""
    tool, args = tape.dice.choice(_JOBS), {"id": tape.hexadecimal(6)}
    pending = tape.dice.choice(_PENDING)
    for _ in range(19):
        tape.call(tool, args, pending, idle=tape.dice.uniform(2, 6), took=0.2)
    tape.call(tool, args, '{"status": "done", "rows": 120}')


def poll_with_a_sleep_between(tape: Tape) -> None:
    """A tool that sleeps two seconds, and a look, by turns."""
    tool, args = tape.dice.choice(_JOBS), {"id": tape.hexadecimal(6)}
    sleep, pending = tape.dice.choice(["sleep", "wait", "pause"]), tape.dice.choice(_PENDING)
    for _ in range(19):
        tape.call(tool, args, pending, took=0.1)
        tape.call(sleep, {"seconds": 2}, tape.dice.choice(["ok", None, "slept"]), took=2)
    tape.call(tool, args, "finished")


def poll_that_spins_for_a_while(tape: Tape) -> None:
    """A pending answer that is asked for without a pause, and comes."""
    tool, args = tape.dice.choice(_JOBS), {"id": tape.hexadecimal(6)}
    pending = tape.dice.choice(_PENDING)
    for _ in range(40):
        tape.call(tool, args, pending, took=0.02)
    tape.call(tool, args, "finished")


def poll_with_an_estimate(tape: Tape) -> None:
    """A pending answer with another estimate each time, which does not always fall."""
    for _ in range(20):
        left = tape.dice.randrange(20, 60)
        tape.call("job_status", {"id": 4}, f"running, about {left} s left", idle=4)
    tape.call("job_status", {"id": 4}, "done")


def poll_of_several_jobs(tape: Tape) -> None:
    """Three jobs are looked at by turns until all are done."""
    for _ in range(9):
        for job in ("a", "b", "c"):
            tape.call("get_job", {"id": job}, '{"status": "running"}', idle=2, took=0.2)
    for job in ("a", "b", "c"):
        tape.call("get_job", {"id": job}, '{"status": "done"}', idle=2)


def poll_and_a_look_at_the_log(tape: Tape) -> None:
    """A build that is pending; between two looks at it its log, which stands still."""
    line = f"step 4 of 9: {tape.prose(8)}"
    for _ in range(10):
        tape.call("build_status", {"id": 4}, "in progress", idle=4)
        tape.call("read_log", {"id": 4, "lines": 1}, line)
    tape.call("build_status", {"id": 4}, "passed", idle=4)


def continuous_integration(tape: Tape) -> None:
    """The checks of a pull request until they are green."""
    table = "build\tpending\t0\thttps://ci.example/1\nlint\tpending\t0\thttps://ci.example/2"
    for _ in range(15):
        tape.call("bash", {"command": "gh pr checks 12"}, table, idle=tape.dice.uniform(5, 20))
    tape.call("bash", {"command": "gh pr checks 12"}, table.replace("pending", "pass"), idle=10)


def approval_by_a_person(tape: Tape) -> None:
    """Somebody has to say yes, and takes his time."""
    answer = tape.dice.choice(
        ["pending approval", "awaiting approval", '{"approved": null, "state": "in_review"}',
         "No decision has been made yet."]
    )  # fmt: skip
    for _ in range(12):
        tape.call("get_approval", {"request": 31}, answer, idle=tape.dice.uniform(30, 120))
    tape.call("get_approval", {"request": 31}, "approved by Ann", idle=60)


def look_on_a_schedule(tape: Tape) -> None:
    """One run looks at an unchanged answer every ten minutes, or every hour, for days."""
    every = tape.dice.choice([600, 900, 1800, 3600, 7200])
    tool, answer = tape.dice.choice(
        [
            ("get_health", "all systems normal"),
            ("read_inbox", '{"unread": 0, "newest": "2024-05-01 from Ann"}'),
            ("query_price", '{"symbol": "ACME", "price": 12.5, "currency": "EUR"}'),
            ("bash", "Filesystem Size Used Avail\n/dev/sda1 50G 20G 30G"),
        ]
    )
    args = {"command": "df -h"} if tool == "bash" else {"of": "shop"}
    for _ in range(40):
        tape.call(tool, args, answer, idle=every + tape.dice.uniform(-30, 30))


def several_looks_on_a_schedule(tape: Tape) -> None:
    """Every hour three things are looked at, none of which changes."""
    answers = [tape.prose(20) for _ in range(3)]
    for _ in range(24):
        tape.now += 3600
        for number, answer in enumerate(answers):
            tape.call("get_report", {"of": number}, answer)


def heartbeat(tape: Tape) -> None:
    """An agent says that it is alive every minute between its work."""
    for _ in range(20):
        tape.call("read_page", {"page": tape.hexadecimal(6)}, tape.prose(30))
        tape.call("heartbeat", {"agent": "a1"}, "ok", idle=tape.dice.uniform(20, 60))


def every_item_fails_twice(tape: Tape) -> None:
    """A tool that fails twice with 502 or 503 on each item, and then works."""
    error = tape.dice.choice(
        ["502 Bad Gateway", "503 Service Unavailable", "HTTPError: 503 Server Error for url",
         "upstream connect error or disconnect/reset before headers (503)"]
    )  # fmt: skip
    for number in range(tape.dice.randrange(12, 30)):
        args = {"item": f"{tape.word()}-{number}"}
        for _ in range(2):
            tape.call("fetch_item", args, error=error, took=0.2)
        tape.call("fetch_item", args, tape.prose(20))


def backs_off_on_each_item(tape: Tape) -> None:
    """Rate limits on every item: one, two, four seconds, and it works."""
    for number in range(10):
        args = {"city": f"{tape.word()} {number}"}
        for pause in (0, 1, 2):
            tape.call("geocode", args, error="429 Too Many Requests", idle=pause, took=0.1)
        tape.call("geocode", args, f'{{"lat": {number}.5, "lon": {tape.hexadecimal(3)!r}}}', idle=4)


def press_one_key_many_times(tape: Tape) -> None:
    """One key is pressed, one button clicked, one page scrolled, again and again."""
    tool, args = tape.dice.choice(
        [
            ("press_key", {"key": "down"}),
            ("scroll", {"direction": "down", "amount": 3}),
            ("click", {"x": 410, "y": 33}),
            ("tap", {"element": "next"}),
            ("send_keys", {"keys": "TAB"}),
            ("swipe", {"direction": "left"}),
            ("browser_press_key", {"key": "ArrowDown"}),
            ("computer", {"action": "key", "text": "Page_Down"}),
            ("computer", {"action": "scroll", "coordinate": [10, 10]}),
        ]
    )
    answer = tape.dice.choice(
        ["ok", "OK.", "done", "Success", "true", True, None, "", {"status": "ok"},
         '{"success": true}', '{"ok": true, "error": null}', "Key pressed.", "Action executed."]
    )  # fmt: skip
    for _ in range(tape.dice.randrange(12, 30)):
        tape.call(tool, args, answer)


def click_that_adds_one(tape: Tape) -> None:
    """A button that adds one, and a sentence that says what was clicked."""
    for _ in range(14):
        tape.call("click_element", {"index": 12}, "Clicked the button 'Add one more' (index 12)")


def move_step_by_step(tape: Tape) -> None:
    """A robot moves ahead, and turns now and then."""
    answer = tape.dice.choice(["ok", "moved", '{"result": "success"}', "Moved forward by 0.5 m."])
    for _ in range(5):
        for _ in range(tape.dice.randrange(6, 14)):
            tape.call("move_forward", {"meters": 0.5}, answer)
        tape.call("rotate", {"degrees": 90}, answer)


def keys_and_screenshots(tape: Tape) -> None:
    """A key, a screenshot, a key: the pictures are left out of the spans."""
    shot = tape.dice.choice(["<image>", "[image omitted]", "Screenshot captured.", None])
    for _ in range(14):
        tape.call("press_key", {"key": "tab"}, "ok")
        tape.call("take_screenshot", {}, shot)


def walk_through_a_menu(tape: Tape) -> None:
    """A key, then what is selected now, until the right entry is there."""
    for number in range(15):
        tape.call("press_key", {"key": "down"}, "ok")
        tape.call("get_selection", {}, f"entry {number}: {tape.word()} {tape.word()}")


def everybody_is_looked_up(tape: Tape) -> None:
    """Fifty items of a list, each asked for, none there."""
    tool, name = tape.dice.choice(
        [("lookup", "name"), ("find_user", "email"), ("get_article", "sku"), ("whois", "domain"),
         ("crm_lookup", "company")]
    )  # fmt: skip
    answer = tape.dice.choice(["Not found", "not found.", '{"error": null, "result": "not found"}'])
    for number in range(50):
        value = {
            "name": f"{tape.word().title()} {tape.word().title()}",
            "email": f"{tape.word()}{number}@a.example",
            "sku": f"SKU-{1000 + number}",
            "domain": f"{tape.word()}{number}.example",
            "company": f"{tape.word().title()} {tape.dice.choice(['Ltd', 'Inc', 'GmbH'])}",
        }[name]
        tape.call(tool, {name: value}, answer)


def everybody_is_looked_up_by_a_tool_that_raises(tape: Tape) -> None:
    """Fifty items of a list; what is not there, four of five, is an error."""
    tool, name, error = tape.dice.choice(
        [("get_customer", "customer_id", "KeyError: '{}'"),
         ("fetch_order", "order", "HTTP 404 Not Found: no order {}"),
         ("find_user", "email", "NotFoundError: no user with e-mail {}"),
         ("get_price", "sku", "LookupError: {} does not exist")]
    )  # fmt: skip
    for number in range(50):
        value = f"{tape.word()}{1000 + number}"
        if tape.dice.random() < 0.2:
            tape.call(tool, {name: value}, f"{tape.word()} {tape.word()} {number}")
        else:
            tape.call(tool, {name: value}, error=error.format(value))


def many_hosts_are_down(tape: Tape) -> None:
    """Seventy different hosts, one error each: the bound of a set does not stop the run.

    A hint is what a person wants here: where not one host answers, it may be the way to them.
    """
    for number in range(70):
        error = "ConnectionRefusedError: [Errno 111] Connection refused"
        tape.call("ping_host", {"host": f"10.0.3.{number}"}, error=error, idle=6)
        if number % 3 == 0:
            tape.call("write_note", {"host": number}, f"noted {number} as down, {tape.prose(6)}")


def mails_to_everybody(tape: Tape) -> None:
    """Thirty mails that differ in name and address, each sent."""
    answer = tape.dice.choice(["sent", "ok", '{"sent": true}', "Email sent successfully."])
    for number in range(30):
        name = f"{tape.word()}{number}"
        mail = {"to": f"{name}@a.example", "subject": "Invitation", "body": f"Dear {name}, come!"}
        tape.call("send_email", mail, answer)


def files_are_written(tape: Tape) -> None:
    """Twenty files, each written."""
    answer = tape.dice.choice(
        ["File written", "ok", "The file was written successfully to the workspace of the project."]
    )
    for number in range(20):
        text = tape.prose(12)
        tape.call("write_file", {"path": f"out/{number}.md", "text": text}, answer)


def uploads_in_batches(tape: Tape) -> None:
    """Forty batches go to an index, each acknowledged by tools whose names say nothing."""
    tool = tape.dice.choice(["index_batch", "ingest", "sync_rows", "push_vectors"])
    answer = tape.dice.choice(["ok", '{"status": "ok"}', '{"acknowledged": true}', "200", ""])
    for number in range(40):
        tape.call(tool, {"batch": number, "rows": [tape.hexadecimal(6) for _ in range(4)]}, answer)


def pages_some_of_which_are_empty(tape: Tape) -> None:
    """A listing of thirty pages; every few pages are empty."""
    for number in range(30):
        empty = number % 5 in (2, 3)
        items = [] if empty else [{"id": tape.hexadecimal(8), "of": tape.word()} for _ in range(4)]
        tape.call("list_orders", {"status": "open", "page": number}, json.dumps({"items": items}))


def clean_between_edits(tape: Tape) -> None:
    """After each edit and its commit the tree is clean."""
    for number in range(14):
        path = f"src/{tape.word()}_{number}.py"
        tape.call("edit_file", {"path": path, "old": tape.prose(4), "new": tape.prose(5)}, "ok")
        tape.call("bash", {"command": f"git commit -qam 'Mend {path}'"}, "")
        tape.call("bash", {"command": "git status"}, "nothing to commit, working tree clean")


def fifty_steps(tape: Tape) -> None:
    """A long healthy run, and nobody set a limit."""
    for number in range(60):
        tape.call("read_page", {"page": number}, tape.prose(40))


def cut_result_of_a_growing_log(tape: Tape) -> None:
    """A log that grows behind the limit of an attribute, so that its beginning is all one sees."""
    limit = tape.dice.choice([128, 256, 1000, 4000])
    log = "\n".join(f"{number} {tape.prose(12)}" for number in range(60))
    for _ in range(12):
        tape.call("read_output", {"process": 7}, log[:limit])
    tape.call("read_output", {"process": 7}, log[:limit])


def same_lines_of_two_shells(tape: Tape) -> None:
    """Commands that print nothing when all is well."""
    for number in range(20):
        command = f"{tape.dice.choice(['cp', 'mv', 'touch', 'mkdir -p'])} {tape.word()}{number} out"
        tape.call("bash", {"command": command}, "")


def clock_and_dice(tape: Tape) -> None:
    """A tool whose answer is another one each time, though it is asked the same."""
    for _ in range(20):
        tape.call("roll_dice", {"sides": 1000}, str(tape.dice.randrange(1000)))
