"""A plan: how a model is spread over several parts."""

from __future__ import annotations

import msgspec

from flopmap.step import Level


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A link of a plan: byte/s of a part in one direction, seconds of a message; None where no source gives them."""

    level: Level
    name: str
    bytes_per_second: float | None
    latency_seconds: float | None
    source: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks by kind; ``stages`` are the layers of each pipeline stage, ``domain`` the parts that scale-up links join.

    Tensor ranks are neighbours, then data ranks, then stages. Where it is ``spread``, experts lie over the data ranks
    too, whose attention works on batches of their own.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    stages: tuple[int, ...] = ()
    domain: int = 1
    wires: tuple[Wire, ...] = ()

    @property
    def parts(self) -> int:
        """Parts that it takes."""
        return self.tensor * self.pipeline * self.data

    @property
    def spread(self) -> bool:
        """Whether experts lie over data ranks."""
        return self.data > 1 and self.expert == self.tensor * self.data

    @property
    def replicas(self) -> int:
        """Data ranks whose tokens come to the same experts."""
        return self.data if self.spread else 1

    @property
    def expert_tensor(self) -> int:
        """Ranks that share an expert."""
        return self.tensor * self.replicas // self.expert

    def __str__(self) -> str:
        """In the words of the flags."""
        sizes = {"TP": self.tensor, "PP": self.pipeline, "DP": self.data, "EP": self.expert}
        return " ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "TP 1"
