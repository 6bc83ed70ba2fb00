"""Stands for a coding agent: holds a transcript open, and writes the lines that it is given.

`python writer.py TRANSCRIPT`: each line on standard input is added to the file, then its
number is printed. `--by-name` opens the file for each line, as Claude Code does; with `--database`
each line is a statement with its values, as opencode has them.
"""

import json
import sqlite3
import sys
from pathlib import Path


def main(place: str, *options: str) -> None:
    if "--by-name" in options:
        for number, line in enumerate(sys.stdin):
            with Path(place).open("a", encoding="utf-8") as file:
                file.write(line)
            print(number, flush=True)
        return
    if "--database" in options:
        opened = sqlite3.connect(place, isolation_level=None)
        for number, line in enumerate(sys.stdin):
            opened.execute(*json.loads(line))
            print(number, flush=True)
        return
    with Path(place).open("a", encoding="utf-8") as file:
        for number, line in enumerate(sys.stdin):
            file.write(line)
            file.flush()
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
