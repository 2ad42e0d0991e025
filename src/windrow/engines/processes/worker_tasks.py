"""The worker's side of launches in processes: contents, inputs, plans, outputs, and running one launch."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Launch
from windrow.core.events import Failed
from windrow.core.records import NO_LIMITS, Failure, FailureKind, Needs, Task
from windrow.engines.base import Job
from windrow.engines.job_runner import estimate_bytes
from windrow.engines.processes import messages
from windrow.engines.processes.transport import Arrival, pack
from windrow.engines.processes.values import is_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from windrow.core.records import Life, Plan
    from windrow.engines.job_runner import JobRunner


class WorkerTasks:
    """Launches that came to a worker, and what it keeps for them."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._plans: dict[int, Plan] = {}
        self._contents: dict[int, Arrival] = {}  #: by task, until it is run
        self._common: dict[int, Any] = {}  #: what calls share; unpacked when first needed
        self._inputs: dict[int, Arrival] = {}  #: by number of the parcel, until it is known what they are
        self._waiting: set[int] = set()  #: attempts that came and have not begun
        #: by output and attempt: made here, or copies, which are unpacked when first needed
        self._outputs: dict[tuple[str, int], Any] = {}

    def arrived(self, arrival: Arrival) -> bool:
        """Take a parcel; False if it is none of a launch."""
        if arrival.kind == messages.CONTENT:
            self._contents[arrival.tag] = arrival
        elif arrival.kind == messages.INPUT:
            self._inputs[arrival.tag] = arrival
        else:
            return False
        return True

    def read(self, fields: tuple[Any, ...]) -> messages.LaunchMessage:
        """Take a launch: what was brought for it is there for others too, whatever becomes of it."""
        message = messages.LaunchMessage(*fields)
        self._waiting.add(message.attempt)
        if not isinstance(message.plan, int):
            number, plan = message.plan
            self._plans[number] = plan
            message = message._replace(plan=number)
        for position, value in message.along.items():
            self._outputs[message.inputs[position]] = value
        for position, number in message.parcels.items():
            self._outputs[message.inputs[position]] = self._inputs.pop(number)
        return message

    def waits(self, attempt: int) -> bool:
        """Whether an attempt came and has not begun."""
        return attempt in self._waiting

    def call_off(self, message: messages.LaunchMessage) -> messages.ReportMessage:
        """Say that a launch will not be run."""
        self._waiting.discard(message.attempt)
        self._contents.pop(message.task, None)
        return messages.ReportMessage(messages.CANCELLED, message.attempt)

    def run(
        self,
        runner: JobRunner,
        message: messages.LaunchMessage,
        tell: Callable[..., None],
        cancelled: Callable[[int], bool],
        meanwhile: AbstractContextManager[None],
    ) -> messages.ReportMessage:
        """Run a launch and report. Only when it has begun others may look what came ``meanwhile``."""
        number = message.attempt
        if any(key not in self._outputs for key in message.inputs):
            return self._without_inputs(message)
        self._waiting.discard(number)
        arrival = self._contents.pop(message.task, None)

        def release(name: str, value: Any) -> None:
            self._outputs[name, number] = value
            report = messages.ReportMessage(messages.RELEASED_OUTPUT, number, ((name, estimate_bytes(value)),))
            if is_small(value):
                tell(report._replace(made=((name, 0),), values={name: value}))
                return
            # At once: it was released because others wait for it.
            try:
                parcel = pack(value, messages.RELEASED, number)
            except BaseException:  # noqa: BLE001 - whoever asks for it is told why
                tell(report)
            else:
                tell(report._replace(parcel=True), parcel)

        with meanwhile:
            try:
                values = tuple([self._opened(self._outputs, key) for key in message.inputs])
                content = message.payload
                if arrival is not None:
                    content = arrival.open()
                elif message.content is not None:
                    content = pickle.loads(message.content)  # noqa: S301 - from our own driver only
            except BaseException as error:  # noqa: BLE001 - a user's object that cannot be made again
                error.add_note("raised while what a task needs was unpickled in a worker's process")
                return messages.ReportMessage(messages.FAILED, number, report=runner.classify(error))
            if message.consumes:
                self.forget(message.inputs)
            launch = self._launch(message)
            job = Job(
                launch.task, launch.plan, content, values, release, lambda: cancelled(number), self.common, message.mine
            )  # fmt: skip
            ran = runner.run(launch, job)
        if isinstance(ran, Failed):
            return messages.ReportMessage(messages.FAILED, number, report=ran.failure)
        made, small = [], {}
        for name, value in ran.outputs.items():
            self._outputs[name, number] = value
            if is_small(value):
                small[name] = value
            made.append((name, 0 if name in small else estimate_bytes(value)))
        return messages.ReportMessage(
            messages.FINISHED, number, tuple(made), small, False, tuple(ran.measurement), ran.report
        )

    def _launch(self, message: messages.LaunchMessage) -> Launch:
        task = Task(message.task, message.category, message.size, message.payload, makes=message.makes)
        limits = Needs(message.limits) if message.limits else NO_LIMITS
        return Launch(task, message.attempt, self._life, self._plans[message.plan], limits)

    def _without_inputs(self, message: messages.LaunchMessage) -> messages.ReportMessage:
        """Say that a task cannot run, as what it reads is not there."""
        report = self.call_off(message)
        if message.ahead:  # it was being made when the launch was sent, and came to nothing
            return report
        lost = Failure(FailureKind.LOST, "OutputLost", f"what task {message.task} reads was gone when it began")
        return messages.ReportMessage(messages.FAILED, message.attempt, report=lost)

    def keep_common(self, arrival: Arrival) -> None:
        """Take what calls have in common."""
        self._common[arrival.tag] = arrival

    def forget_common(self, numbers: tuple[int, ...]) -> None:
        """Forget some of it, or all; launches that come later bring it again."""
        if not numbers:
            self._common.clear()
        for number in numbers:
            self._common.pop(number, None)

    def common(self, number: int) -> Any:
        """Give what calls have in common; of memory each gets its own."""
        thing = self._common[number]
        if type(thing) is Arrival and not thing.pickled:
            return thing.fresh()
        return self._opened(self._common, number)

    def get(self, key: tuple[str, int]) -> Any:
        """Give an output that is here; it stays."""
        return self._opened(self._outputs, key)

    def forget(self, keys: Iterable[tuple[str, int]]) -> None:
        """Forget outputs."""
        for key in keys:
            self._outputs.pop(key, None)

    @staticmethod
    def _opened(table: dict[Any, Any], key: Any) -> Any:
        """Give what is in a table, unpacked; what cannot be unpacked stays as it is, so that each reader is told why."""
        thing = table[key]
        if type(thing) is Arrival:
            thing = table[key] = thing.open()
        return thing
