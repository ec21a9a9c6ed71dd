"""Low-rank adapters (LoRA) as a request states them: which matrices have one, their rank, and how many are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flopmap.model.config import ConfigError
from flopmap.model.reading import json_of, looks_like_path, read_json
from flopmap.quantity import shown
from flopmap.step import ScenarioError

if TYPE_CHECKING:
    from flopmap.model.architecture import Architecture

ALL = "all-linear"
SHORT = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}
WITHOUT = ("moe.experts", "moe.shared_gate")  # no adapters of grouped experts, nor of what is no matrix
LARGEST_RANK = 4096
MOST_ADAPTERS = 10_000
REFUSED = ("rank_pattern", "alpha_pattern", "layers_to_transform", "modules_to_save", "use_dora", "layer_replication")


class Adapted(msgspec.Struct, frozen=True):
    """Like matrices with an adapter: ``d_in`` by ``d_out``, in ``count`` layers."""

    name: str
    d_in: int
    d_out: int
    count: int


class Adapters(msgspec.Struct, frozen=True, kw_only=True):
    """``loaded`` adapters of ``rank`` on the matrices of ``adapted``."""

    rank: int
    loaded: int
    adapted: tuple[Adapted, ...]


def read_adapters(
    targets: str | None, rank: int | None, loaded: int | None, architecture: Architecture
) -> Adapters | None:
    """Adapters as the flags or PEFT's ``adapter_config.json`` state them. Raises :class:`ScenarioError`."""
    if targets is None and rank is None:
        if loaded is not None:
            raise ScenarioError(f"--max-loras {loaded}: there are no adapters without --lora-rank or --lora-modules")
        return None
    names = [ALL] if targets is None else targets.split(",")
    if targets is not None and looks_like_path(targets):
        if rank is not None:
            raise ScenarioError(f"--lora-rank {rank}: {targets} says it")
        names, rank = _read(targets)
    if rank is None:
        raise ScenarioError(f"--lora-modules {targets}: --lora-rank is needed with it")
    if not 1 <= rank <= LARGEST_RANK:
        raise ScenarioError(f"--lora-rank {rank}: out of range (accepted: 1 to {LARGEST_RANK})")
    if loaded is not None and not 1 <= loaded <= MOST_ADAPTERS:
        raise ScenarioError(f"--max-loras {loaded}: out of range (accepted: 1 to {MOST_ADAPTERS})")
    return Adapters(rank=rank, loaded=loaded or 1, adapted=tuple(_adapted(names, architecture)))


def _read(path: str) -> tuple[list[str], int]:
    """Targets and rank of PEFT's file. What would change the count is refused by name."""
    fields: dict[str, Any] = read_json(json_of(path, "adapter_config.json"))
    for field in REFUSED:
        if fields.get(field):
            raise ConfigError(f"{path}: {field} {shown(fields[field])} is not understood")
    rank, targets = fields.get("r"), fields.get("target_modules")
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise ConfigError(f"{path}: r {shown(rank)} is no rank (a whole number is needed)")
    names = [targets] if targets == ALL else targets
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: target_modules {shown(targets)} is not understood (understood: names, {ALL})")
    return [str(name) for name in names], rank


def _adapted(names: list[str], architecture: Architecture) -> list[Adapted]:
    """The matrices of those names; one that a checkpoint holds fused has one adapter for all of its parts."""
    from flopmap.model.modules import modules

    wanted = {SHORT.get(name.strip(), name.strip()) for name in names}
    counts: dict[tuple[str, int, int], int] = {}
    unseen, known = set(wanted), set()
    fused: dict[tuple[int, str, str], list[int]] = {}
    for index, module in modules(architecture):
        if index is None or module.op in WITHOUT:
            continue
        leaves = dict.fromkeys(name.rsplit(".", 1)[-1] for name in module.names)
        known.add(next(iter(leaves)))
        leaf = next((name for name in leaves if name in wanted or ALL in wanted), None)
        if leaf is None:
            continue
        unseen -= {leaf, ALL}
        fused.setdefault((index, module.op, leaf), [module.d_in]).append(module.d_out)
    if unseen:
        accepted = ", ".join((ALL, *sorted(known)))
        raise ScenarioError(f"--lora-modules {min(unseen)}: no matrix of this model (accepted: {accepted})")
    for (_, _, leaf), (d_in, *widths) in fused.items():
        shape = (leaf, d_in, sum(widths))
        counts[shape] = counts.get(shape, 0) + 1
    return [Adapted(*shape, count) for shape, count in counts.items()]
