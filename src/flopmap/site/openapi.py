"""The server's interface as OpenAPI, from the same table of fields that reads its queries."""

from __future__ import annotations

from typing import Any

from flopmap import __version__
from flopmap.scenario import PHASE_NAMES
from flopmap.site.query import COUNTS, FIELDS, MEASURED

DRAW = {"name": "draw", "in": "query", "schema": {"enum": ["1"]}, "description": "1 adds what the page says and draws"}
KEYS = "the keys of `flopmap {} --json`; they are described in docs/design.md, section 10"
FORMS = {
    **dict.fromkeys(COUNTS, "a count: 2048, 8k (8192)"),
    "model": "a bundled model by id or alias",
    "on": "a part or a machine by id or any usual spelling",
    "convention": "NAME=VALUE, several times",
    "image_size": "WIDTHxHEIGHT",
    "throughput": "tokens per second of the whole batch",
    **{name: "a time: 28ms, 1.2s" for name in MEASURED if name != "throughput"},
}


def openapi() -> dict[str, Any]:
    """The description of all of ``/api``."""
    scenario = [_field(name) for name in FIELDS]
    measured = [_field(name) for name in MEASURED]
    why = {
        "summary": "Price one step and hold a measurement against it",
        "parameters": [
            *[{**field, "required": field["name"] in ("model", "on")} for field in scenario],
            *measured,
            DRAW,
        ],
        "responses": _responses(KEYS.format("why"), {"type": "object"}),
    }
    diagnose = {
        "summary": "Read what benchmarks, engines and servers print, and judge it",
        "parameters": [*scenario, DRAW],
        "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}},
        "responses": _responses(KEYS.format("diagnose"), {"type": ["array", "object"]}),
    }
    described = {"summary": "This description", "responses": {"200": _answer("OpenAPI 3.1", {"type": "object"})}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "flopmap",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/api/why": {"get": why},
            "/api/diagnose": {"post": diagnose},
            "/api/openapi.json": {"get": described},
        },
    }


def _field(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name == "phase":
        schema = {"enum": list(PHASE_NAMES)}
    elif name == "enforce_eager":
        schema = {"enum": ["true", "false"]}
    elif name == "convention":
        schema = {"type": "array", "items": {"type": "string"}}
    field = {"name": name, "in": "query", "schema": schema}
    return {**field, "description": FORMS[name]} if name in FORMS else field


def _responses(said: str, schema: dict[str, Any]) -> dict[str, Any]:
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    wrong = {
        "400": "a field is unknown or wrong",
        "405": "another method",
        "408": "the request took too long to arrive",
        "411": "a body without its length",
        "413": "a body that is too large",
        "422": "a text in which nothing is known",
    }
    return {"200": _answer(said, schema)} | {status: _answer(why, error) for status, why in wrong.items()}


def _answer(said: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": said, "content": {"application/json": {"schema": schema}}}
