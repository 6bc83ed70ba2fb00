"""Everyday sessions as real spans: the healthy ones go unnoticed, the stuck ones are noticed."""

from __future__ import annotations

import json

import pytest

from tests.documented.traced import Traced

SENTENCES = [
    f"The {a} of the {b} {verb} a {c} near the {d}."
    for a, b, verb, c, d in zip(
        "harbor letter garden bridge summer market window forest engine planet".split() * 4,
        "city king school river valley museum castle farmer island office".split() * 3
        + ["sea"] * 10,
        "shows keeps opens covers holds turns leaves brings".split() * 5,
        "ticket lantern barrel signal mirror canvas".split() * 7,
        "station prairie temple lagoon tower".split() * 8,
        strict=False,
    )
]


# Several agents, whose runs are the only sign that they hand work to each other


def test_agents_that_answer_each_other_are_no_loop() -> None:
    """What an agent says during its run comes back to the other: a debate, a review."""
    team, said = Traced(), iter(SENTENCES)
    tasks = {"pro": "Argue for the work at home.", "contra": "Argue against the work at home."}
    with team.running(name="moderator"):
        for _ in range(8):
            for name, task in tasks.items():
                with team.running(name=name, task=task):
                    team.model(" ".join(next(said) for _ in range(2)), agent=name)
    assert team.actions == []


def test_fewer_failures_each_time_are_news() -> None:
    """Between two agents that hand work back and forth, a number that gets better is progress."""
    team = Traced()
    with team.running(name="lead"):
        for left in range(9, 0, -1):
            with team.running(name="coder", task="Make the importer pass its tests."):
                edit = f'{{"path": "importer.py", "new": "{SENTENCES[left]}"}}'
                team.call("edit_file", edit, "ok")
            with team.running(name="tester", task="Test the importer, all of its tests."):
                team.call("run_tests", "{}", f"{left} failed, {40 - left} passed")
    assert team.actions == []


def test_one_instruction_for_many_files_is_no_loop() -> None:
    """The parts of a path tell two files apart, as names do."""
    team = Traced()
    rule = "Follow the style guide, keep it short, use the imperative, and do not touch the code."
    words = [sentence.split() for sentence in SENTENCES]
    with team.running(name="lead"):
        for index in range(10):
            file = f"src/{words[index][4]}/{words[index][1]}_{words[index + 1][1]}.py"
            with team.running(name="documenter", task=f"Write the docstring of {file}. {rule}"):
                team.call("edit_file", f'{{"path": "{file}"}}', "ok")
                team.model("Done.", agent="documenter")
    assert team.actions == []


def test_who_only_approves_is_no_lack_of_news() -> None:
    """A turn of two agents brings news if one of them does."""
    team = Traced()
    said = iter(SENTENCES)
    with team.running(name="lead"):
        for _ in range(13):
            with team.running(name="writer", task="Write the next page of the manual."):
                team.model(" ".join(next(said) for _ in range(3)), agent="writer")
            with team.running(name="checker", task="Check the newest page of the manual."):
                team.model("The page is clear and needs no changes.", agent="checker")
    assert team.actions == []


def test_two_agents_that_say_the_same_are_noticed() -> None:
    """Neither of them brings any news."""
    team = Traced()
    with team.running(name="lead"):
        for _ in range(13):
            with team.running(name="writer", task="Write the first page of the manual."):
                team.model(SENTENCES[0], agent="writer")
            with team.running(name="checker", task="Check the first page of the manual."):
                team.model("The page is too short, write more.", agent="checker")
    assert "deny" in team.actions


def test_one_word_about_another_item_is_news_of_an_agent() -> None:
    """Each firm is given to the same agent, in the same words, and nothing is held against any."""
    team = Traced()
    with team.running(name="lead"):
        for number in range(12):
            firm = " ".join(SENTENCES[number].lower().split()[4:6])
            with team.running(name="checker", task=f"Check the supplier {firm} for sanctions"):
                team.call("sanctions", json.dumps({"name": f"{firm} {number}"}), '{"hits": 0}')
                team.model("No hits.", agent="checker")
    assert team.actions == []


# Items, pages and polls


