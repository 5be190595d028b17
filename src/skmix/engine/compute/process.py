"""Settings that a process has one of, and that several threads may need at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class ProcessSetting:
    """A setting of the whole process, changed while anyone needs it and restored after the last.

    Threads that need the same value share it; a thread that needs another one waits until they are done.

    Parameters
    ----------
    change : callable
        Takes a value, sets it, and returns a function that restores the one before.
    """

    def __init__(self, change: Callable[[Any], Callable[[], object]]) -> None:
        self._change = change
        self._value: Any = None
        self._restore: Callable[[], object] = bool  # nothing to restore yet
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        self._changed, self._users = threading.Condition(), 0

    def _after_fork(self) -> None:
        """Restore the setting in a forked process: the threads that would do so are not there."""
        if self._users:
            self._restore()
        self._begin()

    @contextmanager
    def to(self, value: Any) -> Iterator[None]:
        """Set the value in the body."""
        changed = self._changed
        with changed:
            changed.wait_for(lambda: not self._users or self._value == value)
            if not self._users:
                self._value, self._restore = value, self._change(value)
            self._users += 1
        try:
            yield
        finally:
            # A process that was forked in the body has begun anew.
            if self._changed is changed:
                with changed:
                    self._users -= 1
                    if not self._users:
                        self._restore()
                        changed.notify_all()
