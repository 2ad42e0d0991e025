"""Pretended workers for the model check: they hold rows, and their mail is late, lost, repeated and out of order."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.records import (
    DRIVER,
    EvaluateUnit,
    Failure,
    FailureKind,
    Handle,
    Life,
    Made,
    Measurement,
    MergePartials,
    Opened,
    OpenInput,
    Rows,
    RowsReport,
    RunRows,
    Worker,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

#: A row of an input, for one product. Their multiset is a partial: what is counted twice is there twice.
Piece = tuple[str, int, int]
Content = Counter[Piece]

#: Before the product, in what a part of a unit counts: no partial, and so nothing that a result may have.
PART = "part of "
#: Before the product, in the piece that stands for one evaluation of the outputs on a unit, with its first row.
UNIT = "unit of "

LOST = Failure(FailureKind.LOST, "WorkerLost", "shot")
ROW_S = 0.3


class WorkerModel:
    """One life of a worker: what it was told, what it keeps."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.inbox: deque[Any] = deque()
        self.store: dict[Handle, Content] = {}
        self.job: orders.Launch | None = None
        self.taken_in: list[Content] = []  #: what its job reads, perhaps in place
        self.hangs_until = 0.0


class Engine:
    """Workers and their mail. ``count`` says what an attempt at rows makes."""

    def __init__(self, rng: random.Random, count: Callable[[Rows], Content], borders: Any, *, fifo: bool) -> None:
        self.now = 0.0
        self.seen: Counter[str] = Counter()
        self.opened: dict[int, int] = {}  #: by attempt: the input that it opens
        self._rng = rng
        self._count = count
        self._borders = borders
        self._fifo = fifo
        self._workers: dict[int, WorkerModel] = {}
        self._mail: dict[Life, list[happened.Event]] = {}
        self._delivered: list[happened.Event] = []
        self._sent: dict[Handle, Content] = {}  #: fetched, on its way
        self._here: dict[Handle, Content] = {}  #: fetched, arrived

    def join(self, worker: int) -> None:
        self._begin(Life(worker, 0))

    def _begin(self, life: Life) -> None:
        assert life not in self._mail, "a life is lived twice"
        self._mail[life] = []
        if self._rng.random() < 0.1 and life.incarnation:
            self._mail[life].append(happened.WorkerLost(life, LOST))
            return
        self._workers[life.worker] = WorkerModel(life)
        self._mail[life].append(happened.WorkerJoined(Worker(life)))

    # -- commands

    def do(self, command: Any) -> None:
        """Obey; what is for a life that has ended is dropped."""
        self.seen[type(command).__name__] += 1
        if isinstance(command, orders.StartWorker):
            self._begin(command.life)
        elif isinstance(command, orders.Discard):
            for holder in command.holders:
                if holder == DRIVER:
                    self._here.pop(command.handle, None)
                elif isinstance(holder, Life):
                    self._tell(holder, command)
        elif isinstance(command, orders.Fetch):
            self._tell(command.source, command)
        elif isinstance(command, orders.Cancel | orders.Recall):
            self._cancel(command)
        elif isinstance(command, orders.Launch | orders.StopWorker):
            if isinstance(command, orders.Launch):
                self.seen[type(command.task.payload).__name__] += 1
                self._send_along(command)
            else:
                self._check_end(command.life)
            self._tell(command.life, command)

    def _check_end(self, life: Life) -> None:
        """A worker is told to end: all that it has is to be discarded, or the driver has it, too."""
        worker = self._workers.get(life.worker)
        if worker is not None and worker.life == life:
            gone = {one.handle for one in worker.inbox if isinstance(one, orders.Discard)}
            assert worker.store.keys() - gone <= self._here.keys(), "told to end with what nobody else has"

    def _send_along(self, launch: orders.Launch) -> None:
        """Bring what a launch reads and only the driver has to its worker."""
        worker = self._workers.get(launch.life.worker)
        for place in launch.bring:
            handle = launch.inputs[place]
            if worker is not None and worker.life == launch.life:
                worker.store[handle] = self._here[handle]

    def _tell(self, life: Life, command: Any) -> None:
        worker = self._workers.get(life.worker)
        if worker is not None and worker.life == life:
            worker.inbox.append(command)

    def take(self, handle: Handle) -> Content:
        return self._here.pop(handle)

    def _cancel(self, command: orders.Cancel | orders.Recall) -> None:
        worker = self._workers.get(command.life.worker)
        if worker is None or worker.life != command.life:
            return
        mail = self._mail[worker.life]
        for launch in worker.inbox:
            if isinstance(launch, orders.Launch) and launch.attempt == command.attempt:
                worker.inbox.remove(launch)
                mail.append(happened.Cancelled(command.attempt, worker.life))
                return
        running = worker.job is not None and worker.job.attempt == command.attempt
        if running and isinstance(command, orders.Cancel) and self._rng.random() < 0.7:
            mail.append(happened.Cancelled(command.attempt, worker.life))
            self._end(worker)

    # -- what happens

    def work(self) -> bool:
        """Somebody does the next thing; False if nobody can."""
        able = [one for one in self._workers.values() if one.hangs_until <= self.now]
        able = [one for one in able if one.job is not None or one.inbox]
        if not able:
            return False
        worker = self._rng.choice(able)
        if worker.job is not None:
            self._finish(worker, worker.job)
        else:
            self._begin_next(worker, worker.inbox.popleft())
        return True

    def _begin_next(self, worker: WorkerModel, command: Any) -> None:
        mail = self._mail[worker.life]
        if isinstance(command, orders.Launch):
            worker.job = command
            take = worker.store.pop if command.task.consumes else worker.store.__getitem__
            worker.taken_in = [take(handle) for handle in command.inputs]
            mail.append(happened.Started(command.attempt, worker.life))
        elif isinstance(command, orders.Fetch):
            if command.handle in worker.store:
                self._sent[command.handle] = worker.store[command.handle]
                mail.append(happened.Held(command.handle, DRIVER, 10, 0.001))
        elif isinstance(command, orders.Discard):
            worker.store.pop(command.handle, None)
        else:
            assert isinstance(command, orders.StopWorker)
            del self._workers[worker.life.worker]
            mail.append(happened.WorkerLost(worker.life, None))

    def _finish(self, worker: WorkerModel, job: orders.Launch) -> None:
        worker.job = None
        payload = job.task.payload
        report: Opened | RowsReport | None = None
        mail = self._mail[worker.life]
        made: tuple[Made, ...] = ()
        wall = 0.01
        if isinstance(payload, OpenInput):
            self.opened[job.attempt] = payload.input
            borders = self._borders(payload.input)
            report = Opened(borders[-1], borders)
        else:
            content: Content = Counter()
            if isinstance(payload, MergePartials):
                if self._rng.random() < 0.03:
                    mail.append(happened.Failed(job.attempt, worker.life, LOST))
                    return
                for one in worker.taken_in:
                    content.update(one)
            elif isinstance(payload, EvaluateUnit):
                content = self._evaluated(payload, worker.taken_in)
            else:
                content, wall, report = self._run_rows(payload)
            (name,) = job.task.makes
            worker.store[Handle(name, job.attempt)] = content
            made = (Made(name, 10),)
        mail.append(happened.Finished(job.attempt, worker.life, made, Measurement(wall=wall), report))

    def _run_rows(self, payload: RunRows) -> tuple[Content, float, RowsReport]:
        """Count rows, with an evaluation of each unit; of a part of a unit, without. Some are found to take long."""
        (rows,) = payload.rows
        report, part, borders = RowsReport(), payload.part, self._borders(rows.input)
        end = min(borders[bisect_right(borders, rows.start)], rows.stop)
        if payload.short_s and end - rows.start > 1 and self._rng.random() < 0.5:
            self.seen["given back"] += 1
            stop = self._rng.randrange(rows.start + 1, end)
            report, rows, part = RowsReport(rest=rows._replace(start=stop)), rows._replace(stop=stop), True
        counted = self._count(rows)
        content: Content = Counter()
        if part:
            content.update({(PART + product, number, row): n for (product, number, row), n in counted.items()})
        else:
            content.update(counted)
            starts = {borders[bisect_right(borders, row) - 1] for row in range(rows.start, rows.stop)}
            self._count_units(content, starts)
        return content, ROW_S * (rows.stop - rows.start), report

    def _evaluated(self, payload: EvaluateUnit, parts: list[Content]) -> Content:
        """Make the partial of a unit from its parts."""
        content: Content = Counter()
        for part in parts:
            content.update({(product.removeprefix(PART), at, row): n for (product, at, row), n in part.items()})
        number, start, _ = payload.rows[0]
        borders = self._borders(number)
        self._count_units(content, {borders[bisect_right(borders, start) - 1]})
        return content

    def _count_units(self, content: Content, starts: set[int]) -> None:
        kinds = {(product, number) for product, number, _ in content}
        content.update({(UNIT + product, number, start): 1 for product, number in kinds for start in starts})

    def kill(self) -> None:
        """A worker is lost at any moment; of what it sent, the last may be lost too."""
        if self._workers:
            self.seen["killed"] += 1
            worker = self._rng.choice(list(self._workers.values()))
            mail = self._mail[worker.life]
            if len(mail) > 1 and self._rng.random() < 0.5:  # that it joined was never on its way
                del mail[self._rng.randrange(1, len(mail)) :]
            self._end(worker)

    def _end(self, worker: WorkerModel) -> None:
        del self._workers[worker.life.worker]
        self._mail[worker.life].append(happened.WorkerLost(worker.life, LOST))

    def hang(self) -> None:
        running = [worker for worker in self._workers.values() if worker.job is not None]
        if running:
            self.seen["hung"] += 1
            self._rng.choice(running).hangs_until = self.now + self._rng.uniform(1.0, 30.0)

    def drain(self) -> list[happened.Event]:
        if not self._workers:
            return []
        self.seen["drained"] += 1
        worker = self._rng.choice(list(self._workers.values()))
        return [happened.DrainRequested(worker.life, "no longer ours", replace=True)]

    # -- mail

    @property
    def mail_waits(self) -> bool:
        return any(self._mail.values())

    def next_end_of_a_hang(self) -> float | None:
        times = [one.hangs_until for one in self._workers.values() if one.hangs_until > self.now]
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
            if isinstance(event, happened.Held) and event.handle in self._sent:
                self._here[event.handle] = self._sent.pop(event.handle)
            events.append(event)
        self._delivered += events
        return events

    def repeat(self) -> list[happened.Event]:
        """Mail that came before comes again; only a transfer cannot repeat itself."""
        if not self._delivered:
            return []
        event = self._rng.choice(self._delivered)
        if isinstance(event, happened.Held):
            return []
        self.seen["repeated"] += 1
        return [event]
