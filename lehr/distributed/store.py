"""Key-value stores by which processes find each other.

A message is an operation (one byte), a key and a value, each after its length (8 bytes, little
endian). The server is a thread of the process that has `is_master`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

TIMEOUT = timedelta(seconds=300)
SET, GET, ADD, DELETE, CHECK, COUNT = range(6)


class DistStoreError(RuntimeError):
    """The store cannot be reached, or a key did not come in time."""


def seconds(timeout: Any) -> float:
    """A timedelta or a number as seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def read(sock: socket.socket, count: int) -> bytes:
    """Exactly so many bytes. ConnectionError where the other side ends before."""
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionError("the other process closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _send(sock: socket.socket, code: int, key: bytes, value: bytes) -> None:
    sock.sendall(struct.pack("<BQQ", code, len(key), len(value)) + key + value)


def _receive(sock: socket.socket) -> tuple[int, bytes, bytes]:
    code, n, m = struct.unpack("<BQQ", read(sock, 17))
    return code, read(sock, n), read(sock, m)


class Table:
    """The keys and values, guarded by a condition that waiting readers sleep on."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.changed = threading.Condition()

    def run(self, code: int, key: bytes, value: bytes) -> bytes:
        """One operation. `GET` waits as many seconds as its value says: TimeoutError after."""
        with self.changed:
            if code == SET:
                self.values[key] = value
            elif code == ADD:
                total = int(self.values.get(key, b"0")) + int(value)
                self.values[key] = value = str(total).encode()
            elif code == GET:
                limit = struct.unpack("<d", value)[0]
                if not self.changed.wait_for(lambda: key in self.values, limit):
                    raise TimeoutError(key.decode(errors="replace"))
                return self.values[key]
            elif code == DELETE:
                value = str(int(self.values.pop(key, None) is not None)).encode()
            elif code == CHECK:
                value = str(int(key in self.values)).encode()
            else:
                value = str(len(self.values)).encode()
            self.changed.notify_all()
            return value


class Store:
    """What every store does; `_run(operation, key, value)` is what one defines."""

    def __init__(self, timeout: Any = TIMEOUT) -> None:
        self.timeout = timeout

    def _run(self, code: int, key: str, value: bytes = b"") -> bytes:
        raise NotImplementedError

    def set_timeout(self, timeout: Any) -> None:
        """How long `get` and `wait` wait."""
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Gives a key a value."""
        self._run(SET, key, value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> bytes:
        """A key's value, waiting until there is one; DistStoreError where none comes in time."""
        limit = seconds(self.timeout)
        try:
            return self._run(GET, key, struct.pack("<d", limit))
        except TimeoutError:
            raise DistStoreError(f"nobody set {key!r} within {limit:g} s") from None

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, which begins at 0; its value then."""
        return int(self._run(ADD, key, str(amount).encode()))

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        """Waits until every key has a value."""
        before = self.timeout
        self.timeout = before if timeout is None else timeout
        try:
            for key in keys:
                self.get(key)
        finally:
            self.timeout = before

    def check(self, keys: Sequence[str]) -> bool:
        """Whether every key has a value."""
        return all(self._run(CHECK, key) == b"1" for key in keys)

    def delete_key(self, key: str) -> bool:
        """Removes a key; whether there was one."""
        return self._run(DELETE, key) == b"1"

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._run(COUNT, ""))


class HashStore(Store):
    """A store within one process."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()

    def _run(self, code: int, key: str, value: bytes = b"") -> bytes:
        return self.table.run(code, key.encode(), value)


class PrefixStore(Store):
    """Another store, with a prefix before every key."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self.prefix, self.underlying_store = prefix, store

    def _run(self, code: int, key: str, value: bytes = b"") -> bytes:
        return self.underlying_store._run(code, f"{self.prefix}/{key}", value)


class Server:
    """Serves a table to every process that connects: one thread each."""

    def __init__(self, host: str, port: int) -> None:
        self.table = Table()
        self.listener = socket.create_server((host, port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="lehr-store").start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                code, key, value = _receive(sock)
                try:
                    _send(sock, 0, b"", self.table.run(code, key, value))
                except TimeoutError:
                    _send(sock, 1, b"", b"")

    def close(self) -> None:
        """Takes no more connections."""
        self.listener.close()


class TCPStore(Store):
    """A store that the process with `is_master` serves at a host and port.

    DistStoreError where the server cannot be reached within `timeout`.
    """

    def __init__(self, host_name: str, port: int, world_size: int | None = None,
                 is_master: bool = False, timeout: Any = TIMEOUT, wait_for_workers: bool = True,
                 **options: Any) -> None:
        super().__init__(timeout)
        self.server = Server(host_name, port) if is_master else None
        self.host, self.port = host_name, self.server.port if self.server else port
        self.lock = threading.Lock()
        self.sock = self._connect()
        if world_size and wait_for_workers:
            self.add("lehr/workers", 1)
            end = time.monotonic() + seconds(timeout)
            while self.add("lehr/workers", 0) < world_size:
                if time.monotonic() > end:
                    raise DistStoreError(f"fewer than {world_size} processes reached "
                                         f"{self.host}:{self.port} within {seconds(timeout):g} s")
                time.sleep(0.01)

    def _connect(self) -> socket.socket:
        end, wait = time.monotonic() + seconds(self.timeout), 0.01
        while True:
            try:
                sock = socket.create_connection((self.host, self.port), timeout=10)
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
            except OSError as error:
                if time.monotonic() > end:
                    raise DistStoreError(f"no store answers at {self.host}:{self.port}: {error}"
                                         ) from None
                time.sleep(wait)
                wait = min(wait * 2, 1)

    def _run(self, code: int, key: str, value: bytes = b"") -> bytes:
        with self.lock:
            _send(self.sock, code, key.encode(), value)
            failed, _, answer = _receive(self.sock)
        if failed:
            raise TimeoutError(key)
        return answer

    def close(self) -> None:
        """Ends the connection, and the service where this process gives it."""
        self.sock.close()
        if self.server is not None:
            self.server.close()
