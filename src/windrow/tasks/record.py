"""What a session knows of one call of a task."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from windrow.tasks.body import STREAM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.records import Failure
    from windrow.tasks.declare import Declared
    from windrow.tasks.future import Future

__all__ = ["BEGINNING", "Record"]

#: Held while a task begins, or is cancelled before that: it is one of the two. Nothing is waited for under it.
BEGINNING = threading.RLock()

_NONE: deque[Any] = deque()  #: nothing is ever put into it


class Record:
    """One call: what to run, with what, and who waits for it.

    Futures hold their record, and a record those that it reads from. So what it takes to make an output again is there as
    long as anybody may need that, and no longer.
    """

    __slots__ = (
        "__weakref__",
        "attempt",
        "content",
        "declared",
        "failure",
        "group",
        "id",
        "key",
        "outputs",
        "parents",
        "root",
        "rule",
        "slots",
        "state",
        "streamed",
    )  # fmt: skip

    root: Record  #: once known: the task that is to blame for its failure, if that is another

    def __init__(self, number: int, declared: Declared, reads: Sequence[Future] = (), key: str | None = None) -> None:
        self.id = number
        self.declared = declared
        self.parents: tuple[Record, ...] = ()
        self.slots: tuple[str, ...] = ()  #: names of what it reads, by slot
        if reads:
            self.parents = tuple({one.record.id: one.record for one in reads}.values())
            self.slots = tuple([one.output for one in reads])
        self.key = key  #: the lineage, where the result may be reused
        self.outputs: tuple[str, ...] = ()
        self.content: Any = None  #: what travels to a worker
        self.rule = ""  #: what becomes of others if it fails
        #: of a stream: those that nobody has taken yet
        self.streamed: deque[Future] = deque() if declared.outputs == STREAM else _NONE
        self.group = 0
        self.attempt = 0  #: the latest
        self.state = "waiting"  #: "waiting", "running", "done", "failed" or "cancelled"
        self.failure: Failure | None = None

    @property
    def name(self) -> str:
        """The function's."""
        return self.declared.name
