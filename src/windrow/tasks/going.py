"""A call of a task in its worker, and what is done around its body: files, devices, keeping results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from windrow.tasks.workload import TaskSide

__all__ = ["Around", "Going"]


class Going:
    """A call on its way; what is done around its body may change all of it."""

    __slots__ = (
        "arguments",
        "beside",
        "cancelled",
        "function",
        "keeps",
        "keywords",
        "made",
        "name",
        "outputs",
        "released",
        "seen",
        "side",
        "task",
        "values",
    )

    def __init__(
        self,
        task: int,
        name: str,
        function: Callable[..., Any],
        arguments: list[Any],
        keywords: dict[str, Any],
        outputs: int | str,
        side: TaskSide | None,
        cancelled: Callable[[], bool],
    ) -> None:
        self.task = task  #: its number, of which the names of its outputs are made
        self.name = name
        self.function = function
        self.arguments = arguments  #: values, where futures were
        self.keywords = keywords
        self.outputs = outputs  #: as the task declares
        self.side = side  #: of the worker, if there is one
        self.cancelled = cancelled  #: nobody wants the result any more: leave no trace
        self.made: dict[str, Any] = {}  #: by name, when the body has ended: what was not released
        self.keeps = False  #: whether what is released is noted too, in ``released``
        self.released: dict[str, Any] = {}
        self.seen: list[Any] = []  #: stamps of files that it read and of which only futures knew the paths
        self.beside: list[str] = []  #: files that were put into place though they are no declared outputs
        self.values: tuple[Any, ...] = ()  #: of all that the task reads, by slot

    def get(self, place: int | str) -> Any:
        """Give an argument."""
        return self.keywords[place] if isinstance(place, str) else self.arguments[place]

    def put(self, place: int | str, value: Any) -> None:
        """Replace an argument."""
        if isinstance(place, str):
            self.keywords[place] = value
        else:
            self.arguments[place] = value


class Around(Protocol):
    """Something to be done before and after the body; travels with the call, so it is small and can be pickled.

    An exception inside the context is the task's failure. Outputs that it makes itself are put into ``going.made``.
    """

    def around(self, going: Going) -> AbstractContextManager[None]:
        """Give the context in which the body runs."""
        ...
