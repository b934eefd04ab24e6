"""`python -m kernel.scenario`: the same as `python -m kernel scenario`."""

import sys

from kernel.scenario import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
