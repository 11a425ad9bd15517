"""The cache against every fault: damage, races, kills, full and unwritable disks, copies."""

import errno
import os
import pathlib
import random
import shutil
import signal
import threading
import time
import warnings

import pytest

from lehr.base import log
from lehr.base.options import Options
from lehr.compiler.run import cache, entry
from lehr.compiler.run.cache import Cache, key

DATA = random.Random(0).randbytes(5000)


@pytest.fixture
def box(use, tmp_path):
    return Cache(str(tmp_path / "cache"), 1 << 20)


def entry_file(box, k):
    return pathlib.Path(box._path(k.hex))


# Keys.


def test_a_key_depends_on_kind_names_and_contents():
    base = key("so", source="x", flags="-O2")
    assert base == key("so", flags="-O2", source="x")
    others = [
        key("graph", source="x", flags="-O2"),
        key("so", source="y", flags="-O2"),
        key("so", source="x", flag="-O2"),
        key("so", source="x-O2", flags=""),
        key("so", source=b"x", flags=b"-O2"),
        key("so", source="x" * 300, flags="-O2"),
        key("so", source=b"x" * 300, flags="-O2"),
    ]
    assert len({k.hex for k in [base, *others]}) == len(others) + 1


def test_a_part_cannot_pose_as_a_digest():
    long = "y" * 300
    digest = dict(key("so", source=long).parts)["source"]
    assert key("so", source=digest).hex != key("so", source=long).hex


def test_sources_of_the_compiler_are_part_of_every_key(monkeypatch):
    before = key("so", source="x").hex
    monkeypatch.setattr(entry, "fingerprint", lambda: "another version")
    assert key("so", source="x").hex != before
    assert key("so", source="x", lehr="any") == key("so", lehr="any", source="x")


def test_bundle_round_trip():
    parts = {"so": b"\x7fELF", "": b"", "plan": DATA}
    assert entry.unbundle(entry.bundle(parts)) == parts
    assert entry.unbundle(b"") == {}


# Storing and reading.


def test_put_then_get(box):
    k = key("so", source="x")
    assert box.get(k) is None
    assert box.put(k, DATA, compiler="gcc")
    assert box.get(k) == DATA
    assert Cache(box.folder, 1 << 20).get(k) == DATA
    (row,) = box.rows()
    assert row.meta()["compiler"] == "gcc" and row.meta()["parts"]["source"] == "x"
    assert box.counts == {"misses": 1, "hits": 1, "written": 1, "evicted": 0}


def test_no_litter_after_put(box):
    box.put(key("so", source="x"), DATA)
    files = [p for p in pathlib.Path(box.folder).rglob("*") if p.is_file()]
    assert [p.suffix for p in files] == [".entry"]


