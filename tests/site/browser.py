"""What runs JavaScript for the tests: node, or Debian's chromium through playwright. Without one, a test skips."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flopmap.site

if TYPE_CHECKING:
    from collections.abc import Iterator

ASSETS = Path(flopmap.site.__file__).parent / "assets"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") if importlib.util.find_spec("playwright") else None
needs_browser = pytest.mark.skipif(
    not CHROMIUM, reason="no browser: needs Debian's chromium and the `browser` extra (CONTRIBUTING.md)"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def evaluate(script: str) -> Any:
    """What ``assets/formulas.js`` and then a script come to; the script ends with ``answer(value)``."""
    whole = (ASSETS / "formulas.js").read_text("utf-8") + script
    if NODE:
        program = f"{whole.replace('answer(', 'process.stdout.write(JSON.stringify(')})".rstrip("\n")
        return json.loads(subprocess.run((NODE, "-"), input=program, capture_output=True, text=True, check=True).stdout)
    if not CHROMIUM:
        pytest.skip("no JavaScript here: needs node, or Debian's chromium and the `browser` extra")
    with chromium() as browser:
        page = browser.new_page()
        page.set_content("<p>")
        return json.loads(page.evaluate(f"(() => {{ {whole.replace('answer(', 'return JSON.stringify(')} }})()"))
