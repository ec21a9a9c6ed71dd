"""``flopmap serve``: the site with the workbench, on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flopmap.records.book import load, to_json
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    import argparse

    from flopmap.cli.main import Parser

LARGEST_PORT = 65535


def add_arguments(parser: Parser, _name: str) -> None:
    """The address."""
    parser.epilog = "example: flopmap serve, then open http://127.0.0.1:8000/"
    heard = "the address to listen on (default: loopback, which only this machine reaches)"
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help=heard)
    parser.add_argument(
        "--port", metavar="N", type=int, default=8000, help="the port (default 8000; 0 takes a free one)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from flopmap.site.server import start

    if not 0 <= options.port <= LARGEST_PORT:
        raise ScenarioError(f"--port {options.port}: out of range (accepted: 0 to {LARGEST_PORT})")
    try:
        server = start(load(tuple(options.book)), options.host, options.port)
    except OSError as error:
        raise ScenarioError(f"--host {options.host} --port {options.port}: cannot listen: {error.strerror}") from None
    if not server.loopback:
        print(f"flopmap serve: {options.host} is not loopback: whoever reaches this address can ask", file=sys.stderr)
    print(to_json({"url": server.url}) if options.json else f"flopmap is at {server.url} (Ctrl+C ends it)", flush=True)
    with server:
        server.serve_forever()
    return 0
