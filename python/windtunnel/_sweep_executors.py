# SPDX-License-Identifier: GPL-2.0-or-later
"""Where cells of a sweep are computed: processes of this machine, Dask, Slurm, or what the user brings."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, Union

from ._error import Error, refuse
from ._extras import need
from ._program import version
from ._sweep_cell import Cell, Function, Record, perform
from ._sweep_store import record_path, record_text, write

# What a worker has waiting, so that it never waits for the one that hands out.
AHEAD = 2
PR_SET_PDEATHSIG = 1
END_S = 2.0
POLL_S = 0.1
FUTURES_MAX = 256
ARRAY_MAX = 1000
Outcome = Union[Record, BaseException]


class Work:
    """The function of a sweep, as it goes to other processes: by value, with what it uses of the user's own modules."""

    _known: dict[str, Function] = {}  # noqa: RUF012 - what this process has unpacked

    def __init__(self, function: Function, modules: list[ModuleType]) -> None:
        self.function = function
        self._modules = modules
        self._packed: bytes | None = None

    def pack(self) -> bytes:
        """Makes it ready to be sent.

        Raises
        ------
        Error
            The function uses something that cannot be sent.
        """
        if self._packed is None:
            cloudpickle = need("cloudpickle", "sweeps beyond this process' children")
            registered = []
            try:
                # Other machines need not have these files.
                for module in self._modules:
                    cloudpickle.register_pickle_by_value(module)
                    registered.append(module)
                self._packed = cloudpickle.dumps(self.function)
            except Exception as error:
                raise Error(
                    f"the function cannot be sent to other processes: {error}",
                    hint="make in the function what it uses: open files, sockets and locks stay where they are",
                ) from None
            finally:
                for module in registered:
                    cloudpickle.unregister_pickle_by_value(module)
        return self._packed

    def __getstate__(self) -> tuple[str, str, bytes]:
        packed = self.pack()
        return version(), hashlib.sha256(packed).hexdigest(), packed

    def __setstate__(self, state: tuple[str, str, bytes]) -> None:
        theirs, key, packed = state
        if theirs != version():
            raise Error(
                f"the sweep is made by windtunnel {theirs}, and this worker has {version()}",
                hint="install the same version on all workers",
            )
        if key not in self._known:
            self._known[key] = pickle.loads(packed)
        self.function = self._known[key]
        self._modules = []
        self._packed = packed


class Task:
    """One cell to be computed: call it for the record. It can be pickled."""

    def __init__(self, work: Work, cell: Cell, keep_in: Path | None = None) -> None:
        self.work = work
        self.cell = cell
        self._keep_in = keep_in

    def __call__(self) -> Record:
        record = perform(self.work.function, self.cell)
        if self._keep_in is not None:
            # Whoever has asked for it may be gone by now. If not, it says what is wrong with the folder.
            with contextlib.suppress(Error):
                write(record_path(self._keep_in, self.cell.key), record_text(record))
        return record


class Executor(Protocol):
    """What computes cells. Anything with these four is one; so is each :class:`concurrent.futures.Executor`.

    Attributes
    ----------
    capacity : int
        How many tasks it takes before the first has to be finished.
    """

    capacity: int

    def submit(self, task: Task) -> Hashable:
        """Has a task computed, which can be pickled and is called without arguments; something that stands for it."""

    def as_completed(self, timeout_s: float) -> list[tuple[Any, Outcome]]:
        """Those that have been finished since the last call, result or exception of each; waits for one for so long."""

    def close(self) -> None:
        """Ends the work; what is not finished is given up."""


