"""Sessions of editors as files: a conversation and where it took place, written whole after each run."""

import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

from attrs import frozen

from kernel.codec import Codec, explain
from kernel.errors import KernelError
from kernel.jsonl import from_line, to_line
from kernel.messages import Message

FORMAT: Final = "phasekernel.session/1"
_ID: Final = re.compile(r"[0-9a-f]{32}")


class SessionError(KernelError):
    """A session that can't be loaded, and why."""

    code = "SESSION"


@final
@frozen
class StoredSession:
    """What was stored of a session."""

    cwd: str
    messages: tuple[Message, ...]


def default_folder() -> Path:
    """Where sessions are kept: the user's folder for what programs remember."""
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.local/state"
    return Path(base).expanduser() / "phasekernel" / "sessions"


@final
class SessionStore:
    """The sessions in a folder, each a file with the name of its id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    def new_id() -> str:
        """An id that nobody else has."""
        return secrets.token_hex(16)

    def save(self, session_id: str, cwd: str, messages: Iterable[Message]) -> None:
        """Write a session whole, or not at all. Raises OSError."""
        text = to_line({"format": FORMAT, "cwd": cwd, "messages": Codec().dump_messages(messages)})
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".new")  # readable by the user only
        try:
            with os.fdopen(handle, "w", encoding="ascii", newline="\n") as file:
                file.write(text)
            os.replace(name, self._path(session_id))
        except BaseException:
            os.unlink(name)
            raise

    def load(self, session_id: str) -> StoredSession:
        """Read a session. Raises SessionError for one that is not there, damaged, or of another program."""
        path = self._path(session_id)
        try:
            data = from_line(path.read_bytes())
        except FileNotFoundError:
            raise SessionError(f"there is no session {session_id}") from None
        except (OSError, ValueError) as error:
            raise SessionError(f"the session {session_id} can't be read: {error}") from error
        if not isinstance(data, dict) or data.keys() != {"format", "cwd", "messages"} or data["format"] != FORMAT:
            raise SessionError(f"{path} is no session of this version ({FORMAT})")
        try:
            return StoredSession(str(data["cwd"]), tuple(Codec().load_messages(data["messages"])))
        except Exception as error:
            raise SessionError(f"the session {session_id} is damaged: {explain(error)}") from error

    def _path(self, session_id: str) -> Path:
        # Ids come from outside: one that is a path could lead anywhere.
        if not _ID.fullmatch(session_id):
            raise SessionError(f"{session_id!r} is no id of a session")
        return self._folder / f"{session_id}.json"