DAMAGE = {
    "empty": lambda blob: b"",
    "cut in the head": lambda blob: blob[:20],
    "cut in the middle": lambda blob: blob[: len(blob) // 2],
    "one byte short": lambda blob: blob[:-1],
    "longer": lambda blob: blob + b"x",
    "foreign": lambda blob: b"\x7fELF" + bytes(200),
    "text": lambda blob: b"hello",
    "other format": lambda blob: blob[:11] + b"\x09" + blob[12:],
    "bit flip in payload": lambda blob: blob[:-100] + bytes([blob[-100] ^ 1]) + blob[-99:],
    "bit flip in meta": lambda blob: blob.replace(b'"kind"', b'"kinc"'),
    "bit flip in sum": lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_a_damaged_entry_is_a_miss_with_one_warning_and_is_replaced(box, fault):
    k = key("so", source="x")
    box.put(k, DATA)
    file = entry_file(box, k)
    damaged = DAMAGE[fault](file.read_bytes())
    assert damaged != file.read_bytes()
    file.write_bytes(damaged)
    with pytest.warns(log.LehrWarning, match="is damaged") as seen:
        assert box.get(k) is None
        assert box.get(k) is None
    assert len(seen) == 1 and str(file) in str(seen[0].message)
    assert "damaged" in box.why_miss(k) and box.counts["damaged"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert box.get_or_build(k, lambda: DATA) == DATA
        assert box.get(k) == DATA


def test_every_prefix_of_an_entry_is_damaged():
    k = key("so", source="x")
    blob = entry.encode(k, b"payload", {})
    assert entry.decode(blob, k.hex)[0] == b"payload"
    for end in range(len(blob)):
        with pytest.raises(entry.Damaged):
            entry.decode(blob[:end], k.hex)


def test_an_entry_under_another_key_is_foreign(box):
    one, two = key("so", source="1"), key("so", source="2")
    box.put(one, DATA)
    entry_file(box, two).parent.mkdir(exist_ok=True)
    shutil.copy(entry_file(box, one), entry_file(box, two))
    with pytest.warns(log.LehrWarning, match=f"belongs to {one.hex}"):
        assert box.get(two) is None


def test_reading_that_fails_is_a_miss(box, monkeypatch):
    k = key("so", source="x")
    box.put(k, DATA)
    file = entry_file(box, k)
    file.unlink()
    file.mkdir()  # reading it gives EISDIR
    with pytest.warns(log.LehrWarning, match="cannot be read"):
        assert box.get(k) is None


# Building once.


def test_a_failing_build_stores_nothing_and_frees_the_lock(box):
    k = key("so", source="x")
    with pytest.raises(ZeroDivisionError):
        box.get_or_build(k, lambda: 1 // 0)
    assert box.get(k) is None
    assert box.get_or_build(k, lambda: DATA) == DATA
    assert not list(pathlib.Path(box.folder, "v1", "locks").iterdir())


def test_a_build_may_build_others_and_even_itself(box):
    a, b = key("so", source="a"), key("so", source="b")
    inner = lambda: box.get_or_build(b, lambda: b"b") + box.get_or_build(a, lambda: b"a")
    start = time.monotonic()
    assert box.get_or_build(a, inner) == b"ba"
    assert time.monotonic() - start < 30    # not the lock's patience


def test_threads_build_once(box):
    k, built, results = key("so", source="x"), [], []

    def build():
        built.append(1)
        time.sleep(0.1)
        return DATA

    body = lambda: results.append(box.get_or_build(k, build))
    threads = [threading.Thread(target=body) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1 and results == [DATA] * 8


BUILDER = """
import os, sys, time
from lehr.compiler.run.cache import Cache, Key
folder, log, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
k = Key("so", (), "ab" * 20)  # the same in all, whoever edits the sources meanwhile
def build():
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(seconds)
    return b"built"
print("ready", flush=True)
print(Cache(folder, 1 << 20).get_or_build(k, build).decode(), flush=True)
"""


SAME = cache.Key("so", (), "ab" * 20)


def test_processes_build_once_and_all_succeed(box, child, tmp_path):
    built = tmp_path / "built"
    children = [child(BUILDER, box.folder, built, 0.5) for _ in range(4)]
    for process in children:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err, out) == (0, "", "ready\nbuilt\n")
    assert len(built.read_text().split()) == 1


def test_a_killed_builder_blocks_nobody(box, child, tmp_path):
    built = tmp_path / "built"
    first = child(BUILDER, box.folder, built, 600)
    while not built.exists() or not built.read_text():
        time.sleep(0.01)
    second = child(BUILDER, box.folder, built, 0)
    assert second.stdout.readline() == "ready\n"
    time.sleep(0.1)
    assert second.poll() is None  # it waits for the first
    first.send_signal(signal.SIGKILL)
    out, _ = second.communicate(timeout=120)
    assert out == "built\n"
    assert box.get(SAME) == b"built"


def test_a_dead_builder_whose_child_keeps_the_lock_blocks_nobody(box, child, tmp_path):
    built = tmp_path / "built"
    stay = "os.fork() and os._exit(1); os.close(1); os.close(2); time.sleep(60)"
    orphan = BUILDER.replace("time.sleep(seconds)", stay)
    assert child(orphan, box.folder, built, 0).wait(120) == 1
    start = time.monotonic()
    assert box.get_or_build(SAME, lambda: b"mine") == b"mine"
    assert time.monotonic() - start < 50


def test_a_holder_that_hangs_is_waited_for_no_longer_than_the_patience(use, tmp_path):
    from lehr.compiler.run.lock import Lock

    with Lock(str(tmp_path), "k"):
        start = time.monotonic()
        with Lock(str(tmp_path), "k", patience=0.2):
            assert 0.2 <= time.monotonic() - start < 60


KILLED = """
import sys
from lehr.compiler.run.cache import Cache, Key
box = Cache(sys.argv[1], 1 << 30)
print("ready", flush=True)
while True:
    for n in range(20):
        box.put(Key("so", (), f"{n:040x}"), bytes([n]) * 3_000_000)
        print("put", flush=True)
"""


def test_kill_at_any_time_leaves_a_usable_folder(box, child):
    generator = random.Random(1)
    for puts in range(6):
        process = child(KILLED, box.folder)
        for _ in range(1 + puts):
            process.stdout.readline()
        time.sleep(generator.uniform(0.0, 0.1))
        process.kill()
        process.wait()
    whole = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(20):
            payload = box.get(cache.Key("so", (), f"{n:040x}"))
            assert payload in (None, bytes([n]) * 3_000_000)
            whole += payload is not None
    assert whole
    litter = list(pathlib.Path(box.folder, "v1", "new").iterdir())
    for file in litter:
        os.utime(file, (0, 0))
    box.trim()
    assert not list(pathlib.Path(box.folder, "v1", "new").iterdir())


# Disks.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_folder_that_takes_nothing_is_replaced_for_this_process(box, monkeypatch, code):
    real = os.replace

    def replace(source, target):
        if str(target).startswith(box.folder):
            raise OSError(code, os.strerror(code), target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    one, two = key("so", source="1"), key("so", source="2")
    with pytest.warns(log.LehrWarning, match=f"{os.strerror(code)}.*LEHR_CACHE_DIR") as seen:
        assert box.get_or_build(one, lambda: DATA) == DATA
        assert box.get_or_build(two, lambda: DATA) == DATA
    assert len(seen) == 1
    assert box.get(one) == DATA and box.get_or_build(two, lambda: 1 / 0) == DATA
    assert not [p for p in pathlib.Path(box.folder).rglob("*") if p.is_file()]


@pytest.mark.parametrize("place", ["/proc/lehr", "/dev/null/lehr"])
def test_a_folder_that_cannot_exist(use, place):
    box, k = Cache(place, 1 << 20), key("so", source="x")
    with pytest.warns(log.LehrWarning, match="cannot be written"):
        assert box.get_or_build(k, lambda: DATA) == DATA
    assert box.get_or_build(k, lambda: 1 / 0) == DATA


def test_nowhere_to_write_at_all(use, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", lambda *a, **k: (_ for _ in ()).throw(OSError()))
    box, k = Cache("/proc/lehr", 1 << 20), key("so", source="x")
    with pytest.warns(log.LehrWarning, match="cannot be written"):
        assert box.put(k, DATA) is False
    assert box.get_or_build(k, lambda: DATA) == DATA


def test_a_full_disk_makes_room_first(box, monkeypatch):
    old, new = key("so", source="old"), key("so", source="new")
    box.put(old, DATA)
    real, failed = os.replace, []

    def replace(source, target):
        if new.hex in str(target) and not failed:
            failed.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert box.put(new, DATA)
    assert failed and box.get(new) == DATA and box.get(old) is None


# Size, questions, copies.


def test_least_recently_used_entries_go_first(use, tmp_path):
    box = Cache(str(tmp_path / "c"), 30_000)
    keys = [key("so", source=str(n)) for n in range(5)]
    for age, k in enumerate(keys):
        box.put(k, DATA)
        os.utime(entry_file(box, k), (0, 1000 + age))
    assert box.get(keys[0]) == DATA  # used again: now the youngest
    box._grown = None  # as in a new process
    box.put(key("so", source="big"), DATA * 2)
    left = [k for k in keys if box.get(k)]
    assert keys[0] in left and keys[1] not in left and box.info()["bytes"] <= 30_000
    assert "removed to keep the cache within its size" in box.why_miss(keys[1])
    assert box.counts["evicted"] == len(keys) - len(left)


def test_size_stays_bounded_over_many_writes(use, tmp_path):
    box = Cache(str(tmp_path / "c"), 100_000)
    worst = 0
    for n in range(120):
        box.put(key("so", source=str(n)), DATA)
        worst = max(worst, sum(p.stat().st_size for p in pathlib.Path(box.folder).rglob("*.entry")))
    assert 50_000 < worst < 100_000 * 17 // 16 + 6000


def test_an_entry_larger_than_the_cache_is_not_stored(use, tmp_path):
    box = Cache(str(tmp_path / "c"), 1000)
    assert not box.put(key("so", source="x"), DATA)


def test_the_cache_can_be_off(use, tmp_path):
    use(cache=False)
    box, k = cache.store(), key("so", source="x")
    assert not box.put(k, DATA) and box.get(k) is None
    assert box.get_or_build(k, lambda: DATA) == DATA
    assert box.why_miss(k) == "the cache is off" and not (tmp_path / "cache").exists()


def test_why_a_miss_names_what_differs(box):
    stored = key("so", source="a" * 500, flags="-O2", target="x86")
    box.put(stored, DATA)
    box.put(key("so", source="b" * 500, flags="-O1", target="arm"), DATA)
    box.put(key("graph", source="c"), DATA)
    why = box.why_miss(key("so", source="a" * 500, flags="-O3", target="x86"))
    assert "2 entries" in why and "flags ('-O3' here, '-O2' there)" in why
    assert "source" not in why and "target" not in why
    why = box.why_miss(key("so", source="z" * 500, flags="-O2", target="x86"))
    assert "source (content " in why and "flags" not in why
    assert "no entry of kind 'tune'" in box.why_miss(key("tune", source="c"))


def test_the_cache_channel_tells_hits_and_why_not(use, capsys):
    use(log="cache")
    box = cache.store()
    box.put(key("so", source="x", flags="-O2"), DATA)
    box.get(key("so", source="x", flags="-O2"))
    box.get(key("so", source="x", flags="-O3"))
    err = capsys.readouterr().err
    assert "hit so" in err and "miss so" in err and "flags ('-O3' here" in err


def test_similar_ignores_named_parts(box):
    box.put(key("so", source="x", compiler="gcc 12"), DATA)
    box.put(key("so", source="y", compiler="gcc 12"), DATA)
    ((found, _),) = box.similar(key("so", source="x", compiler="none"), {"compiler"})
    assert found == key("so", source="x", compiler="gcc 12") and box.get(found) == DATA


def test_a_copied_folder_hits_elsewhere(box, child, tmp_path):
    k = key("so", source="x")
    box.put(k, DATA)
    shutil.copytree(box.folder, tmp_path / "elsewhere")
    program = """
import sys
from lehr.compiler.run.cache import Key, store
sys.stdout.write(str(len(store().get(Key("so", (), sys.argv[1])))))
"""
    process = child(program, k.hex, LEHR_CACHE_DIR=str(tmp_path / "elsewhere"), HOME="/nowhere")
    assert process.communicate(timeout=120) == (str(len(DATA)), "")


def test_default_folder(use, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.store(Options()).folder == str(tmp_path / "lehr")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache.store(Options()).folder == "/somewhere/.cache/lehr"


def test_info_and_clear(box):
    for n in range(3):
        box.put(key("so", source=str(n)), DATA)
    box.put(key("graph", source="g"), b"g")
    info = box.info()
    assert info["entries"] == 4 and info["kinds"]["so"][0] == 3
    assert info["bytes"] == sum(pair[1] for pair in info["kinds"].values()) > 3 * len(DATA)
    assert box.clear("so") == 3 and box.info()["entries"] == 1
    assert box.clear() == 1 and box.info()["entries"] == 0
    assert box.clear() == 0


def test_pack_and_unpack(box, tmp_path):
    keys = [key("so", source=str(n)) for n in range(3)]
    for k in keys:
        box.put(k, DATA, compiler="gcc")
    box.put(key("tune", source="t"), b"t")
    entry_file(box, keys[2]).write_bytes(b"damaged")
    file = str(tmp_path / "packed.tar")
    assert box.pack(file) == 3
    other = Cache(str(tmp_path / "other"), 1 << 20)
    assert other.unpack(file) == 3 and other.unpack(file) == 0
    assert other.get(keys[0]) == DATA and other.get(keys[2]) is None
    assert next(r.meta() for r in other.rows() if r.hex == keys[0].hex)["compiler"] == "gcc"
    assert box.pack(file, kinds=["tune"]) == 1
    assert sorted(p.name for p in tmp_path.iterdir() if "new" in p.name) == []


def test_unpack_leaves_out_what_is_not_sound(box, tmp_path):
    import io
    import tarfile

    file = str(tmp_path / "packed.tar")
    good = key("so", source="x")
    with tarfile.open(file, "w") as tar:
        for name, blob in [
            (f"{good.hex}.entry", entry.encode(good, DATA, {})),
            ("../../escape.entry", b"evil"),
            (f"{'0' * 40}.entry", entry.encode(good, DATA, {})),
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    with pytest.warns(log.LehrWarning, match="left out"):
        assert box.unpack(file) == 1
    assert box.get(good) == DATA and not list(tmp_path.rglob("escape*"))


def test_importing_the_cache_loads_nothing_heavy(child):
    program = """
import sys
import lehr.compiler.run.cache
heavy = "ctypes subprocess filelock json tempfile tarfile torch multiprocessing asyncio"
sys.stdout.write(" ".join(m for m in heavy.split() if m in sys.modules))
"""
    assert child(program).communicate(timeout=120) == ("", "")