def test_one_word_about_each_item_is_an_answer() -> None:
    """However many are asked about: hosts, names, files."""
    agent = Traced()
    with agent.running():
        for number in range(40):
            agent.model()
            args = {"host": f"web{number:02}", "command": "systemctl is-active backup"}
            agent.call("ssh", json.dumps(args), "active" if number in {12, 31} else "inactive")
    assert agent.actions == []


@pytest.mark.parametrize(
    ("tool", "names", "answers"),
    [
        ("check_rule", ("rule",), ('{"passed": true}', '{"passed": false}')),
        ("list_open_tickets", ("account",), ("[]", "[]")),
        ("check_grammar", ("text",), ('{"matches": []}', '{"matches": []}')),
        ("grade", ("question", "answer"), ("correct", "wrong")),
        ("check_answer", ("question_id", "answer"), ("Correct!", "Incorrect.")),
    ],
)
def test_short_answers_about_one_item_after_the_other_are_work(
    tool: str, names: tuple[str, ...], answers: tuple[str, str]
) -> None:
    """Rules, accounts, sentences, answers of pupils: most of them are answered alike."""
    agent = Traced()
    with agent.running():
        for number in range(40):
            agent.model()
            words = SENTENCES[number].split()
            args = {name: " ".join(words[place:]) for place, name in enumerate(names)}
            if "question_id" in args:
                args["question_id"] = str(number)
            agent.call(tool, json.dumps(args), answers[number % 7 == 3])
    assert agent.actions == []


def test_a_number_that_moves_is_news() -> None:
    """A price that is watched says little each time, and never the same."""
    agent = Traced()
    with agent.running():
        for minute in range(40):
            agent.model()
            price = f'{{"symbol": "ACME", "price": {110 + minute * 37 % 100 / 100}}}'
            agent.call("get_price", '{"symbol": "ACME"}', price, idle=60)
    assert agent.actions == []


def test_what_moved_before_may_rest_for_a_while() -> None:
    """A queue that is watched every ten seconds, by a tool that is not named like a poll."""
    agent = Traced()
    with agent.running():
        for depth in (60, 54, 54, 54, 54, 49, 49, 49, 49, 49, 40, 40, 40, 12, 12, 12, 12, 0):
            agent.model()
            agent.call("queue_depth", '{"queue": "invoices"}', f"depth: {depth}", idle=10)
    assert agent.actions == []


