"""Conditions of records: when a trap is near, where a gate is open. A safe subset of Python's comparisons.

``vendor == "nvidia" and compute_capability >= 90`` compares facts with words, numbers, true and false; ``in`` takes a
list. A fact may be unknown. Then a condition holds, fails, or is itself unknown, whichever the other facts leave:
nothing is guessed.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Mapping

Fact: TypeAlias = str | float | bool | None
MAX_TEXT = 1000
MAX_DEPTH = 20
ALLOWED = 'and, or, not, == != < <= > >= of a fact and a "word", a number, true or false, in ["a", "b"]'
COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "Eq": ("==", operator.eq),
    "NotEq": ("!=", operator.ne),
    "Lt": ("<", operator.lt),
    "LtE": ("<=", operator.le),
    "Gt": (">", operator.gt),
    "GtE": (">=", operator.ge),
    "In": ("in", lambda fact, words: fact in words),
    "NotIn": ("not in", lambda fact, words: fact not in words),
}
TRUTH = {"true": True, "false": False}


class ConditionError(ValueError):
    """A condition that cannot be read. One line."""


class Comparison(NamedTuple):
    """A fact held against a constant (or a list of words)."""

    fact: str
    symbol: str
    constant: Any


class Combination(NamedTuple):
    """``all`` or ``any`` of the parts, or ``not`` the only one."""

    rule: str
    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Combination


@functools.cache
def parse(text: str) -> Condition:
    """Read one condition. Raises :class:`ConditionError` at the first thing that the language does not have."""
    import ast

    if len(text) > MAX_TEXT:
        raise ConditionError(f"a condition has at most {MAX_TEXT} characters, this one has {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConditionError(f"{text!r} is not a condition (allowed: {ALLOWED})") from None
    return _read(tree.body, 0)


def _read(node: ast.expr, depth: int) -> Condition:
    import ast

    if depth > MAX_DEPTH:
        raise ConditionError(f"a condition is at most {MAX_DEPTH} parts deep")
    if isinstance(node, ast.BoolOp):
        rule = "all" if isinstance(node.op, ast.And) else "any"
        return Combination(rule, tuple(_read(part, depth + 1) for part in node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Combination("not", (_read(node.operand, depth + 1),))
    if isinstance(node, ast.Name) and node.id not in TRUTH:
        return Comparison(node.id, "==", constant=True)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.left, ast.Name):
        symbol = COMPARISONS.get(type(node.ops[0]).__name__)
        if symbol:
            return Comparison(node.left.id, symbol[0], _constant(node.comparators[0], several="in" in symbol[0]))
    raise ConditionError(f"{ast.unparse(node)!r} is not allowed in a condition (allowed: {ALLOWED})")


def _constant(node: ast.expr, *, several: bool) -> Any:
    import ast

    if several and isinstance(node, ast.List | ast.Tuple):
        return tuple(_constant(item, several=False) for item in node.elts)
    if not several:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
            return node.value
        if isinstance(node, ast.Name) and node.id in TRUTH:
            return TRUTH[node.id]
    raise ConditionError(f"{ast.unparse(node)!r} is no {'list' if several else 'word or number'} (allowed: {ALLOWED})")


def facts_of(condition: Condition) -> set[str]:
    """The names of the facts that a condition asks for."""
    if isinstance(condition, Comparison):
        return {condition.fact}
    return set().union(*map(facts_of, condition.parts))


_RULES = dict(COMPARISONS.values())


def holds(condition: Condition, facts: Mapping[str, Fact]) -> bool | None:
    """Whether a condition holds; None when a fact that would decide it is unknown."""
    if isinstance(condition, Comparison):
        fact = facts.get(condition.fact)
        return None if fact is None else _RULES[condition.symbol](fact, condition.constant)
    found = [holds(part, facts) for part in condition.parts]
    if condition.rule == "not":
        return None if found[0] is None else not found[0]
    decisive = condition.rule == "any"
    if decisive in found:
        return decisive
    return None if None in found else not decisive
