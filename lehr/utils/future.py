"""`torch.futures`: results that come later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A result that some thread sets once; what waits for it goes on then."""

    def __init__(self, *, devices: Any = None) -> None:
        self._done = threading.Condition()
        self._state: tuple[Any, BaseException | None] | None = None
        self._after: list[Callable[[Future[Any]], Any]] = []

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._state is not None

    def wait(self) -> T:
        """The result, once it is there; raises the exception that was set."""
        with self._done:
            self._done.wait_for(self.done)
        return self.value()

    def value(self) -> T:
        """The result; RuntimeError where there is none yet."""
        if self._state is None:
            raise RuntimeError("value() of a Future that is not completed: wait() for it")
        result, error = self._state
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def set_result(self, result: T) -> None:
        """Completes the future."""
        self._finish((result, None))

    def set_exception(self, result: BaseException) -> None:
        """Completes the future with an exception, which `wait` raises."""
        if not isinstance(result, Exception):
            raise TypeError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish((None, result))

    def _finish(self, state: tuple[Any, BaseException | None]) -> None:
        with self._done:
            if self._state is not None:
                raise RuntimeError("Future can only be set once")
            self._state = state
            after, self._after = self._after, []
            self._done.notify_all()
        for callback in after:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Calls `callback(future)` once it is completed, at once where it is."""
        with self._done:
            if self._state is None:
                self._after.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """The future of `callback(future)`."""
        made: Future[Any] = Future()

        def run(done: Future[T]) -> None:
            try:
                result = callback(done)
            except Exception as error:  # noqa: BLE001  (whoever waits gets it)
                made.set_exception(error)
            else:
                made.set_result(result)
        self.add_done_callback(run)
        return made


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the futures, completed when all are."""
    made: Future[list[Future[Any]]] = Future()
    left, lock = [len(futures)], threading.Lock()

    def one(_: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            made.set_result(list(futures))
    if not futures:
        made.set_result([])
    for f in futures:
        f.add_done_callback(one)
    return made


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The results of all."""
    return [f.wait() for f in futures]


__all__ = ["Future", "collect_all", "wait_all"]