def test_a_record_that_names_what_was_asked_for_is_no_echo() -> None:
    """Thinking aloud is confirmed, and a payment is told with its id."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            agent.model()
            known = {"thoughtNumber": number, "totalThoughts": 12, "nextThoughtNeeded": True}
            thought = json.dumps({"thought": SENTENCES[number], **known})
            agent.call("sequentialthinking", thought, json.dumps({**known, "branches": []}))
        for _ in range(12):
            agent.model()
            answer = '{"payment": "pay_3141592653", "status": "pending"}'
            agent.call("get_payment", '{"payment": "pay_3141592653"}', answer, idle=6)
    assert agent.actions == []


@pytest.mark.parametrize("error", ["No route to host", "Network is unreachable", "Host is down"])
def test_who_waits_for_a_host_is_not_stopped(error: str) -> None:
    """A reboot takes minutes: to try again every ten seconds is no reason to stop."""
    agent = Traced()
    with agent.running():
        agent.call("ssh", '{"host": "db1", "command": "reboot"}', "Connection closed.")
        for _ in range(12):
            agent.model()
            args = '{"host": "db1", "command": "uptime"}'
            agent.call("ssh", args, error=f"ssh: connect to host db1: {error}", idle=10)
    assert set(agent.actions).isdisjoint({"deny", "pause", "abort"})


def test_another_picture_of_the_same_prompt_is_no_reason_to_stop() -> None:
    """A link with an id of its own leads to something new."""
    agent = Traced()
    with agent.running():
        for number in range(8):
            agent.model()
            name = f"{number:08x}-0000-4000-8000-{number * 7919:012x}"
            link = f'{{"url": "https://pictures.example/{name}.png"}}'
            agent.call("generate_image", '{"prompt": "a castle at dawn"}', link, took=12)
    assert set(agent.actions) <= {"hint"}


@pytest.mark.parametrize(
    ("tool", "args", "answer", "idle", "took"),
    [
        ("snapshot", "{}", "Approve the sign-in on your phone.", 6, 0.5),
        ("bash", '{"command": "sleep 3 && curl -s localhost:3000"}', "000", 0.2, 3.1),
        ("bash", '{"command": "apt-get install jq"}', "E: Could not get lock dpkg", 8, 0.5),
        ("receive", '{"timeout": 10}', "timeout, no message", 0.2, 10),
        ("aws", '{"args": "describe-stacks"}', "Database CREATE_IN_PROGRESS", 8, 0.5),
    ],
    ids=["person", "server", "lock", "message", "stack"],
)
def test_who_asks_with_pauses_is_not_stopped(
    tool: str, args: str, answer: str, idle: float, took: float
) -> None:
    """For a person, a server that starts, a lock, a message: no tool is named like a poll."""
    agent = Traced()
    with agent.running():
        for _ in range(12):
            agent.model()
            agent.call(tool, args, answer, idle=idle, took=took)
    assert set(agent.actions) <= {"hint"}


@pytest.mark.parametrize(
    "answer",
    [
        "214 passed in 12.3s",
        "ok   shop/cache 0.1s",
        "test result: ok. 12 passed; 0 failed",
        "Tests:       12 passed, 12 total",
    ],
)
def test_tests_that_pass_again_are_no_reason_to_stop(answer: str) -> None:
    """Whether they are flaky is found out by running them once more."""
    agent = Traced()
    with agent.running():
        for _ in range(10):
            agent.model()
            agent.call("bash", '{"command": "./test.sh cache"}', answer)
    assert agent.actions == ["hint"]


def test_tests_that_fail_again_are_a_reason_to_stop() -> None:
    """Where nothing is edited in between."""
    agent = Traced()
    with agent.running():
        for _ in range(10):
            agent.model()
            agent.call("bash", '{"command": "./test.sh cache"}', "1 failed, 213 passed in 12.3s")
    assert "abort" in agent.actions


def test_who_waits_between_tries_is_not_stopped() -> None:
    """A page that loads has no such element yet, and the agent waits by a tool of its own."""
    agent = Traced()
    with agent.running():
        for _ in range(6):
            agent.model()
            error = "no such element: #login"
            agent.call("find_element", '{"css": "#login"}', error=error)
            agent.model()
            agent.call("sleep", '{"seconds": 2}', "", took=2)
    assert set(agent.actions).isdisjoint({"deny", "pause", "abort"})


def test_a_signal_that_goes_on_and_off_is_no_cycle_to_stop() -> None:
    """One call with two answers in turn looks at something that moves."""
    agent = Traced()
    with agent.running():
        for number in range(90):
            agent.model()
            answer = "0" if number % 15 else "1"
            agent.call("read_register", '{"address": 40001}', answer, idle=30)
    assert "deny" not in agent.actions


def test_batch_after_batch_is_work() -> None:
    """That many rows were deleted again means that there were more of them."""
    agent = Traced()
    query = json.dumps({"sql": "DELETE FROM events WHERE day < '2020-01-01' LIMIT 5000"})
    with agent.running():
        for _ in range(18):
            agent.model()
            agent.call("query", query, "DELETE 5000")
    assert set(agent.actions) <= {"hint"}


def test_steps_that_do_nothing_are_waits() -> None:
    """In a game there is no other way to let time pass."""
    agent = Traced()
    with agent.running():
        for _ in range(12):
            agent.model()
            agent.call("noop", "{}", '{"light": "red", "position": [0, 0]}')
    assert agent.actions == []


def test_two_jobs_looked_at_in_turn_are_no_reason_to_stop() -> None:
    """One short pause is for both."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            for job in ("a", "b"):
                agent.model()
                args = json.dumps({"job": job})
                idle = 4 if job == "a" else 0
                agent.call("job_status", args, f"epoch {number // 6}", idle=idle)
    assert set(agent.actions) <= {"hint"}


