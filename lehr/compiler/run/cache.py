"""The store of compiled things on disk, addressed by content.

One entry is one file (format: `entry.py`), written under a unique name and renamed, so readers see
all of it or nothing, whoever is killed. No fsync: after a power cut the checksum tells. A damaged
or foreign file is a miss and is replaced. Processes that want the same entry build it once, under
a lock that dies with its holder. The least recently used entries go first when space is short.

Layout of the folder: `v1/ab/ab34....entry`, `v1/locks/`, `v1/new/` (files being written).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lehr.base import log
from lehr.base.options import Options, default
from lehr.compiler.run import entry
from lehr.compiler.run.entry import Damaged, Key, key
from lehr.compiler.run.lock import Lock

__all__ = ["Cache", "Key", "Row", "clear", "info", "key", "pack", "store", "unpack"]

_FULL = {errno.ENOSPC, errno.EDQUOT}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_TOUCH = 60.0  # seconds: a younger entry's time of use is not written again
_LITTER = 3600.0  # seconds after which a file being written, or a lock's file, is litter

_tell = log.channel("cache")


@dataclass(frozen=True, slots=True)
class Row:
    """One stored entry: its file, size in bytes and time of last use (seconds since 1970)."""

    hex: str
    path: str
    size: int
    used: float

    def meta(self) -> dict[str, Any] | None:
        """What the entry says about itself (kind, parts, made, ...); None where unreadable."""
        try:
            with open(self.path, "rb") as file:
                return entry.describe(file, self.hex)
        except (OSError, Damaged):
            return None


class Cache:
    """A folder of entries bounded to `limit` bytes; 0 bytes: nothing is read or written."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.counts: Counter[str] = Counter()  # hits, misses, built, damaged, evicted, written
        self._lost: dict[str, str] = {}  # why this process lost an entry, for why_miss
        self._grown: int | None = None  # bytes written since the folder was last measured
        self._spare: Cache | None = None  # a private folder where this one cannot be written
        self._building: set[tuple[int, str]] = set()

    # Reading and writing.

    def get(self, key: Key) -> bytes | None:
        """The payload stored under `key`, whole and checked, or None."""
        payload = self._find(key)
        self.counts["misses" if payload is None else "hits"] += 1
        if _tell:
            _tell("%s %s %s", "hit" if payload is not None else "miss", key.kind, key.hex)
            if payload is None:
                _tell("  %s", self.why_miss(key))
        return payload

    def _find(self, key: Key) -> bytes | None:
        payload = self._read(key) if self.limit else None
        return self._spare._read(key) if payload is None and self._spare else payload

    def _read(self, key: Key) -> bytes | None:
        path = self._path(key.hex)
        try:
            with open(path, "rb") as file:
                blob, used = file.read(), os.fstat(file.fileno()).st_mtime
            payload, _ = entry.decode(blob, key.hex)
        except OSError as error:
            if error.errno not in _GONE:  # a broken file system costs time, never an answer
                text = f"cache entry {path} cannot be read ({error.strerror}); it is made again"
                log.warn_once(("cache", path), text)
            return None
        except Damaged as error:
            self._lost[key.hex] = f"the stored entry was damaged: {error}"
            text = f"cache entry {path} is damaged: {error}; it is made again"
            self.counts["damaged"] += log.warn_once(("cache", path), text)
            return None
        if time.time() - used > _TOUCH:
            with contextlib.suppress(OSError):  # a read-only folder serves too
                os.utime(path)
        return payload

    def put(self, key: Key, payload: bytes, **meta: Any) -> bool:
        """Store `payload`; False where it could not be kept, which never is an error."""
        if len(payload) > self.limit:
            return False
        blob = entry.encode(key, payload, {**meta, "made": round(time.time(), 3)})
        for attempt in range(2):
            try:
                self._write(key, blob)
                break
            except OSError as error:
                full = error.errno in _FULL and not attempt
                if not (full and self.trim(self._measure() // 2)):
                    spare = self._spill(error)
                    return spare.put(key, payload, **meta) if spare else False
        self._lost.pop(key.hex, None)
        self.counts["written"] += 1
        self._grown = None if self._grown is None else self._grown + len(blob)
        if self._grown is None or self._grown > self.limit // 16:
            self.trim()
        return True

    def _write(self, key: Key, blob: bytes) -> None:
        path = self._path(key.hex)
        fresh = os.path.join(self.folder, f"v{entry.FORMAT}", "new")
        for folder in (fresh, os.path.dirname(path)):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        name = os.path.join(fresh, f"{key.hex}-{os.getpid()}-{os.urandom(6).hex()}")
        try:
            with open(name, "xb") as file:
                file.write(blob)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def get_or_build(self, key: Key, build: Callable[[], bytes], **meta: Any) -> bytes:
        """The payload under `key`; where there is none, `build()` it once among all processes.

        What `build` raises passes through, and nothing is stored then.
        """
        payload = self.get(key)
        mark = (threading.get_ident(), key.hex)
        if payload is None and (not self.limit or mark in self._building):
            return build()
        if payload is not None:
            return payload
        place = os.path.join(self.folder, f"v{entry.FORMAT}", "locks")
        self._building.add(mark)
        try:
            with Lock(place, key.hex):
                payload = self._find(key)  # another process may have built it
                if payload is None:
                    payload = build()
                    self.counts["built"] += 1
                    self.put(key, payload, **meta)
                return payload
        finally:
            self._building.discard(mark)

    def _path(self, hex: str) -> str:
        return os.path.join(self.folder, f"v{entry.FORMAT}", hex[:2], hex + ".entry")

    def _spill(self, error: OSError) -> Cache | None:
        if self._spare is None:
            self._spare = _Spare(self.limit)
            text = (
                f"the cache folder {self.folder} cannot be written ({error.strerror}): compiled "
                "code is kept for this process only. LEHR_CACHE_DIR names another folder"
            )
            log.warn_once(("cache", self.folder), text)
        return self._spare

    # Looking around.

    def rows(self) -> Iterator[Row]:
        """Every entry, in no order."""
        for shard in _scan(os.path.join(self.folder, f"v{entry.FORMAT}")):
            for item in _scan(shard.path) if len(shard.name) == 2 else ():
                name, dot, ending = item.name.partition(".")
                if dot and ending == "entry":
                    with contextlib.suppress(OSError):  # removed by another process
                        stat = item.stat()
                        yield Row(name, item.path, stat.st_size, stat.st_mtime)

    def similar(self, key: Key, ignore: Collection[str]) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Keys (with meta) stored with the same kind and the same parts but those in `ignore`."""
        wanted = {n: v for n, v in key.parts if n not in ignore}
        for row in self.rows():
            meta = row.meta()
            if meta and meta["kind"] == key.kind:
                parts = meta["parts"]
                if {n: v for n, v in parts.items() if n not in ignore} == wanted:
                    yield Key(key.kind, tuple(sorted(parts.items())), row.hex), meta

    def why_miss(self, key: Key) -> str:
        """Why nothing is stored under `key`: damage, or how the most similar entry differs."""
        if not self.limit:
            return "the cache is off"
        if key.hex in self._lost:
            return self._lost[key.hex]
        wanted = dict(key.parts)
        best, differs, count = None, list(wanted), 0
        for row in self.rows():
            meta = row.meta()
            if meta is None or meta["kind"] != key.kind or row.hex == key.hex:
                continue
            count += 1
            parts = meta["parts"]
            other = [n for n in sorted({*wanted, *parts}) if wanted.get(n) != parts.get(n)]
            if best is None or len(other) < len(differs):
                best, differs = meta, other
        if best is None:
            return f"there is no entry of kind {key.kind!r} in {self.folder}"
        pairs = ((n, wanted.get(n), best["parts"].get(n)) for n in differs)
        return f"the nearest of {count} entries of kind {key.kind!r} differs in " + "; ".join(
            f"{name} ({_show(here)} here, {_show(there)} there)" for name, here, there in pairs
        )

    # Keeping it small, moving it.

    def _measure(self) -> int:
        return sum(row.size for row in self.rows())

    def trim(self, limit: int | None = None) -> int:
        """Remove the least recently used entries until `limit` bytes are left; the number gone.

        When the folder's own limit is passed, a tenth more goes, so that not every write trims.
        """
        bound = self.limit if limit is None else limit
        rows = sorted(self.rows(), key=lambda row: row.used)
        total = sum(row.size for row in rows)
        target = bound if limit is not None or total <= bound else bound - bound // 10
        gone = 0
        for row in rows:
            if total <= target:
                break
            total -= row.size
            gone += self._remove(row, "it was removed to keep the cache within its size")
        self._grown = 0
        self.counts["evicted"] += gone
        self._sweep()
        return gone

    def _remove(self, row: Row, why: str) -> bool:
        try:
            os.unlink(row.path)
        except OSError:
            return False
        self._lost[row.hex] = why
        return True

    def _sweep(self) -> None:
        """Remove what killed processes left: files being written, and files of locks."""
        old = time.time() - _LITTER
        for place in ("new", "locks"):
            for item in _scan(os.path.join(self.folder, f"v{entry.FORMAT}", place)):
                with contextlib.suppress(OSError):
                    if item.stat().st_mtime < old and (place == "new" or Lock.idle(item.path)):
                        os.unlink(item.path)

    def clear(self, kind: str = "") -> int:
        """Remove all entries, or those of one kind; the number removed."""
        gone = 0
        for row in self.rows():
            meta = row.meta() if kind else None
            if not kind or meta and meta["kind"] == kind:
                gone += self._remove(row, "it was cleared")
        return gone

    def info(self) -> dict[str, Any]:
        """Folder, limit, entries, bytes, kinds (name: [entries, bytes]), this process's counts."""
        kinds: dict[str, list[int]] = {}
        for row in self.rows():
            meta = row.meta()
            pair = kinds.setdefault(meta["kind"] if meta else "damaged", [0, 0])
            pair[0] += 1
            pair[1] += row.size
        return {
            "folder": self.folder,
            "limit": self.limit,
            "entries": sum(pair[0] for pair in kinds.values()),
            "bytes": sum(pair[1] for pair in kinds.values()),
            "kinds": kinds,
            "counts": dict(self.counts),
        }

    def pack(self, file: str, kinds: Collection[str] = ()) -> int:
        """Write the sound entries (of these kinds, or all) to one tar file; their number."""
        import io
        import tarfile

        fresh, count = f"{file}.{os.getpid()}.new", 0
        try:
            with tarfile.open(fresh, "w") as tar:
                for row in sorted(self.rows(), key=lambda row: row.hex):
                    meta = row.meta() or {}
                    blob = _sound(row)
                    if blob is not None and (not kinds or meta.get("kind") in kinds):
                        member = tarfile.TarInfo(row.hex + ".entry")
                        member.size = len(blob)
                        tar.addfile(member, io.BytesIO(blob))
                        count += 1
            os.replace(fresh, file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
        return count

    def unpack(self, file: str) -> int:
        """Add the entries of a file that `pack` wrote; the number added. Unsound ones are left out.

        Raises OSError or tarfile.TarError where the file cannot be read.
        """
        import json
        import tarfile

        count = 0
        with tarfile.open(file) as tar:
            for member in tar:
                hex = member.name.removesuffix(".entry")
                data = tar.extractfile(member)
                try:
                    blob = data.read() if data else b""
                    payload, about = entry.decode(blob, hex)
                except Damaged as error:
                    text = f"{file}: entry {hex} is damaged: {error}; it is left out"
                    log.warn_once(("pack", file, hex), text)
                    continue
                meta = json.loads(about)
                name = Key(meta.pop("kind"), tuple(sorted(meta.pop("parts").items())), hex)
                if self._read(name) is None:
                    meta.pop("made", None)
                    count += self.put(name, payload, **meta)
        return count


class _Spare(Cache):
    """A folder for this process alone, removed at its end."""

    def __init__(self, limit: int) -> None:
        import tempfile

        try:
            self._folder: Any = tempfile.TemporaryDirectory(
                prefix="lehr-", ignore_cleanup_errors=True
            )
        except OSError:  # nowhere to write at all: every put answers False
            self._folder, limit = None, 0
        super().__init__(self._folder.name if self._folder else "", limit)

    def _spill(self, error: OSError) -> None:
        return None


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            return list(items)
    except OSError:
        return []


def _show(part: str | None) -> str:
    if part is None:
        return "absent"
    return f"content {part[1:9]}" if part.startswith("#") else repr(part)


def _sound(row: Row) -> bytes | None:
    try:
        with open(row.path, "rb") as file:
            blob = file.read()
        entry.decode(blob, row.hex)
    except (OSError, Damaged):
        return None
    return blob


def _folder(options: Options) -> str:
    """`LEHR_CACHE_DIR`, else `lehr` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.abspath(options.cache_dir or os.path.join(home, "lehr"))


@functools.lru_cache(8)
def _open(folder: str, limit: int) -> Cache:
    return Cache(folder, limit)


def store(options: Options | None = None) -> Cache:
    """The cache that `options` (default: the process's) name."""
    options = default() if options is None else options
    return _open(_folder(options), options.cache_size if options.cache else 0)


def info() -> dict[str, Any]:
    """`Cache.info` of the process's cache."""
    return store().info()


def clear(kind: str = "") -> int:
    """`Cache.clear` of the process's cache."""
    return store().clear(kind)


def pack(file: str, kinds: Collection[str] = ()) -> int:
    """`Cache.pack` of the process's cache."""
    return store().pack(file, kinds)


def unpack(file: str) -> int:
    """`Cache.unpack` into the process's cache."""
    return store().unpack(file)
