"""Whole-process time of a cold `flopmap why --json`, beside the bare interpreter and servcalc, in one run.

The three take turns, so that a machine whose speed drifts slows them alike; medians and ratios are what counts. With
`--venv` flopmap and servcalc are first installed into an empty environment, as a user has them.

    python benchmarks/cold_start.py [--runs 15] [--venv]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from flopmap.records.book import load
from flopmap.records.types import Model

MODEL = "meta-llama/Llama-3.1-8B"
WHY = ("why", MODEL, "--on", "h100-sxm", "--batch-size", "1", "--context-len", "2048", "--json")
ROOT = Path(__file__).parent.parent


def main() -> int:
    """Print a line a command: median, fastest, ratio to servcalc."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--venv", action="store_true", help="install both into an empty environment first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scripts = install(Path(folder)) if options.venv else Path(sys.executable).parent
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(load().record(Model, MODEL).config))
        commands = {
            "python -c pass": (str(scripts / "python"), "-c", "pass"),
            "flopmap why --json": (str(scripts / "flopmap"), *WHY),
            "servcalc": (str(scripts / "servcalc"), str(config), "--gpu", "H100 80GB"),
        }
        if not (scripts / "servcalc").exists():
            print(
                "servcalc is not installed here (pip install 'flopmap[bench]'): no peer to compare with",
                file=sys.stderr,
            )
            del commands["servcalc"]
        times = measure(commands, options.runs)
        heavy = heavy_imports(scripts)
    peer = statistics.median(times["servcalc"]) if "servcalc" in times else None
    for name, values in times.items():
        median = statistics.median(values)
        ratio = f"  {median / peer:5.2f} x servcalc" if peer else ""
        print(f"{name:20} median {median * 1e3:6.1f} ms  fastest {min(values) * 1e3:6.1f} ms{ratio}")
    print(f"imports of flopmap that a cold command must not pay for: {heavy or 'none'}")
    return 0


def install(folder: Path) -> Path:
    """An empty environment with flopmap and servcalc; the path of its scripts."""
    print("installing flopmap and servcalc into an empty environment", file=sys.stderr)
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / "bin"
    command = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, str(ROOT), "servcalc"], check=True, stderr=subprocess.DEVNULL)
    return scripts


def measure(commands: dict[str, tuple[str, ...]], runs: int) -> dict[str, list[float]]:
    """Seconds of each command, run in turn; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if number:
                times[name].append(time.perf_counter() - start)
    return times


def heavy_imports(scripts: Path) -> str:
    """Which of numpy, ruamel and rich the command has imported."""
    script = f"""
import contextlib, io, sys
from flopmap.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main({list(WHY)!r})
print(' '.join(name for name in ('numpy', 'ruamel', 'rich') if name in sys.modules))
"""
    done = subprocess.run([scripts / "python", "-c", script], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
