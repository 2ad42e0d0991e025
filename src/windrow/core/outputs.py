"""Outputs and who holds them: workers, the driver; what is fetched, handed over and forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Command, Discard, Fetch, Take
from windrow.core.records import DRIVER, FailureKind, Handle, Life, Made, make_record
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.graph import Node
    from windrow.core.policies import Options
    from windrow.core.records import Failure, Grant, Holder
    from windrow.core.resources import Resources
    from windrow.core.rows import RowFeeder
    from windrow.core.workers import WorkerState


class Batch:
    """The batch of events that is being handled: its time, and the commands that follow."""

    __slots__ = ("now", "out")

    def __init__(self) -> None:
        self.now = 0.0
        self.out: list[Command] = []


class _Nothing(dict[Any, Any]):
    """The empty dictionary of all that have nothing to put into one: there are many, and few ever have."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise InternalError(f"{key!r} was put where all share that they have nothing")


NOTHING = _Nothing()


class Output:
    """One named thing that a task makes."""

    __slots__ = (
        "asked", "attempt", "bytes", "claimed", "consumers", "fed", "fetching", "grant", "holders", "made", "maker",
        "name", "readers", "seconds",
    )  # fmt: skip

    def __init__(self, name: str, maker: Node) -> None:
        self.name = name
        self.maker = maker
        self.fed = maker.fed  #: a feeder claims it, and not the user
        self.attempt = 0  #: that made it, while it exists
        self.holders: dict[Holder, int] = {}  #: who has it, and its bytes there; nobody: it does not exist
        self.made = False  #: tasks may read it
        self.bytes = 0
        self.grant: Grant = ()  #: what stays taken as long as it exists
        self.fetching: Life | None = None  #: a copy is on its way to the driver from there
        self.seconds = 0.0  #: what bringing it took
        self.asked = False  #: the user or the feeder waits for it
        self.claimed = True  #: the user or the feeder may still ask for it
        self.consumers = 0  #: tasks that read it, ended or not, as long as they may be done again
        self.readers: dict[int, Node] = NOTHING  #: those of them that have not ended

    @property
    def needed(self) -> bool:
        """Whether it must stay: to be read or asked for, or because it cannot be made again for who has read it."""
        return self.claimed or bool(self.readers) or (self.consumers > 0 and not self.maker.task.restartable)

    @property
    def handle(self) -> Handle:
        return make_record(Handle, (self.name, self.attempt))

    def is_only_for(self, node: Node) -> bool:
        """Whether a task that reads it is the only one left that can ask for it."""
        return not self.claimed and len(self.readers) == 1 and node.id in self.readers


