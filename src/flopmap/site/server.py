"""The server: HTTP around :mod:`flopmap.site.answers`, with every request bounded in size and in time.

The standard library's server is enough: a handful of addresses, answers of milliseconds, one process. A request that
does not arrive in time is cut off as a whole (a time for each read would let a drip go on for hours), and a connection
too many is refused.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flopmap.site.answers import HEADERS, LARGEST_BODY, Answer, Application, failed

if TYPE_CHECKING:
    from flopmap.records.book import Book

SECONDS = 15.0  # for a request to arrive, and for a write of its answer
IDLE_SECONDS = 30.0  # between two requests of a connection
LINGER_SECONDS = 1.0
MOST_CONNECTIONS = 128
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Arriving(io.RawIOBase):
    """What comes in of a connection until a deadline, however slowly."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = time.monotonic() + SECONDS

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What has come. Raises :class:`TimeoutError` at the deadline."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        got = self._connection.recv_into(buffer)
        self._connection.settimeout(SECONDS)
        return got


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "flopmap", ""
    server: Server

    def setup(self) -> None:
        """Read through a deadline."""
        super().setup()
        self.rfile.close()
        self._arriving = Arriving(self.connection)
        self.rfile = io.BufferedReader(self._arriving)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_one_request(self) -> None:
        """Wait for a request, then give it its time as a whole."""
        self._arriving.deadline = time.monotonic() + IDLE_SECONDS
        try:
            begun = self.rfile.peek(1)  # type: ignore[attr-defined]
            self._arriving.deadline = time.monotonic() + SECONDS
            if begun:
                self._one_request()
            else:
                self.close_connection = True
        except (TimeoutError, ConnectionError):
            self.close_connection = True

    def _one_request(self) -> None:
        self.requestline = self.command = ""
        try:
            self.raw_requestline = self.rfile.readline(65537)
            if len(self.raw_requestline) > 65536:  # noqa: PLR2004 - as the standard library
                self.send_error(414)
            elif self.parse_request():
                self._answer()
        except TimeoutError:
            self.send_error(408)
        self.wfile.flush()

    def _answer(self) -> None:
        site = self.server.site
        refused = self._refused()
        if refused:
            self._send(refused, close=True)
            return
        body = b""
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return
        try:
            answer = site.answer(str(self.command), self.path, body)
        except Exception:
            self._send(failed(500, "a fault of flopmap, not of the question"), close=True)
            raise
        self._send(answer)

    def _refused(self) -> Answer | None:
        """Why a request is not answered: before its body is read."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 and self.request_version != "HTTP/1.0":
            return failed(400, "a request names its host once")
        host = hosts[0] if hosts else ""
        # a page elsewhere may have its name lead here: on loopback, only names of loopback are answered
        if self.server.loopback and host.rsplit(":", 1)[0].lower() not in (*LOOPBACK_NAMES, self.server.host):
            return failed(421, "this server answers on loopback only (localhost, 127.0.0.1)")
        origin = self.headers.get("Origin")
        if self.command == "POST" and origin is not None and urlsplit(origin).netloc != host:
            return failed(403, "a page of another site may not ask this")
        return self._refused_body()

    def _refused_body(self) -> Answer | None:
        if self.headers.get("Transfer-Encoding") is not None:
            return failed(411, "a body comes with its Content-Length")
        lengths = self.headers.get_all("Content-Length") or []
        if not lengths:
            return failed(411, "a body comes with its Content-Length") if self.command == "POST" else None
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 18:  # noqa: PLR2004 - digits of any size
            return failed(400, "Content-Length is no length")
        if int(lengths[0]) > LARGEST_BODY:
            return failed(413, f"a text is at most {LARGEST_BODY >> 20} MiB: give the part with the results")
        return None

    def handle_expect_100(self) -> bool:
        """Say no before the body is sent."""
        if self._refused() is None:
            return super().handle_expect_100()
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of HTTP itself, as the others are."""
        status = {501: 405, 505: 400}.get(int(code), int(code))
        short, _ = self.responses.get(status, ("error", ""))
        more = {"Allow": "GET, HEAD, POST"} if status == 405 else {}  # noqa: PLR2004 - method not allowed
        self._send(failed(status, message or explain or short, more), close=True)

    def _send(self, answer: Answer, *, close: bool = False) -> None:
        self.close_connection = self.close_connection or close
        self.request_version = self.protocol_version  # even where none was understood, the answer has headers
        self.send_response(answer.status)
        for name, value in {**HEADERS, **answer.more, "Content-Type": answer.type}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: what is asked is nobody else's business."""


class Server(ThreadingHTTPServer):
    """A thread a connection, and no more of them than are allowed."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, site: Application) -> None:
        self.site = site
        self.host = host
        self.loopback = is_loopback(host)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Without the look-up of a name that the standard library makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand over to a thread, or refuse where there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        request.settimeout(1)
        request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The connection, until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        """Close, once the other side has read the answer: what it still sends is thrown away for a moment."""
        end = time.monotonic() + LINGER_SECONDS
        try:
            request.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                request.settimeout(left)
                if not request.recv(65536):
                    break
        except OSError:
            pass
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is no news; a fault of ours is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where it is to be found."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/"


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own. A name other than ``localhost`` is taken for one that is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def start(book: Book, host: str, port: int) -> Server:
    """A server that listens, its pages being built meanwhile. Raises :class:`OSError`."""
    site = Application(book)
    server = Server(host, port, site)
    threading.Thread(target=site.files, daemon=True).start()
    return server
