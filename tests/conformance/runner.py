"""Runs cells in worker processes. One that dies or hangs costs the cell it was at."""

import collections
import concurrent.futures
import itertools
import multiprocessing
import queue
import signal

import pebble

from . import cells as work

# Pipelines are kept for good, as code that a software driver made for each. After so many cells,
# a process of llvmpipe has about 2 GB of them.
CELLS_OF_A_PROCESS = 1500


def run(databases, cells, jobs, samples, timeout, log):
    """Yields (cell, result) as they come."""
    # A worker runs all variants of an entry in a dtype: they share pipelines, slow to compile.
    groups = collections.deque(
        list(group) for _, group in itertools.groupby(cells, key=lambda cell: cell[:3])
    )
    done = queue.SimpleQueue()
    pools = [
        # Not forked: what a process knows of the GPU does not survive a fork.
        pebble.ProcessPool(
            max_workers=1,
            max_tasks=CELLS_OF_A_PROCESS,
            initializer=work.start_worker,
            initargs=[databases, str(log)],
            context=multiprocessing.get_context("spawn"),
        )
        for _ in range(min(jobs, len(groups)))
    ]

    def schedule(pool, group):
        """The first cell of a group; of the next one if all of this are done."""
        group = group or (groups.popleft() if groups else None)
        if group:
            future = pool.schedule(work.run, args=[group[0], samples], timeout=timeout)
            future.add_done_callback(lambda future: done.put((pool, group, future)))

    try:
        for pool in pools:
            schedule(pool, None)
        outstanding = len(cells)
        while outstanding:
            pool, group, future = done.get()
            result = outcome(future, timeout)
            schedule(pool, group if result is None else group[1:])
            if result is not None:
                outstanding -= 1
                yield group[0], result
    finally:  # also after an interrupt: nothing is waited for
        for pool in pools:
            pool.stop()
        for pool in pools:
            pool.join()


def outcome(future, timeout):
    """The result of a cell; None if its worker has to be replaced first."""
    try:
        return future.result()
    except concurrent.futures.TimeoutError:
        return work.Result(work.FAILS, f"no end after {timeout:g} s", seconds=timeout)
    except pebble.ProcessExpired as error:
        if error.exitcode == work.REPLACE_ME:
            return None
        return work.Result(work.FAILS, f"the process died ({exit_text(error.exitcode)})")
    except Exception as error:  # the samples could not be made
        return work.Result(work.FAILS, f"{type(error).__name__}: {error}".splitlines()[0][:160])


def exit_text(code):
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit status {code}"
