"""The server: the command line's answers, and clean refusals of all that is too large, too slow or not HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from flopmap.cli import why
from flopmap.cli.main import COMMANDS, main
from flopmap.diagnosis.readers.read import read_bytes
from flopmap.scenario import Request
from flopmap.site import server as module
from flopmap.site.answers import LARGEST_BODY, Application
from flopmap.site.openapi import openapi
from flopmap.site.query import FIELDS, MEASURED, read_query
from flopmap.site.server import Server, is_loopback
from flopmap.step import ScenarioError
from tests.readers.support import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flopmap.records.book import Book

QWEN = {"model": "Qwen/Qwen3-8B", "on": "a100-sxm-80gb", "engine": "vllm", "batch_size": "8", "context_len": "1k"}
FLAGS = [
    "why",
    "Qwen/Qwen3-8B",
    "--on",
    "a100-sxm-80gb",
    "--engine",
    "vllm",
    "--batch-size",
    "8",
    "--context-len",
    "1k",
]


@pytest.fixture(scope="module")
def site(book: Book) -> Application:
    """With two pages in place of the whole book's: what a page holds is tested elsewhere."""
    return Application(book, {"index.html": b"<p>first", "flops/index.html": b"<p>list", "flops/a.json": b"{}"})


@pytest.fixture
def port(site: Application) -> Iterator[int]:
    server = Server("127.0.0.1", 0, site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def ask(port: int, path: str, method: str = "GET", **more: Any) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, **more)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def raw(port: int, text: bytes) -> bytes:
    """Whatever comes back for these bytes, until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
        return got


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        (
            {**QWEN, "enforce_eager": "true", "throughput": "227.8"},
            [*FLAGS, "--enforce-eager", "--throughput", "227.8"],
        ),
        ({**QWEN, "quantization": "awq", "kv_cache_dtype": "fp8"}, [*FLAGS, "-q", "awq", "--kv-cache-dtype", "fp8"]),
        (
            {
                "model": "deepseek-ai/DeepSeek-V3",
                "on": "b200",
                "input_len": "4k",
                "ttft": "900ms",
                "convention": "mask=full",
            },
            [
                "why",
                "deepseek-ai/DeepSeek-V3",
                "--on",
                "b200",
                "--input-len",
                "4k",
                "--ttft",
                "900ms",
                "--convention",
                "mask=full",
            ],
        ),
        (
            {
                **QWEN,
                "model": "meta-llama/Llama-3.1-8B",
                "acceptance_rate": "0.7",
                "speculative_config": "model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,num_speculative_tokens=3",
            },
            [
                "why",
                "meta-llama/Llama-3.1-8B",
                *FLAGS[2:],
                "--acceptance-rate",
                "0.7",
                "--speculative-config",
                "model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,num_speculative_tokens=3",
            ],
        ),
    ],
)
def test_the_api_answers_as_the_command_line(
    fields: dict[str, str], flags: list[str], port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    status, headers, body = ask(port, f"/api/why?{urlencode(fields)}")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == printed(capsys, *flags)
    drawn = json.loads(ask(port, f"/api/why?{urlencode({**fields, 'draw': '1'})}")[2])
    assert set(drawn) - set(json.loads(body)) == {"drawing"}


def test_a_pasted_text_is_diagnosed_as_a_file_is(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    file = FIXTURES / "vllm-serve-new.txt"
    flags = ("--model", "meta-llama/Llama-3.1-8B", "--on", "h100-sxm")
    query = urlencode({"model": "meta-llama/Llama-3.1-8B", "on": "h100-sxm"})
    status, _, body = ask(port, f"/api/diagnose?{query}", "POST", body=file.read_bytes())
    ours, theirs = json.loads(body), printed(capsys, "diagnose", str(file), *flags)
    assert status == 200
    for run in (*ours, *theirs):
        run.pop("file")
    assert ours == theirs
    drawn = json.loads(ask(port, f"/api/diagnose?{query}&draw=1", "POST", body=file.read_bytes())[2])
    assert set(drawn) == {"headline", "lines", "markdown", "runs"}
    assert " ms a step is " in drawn["headline"]


def test_the_fields_of_a_query_are_those_of_a_request_and_of_the_command_line() -> None:
    assert {*FIELDS} - {"convention"} == {*Request.__struct_fields__} - {"conventions"}
    assert MEASURED == why.MEASUREMENTS
    described = openapi()["paths"]["/api/why"]["get"]["parameters"]
    assert [each["name"] for each in described] == [*FIELDS, *MEASURED, "draw"]
    assert {"docs", "serve"} <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("on=h100", "model: is missing"),
        ("model=gpt2", "on: is missing"),
        ("model=gpt2&on=h100&bach_size=3", "unknown field 'bach_size' (did you mean batch_size?)"),
        ("model=gpt2&on=h100&batch_size=three", "batch_size: 'three' is not a count (accepted: 2048, 8k, 1m)"),
        ("model=gpt2&on=h100&tpot=28", "tpot: '28' is not a time (accepted: 28ms, 1.2s, 350us)"),
        ("model=gpt2&on=h100&tpot=28ms&ttft=1s", "ttft: something is measured already"),
        ("model=gpt2&on=h100&on=l4", "on: is given twice"),
        ("model=gpt2&on=h100&tpot=28ms&phase=prefill", "tpot measures decode, but phase is prefill"),
        ("model=gpt2&on=h100&enforce_eager=1", "enforce_eager: '1' is neither true nor false"),
        ("model=gpt2&on=h100&phase=x", "phase: 'x' is no phase (accepted: decode, prefill, mixed, encode)"),
        ("model=gpt2&on=h100&convention=mask", "convention: 'mask' is not NAME=VALUE (such as mask=full)"),
        ("model=gpt2&on=h100&acceptance_rate=x", "acceptance_rate: 'x' is not a number (such as 0.7)"),
        ("model=gpt2&on=" + "h" * 3000, "on: longer than 2000 characters"),
        ("&".join(["batch_size=1"] * 61), "a query has at most 60 fields"),
    ],
)
def test_a_wrong_question_is_answered_in_one_line(query: str, why: str, site: Application) -> None:
    answer = site.answer("GET", f"/api/why?{query}")
    assert (answer.status, json.loads(answer.body)) == (400, {"error": why})


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "{file}"},
        {"model": "{folder}"},
        {"speculative_config": '{{"model": "{folder}", "num_speculative_tokens": 2}}'},
        {"speculative_config": "model={folder},num_speculative_tokens=2"},
        {"lora_modules": "{file}"},
        {"lora_modules": "./adapter_config.json"},
    ],
)
def test_no_file_of_the_machine_is_opened(fields: dict[str, str], book: Book, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    named = {name: text.format(file=tmp_path / "config.json", folder=tmp_path) for name, text in fields.items()}
    with pytest.raises((ScenarioError, LookupError), match=r"unknown model|is a file"):
        read_query({"model": "gpt2", "on": "h100", **named}.items(), book)


def test_a_model_that_a_text_names_is_not_opened_as_a_file(site: Application, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))
    result = json.loads((FIXTURES / "vllm-serve.json").read_text())
    text = json.dumps({**result, "model_id": str(tmp_path)}).encode()
    assert read_bytes(text)[0].model == str(tmp_path)  # so a file of the command line's user could be opened
    answer = site.answer("POST", "/api/diagnose?on=h100", text)
    assert answer.status == 200
    (run,) = json.loads(answer.body)
    assert (run["model"], run["verdicts"], run["missing"]) == (None, [], {"model": "give --model"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 302),
        ("GET", "/why", 200),
        ("HEAD", "/why", 200),
        ("GET", "/diagnose", 200),
        ("GET", "/index.html", 200),
        ("GET", "/flops/", 200),
        ("GET", "/flops", 404),
        ("GET", "/assets/style.css", 200),
        ("GET", "/assets/../page.py", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/assets/..%2fpage.py", 404),
        ("GET", "//etc/passwd", 404),
        ("GET", "/%00", 404),
        ("GET", "/%ff", 404),
        ("POST", "/why", 405),
        ("DELETE", "/api/why", 405),
        ("GET", "/api/diagnose", 405),
        ("GET", "/api/openapi.json", 200),
        ("POST", "/api/diagnose", 422),
    ],
)
def test_addresses(method: str, path: str, status: int, port: int) -> None:
    found, headers, body = ask(port, path, method, body=b"nothing known" if method == "POST" else None)
    assert found == status
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Access-Control-Allow-Origin" not in headers
    if status >= 400:
        assert list(json.loads(body)) == ["error"]
    if method == "HEAD":
        assert body == b""
        assert int(headers["Content-Length"]) > 0
    if status == 405:
        assert headers["Allow"] in ("GET, HEAD", "POST")


HOST = b"Host: localhost\r\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /why HTTP/1.1\r\nHost: example.com\r\n\r\n", 421),  # a name of elsewhere that leads here
        (b"GET /why HTTP/1.1\r\n\r\n", 400),
        (b"GET /why HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /why HTTP/9.9\r\n" + HOST + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),  # TLS
        (b"BREW /why HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 405),
        (b"GET http://[/ HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 404),
        (b"GET /why\r\n\r\n", 400),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /why HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /why HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 70000 + b"\r\n\r\n", 431),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"\r\n", 411),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Content-Length: 1e9\r\n\r\n", 400),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999\r\n\r\n", 413),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Origin: https://example.com\r\nContent-Length: 1\r\n\r\na", 403),
    ],
)
def test_what_is_not_a_request_is_refused_and_the_connection_closed(text: bytes, status: int, port: int) -> None:
    answer = raw(port, text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in head
    assert list(json.loads(body)) == ["error"]
    assert ask(port, "/why")[0] == 200  # and the server goes on


def test_a_text_that_is_too_large_is_refused_even_while_it_is_sent(port: int) -> None:
    status, _, body = ask(port, "/api/diagnose", "POST", body=b"x" * (LARGEST_BODY + 1))
    assert (status, json.loads(body)["error"]) == (413, "a text is at most 4 MiB: give the part with the results")


def test_a_request_that_drips_is_cut_off_as_a_whole(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.5)
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"GET /why HTTP/1.1\r\n")
        for _ in range(4):  # each byte well within the time, all of them not
            time.sleep(0.2)
            slow.sendall(b"A")
        assert slow.recv(65536).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - begin < 5
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"POST /api/diagnose HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc")
        assert slow.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_a_connection_serves_many_requests(port: int) -> None:
    connection = http.client.HTTPConnection("localhost", port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/api/openapi.json")
        answer = connection.getresponse()
        assert json.loads(answer.read())["openapi"] == "3.1.0"
    connection.close()


def test_a_connection_too_many_is_refused(site: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    server = Server("127.0.0.1", 0, site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    held = [socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) for _ in range(2)]
    try:
        for each in held:  # both are served, and stay open
            each.sendall(b"GET /why HTTP/1.1\r\n" + HOST + b"\r\n")
            assert each.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert raw(server.server_address[1], b"GET /why HTTP/1.1\r\n" + HOST + b"\r\n").startswith(b"HTTP/1.1 503 ")
    finally:
        for each in held:
            each.close()
        server.shutdown()
        thread.join()
        server.server_close()


def test_fifty_clients_at_once_get_their_answers(port: int) -> None:
    found: list[int] = []

    def client() -> None:
        found.extend(ask(port, "/why")[0] for _ in range(3))
        found.append(ask(port, f"/api/why?{urlencode(QWEN)}")[0])

    clients = [threading.Thread(target=client) for _ in range(50)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert found == [200] * 200


def test_a_fault_of_ours_is_said_and_the_server_goes_on(
    site: Application, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "_file", lambda _path: 1 / 0)
    status, _, body = ask(port, "/index.html")
    assert (status, json.loads(body)) == (500, {"error": "a fault of flopmap, not of the question"})
    assert ask(port, "/why")[0] == 200
    said, end = "", time.monotonic() + 5
    while "ZeroDivisionError" not in said and time.monotonic() < end:
        said += capsys.readouterr().err
    assert "ZeroDivisionError" in said


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),  # noqa: S104 - what must be told apart
        ("::", False),
        ("10.0.0.1", False),
        ("host", False),
    ],
)
def test_what_is_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_serve_listens_on_loopback_and_says_when_it_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Application, "files", lambda _self: {})
    monkeypatch.setattr(Server, "serve_forever", lambda _self: None)
    assert main(["serve", "--port", "0"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("flopmap is at http://127.0.0.1:")
    assert said.err == ""
    assert main(["serve", "--port", "0", "--host", "0.0.0.0", "--json"]) == 0  # noqa: S104 - the case
    said = capsys.readouterr()
    assert said.err == "flopmap serve: 0.0.0.0 is not loopback: whoever reaches this address can ask\n"
    assert json.loads(said.out)["url"].startswith("http://0.0.0.0:")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--port", "70000"], "--port 70000: out of range (accepted: 0 to 65535)"),
        (
            ["--host", "192.0.2.1", "--port", "0"],
            "--host 192.0.2.1 --port 0: cannot listen: Cannot assign requested address",
        ),
    ],
)
def test_serve_refuses_an_address_that_it_cannot_have(
    flags: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Application, "files", lambda _self: {})
    with pytest.raises(SystemExit) as leave:
        main(["serve", *flags])
    assert leave.value.code == 2
    assert capsys.readouterr().err == f"flopmap serve: error: {why}\n"
