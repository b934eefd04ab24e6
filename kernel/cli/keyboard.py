"""The person at the keyboard: a line that is typed, and Ctrl-C."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def typed_lines(stream: TextIO, take: Callable[[str], object]) -> Iterator[bool]:
    """While it lasts, *take* is called with each line typed into *stream*. False where a loop can't wait for one."""
    loop = asyncio.get_running_loop()
    descriptor = stream.fileno()
    pending = bytearray()

    def read() -> None:
        try:
            data = os.read(descriptor, 4096)
        except OSError:
            data = b""
        if not data:  # closed, or Ctrl-D
            loop.remove_reader(descriptor)
            return
        pending.extend(data)
        *lines, rest = bytes(pending).split(b"\n")
        pending[:] = rest
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text:
                take(text)

    try:
        loop.add_reader(descriptor, read)
    except (NotImplementedError, OSError):
        yield False
        return
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)


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
