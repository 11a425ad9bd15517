"""Channels, warnings given once, and stage dumps."""

import threading
import warnings

import pytest

from lehr.base import log, options
from lehr.base.options import Options


@pytest.fixture
def use():
    """Sets this process's options for one test."""

    def set_options(**changes):
        options.set_default(Options().replace(**changes))
        log.reset()

    set_options()
    yield set_options
    options.set_default(None)
    log.reset()


def test_channels_are_silent_unless_asked_for(use, capsys):
    use(log="fusion, guards")
    assert log.channel("fusion") and not log.channel("cache")
    log.channel("fusion")("merged %s\ninto %s", "a", "b")
    log.channel("cache")("%d", "not formatted when off")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == ["merged a", "into b"]
    assert all(line.startswith("lehr fusion ") for line in lines)


def test_all_channels(use):
    use(log="all")
    assert all(log.channel(name) for name in log.CHANNELS)


def test_unknown_channel_warns_once_with_near_match(use):
    use(log="fusoin")
    with pytest.warns(log.LehrWarning, match="no channel 'fusoin'; is it fusion"):
        assert not log.channel("fusion")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not log.channel("guards")
    with pytest.raises(KeyError):
        log.channel("fusoin")


def test_warn_once_under_threads(use):
    given = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        body = lambda: given.append(log.warn_once("key", "text"))
        threads = [threading.Thread(target=body) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(given) == 1 and len(seen) == 1


def test_dump_numbers_stages_and_graphs(use, tmp_path):
    use(dump=str(tmp_path / "d"))
    first, second = log.dump("forward"), log.dump("a/b c")
    first.write("capture", "text")
    first.write("kernel", b"\0", "bin")
    second.write("capture", "other")
    files = sorted(str(p.relative_to(tmp_path / "d")) for p in tmp_path.rglob("*.*"))
    assert files == [
        "0000-forward/00-capture.txt",
        "0000-forward/01-kernel.bin",
        "0001-a-b-c/00-capture.txt",
    ]


def test_dump_off_writes_nothing_unless_forced(use, tmp_path, monkeypatch):
    assert not log.dump("x") and log.dump("x").write("capture", "text") == ""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = log.dump("x", force=True).write("capture", "text")
    assert path.startswith(str(tmp_path)) and open(path).read() == "text"


def test_dump_folder_that_cannot_be_made_warns_once(use, tmp_path):
    (tmp_path / "file").write_text("")
    use(dump=str(tmp_path / "file"))
    with pytest.warns(log.LehrWarning, match="not dumped"):
        assert not log.dump("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not log.dump("y")
