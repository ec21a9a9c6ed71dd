"""Why is my LLM inference slow, and which hardware property would fix it?

flopmap counts every FLOP and every byte of an inference step by operation class, holds them against what the machine
can do, and says which property binds, with the formulas and sources that say so. ``flopmap why --help`` is the start.
"""

__version__ = "0.1.0"
