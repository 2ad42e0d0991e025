"""The states of tasks, attempts and inputs, and every legal move of tasks and inputs: one table each."""

from __future__ import annotations

import enum
from typing import TypeVar

from windrow.errors import InternalError


class TaskState(enum.IntEnum):
    """Where a task is; the last three are ends, and only DONE can be left again."""

    WAITING = 0  #: for outputs that it reads, and tasks that it comes after
    READY = 1  #: everything it reads exists; it waits for a worker
    FETCHING = 2  #: something it reads is on its way from another worker
    DELAYED = 3  #: it failed and will be tried again
    RUNNING = 4  #: an attempt of it was launched
    HOMING = 5  #: it cannot be restarted: its outputs come to the driver before anybody reads them
    DONE = 6  #: until an output of it is lost that somebody still needs
    FAILED = 7
    CANCELLED = 8


class AttemptState(enum.IntEnum):
    """Where an attempt is; the last five are ends, and one that has ended is forgotten."""

    LAUNCHED = 0  #: in its worker's queue
    RUNNING = 1
    CANCELLING = 2  #: told to stop; it holds its worker until it returns
    ACCEPTED = 3  #: what it made counts
    DISCARDED = 4  #: finished, but nobody wanted it any more
    FAILED = 5
    CANCELLED = 6
    LOST = 7  #: with its worker


class InputState(enum.IntEnum):
    """Where an input of a row feeder is."""

    WAITING = 0  #: nobody opened it
    OPENING = 1  #: a task opens it
    KNOWN = 2  #: rows and borders are known; earlier inputs decide how many rows are wanted
    OPEN = 3  #: rows can be cut from it
    BAD = 4  #: given up: no more rows are cut from it


_T, _I = TaskState, InputState
ENDS = frozenset({_T.DONE, _T.FAILED, _T.CANCELLED})
_GIVEN_UP = frozenset({_T.FAILED, _T.CANCELLED})
TASK_MOVES: dict[TaskState, frozenset[TaskState]] = {
    _T.WAITING: _GIVEN_UP | {_T.READY, _T.RUNNING},  # RUNNING: in a queue behind what it reads
    _T.READY: _GIVEN_UP | {_T.WAITING, _T.FETCHING, _T.RUNNING},
    _T.FETCHING: _GIVEN_UP | {_T.WAITING, _T.READY},
    _T.DELAYED: _GIVEN_UP | {_T.WAITING},
    _T.RUNNING: _GIVEN_UP | {_T.WAITING, _T.DELAYED, _T.HOMING, _T.DONE},
    _T.HOMING: _GIVEN_UP | {_T.WAITING, _T.DONE},
    _T.DONE: frozenset({_T.WAITING, _T.FAILED}),  # FAILED: what it made cannot leave its worker
    _T.FAILED: frozenset(),
    _T.CANCELLED: frozenset(),
}

INPUT_MOVES: dict[InputState, frozenset[InputState]] = {
    _I.WAITING: frozenset({_I.OPENING, _I.KNOWN}),
    _I.OPENING: frozenset({_I.WAITING, _I.KNOWN, _I.BAD}),
    _I.KNOWN: frozenset({_I.OPEN}),
    _I.OPEN: frozenset({_I.BAD}),
    _I.BAD: frozenset(),
}

_State = TypeVar("_State", TaskState, InputState)


def move(table: dict[_State, frozenset[_State]], old: _State, new: _State, who: str, number: int) -> _State:
    """Return the new state if the move is legal; otherwise tell the story."""
    if new not in table[old]:
        legal = ", ".join(sorted(state.name for state in table[old])) or "nowhere: it has ended"
        raise InternalError(f"{who} {number} cannot go from {old.name} to {new.name}; it can go to {legal}")
    return new
