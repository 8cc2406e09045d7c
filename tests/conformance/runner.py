"""Runs cells in worker processes. One that dies or hangs costs the cell it was at."""

import concurrent.futures
import multiprocessing
import queue
import signal

import pebble

from . import cells as work


def run(databases, cells, jobs, samples, timeout, log):
    """Yields (cell, result) as they come."""
    # Not forked: what a process knows of the GPU does not survive a fork.
    pool = pebble.ProcessPool(
        max_workers=jobs,
        initializer=work.start_worker,
        initargs=[databases, str(log)],
        context=multiprocessing.get_context("spawn"),
    )
    done = queue.SimpleQueue()

    def schedule(cell):
        future = pool.schedule(work.run, args=[cell, samples], timeout=timeout)
        future.add_done_callback(lambda future: done.put((cell, future)))

    outstanding = 0
    try:
        for cell in cells:
            schedule(cell)
            outstanding += 1
        while outstanding:
            cell, future = done.get()
            result = outcome(future, timeout)
            if result is None:
                schedule(cell)
            else:
                outstanding -= 1
                yield cell, result
    finally:  # also after an interrupt: nothing is waited for
        pool.stop()
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
