"""What a page makes of the stream, in Python: it knows AG-UI events only."""

import json
from typing import Any

from attrs import define, field


@define
class Viewer:
    """The conversation and the state, as far as the frames told."""

    messages: dict[str, list[str]] = field(factory=dict)
    calls: dict[str, list[str]] = field(factory=dict)
    state: dict[str, Any] = field(factory=dict)
    ends: list[str] = field(factory=list)
    ids: list[str] = field(factory=list)
    types: list[str] = field(factory=list)
    snapshots: int = 0
    reason: str | None = None

    def feed(self, text: str) -> None:
        """Take whole frames."""
        for frame in text.split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in frame.splitlines() if not line.startswith(":"))
            if "id" in fields:
                self.ids.append(fields["id"])
            if "data" in fields and "event" not in fields:
                self.take(json.loads(fields["data"]))

    def take(self, said: dict[str, Any]) -> None:
        """Take one event."""
        self.types.append(said["type"])
        match said["type"]:
            case "MESSAGES_SNAPSHOT":
                self.snapshots += 1
                self.messages = {each["id"]: [each["role"], each.get("content") or ""] for each in said["messages"]}
                self.calls, self.ends = {}, []
            case "RUN_STARTED":
                self.calls, self.ends = {}, []
            case "STATE_SNAPSHOT":
                self.state = dict(said["snapshot"])
            case "STATE_DELTA":
                self.state |= {change["path"][1:]: change["value"] for change in said["delta"]}
            case "TEXT_MESSAGE_START":
                self.messages[said["messageId"]] = [said["role"], ""]
            case "REASONING_MESSAGE_START":
                self.messages[said["messageId"]] = ["reasoning", ""]
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                self.messages[said["messageId"]][1] += said["delta"]
            case "TOOL_CALL_START":
                self.calls[said["toolCallId"]] = [said["toolCallName"]]
            case "TOOL_CALL_RESULT":
                self.calls[said["toolCallId"]].append(said["content"])
            case "RUN_FINISHED" | "RUN_ERROR":
                self.ends.append(said.get("code") or said["outcome"]["type"])
                self.reason = (said.get("result") or {}).get("reason")
            case _:
                pass

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(role, text) for role, text in self.messages.values()]

    def seen_of_run(self, run: str) -> Any:
        """All that is shown of a run, and the state."""
        own = {id: said for id, said in self.messages.items() if id.startswith(f"{run}:")}
        return own, self.calls, self.state, self.ends

