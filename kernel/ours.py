"""Is the `statechart` that would be imported ours? PyPI has a distribution of that name that would shadow it."""

import os.path
from importlib.util import find_spec
from typing import Final

_LANDMARKS: Final = ("vocabulary.py", "table.py", "decisions.py")


def foreign_statechart() -> str | None:
    """What to say when the package `statechart` is not ours; None when it is."""
    spec = find_spec("statechart")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if any(all(os.path.isfile(os.path.join(place, landmark)) for landmark in _LANDMARKS) for place in places[:1]):
        return None
    found = places[0] if places else "nowhere"
    return (
        f"phasekernel needs its own package `statechart`, but the one that Python finds is another one (in {found}). "
        "Install the distribution that brought it in another environment, then install phasekernel again; "
        "`python -m kernel doctor` tells more"
    )