class LocalExecutor:
    """Processes of this machine: forks of this one, which last for the whole sweep."""

    def __init__(self, workers: int | None = None, on_fork: Callable[[], None] | None = None) -> None:
        self.workers = workers_of(workers)
        self.capacity = AHEAD * self.workers
        self._on_fork = on_fork
        self._crew: list[_Worker] = []

    def submit(self, task: Task) -> Hashable:
        """Gives a task to the worker that has least to do."""
        if len(self._crew) < self.workers:
            self._crew.append(_Worker(task.work, [one.pipe for one in self._crew], self._on_fork))
            self._crew[-1].give(task)
        else:
            min(self._crew, key=lambda one: len(one.tasks)).give(task)
        return task

    def as_completed(self, timeout_s: float) -> list[tuple[Any, Outcome]]:
        """See :class:`Executor`."""
        done: list[tuple[Any, Outcome]] = []
        pipes = {one.pipe: one for one in self._crew}
        for pipe in wait(list(pipes), timeout_s):
            worker = pipes[pipe]  # type: ignore[index]
            try:
                outcome: Outcome = worker.pipe.recv()
                done.append((worker.tasks.popleft(), outcome))
            except (EOFError, ConnectionResetError):
                done.extend(self._bury(worker))
        return done

    def _bury(self, worker: _Worker) -> list[tuple[Any, Outcome]]:
        """A worker has died: of what it was at. What else it had goes to another one."""
        self._crew.remove(worker)
        how = worker.ending()
        tasks = worker.tasks
        done: list[tuple[Any, Outcome]] = []
        if tasks:
            done.append((tasks.popleft(), Error(f"its worker {how}", hint="nothing else of the sweep is lost by it")))
        for task in tasks:
            self.submit(task)
        return done

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._crew:
            worker.dismiss()
        deadline = time.monotonic() + END_S
        for worker in self._crew:
            worker.end(max(0.0, deadline - time.monotonic()))
        self._crew.clear()


