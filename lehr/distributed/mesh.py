"""Connections between every two processes, and the exchange of bytes over them."""

from __future__ import annotations

import selectors
import socket
import struct
from typing import Any

from lehr.distributed.store import Store, read, seconds


class Mesh:
    """The connections of process `rank` of `size`. A lower rank listens, a higher one connects.

    timeout  seconds that an exchange waits for another process
    """

    def __init__(self, store: Store, rank: int, size: int, host: str, timeout: Any) -> None:
        self.rank, self.size, self.timeout = rank, size, seconds(timeout)
        self.links: dict[int, socket.socket] = {}
        if size == 1:
            return
        with socket.create_server((host, 0), backlog=size) as listener:
            port = listener.getsockname()[1]
            store.set(f"mesh/{rank}", f"{host}:{port}")
            for other in range(rank):
                place, _, number = store.get(f"mesh/{other}").decode().rpartition(":")
                sock = socket.create_connection((place, int(number)), timeout=self.timeout)
                sock.sendall(struct.pack("<Q", rank))
                self.links[other] = sock
            listener.settimeout(self.timeout)
            while len(self.links) < size - 1:
                sock, _ = listener.accept()
                self.links[struct.unpack("<Q", read(sock, 8))[0]] = sock
        for sock in self.links.values():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)

    def exchange(self, out: list[tuple[int, Any]], into: list[tuple[int, Any]]) -> None:
        """Sends buffers and fills buffers at the same time: (rank, bytes-like) pairs, at most one
        of each for a rank. RuntimeError where another process is gone or silent."""
        sending = {rank: memoryview(b).cast("B") for rank, b in out if memoryview(b).nbytes}
        filling = {rank: memoryview(b).cast("B") for rank, b in into if memoryview(b).nbytes}
        with selectors.DefaultSelector() as chosen:
            for rank in {*sending, *filling}:
                chosen.register(self.links[rank], _wants(rank, sending, filling), rank)
            while sending or filling:
                ready = chosen.select(self.timeout)
                if not ready:
                    waiting = sorted({*sending, *filling})
                    raise RuntimeError(f"rank {self.rank} waited {self.timeout:g} s for ranks "
                                       f"{waiting}")
                for key, mask in ready:
                    rank = key.data
                    try:
                        self._move(rank, mask, sending, filling)
                    except (ConnectionError, OSError) as error:
                        raise RuntimeError(f"rank {self.rank} lost rank {rank}: {error}") from None
                    wanted = _wants(rank, sending, filling)
                    if wanted:
                        chosen.modify(key.fileobj, wanted, rank)
                    else:
                        chosen.unregister(key.fileobj)

    def _move(self, rank: int, mask: int, sending: dict[int, Any], filling: dict[int, Any]) -> None:
        sock = self.links[rank]
        if mask & selectors.EVENT_WRITE and rank in sending:
            left = sending[rank][sock.send(sending[rank][:1 << 20]):]
            sending[rank] = left
            if not left.nbytes:
                del sending[rank]
        if mask & selectors.EVENT_READ and rank in filling:
            got = sock.recv_into(filling[rank])
            if not got:
                raise ConnectionError("its process ended")
            filling[rank] = filling[rank][got:]
            if not filling[rank].nbytes:
                del filling[rank]

    def close(self) -> None:
        """Ends the connections."""
        for sock in self.links.values():
            sock.close()
        self.links = {}


def _wants(rank: int, sending: dict[int, Any], filling: dict[int, Any]) -> int:
    return ((selectors.EVENT_WRITE if rank in sending else 0)
            | (selectors.EVENT_READ if rank in filling else 0))
