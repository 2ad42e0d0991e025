"""The states of attempts, inputs and tasks of a graph, and every legal move: one table each."""

from __future__ import annotations

import enum
from typing import TypeVar

from windrow.errors import InternalError

__all__ = [
    "ATTEMPT_MOVES",
    "INPUT_MOVES",
    "TASK_MOVES",
    "AttemptState",
    "InputState",
    "TaskState",
    "diagram",
    "listing",
    "move",
]


class AttemptState(enum.IntEnum):
    """Where an attempt is; the last five are ends."""

    LAUNCHED = 0  #: in its worker's queue
    RUNNING = 1
    CANCELLING = 2  #: told to stop; it holds its worker until it returns
    ACCEPTED = 3  #: the ledger holds its rows
    DISCARDED = 4  #: finished, but its rows had an owner or nobody wanted them any more
    FAILED = 5
    CANCELLED = 6
    LOST = 7  #: with its worker


class InputState(enum.IntEnum):
    """Where an input is."""

    WAITING = 0  #: nobody opened it
    INSPECTING = 1  #: a worker opens it
    DELAYED = 2  #: opening it failed and will be tried again
    KNOWN = 3  #: rows and borders are known; earlier inputs decide how many rows are wanted
    OPEN = 4  #: rows can be cut from it
    BAD = 5  #: given up: no more rows are cut from it


class TaskState(enum.IntEnum):
    """Where a task of a graph is; the last three are ends, and only DONE can be left again."""

    WAITING = 0  #: for outputs that it reads
    READY = 1  #: everything it reads exists; it waits for a worker
    FETCHING = 2  #: something it reads is on its way from another worker
    DELAYED = 3  #: it failed and will be tried again
    RUNNING = 4  #: an attempt of it was launched
    DOUBTED = 5  #: it failed on what may be taken back yet: then it runs again, otherwise it has failed
    DONE = 6  #: until an output of it is lost that somebody still needs
    FAILED = 7
    CANCELLED = 8


_A, _I, _T = AttemptState, InputState, TaskState
_ENDS = frozenset({_A.ACCEPTED, _A.DISCARDED, _A.FAILED, _A.CANCELLED, _A.LOST})

ATTEMPT_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    _A.LAUNCHED: _ENDS | {_A.RUNNING, _A.CANCELLING},
    _A.RUNNING: _ENDS | {_A.CANCELLING},
    _A.CANCELLING: _ENDS,
    **dict.fromkeys(_ENDS, frozenset[AttemptState]()),
}
INPUT_MOVES: dict[InputState, frozenset[InputState]] = {
    _I.WAITING: frozenset({_I.INSPECTING, _I.KNOWN}),
    _I.INSPECTING: frozenset({_I.WAITING, _I.DELAYED, _I.KNOWN, _I.BAD}),
    _I.DELAYED: frozenset({_I.WAITING, _I.KNOWN}),
    _I.KNOWN: frozenset({_I.OPEN}),
    _I.OPEN: frozenset({_I.BAD}),
    _I.BAD: frozenset(),
}

_GIVEN_UP = frozenset({_T.FAILED, _T.CANCELLED})
TASK_MOVES: dict[TaskState, frozenset[TaskState]] = {
    _T.WAITING: _GIVEN_UP | {_T.READY, _T.RUNNING},  # RUNNING: in a queue behind what it reads
    _T.READY: _GIVEN_UP | {_T.WAITING, _T.FETCHING, _T.RUNNING},
    _T.FETCHING: _GIVEN_UP | {_T.WAITING, _T.READY},
    _T.DELAYED: _GIVEN_UP | {_T.WAITING},
    _T.RUNNING: _GIVEN_UP | {_T.WAITING, _T.DELAYED, _T.DOUBTED, _T.DONE},
    _T.DOUBTED: _GIVEN_UP | {_T.WAITING},
    _T.DONE: frozenset({_T.WAITING, _T.FAILED}),  # FAILED: what it made cannot leave its worker
    **dict.fromkeys(sorted(_GIVEN_UP), frozenset[TaskState]()),
}

_State = TypeVar("_State", AttemptState, InputState, TaskState)


def move(table: dict[_State, frozenset[_State]], old: _State, new: _State, who: str, number: int) -> _State:
    """Return the new state if the move is legal; otherwise tell the story."""
    if new not in table[old]:
        legal = ", ".join(sorted(state.name for state in table[old])) or "nowhere: it has ended"
        raise InternalError(f"{who} {number} cannot go from {old.name} to {new.name}; it can go to {legal}")
    return new


def listing(table: dict[_State, frozenset[_State]]) -> str:
    """Write a table of moves as a Markdown table, for the documentation."""
    lines = ["| state | can go to |", "|---|---|"]
    for state, following in table.items():
        names = ", ".join(f"`{one.name}`" for one in sorted(following))
        lines.append(f"| `{state.name}` | {names or 'nowhere: an end'} |")
    return "\n".join(lines)


def diagram(table: dict[_State, frozenset[_State]]) -> str:
    """Write a table of moves as a Mermaid state diagram, for whoever wants to see it drawn."""
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(table)).name}"]
    for state, following in table.items():
        lines += [f"    {state.name} --> {one.name}" for one in sorted(following)]
        if not following:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)