def test_a_build_with_fewer_errors_each_time_gets_somewhere() -> None:
    """Though its last line is always the same."""
    agent = Traced()
    with agent.running():
        for left in range(30, 0, -1):
            agent.model()
            edit = {"path": f"{SENTENCES[left].split()[1]}.cpp", "new": SENTENCES[left]}
            agent.call("edit_file", json.dumps(edit), "ok")
            said = f"{left} errors generated.\nmake: *** [Makefile:136: all] Error 2"
            agent.call("bash", '{"command": "make"}', said)
    assert agent.actions == []


def test_one_error_in_many_places_is_not_the_same() -> None:
    """Rust names the place below the error."""
    agent = Traced()
    with agent.running():
        for line in range(40, 300, 20):
            agent.model()
            edit = {"path": f"src/{line}.rs", "new": SENTENCES[line // 20]}
            agent.call("edit_file", json.dumps(edit), "ok")
            said = f"error[E0308]: mismatched types\n  --> src/{line}.rs:{line}:9"
            agent.call("bash", '{"command": "cargo build 2>&1 | head -2"}', said)
    assert "steer" not in agent.actions
    assert agent.actions == []


def test_the_same_record_about_many_numbers_is_work() -> None:
    """Objects, sensors and claims that are all well say so at length."""
    agent = Traced()
    with agent.running():
        for number in range(30):
            agent.model()
            args = json.dumps({"tag": f"PT-{100 + number}"})
            agent.call(
                "check_sensor", args, '{"quality": "GOOD", "alarm": "NONE", "value": "in range"}'
            )
    assert len(agent.actions) <= 1


def test_one_search_through_many_documents_is_no_repeat() -> None:
    """The words are equal, the document is another one."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            agent.model()
            args = {"doc_id": f"C-{number:04}", "query": "change of control clause"}
            agent.call("search_document", json.dumps(args), "No matching passages.")
    assert agent.actions == []


def test_reports_that_are_cut_behind_an_equal_beginning_are_work() -> None:
    """What stands behind it is another text, as far as anybody can tell."""
    agent, letterhead = Traced(), " ".join(SENTENCES[:12])[:480]
    with agent.running():
        for number in range(25):
            agent.model()
            report = f"{letterhead} ... (truncated)"
            agent.call("read_report", json.dumps({"report": f"R-{number:03}"}), report)
    assert agent.actions == []


def test_one_count_after_the_other_is_work() -> None:
    """Of many tables, each asked for in SQL, the answer may be 0."""
    agent = Traced()
    with agent.running():
        for number, sentence in enumerate(SENTENCES[:25]):
            _, table, _, _, column, *_ = sentence.split()
            agent.model()
            sql = f"SELECT count(*) FROM {table}_{number} WHERE {column}_id IS NULL"
            agent.call("run_query", json.dumps({"sql": sql}), '[{"count": 0}]')
    assert agent.actions == []


def test_load_tests_without_a_failed_request_turn_nothing_down() -> None:
    """A measure that is named after failures, and is 0."""
    agent = Traced()
    with agent.running():
        for sentence in SENTENCES[:25]:
            agent.model()
            args = json.dumps({"script": f"{sentence.split()[4]}.js"})
            agent.call("k6", args, "checks......: 100.00%\nhttp_req_failed......: 0.00%")
    assert set(agent.actions) <= {"hint"}


def test_diagnostics_that_name_the_file_are_no_echo() -> None:
    """A list of records is an answer, as one record is."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            agent.model()
            file = f"file:///r/{SENTENCES[number].split()[1]}_{number}.py"
            agent.call("edit", json.dumps({"file": file, "text": SENTENCES[number]}), "ok")
            agent.call(
                "get_diagnostics",
                json.dumps({"uri": file}),
                json.dumps([{"uri": file, "found": []}]),
            )
    assert agent.actions == []


def test_moves_beside_news_are_work() -> None:
    """However often they are confirmed, what is looked at in between is another each time."""
    agent = Traced()
    with agent.running():
        for number in range(30):
            agent.model()
            agent.call("scroll", '{"direction": "down"}', "Scrolled down.")
            agent.call("get_page_text", "{}", " ".join(SENTENCES[number : number + 3]))
    assert set(agent.actions) <= {"hint"}


def test_an_arm_that_picks_one_part_after_the_other_is_no_loop() -> None:
    """Each part lies elsewhere, and is picked with an equal call and an equal answer."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            agent.model()
            agent.call("detect_object", "{}", f'{{"class": "bolt", "x": {number * 37 % 300}}}')
            agent.call("pick", "{}", "picked")
            agent.call("place", json.dumps({"bin": "AB"[number % 2]}), "placed")
    assert agent.actions == []


def test_the_same_number_four_times_may_be_chance() -> None:
    """Where the same call brought others before."""
    agent = Traced()
    with agent.running():
        for thrown in (3, 6, 1, 4, 4, 4, 4, 2, 5, 5, 5, 5, 1, 3):
            agent.model()
            agent.call("throw", "{}", f"You threw a {thrown}.")
    assert agent.actions == []


def test_who_fishes_casts_the_line_again() -> None:
    """Until something bites: an equal call of a game is another try."""
    agent = Traced()
    with agent.running():
        for _ in range(9):
            agent.model()
            agent.call("cast_line", "{}", "Nothing bites.", took=6)
        agent.call("cast_line", "{}", "You catch a salmon!", took=6)
    assert set(agent.actions) <= {"hint"}


def test_steps_through_a_maze_are_no_reason_to_stop() -> None:
    """Walls and corridors look alike, wherever they stand."""
    agent = Traced()
    with agent.running():
        for number in range(30):
            agent.model()
            way = ("north", "east", "north", "west", "south")[number * number % 5]
            answer = ("You bump into a wall.", "You are in a corridor.")[number % 11 == 4]
            agent.call("go", json.dumps({"direction": way}), answer)
    assert set(agent.actions) <= {"hint"}


def test_games_that_go_alike_are_no_reason_to_stop() -> None:
    """Who wins by the same moves plays them again."""
    agent, boards = Traced(), ("..X......", "O.X......", "O.X...X..")
    with agent.running():
        for _ in range(12):
            agent.model()
            agent.call("new_game", "{}", ".........")
            for cell, board in enumerate(boards):
                agent.model()
                agent.call("play", json.dumps({"cell": cell}), board)
    assert set(agent.actions) <= {"hint"}


@pytest.mark.parametrize(
    "answer",
    [
        '{"build": 4, "state": "FAILED"}',
        "Deployment failed: the health check did not pass",
    ],
)
def test_what_has_failed_for_good_is_not_waited_for(answer: str) -> None:
    """Not even with patience."""
    agent = Traced()
    with agent.running():
        for _ in range(15):
            agent.model()
            agent.call("get_build", '{"build": 4}', answer, idle=30)
    assert set(agent.actions) == {"hint"}


def test_what_has_failed_and_is_asked_for_at_short_intervals_is_stopped() -> None:
    """That is no patience any more."""
    agent = Traced()
    with agent.running():
        for _ in range(15):
            agent.model()
            agent.call("get_job", '{"job": 9}', '{"job": 9, "state": "FAILED"}', idle=15)
    assert "deny" in agent.actions


@pytest.mark.parametrize(
    "answer", ["Import running: 120 rows done, 0 failed", "3 jobs, none failed, 2 running"]
)
def test_a_count_of_failures_is_no_end(answer: str) -> None:
    """What goes on may say how much of it failed."""
    agent = Traced()
    with agent.running():
        for _ in range(15):
            agent.model()
            agent.call("get_import", '{"import": 4}', answer, idle=30)
    assert agent.actions == []


# Searches in any language


@pytest.mark.parametrize(
    "answers",
    [
        ("Keine Treffer.", "Es wurde nichts gefunden.", "Keine passenden Dokumente."),
        ("Aucun résultat.", "Document introuvable.", "Rien n'a été trouvé."),
        ("No se encontraron documentos.", "Sin resultados.", "No se ha encontrado nada."),
        ("Nessun risultato.", "Documento non trovato.", "Nessun documento."),
        ("Nenhum resultado.", "Não foi encontrado.", "Nenhum documento."),
        ("Geen resultaten.", "Niet gevonden.", "Geen documenten."),
        ("Ничего не найдено.", "Документ не найден.", "Нет результатов."),
        ("未找到相关结果", "没有找到匹配的内容", "查无结果"),
        ("該当する結果は見つかりませんでした。", "検索結果はありません。", "該当なし"),
        ("검색 결과가 없습니다.", "문서를 찾을 수 없습니다.", "결과 없음"),
        ("لم يتم العثور على نتائج", "لا توجد نتائج", "المستند غير موجود"),
        ("कोई परिणाम नहीं मिला", "दस्तावेज़ नहीं मिला", "कोई डेटा नहीं"),
    ],
    ids=["de", "fr", "es", "it", "pt", "nl", "ru", "zh", "ja", "ko", "ar", "hi"],
)
def test_a_search_that_finds_nothing_is_noticed(answers: tuple[str, ...]) -> None:
    """In whatever language it says so."""
    agent = Traced()
    with agent.running():
        for number in range(6):
            agent.model()
            query = json.dumps({"query": " ".join(SENTENCES[number].split()[: 3 + number])})
            agent.call("find_documents", query, answers[number % 3])
    assert agent.actions == ["hint"]


@pytest.mark.parametrize("name", ["question", "frage", "질문", "سؤال", "प्रश्न"])
def test_questions_are_no_items_whatever_they_are_called(name: str) -> None:
    """Who asks for one thing in other words looks for that one thing."""
    agent = Traced()
    with agent.running():
        for sentence in SENTENCES[:6]:
            agent.model()
            asked = json.dumps({name: sentence}, ensure_ascii=False)
            agent.call("ask_archive", asked, "No entry found.")
    assert agent.actions == ["hint"]


@pytest.mark.parametrize(
    "answer",
    [
        "I could not find anything about it.",
        "Unable to locate such a document.",
        "The document cannot be found.",
        "You have reached the end of the list.",
        '{"results": [], "total": 0}',
        "[]",
    ],
)
def test_a_search_that_is_answered_by_nothing_is_noticed(answer: str) -> None:
    """In words, or with an empty list."""
    agent = Traced()
    with agent.running():
        for number in range(6):
            agent.model()
            query = json.dumps({"query": " ".join(SENTENCES[number].split()[: 3 + number])})
            agent.call("search_documents", query, answer)
    assert "found_nothing" in {one.reason for one in agent.rig.decisions}
    assert set(agent.actions) == {"hint"}


def test_a_name_that_is_looked_for_in_other_spellings_is_noticed() -> None:
    """It is one item that is not there, and not many."""
    agent = Traced()
    with agent.running():
        for name in "Meier Meyer Maier Mayer Mayr Meir Meiers Meierr Meirs".split():
            agent.model()
            agent.call("find_customer", json.dumps({"name": name}), '{"customers": []}')
    assert agent.actions == ["hint"]


def test_a_query_in_other_words_with_the_same_rows_is_noticed() -> None:
    """A tool that runs a query changes nothing where that only selects."""
    agent, rows = Traced(), "\n".join(f"{sentence} | 7" for sentence in SENTENCES[:3])
    with agent.running():
        for number in range(6):
            agent.model()
            sql = f"SELECT name, total FROM customers ORDER BY total DESC -- try {number}"
            agent.call("run_query", json.dumps({"sql": sql}), rows)
    assert agent.actions == ["hint"]


def test_questions_whose_answers_are_all_known_are_noticed() -> None:
    """The same passages in another order, however it is asked."""
    agent, passages = Traced(), [" ".join(SENTENCES[at : at + 2]) for at in range(0, 12, 2)]
    with agent.running():
        for number in range(14):
            agent.model()
            found = passages[number % 6 :] + passages[: number % 6]
            query = json.dumps({"query": SENTENCES[39 - number]})
            agent.call("retrieve", query, json.dumps(found))
    assert agent.actions == ["hint"]


def test_questions_to_a_small_handbook_are_work() -> None:
    """The same passages come up again, and each question finds another one beside them."""
    agent, passages = Traced(), [" ".join(SENTENCES[at : at + 3]) for at in range(0, 36, 3)]
    with agent.running():
        for number in range(12):
            agent.model()
            query = json.dumps({"query": SENTENCES[39 - number]})
            agent.call("retrieve", query, json.dumps([passages[number], *passages[:2]]))
    assert agent.actions == []


# Loops that look like work


@pytest.mark.parametrize("names", [("view_range",), ("start_line", "end_line")])
def test_a_file_that_is_read_again_is_noticed(names: tuple[str, ...]) -> None:
    """With windows that do not lie exactly where they lay before."""
    agent = Traced()
    with agent.running():
        for number in range(24):
            agent.model()
            line = number % 6 * 100 + number // 6
            window = (line, line + 100) if len(names) > 1 else ((line, line + 100),)
            args = {"path": "m.py", **dict(zip(names, window, strict=True))}
            text = "\n".join(SENTENCES[line % 7 :: 7]) + f"\n{line}"
            agent.call("view", json.dumps(args), text)
    assert "hint" in agent.actions


def test_passwords_tried_one_by_one_are_noticed() -> None:
    """Each is another one, and none is right."""
    agent = Traced()
    with agent.running():
        for number in range(30):
            agent.model()
            args = json.dumps({"user": "admin", "password": f"secret{number}"})
            agent.call("login", args, "Invalid username or password.")
    assert agent.actions[0] == "hint"
    assert "deny" in agent.actions


@pytest.mark.parametrize(
    "answer",
    [
        "main.c:14:5: error: unknown type name 'size'\nmake: *** [Makefile:3: main.o] Error 1",
        "error[E0308]: mismatched types\nerror: could not compile `port` (lib)",
        "npm error code ELIFECYCLE\nnpm error errno 1",
    ],
    ids=["make", "cargo", "npm"],
)
def test_a_build_that_fails_alike_after_each_edit_is_noticed(answer: str) -> None:
    """A shell that does not tell its exit code still says that the build broke off."""
    agent = Traced()
    with agent.running():
        for number in range(10):
            agent.model()
            agent.call("edit_file", json.dumps({"path": "main.c", "new": SENTENCES[number]}), "ok")
            agent.call("bash", '{"command": "./build.sh"}', answer)
    assert agent.actions[0] == "hint"


def test_commands_that_may_do_nothing_are_noticed() -> None:
    """Each prints the error of its one command, and nothing else."""
    agent = Traced()
    with agent.running():
        for number in range(10):
            agent.model()
            command = json.dumps({"command": f"cat /root/{SENTENCES[number].split()[1]}"})
            agent.call("bash", command, f"cat: /root/{number}: Permission denied")
    assert "hint" in agent.actions


@pytest.mark.parametrize(
    ("tool", "name", "answer"),
    [
        ("execute_code", "code", "KeyError: 'date'"),
        ("bash", "command", "cp: error writing: No space left on device"),
        ("http_post", "note", '{"status": 200, "body": {"success": false, "message": "full"}}'),
        ("make_move", "move", "Illegal move"),
        ("charge", "amount", '{"status": "declined", "code": "card_declined"}'),
    ],
)
def test_refusals_that_are_no_errors_are_noticed(tool: str, name: str, answer: str) -> None:
    """The span is well, and only its result says what went wrong."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            agent.model()
            agent.call(tool, json.dumps({name: SENTENCES[number]}), answer)
    assert agent.actions


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("lean_run", "unsolved goals\nh : a < b\n⊢ a ^ 2 < b ^ 2"),
        ("open_page", "Please verify you are a human."),
        ("k6_run", "connect: connection refused\nhttp_req_failed: 100.00%"),
        ("do", "E_FAIL 0x80004005"),
    ],
    ids=["prover", "captcha", "load test", "hresult"],
)
def test_what_turns_every_try_down_is_noticed(tool: str, answer: str) -> None:
    """In the words of provers, of walls against robots, of load tests, of Windows."""
    agent = Traced()
    with agent.running():
        for sentence in SENTENCES[:8]:
            agent.model()
            agent.call(tool, json.dumps({"x": sentence}), answer)
    assert agent.actions


