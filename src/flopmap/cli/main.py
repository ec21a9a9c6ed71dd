"""The console script: picks the command, and turns every expected error into one line and an exit code.

0 is an answer, 1 a failure (a file that is wrong, a check that found something), 2 a wrong command line. argparse is
used because a cold command must start in the time of a few imports; each command's module is imported when it is run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from flopmap import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMANDS = {
    "why": "price one step of a model on a part and explain it; hold a measurement against it",
    "diagnose": "read results, logs and metrics of benchmarks and servers, and say what binds",
    "audit": "hold a table of measurements against the floors: the impossible rows first",
    "crossover": "solve for the batch, context or prompt at which a bound or a preference flips",
    "levers": "what each change to a scenario buys, and the best of them together",
    "compare": "rank parts, formats, engines or models, with why the winner wins and where the ranking flips",
    "sweep": "price every point of a grid over models, parts, formats, batches and contexts into a file",
    "check": "validate the book, or an overlay folder of your own",
    "parts": "list, filter or show parts; their ridges; where sources disagree",
    "machines": "list, search or show machines that people rent or buy",
    "models": "list, search or show bundled models",
    "classes": "list, search or show operation classes with their formulas",
    "engines": "list, search or show engines",
    "formats": "list, search or show number formats",
    "traps": "list, search or show known traps",
    "docs": "write the book as a static site: formulas that run in their page, links both ways, search",
    "serve": "the same site on this machine, with the question as a page, and an API",
}
LISTED = ("machines", "engines", "formats", "traps")  # kinds of records without a command of their own
MODULES = {name: name for name in COMMANDS if name not in LISTED}
EPILOG = "example: flopmap why meta-llama/Llama-3.1-8B --on h100-sxm --batch-size 1 --context-len 2048 --tpot 12.5ms"


class Help(argparse.RawDescriptionHelpFormatter):
    """Help of a fixed width: finding the terminal's costs a cold command an import for every flag."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors and the nearest flag where one is misspelt; ``output`` flags exclude each other."""

    def __init__(self, prog: str, description: str, **more: Any) -> None:
        super().__init__(prog=prog, description=description, formatter_class=Help, **more)
        # no flag of ours looks like a number, so -5ms is a value and not a flag
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self.output = self.add_argument_group("output").add_mutually_exclusive_group()

    def error(self, message: str) -> NoReturn:
        """Print one line to stderr and exit with 2."""
        if message.startswith("unrecognized arguments: -"):
            message += self._nearest(message.split()[2])
        self.exit(2, f"{self.prog}: error: {message}\n")

    def _nearest(self, flag: str) -> str:
        import difflib

        known = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(flag.split("=", 1)[0], known, n=1)
        return f" (did you mean {close[0]}?)" if close else f" (see {self.prog} --help)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without µ or × gets a ? instead of a traceback
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _deaf()
    except OSError as error:
        name = " ".join(["flopmap", *(word for word in words[:1] if word in COMMANDS)])
        print(f"{name}: error: cannot write: {error.strerror}", file=sys.stderr)
        return _deaf()
    return code


def _deaf() -> int:
    """The reader has gone or the disk is full: keep Python from writing there again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _run(words: list[str]) -> int:
    name = words[0] if words else ""
    if name not in COMMANDS:
        return _top(words)
    module = importlib.import_module(f"flopmap.cli.{MODULES.get(name, 'records')}")
    parser = Parser(f"flopmap {name}", COMMANDS[name])
    parser.add_argument(
        "--book", metavar="DIR", action="append", default=[], help="add a folder of records of your own"
    )
    parser.output.add_argument("--json", action="store_true", help="print data")
    module.add_arguments(parser, name)
    return _guarded(module.run, parser, parser.parse_args(words[1:]))


def _guarded(run: Callable[[argparse.Namespace], int], parser: Parser, options: argparse.Namespace) -> int:
    from flopmap.cli.errors import FAILURES, USAGE

    try:
        return run(options)
    except USAGE as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except FAILURES as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1


def _top(words: list[str]) -> int:  # noqa: RET503 - parser.error does not return
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    parser = Parser(
        "flopmap",
        f"Why is my LLM inference slow, and which hardware property would fix it?\n\ncommands:\n{listing}",
        usage="flopmap COMMAND ...",
        epilog=f"{EPILOG}\nhelp on a command: flopmap COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"flopmap {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args(words)
    if options.command is None:
        if rest:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        parser.print_help()
        return 0
    import difflib

    close = difflib.get_close_matches(options.command, COMMANDS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"commands: {', '.join(COMMANDS)}"
    parser.error(f"unknown command {options.command!r} ({hint})")
