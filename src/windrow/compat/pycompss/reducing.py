"""``@reduction``: a task that takes a collection is called for parts of it, then for what it made of them.

The tree depends on the number of elements alone, so the answer is the same in every run. It is that of one call for the
whole collection if the function is associative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.notes import noting
from windrow.errors import UsageError

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable

    from windrow.compat.pycompss.saying import Said
    from windrow.tasks.session import Session

__all__ = ["reduced", "reduction"]


def reduction(*, chunk_size: int | str = 2) -> Callable[[Any], Any]:
    """Say that a task with one ``COLLECTION_IN`` can be called for parts of it, of so many elements."""
    return noting("reduction", {"chunk_size": chunk_size})


def reduced(
    call: Callable[[Session, tuple[Any, ...], dict[str, Any]], Any],
    said: Said,
    session: Session,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """Call a task for parts of its collection until one call is left, and give what that returns."""
    name = _collection(said)
    bound = signature.bind(*args, **keywords)
    elements = bound.arguments.get(name)

    def one(part: list[Any]) -> Any:
        bound.arguments[name] = part
        return call(session, bound.args, bound.kwargs)

    if not isinstance(elements, (list, tuple)) or session.latest(elements) is not elements:
        return call(session, args, keywords)
    left, size = list(elements), said.chunk_size
    while len(left) > size:
        parts = [left[start : start + size] for start in range(0, len(left), size)]
        left = [one(part) if len(part) > 1 else part[0] for part in parts]
    return one(left)


def _collection(said: Said) -> str:
    found = [
        name
        for name, one in said.parameters.items()
        if one.kind == "COLLECTION" and one.direction in ("IN", "IN_DELETE")
    ]
    if len(found) != 1 or len(said.returns) != 1:
        raise UsageError(
            f"task {said.name!r}: @reduction needs one COLLECTION_IN parameter and one return value; it has "
            f"{len(found)} and {len(said.returns)}"
        )
    return found[0]