def test_one_unknown_tool_after_the_other_is_noticed() -> None:
    """A server may say so in a plain result."""
    agent = Traced()
    with agent.running():
        for name in "get_weather weather fetch_weather weather_now forecast temperature".split():
            agent.model()
            agent.call(name, '{"city": "Kiel"}', f"Unknown tool: {name}")
    assert agent.actions


@pytest.mark.parametrize(
    ("tool", "answer", "error"),
    [
        ("get_state", '{"t": 0, "events": [], "running": false}', None),
        ("edit", None, "File has not been read yet. Read it first before writing to it."),
    ],
)
def test_what_is_not_under_way_is_not_waited_for(
    tool: str, answer: str | None, error: str | None
) -> None:
    """What does not run, and what asks for something else first, never comes by itself."""
    agent = Traced()
    with agent.running():
        for _ in range(12):
            agent.model()
            agent.call(tool, '{"path": "a.py"}', answer, error=error)
    assert agent.actions[0] == "hint"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("browser_scroll", '{{"y": {0}00}}'),
        ("browser_click", '{{"element": "Accept", "ref": "e{0}"}}'),
    ],
    ids=["scroll", "click"],
)
def test_acts_that_change_nothing_that_is_shown_are_noticed(tool: str, args: str) -> None:
    """The page stays as it was, wherever it is scrolled to or clicked."""
    agent = Traced()
    with agent.running():
        for number in range(10):
            agent.model()
            agent.call(tool, args.format(7 + number), "\n".join(SENTENCES[:8]))
    assert agent.actions[0] == "hint"


