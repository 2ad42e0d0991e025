"""What a session knows of one call of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.core.records import Failure
    from windrow.tasks.calling import Calling
    from windrow.tasks.future import Future

__all__ = ["Record"]


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
        "rule",
        "slots",
        "state",
        "streamed",
    )  # fmt: skip

    def __init__(self, calling: Calling) -> None:
        reads = calling.reads
        self.id = calling.id
        self.declared = calling.declared
        self.parents: tuple[Record, ...] = ()
        self.slots: tuple[str, ...] = ()  #: names of what it reads, by slot
        if reads:
            self.parents = tuple({one.record.id: one.record for one in reads}.values())
            self.slots = tuple([one.output for one in reads])
        self.key = calling.key  #: the lineage, where the result may be reused
        self.outputs: tuple[str, ...] = ()
        self.content: Any = None  #: what travels to a worker
        self.rule = ""  #: what becomes of others if it fails
        self.streamed: list[Future | None] = []  #: of a stream: those that nobody has taken yet
        self.group = 0
        self.attempt = 0  #: the latest
        self.state = "waiting"  #: "waiting", "running", "done", "failed" or "cancelled"
        self.failure: Failure | None = None

    @property
    def name(self) -> str:
        """The function's."""
        return self.declared.name
