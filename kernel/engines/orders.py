"""Orders as lines of JSON, as engines keep and carry them."""

from kernel.codec import Codec
from kernel.engines.port import Order
from kernel.jsonl import from_line, to_line


def dump_order(order: Order, codec: Codec) -> str:
    """*order* as a line of JSON."""
    message = None if order.message is None else codec.dump_message(order.message)
    return to_line({"kind": order.kind, "message": message, "reason": order.reason})


def load_order(line: str, codec: Codec) -> Order:
    """The opposite of `dump_order`."""
    said = from_line(line)
    message = said["message"]
    return Order(said["kind"], None if message is None else codec.load_message(message), said["reason"])
