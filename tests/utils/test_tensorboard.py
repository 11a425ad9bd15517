"""Event files, read back with a decoder of the tests' own."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

import lehr
from lehr.utils.tensorboard import SummaryWriter
from lehr.utils.tensorboard.event import crc32c


def fields(data):
    """{field number: [values]} of a protobuf message."""
    out, at = {}, 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value, at = data[at:at + size], at + size
        out.setdefault(key >> 3, []).append(value)
    return out


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read(folder):
    """(step, fields of a Summary.Value) of every value in the folder's one file."""
    path, = folder.glob("events.out.tfevents.*")
    file, rows, first = io.BytesIO(path.read_bytes()), [], True
    while head := file.read(12):
        n, crc = struct.unpack("<QI", head)
        assert crc == masked(head[:8])
        body = file.read(n)
        assert struct.unpack("<I", file.read(4))[0] == masked(body)
        made = fields(body)
        if first:
            assert made[3] == [b"brain.Event:2"]
            first = False
        for summary in made.get(5, []):
            rows += [(made.get(2, [None])[0], fields(v)) for v in fields(summary)[1]]
    return rows


def test_checksum_of_the_standard():
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_scalars_texts_histograms_pictures(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", lehr.tensor(1.5, requires_grad=True), 3)
        writer.add_text("note", "two *words*", 1)
        writer.add_histogram("h", lehr.tensor([0.0, 1.0, 1.0, -2.0]), 2)
        writer.add_image("picture", lehr.ones(3, 4, 5), 0)
        writer.add_images("pictures", np.zeros((10, 1, 4, 5), np.uint8), 0)
    rows = read(tmp_path)
    step, made = rows[0]
    assert step == 3 and made[1] == [b"loss"] and struct.unpack("<f", made[2][0]) == (1.5,)
    assert rows[1][1][1] == [b"note/text_summary"]
    assert fields(rows[1][1][8][0])[8] == [b"two *words*"]
    found = fields(rows[2][1][5][0])
    low, high, count, total = (struct.unpack("<d", found[i][0])[0] for i in (1, 2, 3, 4))
    assert (low, high, count, total) == (-2, 1, 4, 0)
    limits, counts = (np.frombuffer(found[i][0], "<f8") for i in (6, 7))
    assert len(limits) == len(counts) and counts.sum() == 4 and (np.diff(limits) > 0).all()
    assert [fields(r[1][4][0])[1] + fields(r[1][4][0])[2] for r in rows[3:]] == [[4, 5], [8, 40]]
    from PIL import Image
    png = fields(rows[3][1][4][0])[4][0]
    assert (np.asarray(Image.open(io.BytesIO(png))) == 255).all()


def test_several_numbers_and_hyperparameters_have_folders(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_scalars("m", {"x": 1, "y": 2.0}, 5)
    writer.add_hparams({"lr": 0.1, "name": "sgd", "on": True}, {"acc": 0.5}, run_name="run")
    writer.close()
    assert struct.unpack("<f", read(tmp_path / "m_y")[0][1][2][0]) == (2.0,)
    tags = [r[1][1][0] for r in read(tmp_path / "run")]
    assert tags == [b"_hparams_/experiment", b"_hparams_/session_start_info",
                    b"_hparams_/session_end_info", b"acc"]


def test_after_close_a_new_file_begins_and_wrong_values_raise(tmp_path):
    writer = SummaryWriter(tmp_path)
    with pytest.raises(AssertionError, match="0D"):
        writer.add_scalar("x", [1, 2])
    with pytest.raises(NotImplementedError, match="numpy array or torch tensor"):
        writer.add_scalar("x", object())
    with pytest.raises(ValueError, match="no element"):
        writer.add_histogram("x", lehr.empty(0))
    with pytest.raises(ValueError, match="different"):
        writer.add_image("x", lehr.ones(4, 5))
    writer.close()
    writer.add_scalar("x", 1)
    writer.close()
    assert len(list(tmp_path.glob("events*"))) == 2