class Outputs:
    """All outputs that exist."""

    def __init__(
        self, batch: Batch, feeder: RowFeeder | None, resources: Resources, options: Options, most_losses: int
    ) -> None:
        self.kept: dict[Life, dict[str, Output]] = {}  #: by worker: what it holds
        self.fetching: dict[str, Output] = {}
        self.expected: dict[str, int] = {}  #: by category of calls: bytes of what the latest made, where that is known
        self._batch = batch
        self._feeder = feeder
        self._resources = resources
        self._most = options.crashes, most_losses
        self._direct = options.direct
        #: by name: how often a worker crashed, and went away, at sending it; as long as it did not come
        self._ends: dict[str, tuple[int, int]] = {}

    # -- beginnings

    def keep(self, output: Output, attempt: int, made: Made, worker: WorkerState) -> None:
        output.attempt, output.bytes = attempt, made.bytes
        if worker.shares or made.here:
            output.holders[DRIVER] = made.bytes
        if not worker.shares:
            self.add_holder(output, worker.life)

    def add_holder(self, output: Output, life: Life) -> None:
        output.holders[life] = output.bytes
        kept = self.kept.get(life)
        if kept is None:
            kept = self.kept[life] = {}
        kept[output.name] = output

    def is_at(self, output: Output, worker: WorkerState) -> bool:
        """Whether a worker could read an output, at the cost of a copy sent along at most."""
        holders = output.holders
        return DRIVER in holders or worker.life in holders or (self._direct and bool(holders))

    # -- to the driver

    def fetch(self, output: Output) -> None:
        if output.fetching is None and output.holders and DRIVER not in output.holders:
            source = next(holder for holder in output.holders if isinstance(holder, Life))
            output.fetching = source
            self.fetching[output.name] = output
            self._batch.out.append(Fetch(output.handle, source, DRIVER, output.fed and output.asked))

    def arrived(self, output: Output, size: int, seconds: float) -> None:
        output.fetching = None
        output.seconds = seconds
        self.fetching.pop(output.name, None)
        self._ends.pop(output.name, None)
        if size:
            output.bytes = size
        output.holders[DRIVER] = output.bytes
        for holder in output.holders:
            output.holders[holder] = output.bytes

    def deliver(self, output: Output) -> None:
        if not output.asked or not output.made:
            return
        if DRIVER not in output.holders:
            self.fetch(output)
            return
        output.asked = False
        if not output.fed:
            self._batch.out.append(Take(output.handle))
            return
        feeder = self._feeder
        assert feeder is not None
        self._batch.out.append(Take(output.handle, feeder.ledger.held[output.name], True))
        del output.holders[DRIVER]
        seconds, name = output.seconds, output.name
        self.drop(output)
        feeder.partials.taken(name, seconds)

    # -- ends

    def drop(self, output: Output) -> None:
        if output.holders:
            handle = make_record(Handle, (output.name, output.attempt))
            self._batch.out.append(make_record(Discard, (handle, tuple(output.holders))))
        self.forget(output)

    def forget(self, output: Output) -> None:
        for holder in output.holders:
            if isinstance(holder, Life):
                self.kept[holder].pop(output.name, None)
        output.holders.clear()
        output.made = False
        output.attempt = 0
        if output.grant:
            self._resources.release(output)
        if output.fetching is not None:
            output.fetching = None
            self.fetching.pop(output.name, None)

    def discard(self, attempt: int, life: Life, made: Iterable[Made], *, shares: bool) -> None:
        for one in made:
            holders: tuple[Holder, ...] = (DRIVER,) if shares else (life, DRIVER) if one.here else (life,)
            self._batch.out.append(Discard(Handle(one.output, attempt), holders))

    def lose(self, life: Life) -> list[Output]:
        """A worker is gone: list the outputs that no one else has; they are still to be forgotten."""
        return [output for output in list(self.kept.pop(life, {}).values()) if self.leave(output, life)]

    def leave(self, output: Output, life: Life) -> bool:
        """A worker has an output no more; True if no one else has it, which is then still to be forgotten."""
        del output.holders[life]
        self.kept.get(life, {}).pop(output.name, None)
        if output.fetching == life:
            output.fetching = None
            del self.fetching[output.name]
            if output.holders:
                self.fetch(output)
        return not output.holders

    def held_bytes(self, life: Life) -> int:
        return sum(output.holders[life] for output in self.kept.get(life, {}).values())

    def only_here(self, life: Life) -> list[Output]:
        return [output for output in self.kept.get(life, {}).values() if len(output.holders) == 1]

    def blame(self, life: Life, failure: Failure) -> tuple[Output, str] | None:
        """A worker is gone that ran nothing: the output that it was sending may be the reason; None if there was none.

        It sends them in the order in which they were asked for. One that ends its worker again and again would be made
        for ever: then the story is told along with it.
        """
        output = next((one for one in self.fetching.values() if one.fetching == life), None)
        if output is None:
            return None
        crashes, losses = self._ends.get(output.name, (0, 0))
        crashed = failure.kind is FailureKind.CRASHED
        crashes, losses = crashes + crashed, losses + (not crashed)
        self._ends[output.name] = crashes, losses
        if crashes < self._most[0] and losses < self._most[1]:
            return output, ""
        del self._ends[output.name]
        story = (
            f"output {output.name!r} cannot be sent to others: {failure.message}; that happened {crashes + losses} times "
            "while it was being pickled"
        )
        return output, story
