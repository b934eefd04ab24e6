"""What the kernel costs: beside a bare loop that does the same work, and by itself.

`python -m tests.benchmarks`, in the root of the repository, prints one Markdown table. No test looks at a time; one test
looks whether each workload still does its work.
"""
