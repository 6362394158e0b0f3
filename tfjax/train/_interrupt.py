"""Ctrl-C that waits for the end of a step."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody has asked to stop."""

    requested: bool = False


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Within it the first Ctrl-C (or a polite kill) is noted, the second ends at once.

    Outside the main thread, which alone is interrupted, and where a parent has asked
    that signals be ignored, nothing changes.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    ours = (signal.default_int_handler, signal.SIG_DFL)
    before = {s: signal.getsignal(s) for s in SIGNALS}

    def note(number: int, frame: object) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        text = "\nStopping after this step; once more to stop at once.\n"
        sys.stderr.write(text)

    for number, handler in before.items():
        if handler in ours:
            signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
