"""``python -m flopmap`` is the console script ``flopmap``."""

import sys

from flopmap.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