def test_a_form_that_is_turned_down_again_is_noticed() -> None:
    """Something else is typed before each click, and the page complains as before."""
    agent, page = Traced(), "\n".join(SENTENCES[:8])
    with agent.running():
        for number in range(10):
            agent.model()
            typed = {"element": "date", "ref": "e4", "text": SENTENCES[number]}
            agent.call("browser_type", json.dumps(typed), page)
            agent.call("browser_click", '{"element": "Send", "ref": "e9"}', page + "\nInvalid date")
    assert set(agent.actions) == {"hint"}


def test_other_things_clicked_on_one_page_are_work() -> None:
    """A page may not show what was chosen."""
    agent = Traced()
    with agent.running():
        for number in range(14):
            agent.model()
            element = {"element": SENTENCES[number], "ref": f"e{number}"}
            agent.call("browser_click", json.dumps(element), "\n".join(SENTENCES[20:28]))
    assert agent.actions == []


def test_an_answer_in_another_order_is_the_same() -> None:
    """Maps of Go and Rust, and queries without an order, give their keys in any."""
    agent, keys = Traced(), ["name", "state", "workers", "backlog"]
    with agent.running():
        for number in range(8):
            agent.model()
            keys = keys[1:] + keys[:1]
            answer = json.dumps({key: len(key) for key in keys}, indent=number % 3 or None)
            agent.call("queue_info", '{"name": "mails"}', answer)
    assert "hint" in agent.actions


