"""Pretended workers for the model check: they hold rows, and their mail is late, lost, repeated and out of order."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.records import Failure, FailureKind, Handle, Measurement, Rows, Worker

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["Content", "Engine", "Piece"]

#: A row of an input, for one product. Their multiset is a partial: what is counted twice is there twice.
Piece = tuple[str, int, int]
Content = Counter[Piece]
LifeKey = tuple[int, int]

LOST = Failure(FailureKind.LOST, "WorkerLost", "shot")
ROW_S = 0.3


class Life:
    """One life of a worker: what it was told, what it keeps, what it sent."""

    def __init__(self, key: LifeKey) -> None:
        self.key = key
        self.inbox: deque[Any] = deque()
        self.shelf: dict[int, Content] = {}
        self.job: orders.Launch | None = None
        self.stop = 0  #: where its job ends
        self.hangs_until = 0.0


class Engine:
    """Workers and their mail. ``count`` says what an attempt at rows makes."""

    def __init__(self, rng: random.Random, count: Callable[[Rows], Content], borders: Any, *, fifo: bool) -> None:
        self.now = 0.0
        self.seen: Counter[str] = Counter()
        self._rng = rng
        self._count = count
        self._borders = borders
        self._fifo = fifo
        self._lives: dict[int, Life] = {}
        self._mail: dict[LifeKey, list[happened.Event]] = {}
        self._delivered: list[happened.Event] = []
        self._sent: dict[int, Content] = {}  #: fetched, on its way
        self._here: dict[int, Content] = {}  #: fetched, arrived

    def join(self, worker: int) -> None:
        self._begin((worker, 0))

    def _begin(self, key: LifeKey) -> None:
        assert key not in self._mail, "a life is lived twice"
        self._mail[key] = []
        if self._rng.random() < 0.1 and key[1]:
            self._mail[key].append(happened.WorkerLost(*key, LOST))
            return
        self._lives[key[0]] = Life(key)
        self._mail[key].append(happened.WorkerJoined(Worker(*key)))

    # -- commands

    def do(self, command: Any) -> None:
        """Obey; what is for a life that has ended is dropped."""
        self.seen[type(command).__name__] += 1
        if isinstance(command, orders.StartWorker):
            self._begin((command.worker, command.incarnation))
            return
        of_handle = isinstance(command, orders.Fetch | orders.Discard)
        named = command.handle if of_handle else command
        life = self._lives.get(named.worker)
        if isinstance(command, orders.Discard):
            self._sent.pop(command.handle.id, None)
            self._here.pop(command.handle.id, None)
        if life is None or life.key != (named.worker, named.incarnation):
            return
        if isinstance(command, orders.Cancel):
            self._cancel(life, command)
        elif isinstance(command, orders.Shrink):
            self._shrink(life, command)
        else:
            life.inbox.append(command)

    def take(self, handle: Handle) -> Content:
        return self._here.pop(handle.id)

    def _cancel(self, life: Life, command: orders.Cancel) -> None:
        mail = self._mail[life.key]
        for launch in life.inbox:
            if isinstance(launch, orders.Launch) and launch.attempt == command.attempt:
                life.inbox.remove(launch)
                mail.append(happened.Cancelled(command.attempt, *life.key))
                return
        if life.job is not None and life.job.attempt == command.attempt and self._rng.random() < 0.7:
            mail.append(happened.Cancelled(command.attempt, *life.key))
            self._end(life)

    def _shrink(self, life: Life, command: orders.Shrink) -> None:
        job = life.job
        if job is None or job.attempt != command.attempt or not self._fifo:
            return  # too late; and without order its answer could come after the end
        (rows,) = job.task.inputs
        legal = [one for one in self._borders(rows.input) if rows.start < one < life.stop]
        life.stop = self._rng.choice([life.stop, command.stop, *legal])
        self.seen["rows moved"] += life.stop < rows.stop
        self._mail[life.key].append(happened.Shrunk(command.attempt, *life.key, life.stop))

    # -- what happens

    def work(self) -> bool:
        """Somebody does the next thing; False if nobody can."""
        able = [one for one in self._lives.values() if one.hangs_until <= self.now]
        able = [one for one in able if one.job is not None or one.inbox]
        if not able:
            return False
        life = self._rng.choice(able)
        if life.job is not None:
            self._finish(life, life.job)
        else:
            self._begin_next(life, life.inbox.popleft())
        return True

    def _begin_next(self, life: Life, command: Any) -> None:
        mail = self._mail[life.key]
        if isinstance(command, orders.Launch):
            life.job, life.stop = command, command.task.inputs[0].stop
            mail.append(happened.Started(command.attempt, *life.key))
        elif isinstance(command, orders.Inspect):
            borders = self._borders(command.input)
            mail.append(happened.Discovered(command.input, borders[-1], borders, *life.key))
        elif isinstance(command, orders.Merge):
            self._merge(life, command)
        elif isinstance(command, orders.Fetch):
            self._sent[command.handle.id] = life.shelf.pop(command.handle.id)
            mail.append(happened.Fetched(command.handle, 0.001, 10))
        elif isinstance(command, orders.Discard):
            life.shelf.pop(command.handle.id, None)
        else:
            assert isinstance(command, orders.StopWorker)
            assert not life.shelf, "told to end with partials on its shelf"
            del self._lives[life.key[0]]
            mail.append(happened.WorkerLost(*life.key, None))

    def _finish(self, life: Life, job: orders.Launch) -> None:
        life.job = None
        rows = job.task.inputs[0]._replace(stop=life.stop)
        life.shelf[job.attempt] = self._count(rows)
        handle = Handle(job.attempt, job.attempt, *life.key, (rows,))
        measured = Measurement(wall=ROW_S * (rows.stop - rows.start))
        self._mail[life.key].append(happened.Finished(job.attempt, *life.key, handle, measured))

    def _merge(self, life: Life, command: orders.Merge) -> None:
        ids = tuple(handle.id for handle in command.handles)
        merged: Content = Counter()
        for number in ids:
            merged.update(life.shelf.pop(number))
        mail = self._mail[life.key]
        if self._rng.random() < 0.03:
            mail.append(happened.MergeFailed(command.into, ids, *life.key, LOST))
        else:
            life.shelf[command.into.id] = merged
            mail.append(happened.Merged(command.into, ids, *life.key))

    def kill(self) -> None:
        """A worker is lost at any moment; of what it sent, the last may be lost too."""
        if self._lives:
            self.seen["killed"] += 1
            life = self._rng.choice(list(self._lives.values()))
            mail = self._mail[life.key]
            if len(mail) > 1 and self._rng.random() < 0.5:  # that it joined was never on its way
                del mail[self._rng.randrange(1, len(mail)) :]
            self._end(life)

    def _end(self, life: Life) -> None:
        del self._lives[life.key[0]]
        self._mail[life.key].append(happened.WorkerLost(*life.key, LOST))

    def hang(self) -> None:
        running = [life for life in self._lives.values() if life.job is not None]
        if running:
            self.seen["hung"] += 1
            self._rng.choice(running).hangs_until = self.now + self._rng.uniform(1.0, 30.0)

    def drain(self) -> list[happened.Event]:
        if not self._lives:
            return []
        self.seen["drained"] += 1
        life = self._rng.choice(list(self._lives.values()))
        return [happened.DrainRequested(*life.key, "no longer ours", replace=True)]

    # -- mail

    @property
    def mail_waits(self) -> bool:
        return any(self._mail.values())

    def next_end_of_a_hang(self) -> float | None:
        times = [life.hangs_until for life in self._lives.values() if life.hangs_until > self.now]
        return min(times, default=None)

    def deliver(self) -> list[happened.Event]:
        """Some mail of one life arrives."""
        waiting = [mail for mail in self._mail.values() if mail]
        if not waiting:
            return []
        mail = self._rng.choice(waiting)
        events = []
        for _ in range(min(self._rng.randint(1, 4), len(mail))):
            place = 0 if self._fifo else self._rng.randrange(len(mail))
            event = mail.pop(place)
            if isinstance(event, happened.Fetched) and event.handle.id in self._sent:
                self._here[event.handle.id] = self._sent.pop(event.handle.id)
            events.append(event)
        self._delivered += events
        return events

    def repeat(self) -> list[happened.Event]:
        """Mail that came before comes again; only a transfer cannot repeat itself."""
        if not self._delivered:
            return []
        event = self._rng.choice(self._delivered)
        if isinstance(event, happened.Fetched):
            return []
        self.seen["repeated"] += 1
        return [event]
