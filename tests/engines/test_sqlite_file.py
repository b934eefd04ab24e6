"""The file of sessions: what is not one is refused with a sentence, and left as it was."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.engines import EngineError, Order
from kernel.engines.sqlite import SqliteEngine, file
from kernel.engines.sqlite.file import APPLICATION, VERSION, connect


def made(path: Path) -> Path:
    """A file with a session in it."""

    async def submit() -> None:
        async with SqliteEngine(path) as engine:
            await engine.submit("s", Order("prompt", "x" * 50_000))

    asyncio.run(submit())
    return path


def text(path: Path) -> None:
    path.write_text("Dear diary, " * 100)


def short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def other_application(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE diary (page TEXT)")
    db.close()


def torn(path: Path) -> None:
    made(path)
    path.write_bytes(path.read_bytes()[:8192])


def newer(path: Path) -> None:
    made(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (Path.touch, "is no session file, but an empty one: delete it"),
        (text, "is no session file: it does not begin as a file of SQLite does"),
        (short, "is no session file: it does not begin"),
        (other_application, "is a file of SQLite, but of another application"),
        (torn, "is torn: it is shorter than its head says"),
        (newer, f"has version {VERSION + 1} of the schema, and this phasekernel knows {VERSION}: use a newer one"),
    ],
)
def test_what_is_no_session_file_is_refused_and_left_as_it_is(spoil: Callable[[Path], None], why: str, tmp_path: Path):
    """The error names the file and what is wrong with it; not a byte of it has changed, and nothing lies beside it."""
    path = tmp_path / "sessions.db"
    spoil(path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    with pytest.raises(EngineError, match=f"sessions.db {why}"):
        SqliteEngine(path)

    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_file_in_use_may_be_opened_and_closed_by_others(tmp_path: Path):
    """Another process that comes and goes takes nothing away: what it stored is seen here, and what is stored here by the
    next one. (Once, opening the file twice dropped the locks of this process, and whoever closed it deleted the log.)
    """
    path = tmp_path / "s.db"
    script = (
        "import asyncio, sys; from kernel.engines import Order; from kernel.engines.sqlite import SqliteEngine\n"
        "async def submit():\n"
        f"    async with SqliteEngine({str(path)!r}) as engine:\n"
        "        await engine.submit(sys.argv[1], Order('cancel'))\n"
        "        print(len(await engine.sessions()))\n"
        "asyncio.run(submit())\n"
    )

    async def play() -> list[int]:
        seen = []
        async with SqliteEngine(path) as engine:
            for name in ("a", "b", "c"):
                done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, check=True)
                seen.append(int(done.stdout))
                async with SqliteEngine(path) as second:
                    await second.submit(name + name, Order("cancel"))
                seen.append(len(await engine.sessions()))
        return seen

    assert asyncio.run(play()) == [1, 2, 3, 4, 5, 6]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path):
    """The sentence has SQLite's own reason."""
    with pytest.raises(EngineError, match="can't be opened: unable to open database file"):
        SqliteEngine(tmp_path / "missing" / "sessions.db")


def test_a_file_says_whose_it_is_and_of_which_version(tmp_path: Path):
    """The application and the version of the schema are in the head of the file as soon as it is made."""
    path = tmp_path / "sessions.db"
    connect(path).close()
    head = path.read_bytes()

    assert int.from_bytes(head[68:72], "big") == APPLICATION
    assert int.from_bytes(head[60:64], "big") == VERSION


def test_processes_that_make_the_same_file_at_once_all_get_it(tmp_path: Path):
    """Eight at once: each finds the schema, made once."""
    path = str(tmp_path / "s.db")
    script = f"from pathlib import Path; from kernel.engines.sqlite.file import connect; connect(Path({path!r}))"
    processes = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(8)]

    assert [(process.communicate()[1], process.returncode) for process in processes] == [(b"", 0)] * 8
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.db"]


@pytest.mark.parametrize(
    ("argument", "value"), [("lease", 0), ("poll", -1), ("base_every", True), ("retain_events", "many")]
)
def test_settings_that_make_no_sense_are_refused(argument: str, value: object, tmp_path: Path):
    """By name, before there is a file."""
    with pytest.raises(ValueError, match=f"{argument} must be a positive number"):
        SqliteEngine(tmp_path / "s.db", **{argument: value})  # type: ignore[arg-type]

    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_older_version_is_brought_to_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Step by step, and once: what was in it is still there, and a connection of now finds the new schema."""
    path = made(tmp_path / "s.db")
    steps = ("ALTER TABLE session ADD COLUMN note TEXT", "CREATE TABLE more (n)")
    monkeypatch.setattr(file, "MIGRATIONS", (*file.MIGRATIONS, *steps))
    monkeypatch.setattr(file, "VERSION", 3)
    for _ in range(2):
        db = connect(path)
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT sid, note FROM session").fetchall() == [("s", None)]
        assert db.execute("SELECT count(*) FROM more").fetchone() == (0,)
        db.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file is told to be one that can't be opened, and is of the version of before."""
    path = made(tmp_path / "s.db")
    monkeypatch.setattr(file, "MIGRATIONS", (*file.MIGRATIONS, "CREATE TABLE more (n); CREATE TABLE session (n)"))
    monkeypatch.setattr(file, "VERSION", 2)
    with pytest.raises(EngineError, match="can't be opened: table session already exists"):
        connect(path)
    monkeypatch.undo()

    db = connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert db.execute("SELECT name FROM sqlite_master WHERE name = 'more'").fetchall() == []
    db.close()
