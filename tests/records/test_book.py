"""The book as programs read it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from flopmap.records import book as module
from flopmap.records.book import Book, UnknownRecordError, decode, load
from flopmap.records.kinds import KINDS
from flopmap.records.types import Engine, OpClass, Part
from tests.records.small_book import ENGINE, small_book, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a small book in place of the bundled one; the folder of its YAML."""
    (tmp_path / "pyproject.toml").touch()
    folder = small_book(tmp_path / "src" / "flopmap" / "book")
    monkeypatch.setattr(module, "BOOK", str(folder))
    monkeypatch.setattr(module, "BUILT", str(folder / "book.json"))
    return folder


def age(folder: Path, seconds: float) -> None:
    """Make everything below a folder look older."""
    for path in (folder, *folder.rglob("*")):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))


# -- finding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h100-sxm", "H100-SXM", "h100_sxm", "NVIDIA H100 80GB HBM3", "nvidia h100 80gb hbm3"])
def test_a_part_is_found_by_id_and_alias_in_any_case(book: Book, name: str) -> None:
    assert book.find("parts", name) == "h100-sxm"
    assert book.record(Part, name).id == "h100-sxm"


def test_a_model_is_found_by_its_hub_id_in_any_case(book: Book) -> None:
    assert book.find("models", "META-LLAMA/LLAMA-3.1-8B") == "meta-llama/Llama-3.1-8B"


def test_what_is_not_there_is_not_found(book: Book) -> None:
    assert book.find("parts", "h1000") is None
    assert book.find("parts", "") is None
    assert book.find("formats", "h100-sxm") is None
    assert book.find("no kind", "h100-sxm") is None


def test_every_alias_of_the_bundled_book_leads_to_its_record(book: Book) -> None:
    for kind in KINDS:
        for record_id in book.ids(kind):
            record = book.get(kind, record_id)
            assert record.id == record_id
            for alias in (record_id, *record.aliases):
                assert book.find(kind, alias.upper()) == record_id, f"{kind}: {alias}"


def test_ids_are_sorted(book: Book) -> None:
    assert book.ids("flops") == sorted(book.ids("flops"))
    assert "weight-gemm" in book.ids("flops")
    assert book.ids("no kind") == []


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("engines", "idael", "unknown engine 'idael'; nearest: ideal (all: flopmap engines)"),
        ("engines", "zzz", "unknown engine 'zzz' (all: flopmap engines)"),
        ("parts", "nvidia h10", "unknown part 'nvidia h10'; nearest: h100 (all: flopmap parts)"),
        ("flops", "gem", "unknown operation class 'gem'; nearest: gemm (all: flopmap classes)"),
        ("sources", "papre", "unknown source 'papre'; nearest: paper"),
        ("laws", "bridge", "unknown law 'bridge'; nearest: ridge"),
    ],
)
def test_an_unknown_record_is_told_with_the_nearest(tmp_path: Path, kind: str, name: str, message: str) -> None:
    from flopmap.records.author import build

    small = decode(build(small_book(tmp_path)))
    with pytest.raises(UnknownRecordError) as caught:
        small.get(kind, name)
    assert str(caught.value) == message


def test_the_nearest_are_ids_each_once_and_at_most_three(book: Book) -> None:
    assert book.nearest("parts", "h100-smx")[0] == "h100-sxm"
    assert book.nearest("models", "llama-3.1-8b")[0] == "meta-llama/Llama-3.1-8B"
    assert len(book.nearest("parts", "h100")) == 3
    assert len(set(book.nearest("parts", "h100"))) == 3
    assert set(book.nearest("parts", "nvidia h100")) <= set(book.ids("parts"))
    assert book.nearest("parts", "?") == []


# -- loading ----------------------------------------------------------------------------------------------------------


def test_an_overlay_adds_and_replaces_records(home: Path, tmp_path: Path) -> None:
    overlay = write(
        tmp_path / "overlay",
        {"engines/mine.yaml": ENGINE, "engines/ideal.yaml": "title: Ours\nsources: [paper]\naliases: [own]\n"},
    )
    plain, over = load(), load((str(overlay),))
    assert plain.ids("engines") == ["ideal"]
    assert over.ids("engines") == ["ideal", "mine"]
    assert plain.record(Engine, "ideal").title == "Nothing added"
    assert over.record(Engine, "OWN").title == "Ours"
    assert over.record(Part, "h100") == plain.record(Part, "h100")
    assert load().ids("engines") == ["ideal"]
    assert b"mine" not in (home / "book.json").read_bytes()


def test_the_later_of_two_overlays_wins(home: Path, tmp_path: Path) -> None:
    assert home.is_dir()
    first = write(tmp_path / "first", {"engines/ideal.yaml": "title: First\n", "engines/one.yaml": ENGINE})
    second = write(tmp_path / "second", {"engines/ideal.yaml": "title: Second\n"})
    assert load((first, second)).record(Engine, "ideal").title == "Second"
    assert load((second, first)).record(Engine, "ideal").title == "First"
    assert load((first, second)).ids("engines") == ["ideal", "one"]


def test_the_book_is_built_when_it_was_never_and_read_afterwards(home: Path) -> None:
    assert load().ids("laws") == ["ridge"]
    built = home / "book.json"
    os.utime(built)
    before = built.stat().st_mtime_ns
    assert load().ids("laws") == ["ridge"]
    assert built.stat().st_mtime_ns == before


def test_a_changed_file_is_seen_at_the_next_load(home: Path) -> None:
    age(home, 60)
    load()
    write(home, {"engines/ideal.yaml": "title: Changed\nconfidence: 1\n"})
    assert load().record(Engine, "ideal").title == "Changed"


def test_a_new_and_a_removed_file_are_seen_at_the_next_load(home: Path) -> None:
    age(home, 60)
    load()
    write(home, {"engines/mine.yaml": ENGINE})
    assert load().ids("engines") == ["ideal", "mine"]
    age(home, 60)
    (home / "engines" / "mine.yaml").unlink()
    assert load().ids("engines") == ["ideal"]


def test_an_installed_book_is_never_rebuilt(home: Path) -> None:
    load()
    (home.parent.parent.parent / "pyproject.toml").unlink()
    write(home, {"engines/ideal.yaml": "title: Changed\n"})
    assert load().record(Engine, "ideal").title == "Nothing added"


def test_a_book_that_cannot_be_written_is_built_each_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUILT", str(home / "nowhere" / "book.json"))
    assert load().ids("laws") == ["ridge"]
    assert load().ids("laws") == ["ridge"]
    assert not (home / "nowhere").exists()


def test_a_record_is_decoded_when_it_is_first_asked_for(home: Path) -> None:
    small = load((home,))
    assert small._decoded == {}
    first = small.get("parts", "H100-sxm")
    assert list(small._decoded) == [("parts", "h100")]
    assert small.get("parts", "h100") is first
    assert small.ids("flops") == ["gemm"]
    assert small.find("flops", "GEMM") == "gemm"
    assert list(small._decoded) == [("parts", "h100")]


def test_a_record_cannot_be_changed(book: Book) -> None:
    with pytest.raises(AttributeError):
        book.record(OpClass, "weight-gemm").title = "mine"  # type: ignore[misc]
