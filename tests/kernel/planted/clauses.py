"""The table of guarantees: what each promises, clause by clause, which tests hold it, and which planted faults they catch.

`docs/guarantees.md` shows it to users. A fault names the tests that must fail under it; a test that is named is one that
has failed, and a clause without a fault is not held by anything that is known to bite.
"""

from typing import Final

from tests.kernel.planted import clauses_of_a_run, clauses_of_values
from tests.kernel.planted.kit import Clause

GUARANTEES: Final[dict[str, tuple[Clause, ...]]] = clauses_of_a_run.CLAUSES | clauses_of_values.CLAUSES
