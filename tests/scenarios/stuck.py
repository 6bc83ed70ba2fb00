"""Families of runs that get nowhere: by what comes back, again and again.

Each takes a tape on which a healthy beginning stands, and writes the loop on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape

TURNS = 16


def exact_repeat(tape: Tape) -> None:
    """The same call, the same answer."""
    tool, args, answer = tape.dice.choice(
        [
            ("bash", {"command": "ls -la src"}, "total 8\nmain.py\nutil.py"),
            ("web_search", {"query": "cheapest ferry to Oslo"}, "No results found."),
            ("get_order", {"order_id": "W7721"}, '{"status": "shipped", "items": [1, 2]}'),
            ("run_sql", {"query": "SELECT COUNT(*) FROM t"}, "[(0,)]"),
            ("kubectl", {"args": "get pods -n shop"}, "api-1 0/1 CrashLoopBackOff"),
        ]
    )
    for _ in range(TURNS):
        tape.call(tool, args, answer)
        tape.aside()


def nonce_by_name(tape: Tape) -> None:
    """The same call with a fresh id under a known name."""
    name = tape.dice.choice(["request_id", "nonce", "correlation_id", "idempotency_key"])
    for number in range(TURNS):
        fresh = tape.dice.choice([f"r-{number:04d}", tape.hexadecimal(24)])
        tape.call("lookup", {"user": "u1", name: fresh}, "user u1 was not found")
        tape.aside()


def nonce_in_value(tape: Tape) -> None:
    """The same call with a fresh mixed id under a name that nobody knows."""
    name = tape.dice.choice(["ref", "sid", "tag", "handle"])
    for _ in range(TURNS):
        fresh = f"k{tape.dice.randrange(10, 99)}x{tape.hexadecimal(8)}z"
        tape.call("lookup", {"user": "u1", name: fresh}, "the user u1 was not found anywhere")


def volatile_answer(tape: Tape) -> None:
    """The same call; the answer differs in a clock, a duration, an id or a process number."""
    kind = tape.dice.randrange(5)
    for number in range(TURNS):
        volatile = (
            f"finished in {tape.dice.randrange(90, 900)} ms",
            f"2024-05-01T10:{number:02d}:{tape.dice.randrange(60):02d}Z",
            f"request {tape.hexadecimal(8)}-{tape.hexadecimal(4)}-4abc-8def-{tape.hexadecimal(12)}",
            f"pid={1000 + number * 7}",
            f"/tmp/run-{tape.hexadecimal(6)}/out.txt",
        )[kind]
        tape.call("job_report", {"job": 7}, f"job 7 failed: no input. {volatile}")
        tape.aside()


def short_cycle(tape: Tape) -> None:
    """A cycle of two to four calls."""
    _cycle(tape, tape.dice.randrange(2, 5), 36)


def middle_cycle(tape: Tape) -> None:
    """A cycle of five to eight calls."""
    _cycle(tape, tape.dice.randrange(5, 9), 36)


def long_cycle(tape: Tape) -> None:
    """A cycle of nine to sixteen calls."""
    _cycle(tape, tape.dice.randrange(9, 17), 56)


def cycle_with_nonce(tape: Tape) -> None:
    """A cycle whose arguments carry a time and an id."""
    period = tape.dice.randrange(2, 6)
    answers = [tape.prose(12) for _ in range(period)]
    for number in range(30):
        stamp = f"2024-05-01T10:{number:02d}:07Z"
        args = {"page": number % period, "timestamp": stamp, "request_id": tape.hexadecimal(12)}
        tape.call("read_page", args, answers[number % period])


def two_answers_by_turns(tape: Tape) -> None:
    """One call, two wordings of "no"."""
    for number in range(TURNS):
        answer = "Nothing was found, sorry." if number % 2 else "There is nothing to be found."
        tape.call("find_invoice", {"customer": "Meyer", "year": 2023}, answer)


def _cycle(tape: Tape, period: int, calls: int) -> None:
    tools = ["read_file", "list_files", "search", "get_status", "run_sql"]
    turn = [
        (tools[place % len(tools)], {"of": tape.word(), "n": place}, tape.prose(8))
        for place in range(period)
    ]
    for number in range(calls):
        tape.call(*turn[number % period])


def paging_past_the_end(tape: Tape) -> None:
    """Page after page of nothing."""
    name, size = tape.dice.choice([("page", 1), ("offset", 50), ("start", 20)])
    answer = tape.dice.choice(["[]", "No more results.", '{"items": [], "total": 120}'])
    for number in range(24):
        tape.call("list_orders", {"status": "open", name: (6 + number) * size}, answer)


def paging_wraps_around(tape: Tape) -> None:
    """A file is swept from its start again, at other places, and nothing is done with it."""
    size = tape.dice.choice([40, 50, 100])
    pages = tape.dice.randrange(8, 12)
    for number in range(pages * 4):
        sweep, page = divmod(number, pages)
        offset = page * size + sweep * (size // 5)
        tape.call("read", {"path": "big.py", "offset": offset, "limit": size}, f"lines {number}")


def other_words_same_answer(tape: Tape) -> None:
    """A search in ever other words, and one answer."""
    answer = tape.dice.choice(["No results found.", "Your search did not match any documents."])
    for _ in range(TURNS):
        words = " ".join(tape.dice.sample(["price", "cost", "fee", "ferry", "ticket", "Oslo"], 3))
        tape.call("web_search", {"query": f"{words} {tape.word()}"}, answer)
        tape.aside()


def refinement_spiral(tape: Tape) -> None:
    """A query that only grows, and the same ten results in another order."""
    hits = [f"{number}. {tape.prose(14)}" for number in range(10)]
    query = "quiet hotel with pool in Lisbon"
    for _ in range(20):
        query += " " + tape.dice.choice(["best", "cheap", "2024", "reviews", "near center", "top"])
        tape.dice.shuffle(hits)
        tape.call("web_search", {"query": query}, "\n".join(hits))


def one_page_many_addresses(tape: Tape) -> None:
    """Ever other addresses, one consent page."""
    page = "Before you continue: " + tape.prose(50)
    for _ in range(TURNS):
        url = f"https://{tape.word()}.example/{tape.hexadecimal(6)}?ref={tape.word()}"
        tape.call("visit_page", {"url": url}, page)


def empty_tables(tape: Tape) -> None:
    """Ever other queries, no row."""
    for _ in range(24):
        query = f"SELECT {tape.word()} FROM sales WHERE {tape.word()} = '{tape.word()}'"
        tape.call("run_sql", {"query": query}, "Query returned 0 rows.")


def talk(tape: Tape) -> None:
    """The model says what it will do, and does nothing."""
    subject = tape.prose(4)
    for number in range(24):
        text = tape.dice.choice(
            [
                "I will now begin working on the task ({}).",
                "Sure! I am going to start with this right away, step {}.",
                "Understood, I will get started on the task now. ({})",
            ]
        )
        tape.model(text.format(number) + f" {subject}")


def spinning_poll(tape: Tape) -> None:
    """A pending answer is asked for again at once, for ever."""
    for _ in range(30):
        tape.call("get_job_status", {"job": "j-7"}, '{"state": "pending"}', took=0.05)


def waiting_without_end(tape: Tape) -> None:
    """A job that never comes, asked for every minute for two hours."""
    for _ in range(120):
        tape.call("get_job_status", {"job": "j-7"}, '{"state": "pending"}', idle=60)
