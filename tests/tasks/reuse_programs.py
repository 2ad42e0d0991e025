"""Programs that are run as users run them: each time in a new process, with a log of the bodies that ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """
import json, os, sys
from pathlib import Path
import numpy as np
import windrow as wr

def note(name):
    with open("log.txt", "a") as log:
        log.write(name + "\\n")

"""


class Program:
    """A program in a directory."""

    def __init__(self, place: Path, text: str) -> None:
        self.place = place
        self.text = HEAD + text

    def change(self, old: str, new: str) -> None:
        """Edit it as a user does."""
        assert self.text.count(old) == 1, old
        self.text = self.text.replace(old, new)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it."""
        (self.place / "program.py").write_text(self.text)
        return subprocess.Popen(
            [sys.executable, "program.py", *arguments],
            cwd=self.place,
            env={**os.environ, "WINDROW_STORE": str(self.place / "store")},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[Any, list[str]]:
        """Run it; return what it printed, and the bodies that ran, sorted."""
        log = self.place / "log.txt"
        log.unlink(missing_ok=True)
        with self.start(*arguments) as running:
            printed, _ = running.communicate(timeout=120)
        assert running.returncode == 0
        names = sorted(log.read_text().split()) if log.exists() else []
        return json.loads(printed.splitlines()[-1]), names
