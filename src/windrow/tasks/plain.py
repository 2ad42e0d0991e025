"""Plain functions and plain calls, of which there are the most: what is special about others takes longer than a short task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.records import Needs, Task
from windrow.tasks.calling import has_none
from windrow.tasks.declare import Declared, task
from windrow.tasks.driver import PLACE
from windrow.tasks.groups import current_group
from windrow.tasks.record import Record
from windrow.tasks.worker import Content

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.tasks.devices import Devices
    from windrow.tasks.future import Future
    from windrow.tasks.session import Session

__all__ = ["Known", "Plain", "call_plainly", "look_at", "remember"]

#: Functions and declared tasks that are remembered; of those made for one call each there is no end.
MOST = 1000


class Plain:
    """What was declared of functions."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Declared]] = {}  #: by identity, which is thus kept

    def declared(self, function: Callable[..., Any]) -> Declared:
        """Give what is declared of a function, or declare it."""
        declared = getattr(function, "declared", None)
        if isinstance(declared, Declared):
            return declared
        found = self._known.get(id(function))
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[id(function)] = (function, task(function).declared)
        return found[1]


class Known(NamedTuple):
    """What a session has found out of a declared task, for all calls of it."""

    declared: Declared
    devices: float  #: how many it needs
    needs: Needs
    #: Calls without futures among their arguments are nothing but a function and its arguments.
    plain: bool


def look_at(declared: Declared, devices: Devices, offers: Needs, *, reuse: bool) -> Known:
    """Find out what every call of a task needs; refuse one that could never run."""
    count = devices.fit(declared, offers)
    needs = Needs.of({**dict(declared.needs.amounts), PLACE: 1})
    special = declared.files or declared.reuse or declared.resident or declared.inout or count
    special = special or declared.command is not None or declared.deadline is not None
    unused = not reuse or declared.reuse is False
    return Known(declared, count, needs, declared.outputs == 1 and unused and not special)


def remember(table: dict[int, Known], known: Known) -> None:
    """Keep what was found out."""
    if len(table) >= MOST:
        table.clear()
    table[id(known.declared)] = known


def call_plainly(
    session: Session,
    number: int,
    known: Known,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    kind: type[Future],
) -> Future | None:
    """Make a task of a plain call, as ``Session.call`` does of all; None if futures are among the arguments."""
    if session.versions.any or not has_none(arguments) or (keywords and not has_none(keywords.values())):
        return None
    declared = known.declared
    record = Record(number, declared)
    name = f"{number}.0"
    future = session.futures[name] = kind(session, record, name)
    record.outputs = outputs = (name,)
    group = current_group(session)
    if group is None:
        record.rule = rule = declared.on_failure or session.on_failure
    else:
        record.rule = rule = declared.on_failure or group.on_failure or session.on_failure
        record.group = group.number
    driver = session._driver
    content = Content(declared.name, declared.function, arguments, keywords, 1, (), rule == "ignore", ())
    record.content = driver.packed(record, content)
    retries = declared.retries if rule == "retry" else 0
    driver.submit(
        record,
        Task(
            number, declared.name, (), 1, known.needs, outputs, declared.priority, record.group, None,
            retries, declared.restartable,
        ),
    )  # fmt: skip
    return future
