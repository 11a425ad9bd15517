"""`SummaryWriter`: scalars, histograms, pictures, texts and hyperparameters for TensorBoard.

The files are written here, without the package tensorboard; that is needed to look at them.
"""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import sys
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np

from lehr.tensor.tensor import Tensor
from lehr.utils.tensorboard import event

_COUNT = [0]


def array(x: Any) -> np.ndarray:
    """Numbers, arrays and tensors as an array. NotImplementedError for anything else."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype.name == "bfloat16" else x).numpy()
    if isinstance(x, (np.ndarray, np.generic, int, float, list, tuple)):
        return np.asarray(x)
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")


def picture(a: np.ndarray, layout: str) -> np.ndarray:
    """An array of some layout ("CHW", "NCHW", "HW", ...) as uint8 [height, width, channels].

    Several pictures are put in a grid of eight columns. Floats are from 0 to 1.
    """
    layout = layout.upper()
    if len(layout) != a.ndim or len(set(layout)) != len(layout) or set(layout) - set("NCHW"):
        raise ValueError(f"size of input tensor and input format are different: tensor shape "
                         f"{a.shape}, input_format: {layout}")
    order = [layout.index(c) for c in "NHWC" if c in layout]
    a = a.transpose(order)
    if "C" not in layout:
        a = a[..., None]
    if "N" in layout:
        n, h, w, c = a.shape
        columns = min(n, 8)
        rows = -(-n // columns)
        grid = np.zeros((rows * h, columns * w, c), a.dtype)
        for i in range(n):
            y, x = divmod(i, columns)
            grid[y * h:(y + 1) * h, x * w:(x + 1) * w] = a[i]
        a = grid
    if a.dtype != np.uint8:
        a = (a.astype(np.float64) * 255).clip(0, 255).astype(np.uint8)
    return np.repeat(a, 3, -1) if a.shape[-1] == 1 else a


def _png(a: np.ndarray, scale: float = 1) -> tuple[int, int, int, bytes]:
    from PIL import Image
    made = Image.fromarray(a)
    if scale != 1:
        made = made.resize((int(made.width * scale), int(made.height * scale)))
    out = io.BytesIO()
    made.save(out, "PNG")
    return made.height, made.width, a.shape[-1], out.getvalue()


class FileWriter:
    """One file of events; `add` writes a record, which other programs see after `flush`."""

    def __init__(self, folder: str, suffix: str = "") -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _COUNT[0] += 1
        name = (f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}."
                f"{os.getpid()}.{_COUNT[0] - 1}{suffix}")
        self.folder, self.path = folder, os.path.join(folder, name)
        self.file: Any = open(self.path, "ab")
        self.file.write(event.record(event.event(time.time(), None, version="brain.Event:2")))
        self.flushed = time.time()

    def get_logdir(self) -> str:
        """The folder."""
        return self.folder

    def add(self, values: list[bytes], step: Any, when: float | None, seconds: float) -> None:
        """One event; flushed when the last flush was so many seconds ago."""
        if self.file is None:
            raise ValueError(f"{self.path} is closed")
        at = time.time() if when is None else when
        whole = None if step is None else int(step)
        self.file.write(event.record(event.event(at, whole, *values)))
        if time.time() - self.flushed > seconds:
            self.flush()

    def flush(self) -> None:
        """Writes what is waiting."""
        if self.file is not None:
            self.file.flush()
            self.flushed = time.time()

    def close(self) -> None:
        """Writes what is waiting, and no more after."""
        if self.file is not None:
            self.file.close()
            self.file = None


class SummaryWriter:
    """Writes an event file in `log_dir` (default: runs/DATE_HOST below the working folder).

    comment          a suffix of the default folder
    purge_step       steps from here on of an earlier, crashed run are to be hidden
    flush_secs       how often what was added reaches the file, at most
    filename_suffix  a suffix of the file's name
    """

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: int | None = None,
                 max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer: Any = FileWriter(self.log_dir, filename_suffix)
        self.all_writers: dict[str, FileWriter] | None = {self.log_dir: self.file_writer}
        if purge_step is not None:
            status = event.block(7, event.whole(1, 3))  # SessionLog: START
            made = event.double(1, time.time()) + event.whole(2, purge_step) + status
            self.file_writer.file.write(event.record(made))

    def _add(self, values: list[bytes], step: Any, when: float | None) -> None:
        self._get_file_writer().add(values, step, when, self.flush_secs)

    def _get_file_writer(self) -> Any:
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, self.filename_suffix)
            self.all_writers = {self.log_dir: self.file_writer}
        return self.file_writer

    def get_logdir(self) -> str:
        """The folder of the files."""
        return self.log_dir

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None,
                   walltime: float | None = None, new_style: bool = False,
                   double_precision: bool = False) -> None:
        """One number under a tag."""
        value = array(scalar_value)
        if value.size != 1:
            raise AssertionError("scalar should be 0D")
        self._add([event.scalar(tag, float(value.reshape(())))], global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None,
                    walltime: float | None = None) -> None:
        """Several numbers, drawn together: each has a file in a folder of its own."""
        self._get_file_writer()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, self.filename_suffix)
            made = event.scalar(main_tag, float(array(value).reshape(())))
            self.all_writers[folder].add([made], global_step, walltime, self.flush_secs)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None,
                   walltime: float | None = None) -> None:
        """A tensor of float32 under a tag."""
        a = array(tensor).astype("<f4")
        shape = b"".join(event.block(2, event.whole(1, n)) for n in a.shape)
        made = event.whole(1, 1) + event.block(2, shape) + event.block(4, a.tobytes())
        self._add([event.block(1, tag) + event.block(8, made)
                   + event.block(9, event.metadata("tensor"))], global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Any = None,
                      bins: Any = "tensorflow", walltime: float | None = None,
                      max_bins: int | None = None) -> None:
        """The distribution of values. `bins`: "tensorflow" (exponentially growing), what
        numpy.histogram takes."""
        a = array(values).astype(np.float64).reshape(-1)
        if a.size == 0:
            raise ValueError("The input has no element.")
        if isinstance(bins, str) and bins == "tensorflow":
            up = 1e-12 * 1.1 ** np.arange(int(np.log(1e32) / np.log(1.1)) + 1)
            bins = np.concatenate([-up[::-1], [0.0], up])
        counts, edges = np.histogram(a, bins)
        if max_bins is not None and len(counts) > max_bins:
            step = -(-len(counts) // max_bins)
            counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
            edges = np.concatenate([edges[:-1:step], edges[-1:]])
        full = np.nonzero(counts)[0]
        low, high = (full[0], full[-1] + 1) if full.size else (0, 1)
        made = event.histogram(tag, (a.min(), a.max(), a.size, a.sum(), (a * a).sum()),
                               edges[low:high + 1], [0.0, *counts[low:high]])
        self._add([made], global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: Any = None,
                  walltime: float | None = None, dataformats: str = "CHW") -> None:
        """A picture: uint8, or floats from 0 to 1."""
        self._add([event.image(tag, *_png(picture(array(img_tensor), dataformats)))], global_step,
                  walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: Any = None,
                   walltime: float | None = None, dataformats: str = "NCHW") -> None:
        """Several pictures in one grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag: str, figure: Any, global_step: Any = None, close: bool = True,
                   walltime: float | None = None) -> None:
        """A figure of matplotlib, or several."""
        from PIL import Image
        made = []
        for each in figure if isinstance(figure, (list, tuple)) else [figure]:
            out = io.BytesIO()
            each.savefig(out, format="png", dpi="figure")
            made.append(np.asarray(Image.open(out).convert("RGB")))
            plots = sys.modules.get("matplotlib.pyplot")
            if close and plots is not None:
                plots.close(each)
        layout = "NHWC" if len(made) > 1 else "HWC"
        self.add_image(tag, np.stack(made) if len(made) > 1 else made[0], global_step, walltime,
                       layout)

    def add_text(self, tag: str, text_string: str, global_step: Any = None,
                 walltime: float | None = None) -> None:
        """A text, shown as Markdown."""
        self._add([event.text(tag, text_string)], global_step, walltime)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: Any = None,
                  sample_rate: int = 44100, walltime: float | None = None) -> None:
        """A sound of one channel: floats from -1 to 1."""
        a = (array(snd_tensor).astype(np.float64).reshape(-1).clip(-1, 1) * 32767).astype("<i2")
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(sample_rate)
            file.writeframes(a.tobytes())
        self._add([event.audio(tag, sample_rate, 1, a.size, out.getvalue())], global_step, walltime)

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: Any = None,
                     num_thresholds: int = 127, weights: Any = None,
                     walltime: float | None = None) -> None:
        """Precision and recall at evenly spaced thresholds of predictions from 0 to 1."""
        truth, score = array(labels).reshape(-1) > 0, array(predictions).reshape(-1)
        heavy = np.ones(score.shape) if weights is None else array(weights).reshape(-1)
        n = min(num_thresholds, 127)
        place = np.minimum((score * (n - 1)).astype(int), n - 1)
        hits = np.bincount(place, heavy * truth, n)[::-1].cumsum()[::-1]
        misses = np.bincount(place, heavy * ~truth, n)[::-1].cumsum()[::-1]
        none, lost = misses[0] - misses, hits[0] - hits
        tiny = 1e-7
        rows = np.stack([hits, misses, none, lost, hits / np.maximum(tiny, hits + misses),
                         hits / np.maximum(tiny, hits + lost)]).astype("<f4")
        shape = b"".join(event.block(2, event.whole(1, d)) for d in rows.shape)
        tensor = event.whole(1, 1) + event.block(2, shape) + event.block(4, rows.tobytes())
        content = event.whole(2, n)
        self._add([event.block(1, tag) + event.block(8, tensor)
                   + event.block(9, event.metadata("pr_curves", content))], global_step, walltime)

    def add_hparams(self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
                    hparam_domain_discrete: Any = None, run_name: str | None = None,
                    global_step: Any = None) -> None:
        """Hyperparameters and the figures that they led to, in a folder of their own."""
        for name, value in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
            if not isinstance(value, dict):
                raise TypeError(f"{name} should be dictionary.")
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        writer = FileWriter(folder)
        try:
            for tag, content in _parameters(hparam_dict, metric_dict):
                made = event.block(1, tag) + event.block(9, event.metadata("hparams", content))
                writer.add([made], None, None, self.flush_secs)
            for tag, figure in metric_dict.items():
                made = event.scalar(tag, float(array(figure).reshape(())))
                writer.add([made], global_step, None, self.flush_secs)
        finally:
            writer.close()

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False,
                  use_strict_trace: bool = True) -> None:
        """The tree of modules as a graph: one node each, fed by its parent."""
        nodes = []
        for name, module in model.named_modules():
            path = f"{type(model).__name__}/{name.replace('.', '/')}" if name \
                else type(model).__name__
            made = event.block(1, path) + event.block(2, type(module).__name__)
            if name:
                made += event.block(3, path.rpartition("/")[0])
            nodes.append(event.block(1, made))
        graph = b"".join(nodes) + event.block(4, event.whole(1, 22))
        made = event.double(1, time.time()) + event.block(4, graph)
        self._get_file_writer().file.write(event.record(made))

    def add_embedding(self, mat: Any, metadata: Any = None, label_img: Any = None,
                      global_step: Any = None, tag: str = "default",
                      metadata_header: Any = None) -> None:
        """Points for the projector: rows of a matrix, with a text each."""
        a = array(mat)
        if a.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        place = f"{0 if global_step is None else global_step:05d}/{tag}"
        folder = Path(self.log_dir) / place
        folder.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / "tensors.tsv", a, "%.8g", "\t")
        config = f'embeddings {{\n  tensor_name: "{tag}"\n  tensor_path: "{place}/tensors.tsv"\n'
        if metadata is not None:
            if len(metadata) != a.shape[0]:
                raise AssertionError("#labels should equal with #data points")
            rows = [m if isinstance(m, (list, tuple)) else [m] for m in metadata]
            head = [metadata_header] if metadata_header else []
            text = "\n".join("\t".join(map(str, row)) for row in [*head, *rows])
            (folder / "metadata.tsv").write_text(text + "\n")
            config += f'  metadata_path: "{place}/metadata.tsv"\n'
        if label_img is not None:
            height, width, _, png = _png(picture(array(label_img), "NCHW"))
            (folder / "sprite.png").write_bytes(png)
            size = array(label_img).shape
            config += (f'  sprite {{\n    image_path: "{place}/sprite.png"\n'
                       f"    single_image_dim: {size[3]}\n    single_image_dim: {size[2]}\n  }}\n")
        with open(Path(self.log_dir) / "projector_config.pbtxt", "a") as file:
            file.write(config + "}\n")

    def flush(self) -> None:
        """Writes what is waiting to the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes what is waiting and closes the files."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.all_writers = self.file_writer = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "all_writers", None):
            self.close()


# google.protobuf.Value: number 2, string 3, bool 4.
def _value(v: Any) -> tuple[int, bytes]:
    """(hparams DataType, Value) of a hyperparameter."""
    if isinstance(v, bool):
        return 2, event.whole(4, v)
    if isinstance(v, (int, float, np.number)):
        return 3, event._varint(2 << 3 | 1) + struct.pack("<d", float(v))
    if isinstance(v, Tensor):
        return 3, event._varint(2 << 3 | 1) + struct.pack("<d", v.item())
    return 1, event.block(3, v if isinstance(v, str) else json.dumps(v, default=str))


def _parameters(hparams: dict[str, Any], metrics: dict[str, Any]) -> list[tuple[str, bytes]]:
    """The three messages that TensorBoard's hparams plugin reads."""
    infos = b"".join(event.block(4, event.block(1, k) + event.whole(4, _value(v)[0]))
                     for k, v in hparams.items())
    wanted = b"".join(event.block(5, event.block(1, event.block(2, k))) for k in metrics)
    values = b"".join(event.block(1, event.block(1, k) + event.block(2, _value(v)[1]))
                      for k, v in hparams.items())
    return [("_hparams_/experiment", event.block(2, infos + wanted)),
            ("_hparams_/session_start_info", event.block(3, values)),
            ("_hparams_/session_end_info", event.block(4, event.whole(1, 1)))]
