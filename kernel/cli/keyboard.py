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
    loop = asyncio.get_running_loop()
    pending = bytearray()
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
        pending.extend(data)
        *lines, rest = pending.split(b"\n")
        pending[:] = rest
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text:
                take(text)

    loop.add_reader(descriptor, read)
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


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

    termios.tcsetattr(terminal.fileno(), termios.TCSADRAIN, silent)
    try:
        with _keys(terminal, press) as reads:
            yield reads
    finally:
        termios.tcsetattr(terminal.fileno(), termios.TCSADRAIN, before)


@contextmanager
def _keys(terminal: TextIO, press: Callable[[str], object]) -> Iterator[bool]:
    """While it lasts, *press* is called with each character; what keys such as the arrows send is passed over."""
    loop = asyncio.get_running_loop()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
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
        if not data:
            loop.remove_reader(descriptor)
        for key in _ESCAPES.sub("", decoder.decode(data)).replace("\r", "\n"):
            press(key)

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
