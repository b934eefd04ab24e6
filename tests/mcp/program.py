"""An MCP server with tools of many kinds: `python program.py stdio`, or `http PORT`; with `silent` it never answers."""

import asyncio
import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("tests")


@server.tool()
def add(left: int, right: int = 1) -> int:
    """Add two numbers."""
    return left + right


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def where() -> str:
    """Say where the server runs, and one word of its environment."""
    return f"{Path.cwd().name} {os.environ.get('WORD', '')}"


@server.tool(name="count.to/three")
async def count(context: Context) -> str:
    """Count, and tell of it."""
    for number in range(1, 4):
        await context.report_progress(number, 3, f"at {number}")
    return "three"


@server.tool()
async def hang(mark: str) -> str:
    """Never return; write down that it was cancelled."""
    Path(mark).write_text("begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        Path(mark).write_text("cancelled")
        raise
    return ""


@server.tool()
def die() -> str:
    """End the server in the middle."""
    os._exit(1)


@server.tool()
def fail() -> str:
    """Raise."""
    raise ToolError("no such thing")


@server.tool()
def flood() -> str:
    """Say more than a model can take."""
    return "x" * 1_000_000


@server.tool()
def show() -> Image:
    """Show a picture."""
    return Image(data=b"abc", format="png")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            server.run("stdio")
        case ["http", port]:
            server.run("streamable-http", host="127.0.0.1", port=int(port))
        case ["silent"]:
            time.sleep(3600)
