"""`docs/pi-differences.md`, made of the rules: `python -m tests.differential.page` writes it, and a test compares.

The lines of the page come from playing the scenarios on both, so the writer needs Pi. What it found is kept in
`first_differences.json`: a run without Pi holds our half of it, and the lane holds both.
"""

import json
from pathlib import Path
from typing import Final

from tests.differential.pi import COMMAND, PACKAGE, VERSION, Line, Pi, found, plays
from tests.differential.rules import RULES, Rule, first_difference

HERE: Final = Path(__file__).parent
KEPT: Final = HERE / "first_differences.json"
PAGE: Final = HERE.parent.parent / "docs" / "pi-differences.md"
FIRST: Final[dict[str, dict[str, Line | None]]] = json.loads(KEPT.read_text())
"""For each rule, the first line of its scenario that is ours and not Pi's, and Pi's in its place."""

HEAD: Final = f"""# Where the Pi agent core 0.85.0 and the kernel differ

The differential test plays random scenarios on the kernel, under the profile and in the dialect `pi`, and on the real
`{PACKAGE}` {VERSION}, and compares the lines.
Each difference that is meant is a rule with a name and a scenario: a scenario whose lines differ in any further way fails
the test. Three kinds of rules:

* *rewritten*: in the lines of Pi the difference is made ours, and all the rest must be the same;
* *cut*: from some line on the two go different ways; all before it must be the same. Each such rule has a share of the
  random scenarios which it must not exceed;
* *apart*: random scenarios leave this out; its own scenario is compared.

```sh
{COMMAND}
```

This needs Node.js 20 or later with npm. It installs the package, at the versions of `tests/differential/package-lock.json`,
into `.cache/pi-agent-core` (or the folder that `PHASEKERNEL_PI_CACHE` names), plays the 23 recorded cases, the scenario of
each rule, {{count}} random scenarios and some planted faults, and prints what it covered. Without Node or the package it
says that it did not run. A random scenario that fails is named by its seed and printed as small as it can be made.

There are more differences, which the scenario language can't say: `profiles.md` has them.

"""

FOOT: Final = """
The scenario of each rule, with the first line of it that differs when all other rules are heeded. `{"stuck": true}` is a
run in which nothing can go on. A text in ‹ › stands for a sentence that each of the two says in its own words. Of a last
line, what is the same is left out.

"""


def kind_of(rule: Rule) -> str:
    """Rewritten, cut, or apart."""
    return "rewritten" if rule.rewrite else f"cut, at most {rule.share:.0%}" if rule.cut else "apart"


def page(count: int) -> str:
    """The whole page. *count*: how many random scenarios the lane plays."""
    rows = [
        f"| [{rule.name}](#{rule.name.replace(' ', '-').replace('`', '')}) | {rule.pi} | {rule.here} | {rule.decided_by} "
        f"| {kind_of(rule)} |"
        for rule in RULES
    ]
    table = ["| difference | Pi | here | decided by | kind |", "|---|---|---|---|---|", *rows]
    return HEAD.format(count=count) + "\n".join(table) + "\n" + FOOT + "\n".join(_section(rule) for rule in RULES)


def _section(rule: Rule) -> str:
    first = FIRST[rule.name]
    told = [
        f"{who}: {_json(first[key]) if first[key] else '(nothing more)'}" for who, key in (("Pi", "pi"), ("here", "here"))
    ]
    return "\n".join([f"### {rule.name}\n", "```text", f"scenario: {_json(rule.scenario)}", *told, "```", ""])


def _json(value: Line | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def played_again() -> dict[str, dict[str, Line | None]]:
    """The first lines that differ, from both as they are now. Raises NotHere."""
    pi, first = Pi(found()), {}
    for rule in RULES:
        here, there = first_difference(plays(rule.scenario), pi.plays(rule.scenario), rule.name)
        first[rule.name] = {"here": here, "pi": there}
    pi.close()
    return first


def main() -> None:
    """Play the scenarios of the rules again, keep what came of them, and write the page."""
    from tests.differential.test_random import COUNT

    FIRST.update(played_again())
    rows = [f"  {json.dumps(rule.name)}: {json.dumps(FIRST[rule.name], ensure_ascii=False)}" for rule in RULES]
    KEPT.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    PAGE.write_text(page(COUNT))


if __name__ == "__main__":
    main()
