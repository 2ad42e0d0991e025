"""Tasks for Windrow: threads and processes, as sessions; and its executor."""

from __future__ import annotations

from typing import Any

from protocol import serve
from tasks_common import WORKERS, ask

import windrow as wr

if __name__ == "__main__":
    sessions: dict[str, wr.Session] = {}
    tasks: dict[Any, Any] = {}

    def run(system: str, what: str, count: int) -> Any:
        if system not in sessions:
            sessions[system] = wr.Session(engine=system, workers=WORKERS)
        session = sessions[system]

        def submit(function: Any, *arguments: Any) -> Any:
            known = tasks.get(function)
            if known is None:
                known = tasks[function] = wr.task(function)
            return session.submit(known, *arguments)

        return ask(what, count, submit, session.gather)

    try:
        serve(run, "numpy")
    finally:
        for session in sessions.values():
            session.close()
