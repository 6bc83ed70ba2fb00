"""ClickHouse for tests, run in the environment of `engines`: `clickhouse_server.py DATA [SPANS]`.

With SPANS, a Parquet file, it makes the table of the Collector's exporter in the folder DATA. Then
it prints a port of its own and answers there as the HTTP interface of a server does, by chdb, until
its standard input is closed.
"""

from __future__ import annotations

import base64
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from chdb.session import Session

IDENTITY = "Basic " + base64.b64encode(b"reader:s3cret").decode()
TABLE = Path(__file__).with_name("clickhouse.sql").read_text(encoding="utf-8")
COLUMNS = (
    "Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ScopeName, SpanAttributes,"
    " Duration, StatusCode, StatusMessage, `Events.Name`, `Events.Attributes`"
)


class Handler(BaseHTTPRequestHandler):
    session: Session

    def do_POST(self) -> None:
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            status, body = 200, self.session.query(query).bytes()
        except RuntimeError as error:
            status, body = 500, str(error).encode()
        if self.headers["Authorization"] != IDENTITY:
            status, body = 403, b"Code: 516. DB::Exception: Authentication failed"
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def main() -> None:
    data, *spans = sys.argv[1:]
    Handler.session = session = Session(data)
    for path in spans:
        session.query("CREATE DATABASE otel")
        session.query(TABLE)
        session.query(
            f"INSERT INTO otel.otel_traces ({COLUMNS}) SELECT {COLUMNS} FROM file('{path}')"
        )
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()
    session.close()


if __name__ == "__main__":
    main()
