"""G6: what is queued enters where it may, in its order, and is neither lost nor doubled.

`queue.changed` tells what waits after an item came, left or was given up; what left to enter is announced by the
`message.accepted` that follow it at once. What waited when a run began is not told, so until the first `queue.changed`
nothing is known, and what that one took out is known by what enters after it alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from kernel.trace.lines import Breach, Line, Rule, Run, breach, opens_answer, turns_of

QUEUES: Final = ("steering", "follow_up")


def g6_items_enter_at_boundaries(run: Run) -> Iterator[Breach]:
    """User messages open a turn, a prompt only the first one and a correction only a later one; a follow-up or a correction
    never joins another kind.
    """
    for number, turn in enumerate(turns_of(run), start=1):
        answered = False
        origins: list[str] = []
        for line in turn:
            answered = answered or opens_answer(line)
            if line["type"] == "message.accepted":
                origins.append(line["origin"])
                if answered:
                    yield breach("G6", line, f"{line['origin']} entered in the middle of a turn")
                elif not _may_follow(number, origins):
                    yield breach("G6", line, f"in turn {number} the origins are {origins}")


def _may_follow(number: int, origins: Sequence[str]) -> bool:
    first, last = origins[0], origins[-1]
    if len(origins) == 1:
        return last in QUEUES or last == ("prompt" if number == 1 else "correction")
    if last == "steering":
        return first == "steering" or number == 1
    return last == first == "follow_up" and "steering" not in origins


def g6_steering_comes_first(run: Run) -> Iterator[Breach]:
    """No follow-up is taken at a boundary at which steering waits."""
    steering: list[str] = []
    waited = False
    for line in run:
        if line["type"] == "queue.changed":
            steering = list(line.get("steering", ()))
        elif line["type"] == "turn.ended":
            waited = bool(steering)
        elif line["type"] == "message.accepted" and line["origin"] == "follow_up" and waited and steering:
            yield breach("G6", line, f"a follow-up entered while steering waited: {steering}")


Item = tuple[str, str]


def g6_nothing_queued_is_lost_or_doubled(run: Run) -> Iterator[Breach]:
    """What leaves a queue enters at once or is reported as dropped, and what waits has not entered."""
    waiting: dict[str, list[str]] | None = None
    entering: list[Item] | None = None  # None: not known, anything may enter
    for line in run:
        if line["type"] == "message.accepted" and line["origin"] in QUEUES:
            item = (line["origin"], line["text"])
            if entering is not None and entering[:1] != [item]:
                yield breach("G6", line, f"{item} entered, and what had left the queues to enter was {entering}")
            entering = entering and (entering[1:] if entering[0] == item else [each for each in entering if each != item])
            continue
        if entering:
            yield breach("G6", line, f"lost: {entering} left the queues and did not enter")
        if line["type"] == "queue.changed":
            entering, fault = (None, "") if waiting is None else _left(waiting, line)
            if fault:
                yield breach("G6", line, fault)
            waiting = {queue: list(line[queue]) for queue in QUEUES}
        elif waiting is not None:
            entering = []


def _left(waiting: dict[str, list[str]], line: Line) -> tuple[list[Item], str]:
    """What left the queues to enter, and what is wrong with how the queues changed."""
    left: list[Item] = []
    fault = ""
    dropped = Counter[str](line.get("dropped", ()))
    for queue in QUEUES:
        old, new = waiting[queue], list(line[queue])
        given_up = (Counter(old) - Counter(new)) & dropped
        dropped -= given_up
        if given_up:
            rest = new[: len(old) - given_up.total()]
            if Counter(rest) + given_up != Counter(old) or not _is_within(rest, old):
                fault = f"the queue {queue} was {old}, is {new}, and {sorted(given_up)} was dropped"
        else:
            gone = next(number for number in range(len(old) + 1) if new[: len(old) - number] == old[number:])
            left += [(queue, text) for text in old[:gone]]
    return left, f"dropped and did not wait: {sorted(dropped)}" if dropped else fault


def _is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(each in rest for each in part)


RULES: Final[tuple[Rule, ...]] = (
    g6_items_enter_at_boundaries,
    g6_steering_comes_first,
    g6_nothing_queued_is_lost_or_doubled,
)
