"""``flopmap audit``: hold a table of measurements, or of kernel timings, against the floors."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopmap.quantity import seconds
from flopmap.records.book import load, to_data, to_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from flopmap.audit.kernel_report import KernelAudit
    from flopmap.audit.measurements import Audit
    from flopmap.cli.main import Parser

LISTED = 20
EVERY = 1000  # rows between two steps of the progress bar
BAR = 30


def add_arguments(parser: Parser, _name: str) -> None:
    """A table, what kind it is, and what to do with what is found."""
    parser.epilog = "example: flopmap audit measurements.csv --out rows.csv"
    parser.add_argument("table", nargs="+", type=Path, help="CSV; with --kernels Parquet too, or folders of either")
    parser.add_argument("--kernels", action="store_true", help="the rows are timings of single kernels")
    parser.add_argument(
        "--out", type=Path, metavar="ROWS.csv", help="write every row with its floor, or why it has none"
    )
    parser.add_argument("--all", action="store_true", help=f"list everything, not the first {LISTED} of each kind")
    parser.add_argument("--fail", action="store_true", help="exit with 1 when a row beats its floor")
    parser.set_defaults(parser=parser)


def run(options: argparse.Namespace) -> int:
    """Print the violations, then what was not priced, then the distribution."""
    for path in options.table:
        if not path.exists() or (path.is_dir() and not options.kernels):
            options.parser.error(f"{path}: {'a folder, and no table' if path.exists() else 'no such file'}")
    if options.kernels and options.out:
        options.parser.error("--out: only for measurements, without --kernels")
    return _kernels(options) if options.kernels else _measurements(options)


# -- measurements -----------------------------------------------------------------------------------------------------


def _measurements(options: argparse.Namespace) -> int:
    from flopmap.audit.measurements import Audit
    from flopmap.audit.output import writer

    audit = Audit(load(tuple(options.book)))
    size = sum(path.stat().st_size for path in options.table) or 1
    with writer(options.out, audit.auditor.book) as write:
        seen = 0
        for path in options.table:
            bar = Progress(size)

            def each(cells: dict[str, str], found: Any, bar: Progress = bar) -> None:
                nonlocal seen
                seen += sum(map(len, cells.values())) + len(cells)
                bar.show(seen, audit.rows)
                if write:
                    write(cells, found)

            audit.read(path, each)
            bar.clear()
    print(to_json(_measured_data(audit)) if options.json else "\n".join(_measured_lines(audit, options)))
    return int(bool(options.fail and audit.violations))


def _measured_data(audit: Audit) -> dict[str, Any]:
    unpriced = [{"line": row.line, "why": row.why} for row in audit.unpriced]
    return {
        "rows": audit.rows,
        "priced": audit.priced,
        "violations": [to_data(violation) for violation in audit.worst],
        "unpriced": unpriced,
        "remarks": [{"line": row.line, "why": row.why} for row in audit.remarks],
        "distribution": {
            kind: {name: _quantiles(ratios) for name, ratios in groups.items()} for kind, groups in audit.by.items()
        },
    }


def _measured_lines(audit: Audit, options: argparse.Namespace) -> list[str]:
    some = None if options.all else LISTED
    lines = [f"{audit.rows} rows, {audit.priced} priced, {len(audit.violations)} beat the device floor"]
    for violation in audit.worst[:some]:
        times = f"{seconds(violation.measured_seconds)}, {violation.ratio:.3f} of the floor "
        times += seconds(violation.floor_seconds)
        lines.append(
            f"line {violation.line}: {violation.model} on {violation.devices} x {violation.hardware}, "
            f"{violation.engine}: {violation.metric} {violation.value} is {times}"
        )
        lines += [f"    {cause}" for cause in violation.likely]
    lines += _more(len(audit.violations), some)
    lines += _counted("not priced", ((row.why, f"line {row.line}") for row in audit.unpriced), some)
    lines += _counted("remarks", ((row.why, f"line {row.line}") for row in audit.remarks), some)
    for kind, groups in audit.by.items():
        if groups:
            width = max(map(len, groups))
            lines += [
                "",
                f"measured / device floor by {kind}",
                f"  {'':{width}}   rows    least  1 of 10   median  9 of 10",
            ]
        for name, ratios in sorted(groups.items(), key=lambda item: -item[1].rows)[:some]:
            shown = "".join(f"{value:9.2f}" for value in list(_quantiles(ratios).values())[1:])
            lines.append(f"  {name:{width}} {ratios.rows:6}{shown}")
        lines += _more(len(groups), some)
    return lines


def _quantiles(ratios: Any) -> dict[str, float]:
    return {
        "rows": ratios.rows, "least": ratios.least, "low": ratios.quantile(0.1), "middle": ratios.quantile(0.5),
        "high": ratios.quantile(0.9),
    }  # fmt: skip


def _counted(title: str, reasons: Iterable[tuple[str, str]], some: int | None) -> list[str]:
    """Reasons by how many rows have them, with the first places of each."""
    places: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for why, place in reasons:
        counts[why] += 1
        places.setdefault(why, []).append(place)
    if not counts:
        return []
    lines = ["", f"{title}: {sum(counts.values())} rows"]
    for why, count in counts.most_common(some):
        more = " ..." if count > 3 else ""  # noqa: PLR2004 - the first places of each
        lines.append(f"  {count:6}  {why} ({', '.join(places[why][:3])}{more})")
    return lines + _more(len(counts), some)


def _more(count: int, some: int | None) -> list[str]:
    return [f"  and {count - some} more (--all)"] if some is not None and count > some else []


# -- kernels ----------------------------------------------------------------------------------------------------------


def _kernels(options: argparse.Namespace) -> int:
    from flopmap.audit.kernel_report import KernelAudit
    from flopmap.audit.tables import TableError

    files = [file for path in options.table for file in _files(path)]
    if not files:
        raise TableError(f"{options.table[0]}: no CSV or Parquet file in it")
    size = sum(file.stat().st_size for file in files) or 1
    audit = KernelAudit(load(tuple(options.book)))
    bar = Progress(size)
    done = 0
    for file in files:
        audit.read(file)
        done += file.stat().st_size
        bar.show(done, audit.rows, always=True)
    bar.clear()
    print(to_json(_kernel_data(audit)) if options.json else "\n".join(_kernel_lines(audit, options)))
    return int(bool(options.fail and audit.violations))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for ending in ("*.csv", "*.parquet") for file in path.rglob(ending))


def _kernel_data(audit: KernelAudit) -> dict[str, Any]:
    groups = [
        {**key._asdict(), **_quantiles(group.ratios), "violations": group.violations,
         "beats_roofline": group.beats_roofline, "big_rows": group.big.rows,
         "big_middle": group.big.quantile(0.5) if group.big.rows else None}
        for key, group in sorted(audit.groups.items())
    ]  # fmt: skip
    return {
        "rows": audit.rows,
        "priced": audit.priced,
        "violations": [to_data(violation) for violation in audit.violations],
        "unpriced": [to_data(reason) for reason in audit.unpriced.values()],
        "groups": groups,
    }


def _kernel_lines(audit: KernelAudit, options: argparse.Namespace) -> list[str]:
    some = None if options.all else LISTED
    beaten = sum(group.violations for group in audit.groups.values())
    lines = [f"{audit.rows} rows, {audit.priced} priced, {beaten} beat the kernel floor"]
    for violation in audit.violations[:some]:
        times = f"{seconds(violation.measured)} is {violation.ratio:.3f} of the floor {seconds(violation.floor)}"
        lines.append(
            f"{violation.file}:{violation.line}: {violation.kernel} {violation.dtype} on {violation.part}"
            f"{', ' * bool(violation.source)}{violation.source}: {times} ({violation.rows} like rows beat theirs)"
        )
        lines.append(f"    {violation.shape}")
    lines += _more(len(audit.violations), some)
    reasons = sorted(audit.unpriced.values(), key=lambda reason: -reason.rows)
    if reasons:
        lines += ["", f"not priced: {sum(reason.rows for reason in reasons)} rows"]
        lines += [f"  {reason.rows:8}  {reason.why} ({', '.join(reason.places[:2])})" for reason in reasons[:some]]
        lines += _more(len(reasons), some)
    lines += ["", "measured / kernel floor", f"  {'part':20} {'kernel':18} {'dtype':17} {'rows':>8}    least   median"]
    for key, group in sorted(audit.groups.items()):
        ratios = group.ratios
        shown = f"{ratios.rows:8} {ratios.least:8.2f} {ratios.quantile(0.5):8.2f}"
        lines.append(f"  {key.part:20} {key.kernel:18} {key.dtype:17} {shown}")
    return lines


# -- progress ---------------------------------------------------------------------------------------------------------


class Progress:
    """A bar on stderr where that is a terminal, of how much of the files is read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.shown = 0
        self.on = sys.stderr.isatty()

    def show(self, done: int, rows: int, *, always: bool = False) -> None:
        """Draw the bar again, every thousand rows."""
        if not self.on or (rows - self.shown < EVERY and not always):
            return
        self.shown = rows
        full = min(BAR, BAR * done // self.size)
        print(f"\r[{'#' * full}{' ' * (BAR - full)}] {rows} rows", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the bar away."""
        if self.on:
            print(f"\r{' ' * (BAR + 24)}\r", end="", file=sys.stderr, flush=True)
