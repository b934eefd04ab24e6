"""The command line: `python -m kernel` with an agent on real files, and `doctor`. Each command is one module."""
