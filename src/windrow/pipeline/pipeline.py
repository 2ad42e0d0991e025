"""``Pipeline``: where a user writes an analysis over rows, as plain functions, and runs it.

Nothing is read or computed before ``run``, ``check`` or ``peek``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from windrow.pipeline.binding.lanes import regions_without
from windrow.pipeline.declare import Writing, is_checked
from windrow.pipeline.definition.definition import Definition, check_definitions, regions_of, written_order
from windrow.pipeline.definition.saves import check_save

if TYPE_CHECKING:
    from windrow.core.accounts import Account
    from windrow.pipeline.definition.options import Options
    from windrow.pipeline.results.result import Result
    from windrow.pipeline.run.background import Live


class Pipeline(Writing):
    """An analysis over rows: cuts, columns, weights, regions and outputs, in the order they are written.

    Parameters
    ----------
    name
        What reports and errors call it.
    identity
        Columns that identify a row wherever it is stored, for instance ``("run", "luminosityBlock", "event")``; random
        numbers are keyed by them. By default the file and the row's number in it.
    """

    # -- using it ----------------------------------------------------------------------------

    def run(
        self,
        data: Any,
        *,
        order: Any = "adaptive",
        chunk: int | str = "auto",
        partition: Any = None,
        engine: Any = "auto",
        workers: int | None = None,
        memory: Any = None,
        cutflow: str | Mapping[str, str] = "estimated",
        nminus1: bool | Sequence[str] = False,
        max_rows: int | None = None,
        on_error: str = "stop",
        seed: int = 0,
        rundir: Any = None,
        resume: bool = False,
        progress: Any = None,
        save: bool = True,
        timeout: Any = None,
        _block_rows: int | None = None,
        _split: tuple[int, int] | None = None,
        **shape: Any,
    ) -> Result:
        """Run the analysis over data, on all cores, and return its outputs.

        Parameters
        ----------
        data
            A path, a glob, ``"file.root:Tree"``, a list, a fileset with metadata, arrays, or what ``wr.data.open`` returns.
        order, seed
            "adaptive", "written", a policy's name or function, step names, a file of ``freeze``; of the random numbers.
        chunk, partition
            "auto", or the most rows to schedule at once (whole file units); or a partitioner of loops ("GSS"), to compare.
        engine, workers
            "auto", "inline", "threads" or "processes", and how many (by default one for each core granted); or a Dask client.
        cutflow
            "estimated" or "exact", for all datasets or by dataset name or glob; "exact" runs the written order there.
        nminus1, max_rows, on_error
            True, or regions: count for each cut the rows that pass all other cuts. Only the first rows of each dataset; "stop" at the first failing row, or "skip" and list those that fail.
        rundir, resume
            A directory to keep log, journal and result in, for ``wr.load`` and ``windrow report``; whether what an earlier
            run left there is used where it still holds, so that only the rest is run.
        progress, save
            Whether to show progress, by default on a terminal; False: write none of the files of ``save``.
        memory, timeout, shape
            What all workers together may use ("8 GB"), and how long a chunk may take ("5 min"); enforced on processes. What is chosen
            otherwise: ``task_memory``, ``target_memory``, ``target_time``, ``first_rows``, ``allocation``, ``ladder`` (docs/shape.md).
        """
        from windrow.pipeline.definition.options import Options, check_names
        from windrow.pipeline.run.run import run_pipeline

        check_names("run", shape)
        options = Options(
            order=order, chunk=chunk, partition=partition, engine=engine, workers=workers, memory=memory,
            cutflow=cutflow, nminus1=nminus1, max_rows=max_rows, on_error=on_error, seed=seed,
            rundir=rundir, resume=resume, progress=progress, save=save, timeout=timeout,
            block_rows=_block_rows, split=_split, **shape,
        )  # fmt: skip
        return run_pipeline(self, self.definition(seed, options), data, options)

    def start(self, data: Any, **options: Any) -> Live:
        """Run the analysis in the background, with the options of ``run``.

        Returns at once. ``.result()`` gives the result over everything done so far, ``.stop()`` ends the run and gives the
        last one. Made for streams (``wr.data.stream``), and of use for anything that takes long.
        """
        from windrow.data import open as open_source
        from windrow.pipeline.definition.options import Options, check_names
        from windrow.pipeline.run.background import Live
        from windrow.pipeline.run.run import run_pipeline

        check_names("start", options)
        chosen = Options(**options)
        definition, source = self.definition(chosen.seed, chosen), open_source(data)
        return Live(lambda inbox: run_pipeline(self, definition, source, chosen, inbox), self.name)

    def check(self, data: Any, *, rows: int = 2000, seed: int = 0) -> tuple[str, ...]:
        """Check on the first rows that every step's answer for a row is its own; return the steps that were checked.

        Raises ``RowPurityError`` naming the first step that looks at other rows.
        """
        from windrow.pipeline.run.run import check_pipeline

        return check_pipeline(self, data, rows, seed)

    def explain(self, data: Any = None, *, row: Any = None, seed: int = 0) -> Any:
        """Say what the analysis consists of, or with ``row`` what became of one row of ``data`` and why.

        ``row`` is ``(file, number)``, or the row's identity, for instance ``(run, luminosityBlock, event)``. Both print as
        text.
        """
        if row is None:
            from windrow.pipeline.definition.definition import describe

            return describe(self)
        from windrow.pipeline.inspect.explain_row import explain_row

        return explain_row(self, data, row, seed=seed)

    def peek(
        self,
        what: str | Sequence[str],
        data: Any,
        *,
        rows: int = 10,
        at: tuple[str | PathLike[str], int] | None = None,
        region: str | None = None,
        debug: bool = False,
        seed: int = 0,
    ) -> Any:
        """Compute a step for the first rows that reach it, and nothing it does not need.

        Parameters
        ----------
        what
            A cut, column or weight, a column of the file, or a list of them.
        rows
            How many rows to look for.
        at
            ``(file, row)``: this very row, whatever the cuts say of it.
        region
            Only rows that pass this region's cuts above the step; by default any region's.
        debug
            Drop into the debugger where the step raises.
        """
        from windrow.pipeline.inspect.peek import peek

        return peek(self, what, data, rows=rows, at=at, region=region, debug=debug, seed=seed)

    def graph(self) -> Any:
        """Draw the steps, the columns they read and make, and the regions; shown by notebooks, ``.save("graph.svg")``."""
        from windrow.pipeline.inspect.drawing import draw

        return draw(self)

    def definition(
        self, seed: int, options: Options | None = None, *, recheck: bool = False, sample_rows: int | None = None
    ) -> Definition:
        """Freeze the steps for one run; raises if they cannot mean anything. Without options nothing is saved."""
        regions = regions_of(self._steps, self._regions)
        check_definitions(self.name, self._steps, regions, needs_output=not recheck and not self._saves)
        for save in self._saves.values():
            check_save(save, regions, self._steps)
        unchecked = self._unchecked
        if recheck:
            unchecked = {name for name, step in self._steps.items() if is_checked(step)}
            unchecked |= {name for name in self._unchecked if name.startswith("output ")}
        return Definition(
            name=self.name,
            steps=dict(self._steps),
            regions=regions,
            written=written_order(self._steps),
            identity=self.identity,
            seed=seed,
            unchecked=unchecked,
            touched=self._touched,
            access=self._access,
            kernels=self._kernels,
            sample_rows=sample_rows,
            saves=self.saves if options is not None and options.save else (),
            nminus1=() if options is None else regions_without(options.nminus1, regions),
            keep_rows=options is not None,
        )

    def remember(self, accounts: Mapping[str, Account]) -> None:
        """Keep what tasks and steps cost, so that the next run need not find out."""
        for dataset, account in accounts.items():
            costs = account.costs()
            if costs.calls:
                self.costs[dataset] = costs
            self.step_costs.update(account.evidence.steps)

    def mark_checked(self, steps: set[str]) -> None:
        self._unchecked -= steps
