"""When loops are compiled: in the background, once so much was made in NumPy that it pays.

With a loop comes a check, which compares its bits with NumPy's here, on this machine; a loop that
fails it is never used. So the numbers do not tell which of the two made them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

#: Numbers after which a loop is compiled, beside the work that goes on: NumPy has then taken 0.7 s
#: for them, about as long as Numba takes to be imported and to load what an earlier process
#: compiled. Where Numba is there already, a tenth is enough.
_PAYS = 20_000_000
_PAYS_WITH_NUMBA = 2_000_000
#: With fewer numbers than this, a call into compiled code does not pay.
_FEW = 64


class Compiler:
    """Knows which loops are compiled, and compiles them in a thread when that pays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[str, Any] = {}
        self._drawn: dict[str, int] = {}
        self._begun: set[str] = set()

    def loop(self, name: str, size: int, check: Callable[[Any], bool]) -> Any:
        """Return a compiled loop for so many numbers; None: NumPy makes them."""
        found = self._ready.get(name)
        if found is None and name not in self._begun:
            self._drawn[name] = drawn = self._drawn.get(name, 0) + size
            if drawn >= (_PAYS_WITH_NUMBA if "numba" in sys.modules else _PAYS):
                self._begin(name, check)
        return found if size >= _FEW else None

    def _begin(self, name: str, check: Callable[[Any], bool]) -> None:
        with self._lock:
            if name in self._begun:
                return
            self._begun.add(name)
        # No daemon: an interpreter that ends in the middle of LLVM does not end well.
        thread = threading.Thread(target=self.compile, args=(name, check), name=f"windrow-random-{name}")
        thread.start()

    def compile(self, name: str, check: Callable[[Any], bool]) -> None:
        """Compile a loop, and use it from now on if it passes its check."""
        try:
            from windrow.random.arrays.numba import kernel

            loop = kernel(name)
            if check(loop):
                self._ready[name] = loop
        except Exception:  # noqa: BLE001 - without Numba, or where it fails, NumPy goes on
            return

    def after_fork(self) -> None:
        """Go on in a child: a loop whose compiling thread stayed behind is left to NumPy for good."""
        self._lock = threading.Lock()


loops = Compiler()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=loops.after_fork)