class _Worker:
    """A process and what it has to do, in this order."""

    def __init__(self, work: Work, others: list[Connection], on_fork: Callable[[], None] | None) -> None:
        self.tasks: deque[Task] = deque()
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        arguments = (theirs, work.function, os.getpid(), [*others, self.pipe], on_fork)
        self._process = context.Process(target=_serve, args=arguments, daemon=False)
        self._process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        # If it is dead, its pipe says so to whoever listens.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(task.cell)

    def ending(self) -> str:
        self._process.join()
        self.pipe.close()
        code = self._process.exitcode or 0
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def dismiss(self) -> None:
        if self.tasks:
            self._process.terminate()
        else:
            with contextlib.suppress(OSError):
                self.pipe.send(None)

    def end(self, patience_s: float) -> None:
        self._process.join(patience_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def _serve(
    pipe: Connection, function: Function, parent: int, others: list[Connection], on_fork: Callable[[], None] | None
) -> None:
    """What a worker does until it is dismissed. It dies with its parent, so that nobody works for nothing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    if on_fork is not None:
        on_fork()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        while True:
            cell = pipe.recv()
            if cell is None:
                return
            record = perform(function, cell)
            sys.stdout.flush()
            pipe.send(record)
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        os._exit(128 + signal.SIGINT)


class FuturesExecutor:
    """A :class:`concurrent.futures.Executor` of the user's, which stays open."""

    def __init__(self, executor: concurrent.futures.Executor, capacity: int = FUTURES_MAX) -> None:
        self.capacity = capacity
        self._executor = executor
        self._waiting: set[concurrent.futures.Future[Record]] = set()

    def submit(self, task: Task) -> Hashable:
        """See :class:`Executor`."""
        if not isinstance(self._executor, concurrent.futures.ThreadPoolExecutor):
            # Rather now than in each cell.
            task.work.pack()
        try:
            future = self._executor.submit(task)
        except RuntimeError as error:
            raise Error(f"the executor takes no work: {error}") from None
        self._waiting.add(future)
        return future

    def as_completed(self, timeout_s: float) -> list[tuple[Any, Outcome]]:
        """See :class:`Executor`."""
        done, _ = concurrent.futures.wait(self._waiting, timeout_s, return_when=concurrent.futures.FIRST_COMPLETED)
        self._waiting -= done
        return [(future, _outcome(future)) for future in done]

    def close(self) -> None:
        """See :class:`Executor`."""
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()


def _outcome(future: concurrent.futures.Future[Record]) -> Outcome:
    if future.cancelled():
        return Error("it was cancelled")
    error = future.exception()
    return future.result() if error is None else error


class DaskExecutor(FuturesExecutor):
    """Workers of Dask: of a scheduler that is there, or of one with local worker processes, made for this sweep.

    Parameters
    ----------
    address : str, optional
        Of the scheduler, as in ``"tcp://10.0.0.1:8786"``.
    workers : int, optional
        Local worker processes, where there is no address.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        distributed = need("distributed", "sweeps with Dask")
        self._cluster: Any = None
        try:
            if address is None:
                # One cell at a time in each process.
                self._cluster = distributed.LocalCluster(
                    n_workers=workers_of(workers), threads_per_worker=1, processes=True, dashboard_address=None
                )
            self._client = distributed.Client(self._cluster if address is None else address, timeout="10s")
        except (OSError, ValueError, TimeoutError) as error:
            self._close_cluster()
            hint = "start one: dask scheduler; dask worker ADDRESS"
            raise Error(f"there is no Dask scheduler at {address}: {error}", hint=hint) from None
        # Equal calls are calls of their own.
        super().__init__(self._client.get_executor(pure=False))

    def _close_cluster(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def close(self) -> None:
        """Lets go of the scheduler, and ends it if it was made for the sweep."""
        super().close()
        self._client.close()
        self._close_cluster()


class SlurmExecutor:
    """Slurm job arrays, by submitit: each cell is a job, and up to 1,000 of them an array.

    A job writes its cell's record into the sweep's folder, which has to be on a file system that all see: what is
    finished after the sweep itself was ended is found when it goes on.

    Parameters
    ----------
    folder : path
        For scripts and logs of the jobs.
    cluster : {"slurm", "local"}, optional
        ``"local"`` runs the jobs as processes of this machine. By default Slurm where there is one.
    **parameters
        Of submitit: ``slurm_partition="short"``, ``timeout_min=60``, ``slurm_array_parallelism=64``.
    """

    capacity = 10 * ARRAY_MAX
    shares_folder = True

    def __init__(
        self, folder: str | os.PathLike[str] = "windtunnel-jobs", cluster: str | None = None, **parameters: Any
    ) -> None:
        submitit = need("submitit", "sweeps with Slurm")
        if cluster not in (None, "slurm", "local"):
            refuse(f"cluster `{cluster}` is not allowed; allowed: slurm, local")
        try:
            self._executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster or "slurm")
            if parameters:
                self._executor.update_parameters(**parameters)
        except (RuntimeError, NameError, TypeError, OSError) as error:
            raise Error(f"Slurm cannot be used: {error}", hint='cluster="local" is without Slurm') from None
        self._new: list[Task] = []
        self._jobs: list[tuple[Task, Any]] = []

    def submit(self, task: Task) -> Hashable:
        """Puts a task into the next array, which begins as soon as somebody waits."""
        task.work.pack()
        self._new.append(task)
        return task

    def as_completed(self, timeout_s: float) -> list[tuple[Any, Outcome]]:
        """See :class:`Executor`."""
        while self._new:
            tasks, self._new = self._new[:ARRAY_MAX], self._new[ARRAY_MAX:]
            with self._executor.batch():
                jobs = [self._executor.submit(task) for task in tasks]
            self._jobs.extend(zip(tasks, jobs))
        deadline = time.monotonic() + timeout_s
        while True:
            done = [(task, job) for task, job in self._jobs if job.done()]
            if done or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        ended = {id(job) for _, job in done}
        self._jobs = [(task, job) for task, job in self._jobs if id(job) not in ended]
        return [(task, _result(job)) for task, job in done]

    def close(self) -> None:
        """Takes back what has not begun and ends what has."""
        for _, job in self._jobs:
            with contextlib.suppress(Exception):
                job.cancel()
        self._jobs.clear()


def _result(job: Any) -> Outcome:
    try:
        record: Record = job.result()
        return record
    except Exception as error:
        return error


def workers_of(workers: int | None) -> int:
    """How many processes; by default one for each processor that this process may use."""
    if workers is None:
        return len(os.sched_getaffinity(0))
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= 1024:
        refuse(f"{workers!r} workers are not allowed; allowed: 1 to 1024")
    return workers


def executor_of(name: str, workers: int | None, folder: Path, on_fork: Callable[[], None]) -> Executor:
    """The executor of a name: ``local``, ``dask``, ``dask:ADDRESS``, ``slurm``, ``slurm:PARTITION``."""
    kind, _, detail = name.partition(":")
    if kind == "local" and not detail:
        return LocalExecutor(workers, on_fork)
    if kind == "dask":
        return DaskExecutor(detail or None, workers)
    if kind == "slurm":
        parameters: dict[str, Any] = {"slurm_partition": detail} if detail else {}
        if workers is not None:
            parameters["slurm_array_parallelism"] = workers
        return SlurmExecutor(folder / "jobs", **parameters)
    raise Error(f"there is no executor `{name}`; allowed: local, dask, dask:ADDRESS, slurm, slurm:PARTITION")


def adapted(executor: object) -> Executor:
    """An executor that a user brings."""
    if isinstance(executor, concurrent.futures.Executor):
        return FuturesExecutor(executor)
    for name in ("capacity", "submit", "as_completed", "close"):
        if not hasattr(executor, name):
            refuse(
                f"{type(executor).__name__} is no executor: it has no `{name}`",
                "a name, a concurrent.futures.Executor, or what windtunnel.Executor describes",
            )
    return executor  # type: ignore[return-value]
