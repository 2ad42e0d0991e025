"""What a run learns of its inputs and steps on the way: one record that can be added up.

In one process all workers share it. A worker in another process sends home what is new since its last report.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RunFacts:
    """What is learned of inputs and steps while rows run: all of it, or what is new since a report."""

    reads: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict)  #: rows, by input and column
    borders: dict[int, tuple[int, ...]] = field(default_factory=dict)  #: of the units of inputs
    identities: dict[int, str] = field(default_factory=dict)  #: of the inputs opened so far
    defaults: dict[tuple[int, str], None] = field(default_factory=dict)  #: (input, optional column it lacks)
    twins: dict[str, str] = field(default_factory=dict)  #: steps that are computed with another one
    requests: int = 0  #: to remote files
    keeping: bool = True  #: whether it is told which rows the regions have
    checked: frozenset[str] = frozenset()  #: steps that were shown to be row-pure
    touched: dict[str, frozenset[str]] = field(default_factory=dict)  #: fields of collections, by step

    def add(self, other: RunFacts) -> None:
        """Take in more; adjoining ranges of rows are joined."""
        for key, more in other.reads.items():
            ranges = self.reads.setdefault(key, [])
            for start, stop in more:
                if ranges and ranges[-1][1] == start:
                    ranges[-1] = (ranges[-1][0], stop)
                else:
                    ranges.append((start, stop))
        self.borders.update(other.borders)
        for index, identity in other.identities.items():
            self.identities.setdefault(index, identity)
        self.defaults.update(other.defaults)
        self.twins.update(other.twins)
        self.requests += other.requests
        self.keeping &= other.keeping
        self.checked |= other.checked
        for step, fields in other.touched.items():
            self.touched[step] = self.touched.get(step, frozenset()) | fields

    def copy(self) -> RunFacts:
        copied = RunFacts()
        copied.add(self)
        return copied
