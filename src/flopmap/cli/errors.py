"""Which errors are the command line's (exit code 2) and which are a file's or the book's (exit code 1)."""

from __future__ import annotations

from flopmap.audit.tables import TableError
from flopmap.diagnosis.errors import ReadingError
from flopmap.machine.machine import MachineError
from flopmap.model.config import ConfigError, MissingFileError
from flopmap.quantity import QuantityError
from flopmap.records.book import UnknownRecordError
from flopmap.records.condition import ConditionError
from flopmap.records.faults import BookError, MissingBookError
from flopmap.records.formula import FormulaError
from flopmap.step import ScenarioError

USAGE = (ScenarioError, MachineError, QuantityError, UnknownRecordError, MissingFileError, MissingBookError)
FAILURES = (TableError, ReadingError, ConfigError, BookError, FormulaError, ConditionError)
