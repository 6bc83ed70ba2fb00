"""Families of runs that get nowhere: everything fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape

TURNS = 16


def same_failing_call(tape: Tape) -> None:
    """One call, one error."""
    error = tape.dice.choice(
        [
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/in.csv'",
            "Error: permission denied for table payroll",
            "ValidationError: 1 validation error for Order: date must not be empty",
        ]
    )
    for _ in range(TURNS):
        tape.call("load", {"path": "data/in.csv"}, error=error)
        tape.aside()


def same_error_other_arguments(tape: Tape) -> None:
    """One error, whatever the arguments."""
    for number in range(TURNS):
        tape.call("ssh", {"flags": f"-o opt{number}"}, error="Permission denied (publickey)")
        tape.aside()


def error_that_names_the_argument(tape: Tape) -> None:
    """One error, and each time it quotes what was asked for."""
    for number in range(TURNS):
        error = f"KeyError: column {number} is not in the table"
        tape.call("plot", {"column": number}, error=error)


def wrong_arguments(tape: Tape) -> None:
    """A tool is called with an argument that it does not take."""
    for number in range(TURNS):
        name = tape.dice.choice(["colour", "shade", "tint"])
        error = f"TypeError: draw() got an unexpected keyword argument '{name}'"
        tape.call("draw", {"x": number, name: "red"}, error=error)


def unknown_tool(tape: Tape) -> None:
    """A tool that does not exist."""
    for number in range(TURNS):
        tape.call("web_browser", {"url": f"https://a.example/{number}"},
                  error="Error: unknown tool 'web_browser'")  # fmt: skip


def varied_error_storm(tape: Tape) -> None:
    """Errors all the way: other tools, other arguments, other texts."""
    errors = [
        "ConnectionError: host {} refused the connection",
        "ValueError: {} is not a valid value",
        "RuntimeError: {} failed with code 3",
        "KeyError: '{}'",
        "Error: {} could not be opened",
    ]
    tools = ["load", "fetch", "parse", "convert", "query"]
    for _ in range(24):
        error = tape.dice.choice(errors).format(tape.word())
        tape.call(tape.dice.choice(tools), {"of": tape.word(), "n": tape.hexadecimal(4)},
                  error=error)  # fmt: skip


def grinding(tape: Tape) -> None:
    """Every command is another one, every one fails in its own way, and none of it is new."""
    for number in range(30):
        answer = {"exit_code": 1, "stdout": f"Traceback #{number}: no luck"}
        tape.call("bash", {"command": f"python try_{number}.py"}, answer)


def retry_storm(tape: Tape) -> None:
    """Too many requests, and at once the next one."""
    for _ in range(40):
        tape.call("search", {"q": "x"}, error="429 Too Many Requests", took=0.05)


def retry_for_ever(tape: Tape) -> None:
    """A service that stays down, asked every ten seconds for half an hour."""
    for _ in range(180):
        tape.call("search", {"q": "x"}, error="503 Service Unavailable", idle=8)


def failure_told_as_success(tape: Tape) -> None:
    """A shell that always answers; what it says is that it may not."""
    for _ in range(TURNS):
        command = tape.dice.choice(["cat", "less", "head -3", "wc -l", "stat", "file"])
        answer = '{"exit_code": 1, "stdout": "", "stderr": "Permission denied: /srv/secret.db"}'
        tape.call("bash", {"command": f"{command} /srv/secret.db {tape.hexadecimal(3)}"}, answer)


def edit_that_does_not_match(tape: Tape) -> None:
    """An edit whose old text is not there, tried in ever other versions."""
    for number in range(TURNS):
        args = {"path": "a.py", "old_str": f"def f{number}(x):", "new_str": tape.prose(6)}
        tape.call("str_replace", args, error="No replacement was performed: old_str was not found "
                  "verbatim in a.py")  # fmt: skip


def edit_and_undo(tape: Tape) -> None:
    """Two versions of one line by turns, each with its own failure."""
    for number in range(12):
        old, new = ("a", "b") if number % 2 else ("b", "a")
        tape.call("edit", {"path": "a.py", "old": old, "new": new}, "ok")
        failed = "2 failed, 8 passed" if number % 2 else "3 failed, 7 passed"
        tape.call("bash", {"command": "pytest -q"}, {"exit_code": 1, "stdout": failed})


def failing_test_between_reads(tape: Tape) -> None:
    """A failing test, and between two runs of it only reading."""
    for _ in range(14):
        tape.call("bash", {"command": "pytest -x"}, {"exit_code": 1, "stdout": "1 failed"})
        tape.call("bash", {"command": f"cat {tape.word()}{tape.hexadecimal(3)}.py"}, tape.prose(30))


def dead_button(tape: Tape) -> None:
    """A button that does nothing: the page stays as it is."""
    page = "Checkout. " + tape.prose(40)
    for _ in range(TURNS):
        tape.call("click", {"element": "Next"}, page)


def dead_button_on_a_screen(tape: Tape) -> None:
    """A button that does nothing, and after each click the screen is read, which is as it was."""
    page = "Checkout. " + tape.prose(40)
    act, said = tape.dice.choice([("click", "ok"), ("tap", "Tapped."), ("press_key", "done")])
    for _ in range(TURNS):
        tape.call(act, {"element": "Next"}, said)
        tape.call("read_screen", {}, page)


def scroll_at_the_bottom(tape: Tape) -> None:
    """The page has an end, and the agent scrolls on."""
    page = "Footer. Imprint. " + tape.prose(40)
    for _ in range(TURNS):
        tape.call("scroll_down", {"pixels": 600}, page)


def same_mail_again(tape: Tape) -> None:
    """One mail is sent again and again."""
    mail = {"to": "ann@a.example", "subject": "Report", "body": tape.prose(20)}
    for _ in range(TURNS):
        tape.call("send_email", mail, f'{{"sent": true, "id": "{tape.hexadecimal(32)}"}}')


def several_tools_one_outage(tape: Tape) -> None:
    """Whatever is asked, the network is not there."""
    for _ in range(TURNS):
        tool = tape.dice.choice(["search", "fetch", "visit_page"])
        tape.call(tool, {"of": tape.word()}, error="getaddrinfo ENOTFOUND proxy.local: network is "
                  "unreachable")  # fmt: skip
