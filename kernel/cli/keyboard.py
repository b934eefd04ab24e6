"""The person at the keyboard: a line that is typed, and Ctrl-C."""

import asyncio
import codecs
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?")


@contextmanager
def typed_lines(terminal: TextIO, take: Callable[[str], object]) -> Iterator[bool]:
    """While it lasts, *take* is called with each line typed into *terminal*. False where a loop can't wait for one."""
    pending = bytearray()

    def read(data: bytes) -> None:
        pending.extend(data)
        *lines, rest = pending.split(b"\n")
        pending[:] = rest
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text:
                take(text)

    with _input(terminal, read) as reads:
        yield reads


@contextmanager
def edited_lines(terminal: TextIO, take: Callable[[str], object], show: Callable[[str], object]) -> Iterator[bool]:
    """As `typed_lines`, but what is typed is not shown by the terminal: *show* is called with it, as far as it has come.

    The terminal is put back as it was, also when it is left by an exception. Ctrl-C stays a signal.
    """
    try:
        import termios

        before = termios.tcgetattr(terminal.fileno())
    except (ImportError, OSError, ValueError):
        yield False
        return
    silent = [*before]
    silent[3] &= ~(termios.ICANON | termios.ECHO)
    line: list[str] = []
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def press(key: str) -> None:
        if key == "\n":
            text = "".join(line).strip()
            line.clear()
            if text:
                take(text)
        elif key in ("\x7f", "\b"):
            del line[-1:]
        elif key == "\x15":  # Ctrl-U
            line.clear()
        elif key.isprintable():
            line.append(key)
        show("".join(line))

    def read(data: bytes) -> None:
        # What keys such as the arrows send is passed over.
        for key in _ESCAPES.sub("", decoder.decode(data)).replace("\r", "\n"):
            press(key)

    termios.tcsetattr(terminal.fileno(), termios.TCSADRAIN, silent)
    try:
        with _input(terminal, read) as reads:
            yield reads
    finally:
        termios.tcsetattr(terminal.fileno(), termios.TCSADRAIN, before)


@contextmanager
def _input(terminal: TextIO, take: Callable[[bytes], object]) -> Iterator[bool]:
    """While it lasts, *take* is called with what comes from *terminal*."""
    loop = asyncio.get_running_loop()
    try:
        # Opened once more, to be read without waiting: Ctrl-C throws away what was typed, also after the loop has been
        # told of it, and a read that waits then would hold up the loop. The mode of the original is not ours to change.
        descriptor = os.open(os.ttyname(terminal.fileno()), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (AttributeError, OSError):  # Windows has none of these functions
        yield False
        return

    def read() -> None:
        try:
            data = os.read(descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # closed, or Ctrl-D
            loop.remove_reader(descriptor)
        take(data)

    loop.add_reader(descriptor, read)
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


@contextmanager
def interrupts(take: Callable[[], object]) -> Iterator[None]:
    """While it lasts, Ctrl-C calls *take* instead of raising KeyboardInterrupt."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, take)
    except NotImplementedError:
        before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(take))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
