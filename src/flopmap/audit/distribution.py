"""A distribution of ratios that grows with its resolution and not with the number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PER_OCTAVE = 256  # bins: a quantile is right within 0.14 %
LOWEST, HIGHEST = -8, 24  # octaves


class Distribution:
    """Counts of ratios in bins of equal width of their logarithm; the least one exactly."""

    def __init__(self) -> None:
        import numpy as np

        self.counts = np.zeros((HIGHEST - LOWEST) * PER_OCTAVE, dtype=np.int64)
        self.least = float("inf")

    @property
    def rows(self) -> int:
        """How many ratios there are."""
        return int(self.counts.sum())

    def add(self, ratios: NDArray[np.float64]) -> None:
        """Count ratios, all of them above 0."""
        import numpy as np

        if not len(ratios):
            return
        self.least = min(self.least, float(ratios.min()))
        bins = ((np.log2(ratios) - LOWEST) * PER_OCTAVE).astype(np.int64)
        self.counts += np.bincount(np.clip(bins, 0, len(self.counts) - 1), minlength=len(self.counts))

    def quantile(self, share: float) -> float:
        """The ratio below which a share of them lies, in the middle of its bin; NaN where there are none."""
        import numpy as np

        if not self.rows:
            return float("nan")
        place = int(np.searchsorted(np.cumsum(self.counts), share * self.rows))
        return float(max(self.least, 2 ** ((place + 0.5) / PER_OCTAVE + LOWEST)))
