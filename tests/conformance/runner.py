"""Runs tasks in worker processes. One that dies or hangs costs the item it was at."""

import collections
import concurrent.futures
import faulthandler
import multiprocessing
import os
import queue
import signal
import sys
from typing import NamedTuple

import pebble
import torch

# The exit status of a worker that wants to be replaced before it runs a task.
REPLACE_ME = 75


class Lost(NamedTuple):
    """Instead of a result: what became of the worker."""

    reason: str


def run(groups, task, arguments, pools, timeout):
    """Yields (item, task(item, *arguments) or Lost) as they come. A worker runs the items of a
    group one after the other."""
    groups = collections.deque(map(list, groups))
    outstanding = sum(map(len, groups))
    done = queue.SimpleQueue()

    def schedule(pool, group):
        """The first item of a group; of the next one if all of this are done."""
        group = group or (groups.popleft() if groups else None)
        if group:
            future = pool.schedule(task, args=[group[0], *arguments], timeout=timeout)
            future.add_done_callback(lambda future: done.put((pool, group, future)))

    try:
        for pool in pools:
            schedule(pool, None)
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


def make_pool(start, arguments, tasks):
    """One worker, replaced after so many tasks. It begins with start(*arguments)."""
    return pebble.ProcessPool(
        max_workers=1,
        max_tasks=tasks,
        initializer=start_on_one_thread,
        initargs=[start, *arguments],
        # Not forked: what a process knows of the GPU does not survive a fork.
        context=multiprocessing.get_context("spawn"),
    )


def start_on_one_thread(start, *arguments):
    """There is a worker for each core. Threads that wait for each other in a loop would take it."""
    torch.set_num_threads(1)
    start(*arguments)


def outcome(future, timeout):
    """The result of a task; None if its worker has to be replaced first."""
    try:
        return future.result()
    except concurrent.futures.TimeoutError:
        return Lost(f"no end after {timeout:g} s")
    except pebble.ProcessExpired as error:
        if error.exitcode == REPLACE_ME:
            return None
        return Lost(f"the process died ({exit_text(error.exitcode)})")
    except Exception as error:
        return Lost(f"{type(error).__name__}: {error}".splitlines()[0][:160])


def exit_text(code):
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit status {code}"


# Inside of a worker


def start_worker(log):
    """What every worker does before its first task, and outside of a task's time."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    faulthandler.enable()  # where it died, should it
    torch.set_num_threads(1)  # there are as many workers as cores
    torch.webgpu.set_fallback_mode("silent")  # counted still
    device_works()


def require_device():
    """A lost device must not count against the tasks that follow."""
    if not device_works():
        os._exit(REPLACE_ME)


def device_works():
    try:
        return torch.ones(2, device="webgpu").add_(1).tolist() == [2, 2]
    except Exception:
        return False