def test_a_path_is_the_same_however_it_is_written() -> None:
    """Steps that lead nowhere make no other file of it."""
    agent = Traced()
    with agent.running():
        for path in ("a/b.py", "./a/b.py", "a/../a/b.py", "a//b.py", "a/./b.py", "././a/b.py"):
            agent.model()
            agent.call("read_file", json.dumps({"path": path}), "\n".join(SENTENCES[:3]))
    assert "hint" in agent.actions


def test_a_plan_that_is_written_again_and_again_is_noticed() -> None:
    """In whatever words, if nothing else is done."""
    agent = Traced()
    with agent.running():
        for number in range(6):
            agent.model()
            todos = [
                {"content": one, "status": "pending"} for one in SENTENCES[number : number + 3]
            ]
            agent.call("write_todos", json.dumps({"todos": todos}), "Updated the list.")
    assert agent.actions == ["hint"]


def test_a_plan_of_which_more_is_done_each_time_is_work() -> None:
    """Tasks that need no tool are ticked off one after the other."""
    agent = Traced()
    with agent.running():
        for done in range(8):
            agent.model()
            todos = [
                {"content": one, "status": "completed" if place < done else "pending"}
                for place, one in enumerate(SENTENCES[:8])
            ]
            agent.call("write_todos", json.dumps({"todos": todos}), "Updated the list.")
    assert agent.actions == []
