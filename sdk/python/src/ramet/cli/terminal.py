# SPDX-License-Identifier: Apache-2.0
"""The user's terminal: raw mode, its size, signals."""

from __future__ import annotations

import os
import signal
import stat
import sys
import termios
import threading
import tty
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Callable, Iterator

from ramet.cli.failure import Ended

_LAST = 3  # Ctrl-C after this many ends this program


def is_terminal() -> bool:
    """Returns True if standard input is a terminal."""
    return sys.stdin.isatty()


def has_input() -> bool:
    """Returns True if standard input is a pipe or a file, such as `< data`."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # it is closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def size() -> tuple[int, int]:
    """Returns the terminal's columns and rows; COLUMNS and LINES may be those of an earlier size."""
    for stream in (0, 1, 2):
        try:
            columns, rows = os.get_terminal_size(stream)
            return columns or 80, rows or 24
        except OSError:
            pass  # it is not a terminal
    return 80, 24


@contextmanager
def raw() -> Iterator[None]:
    """Passes every key on to the program, Ctrl-C included; restores the terminal at the end."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # keeps what was typed ahead
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may have been closed
            termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def on_resize(notify: Callable[[int, int], object]) -> Iterator[None]:
    """Calls notify(columns, rows) from another thread after each change of the terminal's size.

    A change during a call leads to one more call, with the latest size.
    """
    changed, ended = threading.Event(), threading.Event()

    def work() -> None:
        while changed.wait() and not ended.is_set():
            changed.clear()
            notify(*size())

    before = signal.signal(signal.SIGWINCH, lambda *_: changed.set())
    threading.Thread(target=work, name="ramet-resize", daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        ended.set()
        changed.set()


@contextmanager
def on_interrupt(notify: Callable[[int], object]) -> Iterator[None]:
    """Calls notify(n) from another thread at the n-th Ctrl-C, instead of a KeyboardInterrupt, which
    would break the connection whose output is being read. The fourth one is a KeyboardInterrupt: it
    ends this program even if the service does not answer.
    """
    count = 0

    def react(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > _LAST:
            raise KeyboardInterrupt
        threading.Thread(target=notify, args=(count,), daemon=True).start()

    before = signal.signal(signal.SIGINT, react)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_in_order() -> None:
    """Makes SIGTERM and SIGHUP end the program with its `finally` blocks: these restore the
    terminal, and end the sandbox that was made for a command."""

    def react(number: int, frame: FrameType | None) -> None:
        raise Ended(128 + number)

    defaults = [
        one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) == signal.SIG_DFL
    ]
    for one in defaults:
        signal.signal(one, react)
    if defaults:
        _miss_no_signal()


def _miss_no_signal() -> None:
    """Has a thread interrupt the main thread's system calls after each signal.

    Python's own handler only sets a flag, which is checked between instructions and when a system
    call is interrupted. Without the thread, a signal just before a system call, such as a write to
    a full pipe, would have no effect as long as the call waits.
    """
    main = threading.main_thread().ident
    assert main is not None  # it runs
    arrived, note = os.pipe()
    os.set_blocking(note, False)
    signal.signal(signal.SIGURG, lambda *_: None)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)

    def work() -> None:
        while numbers := os.read(arrived, 1024):
            if set(numbers) == {signal.SIGURG}:
                continue  # it is from here
            for seconds in (0.05, 0.2, 1):  # the main thread may still wait for a CPU
                threading.Event().wait(seconds)
                signal.pthread_kill(main, signal.SIGURG)

    threading.Thread(target=work, name="ramet-signals", daemon=True).start()


def read_keys() -> Iterator[bytes]:
    """Yields what arrives at standard input, up to its end."""
    while True:
        try:
            data = os.read(0, 65536)
        except OSError:  # the terminal is gone
            return
        if not data:
            return
        yield data
