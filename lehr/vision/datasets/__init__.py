"""Data sets of pictures on disk. Downloads are checked against the MD5 sums of their publishers."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lehr.io.hub import download_url_to_file
from lehr.tensor import create, random
from lehr.tensor.tensor import Tensor
from lehr.utils.data.dataset import Dataset
from lehr.vision import picture

IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class VisionDataset(Dataset[Any]):
    """The base: `transform` changes a picture, `target_transform` a label, `transforms` both."""

    def __init__(self, root: Any = None, transforms: Any = None, transform: Any = None,
                 target_transform: Any = None) -> None:
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as "
                             "argument")
        self.transform, self.target_transform = transform, target_transform
        self.transforms = transforms

    def _changed(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transforms is not None:
            return self.transforms(image, target)  # type: ignore[no-any-return]
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        return (f"Dataset {type(self).__name__}\n    Number of datapoints: {len(self)}\n"
                f"    Root location: {self.root}")


def md5(path: Path) -> str:
    """The MD5 sum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def fetch(urls: list[str], path: Path, total: str) -> None:
    """A file with this MD5 sum at the path, from the first address that has it."""
    if path.exists() and md5(path) == total:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    errors = []
    for url in urls:
        try:
            download_url_to_file(url, str(path))
        except OSError as error:
            errors.append(f"{url}: {error}")
            continue
        if md5(path) == total:
            return
        errors.append(f"{url}: the file is damaged")
        path.unlink()
    raise RuntimeError(f"{path.name} cannot be downloaded. Put it into {path.parent} yourself. "
                       + "; ".join(errors))


def read_idx(path: Path) -> np.ndarray:
    """An array in the format of MNIST: two zero bytes, type, rank, sizes (big endian), data.

    ValueError where the file is something else or cut.
    """
    with open(path, "rb") as file:
        data = file.read()
    kinds = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in kinds:
        raise ValueError(f"{path} is no IDX file")
    rank, kind = data[3], np.dtype(kinds[data[2]])
    shape = np.frombuffer(data, ">u4", rank, 4).astype(int)
    if len(data) != 4 + 4 * rank + int(shape.prod()) * kind.itemsize:
        raise ValueError(f"{path} is cut: it has {len(data)} bytes")
    made = np.frombuffer(data, kind, offset=4 + 4 * rank).reshape(shape)
    return made.astype(kind.newbyteorder("="))


class MNIST(VisionDataset):
    """Handwritten digits, 28x28 grey: 60,000 to train, 10,000 to test.

    Files are below root/MNIST/raw. RuntimeError where they are missing and `download` is False.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/",
               "http://yann.lecun.com/exdb/mnist/"]
    resources = {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c"}
    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six",
               "7 - seven", "8 - eight", "9 - nine"]

    def __init__(self, root: Any, train: bool = True, transform: Callable[..., Any] | None = None,
                 target_transform: Callable[..., Any] | None = None,
                 download: bool = False) -> None:
        super().__init__(root, None, transform, target_transform)
        self.train = train
        if download:
            self.download()
        kind = "train" if train else "t10k"
        paths = [self._raw(f"{kind}-images-idx3-ubyte"), self._raw(f"{kind}-labels-idx1-ubyte")]
        if not all(p.exists() for p in paths):
            raise RuntimeError("Dataset not found. You can use download=True to download it")
        self.data: Tensor = create.from_numpy(read_idx(paths[0]))
        self.targets: Tensor = create.from_numpy(read_idx(paths[1]).astype(np.int64))

    @property
    def raw_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.classes)}

    def _raw(self, name: str) -> Path:
        return Path(self.raw_folder) / name

    def download(self) -> None:
        """Gets the files that are not there."""
        for name, total in self.resources.items():
            if self._raw(name).exists():
                continue
            packed = self._raw(name + ".gz")
            fetch([m + name + ".gz" for m in self.mirrors], packed, total)
            with gzip.open(packed, "rb") as source, open(self._raw(name), "wb") as target:
                shutil.copyfileobj(source, target)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = Image.fromarray(self.data.select(0, index).numpy())
        return self._changed(image, int(self.targets.select(0, index)))


class FashionMNIST(MNIST):
    """Clothes, in the shape of MNIST."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310"}
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
               "Bag", "Ankle boot"]


