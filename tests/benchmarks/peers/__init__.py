"""Other agent kernels on the workloads of `tests.benchmarks`: `python -m tests.benchmarks.peers`.

Each has an environment of its own, since some of their dependencies exclude each other; what to install is a dependency
group of `pyproject.toml` for each. Each is used as its documentation says, with a model of its own kind that plays the plan
and never waits, without telemetry, and with limits of turns raised. Beside each runs the bare loop, in the same process.
"""
