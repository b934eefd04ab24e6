"""What is sent to providers so that each of them takes it: text, ids, arguments, schemas."""

import hashlib
import json
import re
from typing import Any, Final

from kernel.frozen import thaw
from kernel.messages import SummaryMessage, ToolCall

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Ids that both large providers take: OpenAI allows 40 characters, Anthropic no others than these."""
NO_OUTPUT: Final = "(no output)"
"""What stands for an empty result: Anthropic refuses empty text."""


def sendable(text: str) -> str:
    """*text* as it can be written in UTF-8: halves of a surrogate pair are joined, one alone becomes a replacement mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sent_id(call_id: str) -> str:
    """The id of a call as any provider takes it: itself, or one made of it, since calls of other providers and of this
    kernel have ids that some refuse. A call and its result get the same.
    """
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def sent_arguments(call: ToolCall) -> dict[str, Any]:
    """Arguments as a provider takes them: an object. What was none is told by the call's error result."""
    return json.loads(sendable(json.dumps(thaw(call.arguments), ensure_ascii=False)))  # type: ignore[no-any-return]


def summary_text(message: SummaryMessage) -> str:
    """A summary as a user's text."""
    return f"What was said before, in short:\n{sendable(message.text)}"


def asked_schema(schema: Any) -> str:
    """The instruction that stands for an output schema where a provider can't be told of it."""
    return f"Your final answer must be nothing but JSON that fits this JSON Schema:\n{json.dumps(thaw(schema))}"


def is_object(schema: Any) -> bool:
    """Whether a schema describes an object: providers take no others at the top."""
    return bool(schema.get("type") == "object")


def has_fixed_objects(schema: Any) -> bool:
    """Whether each object of a schema says which properties it may have: what has any would be made to have none."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and (not schema.get("properties") or schema.get("additionalProperties")):
            return False
        return all(has_fixed_objects(value) for value in schema.values())
    return all(has_fixed_objects(item) for item in schema) if isinstance(schema, (list, tuple)) else True


def is_closed(schema: Any) -> bool:
    """Whether each object of a schema has all its properties required and allows no others, as strict modes want it."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" or "properties" in schema:
            names = set(schema.get("properties", {}))
            if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
                return False
        return all(is_closed(value) for value in schema.values())
    return all(is_closed(item) for item in schema) if isinstance(schema, (list, tuple)) else True
