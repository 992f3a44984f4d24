"""Many runs over all cores, and the folder that takes their report: what the benches share."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from envsched_core.errors import StoreError

__all__ = ["Progress", "checked_folder", "run_all"]

Progress = Callable[[int, int], None]
"""Called with (done, total)."""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""What linear algebra and scikit-learn read when they are loaded."""
Job = TypeVar("Job")
Result = TypeVar("Result")


def run_all(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """`work` of every job, in the order of the jobs, `workers` processes at a time (None = one a core).

    With one worker everything runs here. `work`, jobs and results must be fit to be sent to another process.
    """
    many = min(workers or os.cpu_count() or 1, len(jobs))
    done = _parallel(work, jobs, many) if many > 1 else ((i, work(job)) for i, job in enumerate(jobs))
    found: dict[int, Result] = {}
    for i, result in done:
        found[i] = result
        if progress:
            progress(len(found), len(jobs))
    return [found[i] for i in range(len(jobs))]  # they came in the order in which they ended


def _parallel(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Results as they come. Workers are started afresh, since a fork would carry locks and caches of this process."""
    with _one_thread_each(), ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Result], int] = {pool.submit(work, job): i for i, job in enumerate(jobs)}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes share the cores already; each keeps to one thread of linear algebra."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def checked_folder(folder: Path) -> Path:
    """A folder for the report, empty or new; told before the runs, not after.

    Raises:
        StoreError: it holds something, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = next(folder.iterdir(), None)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}; choose another folder") from error
    if used is not None:
        raise StoreError(f"{folder} is not empty; remove it or choose another folder")
    return folder
