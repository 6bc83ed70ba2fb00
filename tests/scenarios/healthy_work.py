"""Families of runs that get somewhere: research, data, support, screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def research(tape: Tape) -> None:
    """Searches, and pages that they led to."""
    for _ in range(10):
        tape.call("web_search", {"query": f"{tape.word()} {tape.word()} history"}, tape.prose(80))
        for _ in range(2):
            tape.call("visit_page", {"url": f"https://{tape.word()}.example/{tape.hexadecimal(4)}"},
                      tape.prose(120))  # fmt: skip


def fetch_and_summarise(tape: Tape) -> None:
    """Two tools by turns, over ever other pages."""
    for number in range(14):
        text = tape.prose(100)
        tape.call("fetch", {"url": f"https://news.example/{number}"}, text)
        tape.call("summarize", {"text": text}, tape.prose(20))


def searches_of_which_some_find_nothing(tape: Tape) -> None:
    """One in three searches finds nothing."""
    for number in range(12):
        answer = "No results found." if number % 3 == 1 else tape.prose(60)
        tape.call("web_search", {"query": f"{tape.word()} {tape.word()} {number}"}, answer)


def next_pages(tape: Tape) -> None:
    """The next page, without saying which: each time another one."""
    tool = tape.dice.choice(["next_page", "load_more", "read_output", "scroll_down"])
    for number in range(20):
        tape.call(tool, {}, f"{tape.prose(40)} ({number})")


def pages_by_cursor(tape: Tape) -> None:
    """A list is read to its end."""
    cursor = ""
    for _ in range(12):
        rows = [{"id": tape.hexadecimal(6), "name": tape.word()} for _ in range(5)]
        after = tape.hexadecimal(20)
        tape.call("list_orders", {"cursor": cursor}, {"items": rows, "next": after})
        cursor = after
    tape.call("list_orders", {"cursor": cursor}, {"items": [], "next": None})


def months_ahead(tape: Tape) -> None:
    """A date picker: next month, ten times."""
    months = "January February March April May June July August September October".split()
    for month in months:
        tape.call("click", {"element": "Next month"}, f"Calendar: {month} 2026, 1 2 3 4 5 6 7")


def keys_in_a_game(tape: Tape) -> None:
    """Right, right, right: the figure moves."""
    for number in range(12):
        key = tape.dice.choice(["right", "right", "up"])
        tape.call("press_key", {"key": key}, f"position ({number}, {number // 3})")


def screenshots_between_clicks(tape: Tape) -> None:
    """A picture after each click; pictures are not captured."""
    for _ in range(15):
        tape.call(
            "click", {"x": tape.dice.randrange(999), "y": tape.dice.randrange(999)}, "clicked"
        )
        tape.call("screenshot", {}, None)


def records_one_by_one(tape: Tape) -> None:
    """A batch by id."""
    first = tape.dice.randrange(10**5)
    for number in range(25):
        answer = {"id": first + number, "name": tape.word(), "total": tape.dice.randrange(10**4)}
        tape.call("get_record", {"id": first + number}, answer)


def checks_one_by_one(tape: Tape) -> None:
    """A batch of checks: most things are well, and a few are not."""
    for number in range(20):
        answer = f"problem: {tape.prose(8)}" if number % 4 == 3 else '{"valid": true, "errors": []}'
        tape.call("validate_invoice", {"id": f"INV-{1000 + number}"}, answer)


def writes_one_by_one(tape: Tape) -> None:
    """A batch of messages, all sent."""
    for number in range(20):
        args = {"to": f"user{number}@a.example", "text": tape.prose(15)}
        tape.call("send_message", args, "Message sent successfully to the recipient.")


def free_names(tape: Tape) -> None:
    """Of a dozen names some are taken."""
    for _ in range(12):
        answer = tape.dice.choice(["taken", "taken", "available"])
        tape.call("check_domain", {"name": f"{tape.word()}{tape.word()}.example"}, answer)


def sums(tape: Tape) -> None:
    """A calculator is asked again and again."""
    for _ in range(15):
        one, other = tape.dice.randrange(20), tape.dice.randrange(20)
        tape.call("calculate", {"expression": f"{one} * {other}"}, str(one * other))


def dice(tape: Tape) -> None:
    """The same call, and chance answers."""
    for _ in range(12):
        tape.call("roll_dice", {"sides": 1000}, str(tape.dice.randrange(1000)))


def clock(tape: Tape) -> None:
    """The time is asked for before every entry."""
    for number in range(10):
        tape.call("get_current_time", {}, f"2026-05-01T12:{number * 3:02d}:07Z", idle=100)
        tape.call("add_entry", {"text": tape.prose(10)}, "added")


def queries(tape: Tape) -> None:
    """A schema is learned, two queries are wrong, the rest is right."""
    tape.call("run_sql", {"query": "SHOW TABLES"}, tape.prose(10))
    tape.call("run_sql", {"query": "SELECT nme FROM t"}, error="no such column: nme")
    tape.call("run_sql", {"query": "SELECT name FROM tt"}, error="no such table: tt")
    for number in range(12):
        query = f"SELECT {tape.word()} FROM t WHERE year = {1990 + number}"
        tape.call("run_sql", {"query": query}, str([(tape.word(), tape.dice.randrange(999))]))


def counts_by_year(tape: Tape) -> None:
    """One number per year; in some years there is none."""
    for year in range(1990, 2015):
        count = tape.dice.choice([0, 0, tape.dice.randrange(1, 99)])
        query = f"SELECT COUNT(*) FROM sales WHERE year = {year}"
        tape.call("run_sql", {"query": query}, f"[({count},)]")


def customers(tape: Tape) -> None:
    """One customer after the other, each with the same questions."""
    for number in range(8):
        tape.user(f"customer {number}: {tape.prose(10)}")
        tape.call("get_policy", {"topic": "returns"}, "Returns within 30 days, with the receipt.")
        tape.call("get_customer", {"id": f"C{number}"}, tape.prose(20))
        tape.call("create_ticket", {"customer": f"C{number}", "text": tape.prose(10)}, "created")


def memory_at_each_turn(tape: Tape) -> None:
    """An empty memory is asked at the beginning of each turn of a talk."""
    for _ in range(9):
        topic = tape.prose(5)
        tape.user(topic)
        tape.call("search_memory", {"query": topic}, "No relevant memories found.")
        tape.call("web_search", {"query": topic}, tape.prose(60))


def cart(tape: Tape) -> None:
    """The same article three times: the cart says how many there are."""
    for number in range(1, 5):
        tape.call("add_to_cart", {"sku": "A-1"}, f"added; the cart holds {number} articles")


def orders_of_a_customer(tape: Tape) -> None:
    """A dozen orders, of which one is the wanted; some are not found."""
    for number in range(10):
        args = {"order_id": f"W{tape.dice.randrange(10**6)}"}
        if number % 4 == 1:
            tape.call("get_order", args, error="Error: order not found")
        else:
            tape.call("get_order", args, tape.prose(15))


def translation(tape: Tape) -> None:
    """Part after part of a text, each answer of one form."""
    for number in range(12):
        rows = [
            {"key": f"{tape.word()}.{n}", "de": tape.prose(4), "fr": tape.prose(4)}
            for n in range(6)
        ]
        tape.model(str(rows), 3)
        tape.call("write_part", {"part": number, "rows": rows}, "ok")


def same_words_other_work(tape: Tape) -> None:
    """The model says the same sentence before each call; each call is another one."""
    for number in range(14):
        tape.model("Let me check the next file.", 2)
        tape.call("read_file", {"path": f"doc/{number}.md"}, tape.prose(50))