class CIFAR10(VisionDataset):
    """Photographs of ten kinds of things, 32x32: 50,000 to train, 10,000 to test."""

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = [("data_batch_1", "c99cafc152244af753f735de768cd75f"),
                  ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
                  ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
                  ("data_batch_4", "634d18415352ddfa80567beed471001a"),
                  ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb")]
    test_list = [("test_batch", "40351d587109b95175f43aff81a1287e")]
    labels, names = "labels", ("batches.meta", "label_names", "5ff9c542aee3614f3951f8cda6e48888")

    def __init__(self, root: Any, train: bool = True, transform: Callable[..., Any] | None = None,
                 target_transform: Callable[..., Any] | None = None,
                 download: bool = False) -> None:
        super().__init__(root, None, transform, target_transform)
        self.train = train
        if download:
            self.download()
        parts, targets = [], []
        for name, total in self.train_list if train else self.test_list:
            entry = self._entry(name, total)
            parts.append(entry["data"])
            targets += entry[self.labels]
        self.data = np.ascontiguousarray(
            np.concatenate(parts).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.targets = targets
        file, key, total = self.names
        self.classes = self._entry(file, total)[key]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _entry(self, name: str, total: str) -> Any:
        """A file's dictionary. Its sum is checked first: reading a pickle can run code."""
        path = Path(self.root) / self.base_folder / name
        if not path.exists() or md5(path) != total:
            raise RuntimeError("Dataset not found or corrupted. You can use download=True to "
                               "download it")
        with open(path, "rb") as file:
            return pickle.load(file, encoding="latin1")

    def download(self) -> None:
        """Gets the files that are not there."""
        folder = Path(self.root) / self.base_folder
        if all((folder / name).exists() for name, _ in [*self.train_list, *self.test_list]):
            return
        packed = Path(self.root) / self.url.rpartition("/")[2]
        fetch([self.url], packed, self.tgz_md5)
        with tarfile.open(packed) as archive:
            archive.extractall(self.root, filter="data")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._changed(Image.fromarray(self.data[index]), self.targets[index])


class CIFAR100(CIFAR10):
    """CIFAR-10's shape with a hundred kinds of things."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [("train", "16019d7e3df5f24257cddd939b257f8d")]
    test_list = [("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")]
    labels, names = "fine_labels", ("meta", "fine_label_names", "7973b15100ade9c7d40fb424638fde48")


def pil_loader(path: Any) -> Image.Image:
    """The picture of a file, in red, green and blue."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


default_loader = pil_loader


class DatasetFolder(VisionDataset):
    """Files in one folder for each class: root/CLASS/.../NAME.EXTENSION.

    FileNotFoundError where there is no class, or a class has no file.
    """

    def __init__(self, root: Any, loader: Callable[[str], Any], extensions: Any = None,
                 transform: Callable[..., Any] | None = None,
                 target_transform: Callable[..., Any] | None = None,
                 is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, None, transform, target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError("Both extensions and is_valid_file cannot be None or not None at the "
                             "same time")
        self.loader, self.extensions = loader, extensions
        fits = is_valid_file or (lambda p: p.lower().endswith(tuple(extensions)))
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples: list[tuple[str, int]] = []
        for name, index in self.class_to_idx.items():
            files = sorted(os.path.join(d, f) for d, _, found in
                           os.walk(os.path.join(self.root, name), followlinks=True) for f in found)
            kept = [(f, index) for f in files if fits(f)]
            if not kept and not allow_empty:
                raise FileNotFoundError(f"Found no valid file for the classes {name}.")
            self.samples += kept
        self.targets = [index for _, index in self.samples]

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        """(names of the folders, name -> number)."""
        names = sorted(e.name for e in os.scandir(directory) if e.is_dir())
        if not names:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        return names, {name: i for i, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)


class ImageFolder(DatasetFolder):
    """Pictures in one folder for each class."""

    def __init__(self, root: Any, transform: Callable[..., Any] | None = None,
                 target_transform: Callable[..., Any] | None = None,
                 loader: Callable[[str], Any] = default_loader,
                 is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, loader, None if is_valid_file else IMAGES, transform,
                         target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples


class FakeData(VisionDataset):
    """Noise with labels at random: always the same for an index and `random_offset`."""

    def __init__(self, size: int = 1000, image_size: Any = (3, 224, 224), num_classes: int = 10,
                 transform: Callable[..., Any] | None = None,
                 target_transform: Callable[..., Any] | None = None,
                 random_offset: int = 0) -> None:
        super().__init__(None, None, transform, target_transform)
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.random_offset = random_offset

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = random.Generator().manual_seed(index + self.random_offset)
        noise = random.randn(*self.image_size, generator=generator)
        target = random.randint(0, self.num_classes, (1,), generator=generator)
        return self._changed(picture.to_pil_image(noise), int(target.item()))
