"""Models, transforms, data sets, grids, weights."""

from __future__ import annotations

import gzip
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

import lehr
from lehr.io import hub
from lehr.vision import datasets, models, picture, transforms
from lehr.vision import grid as utils

# Published numbers of parameters (1000 classes).
COUNTS = {"resnet18": 11689512, "resnet50": 25557032, "resnext50_32x4d": 25028904,
          "vgg11_bn": 132868840, "alexnet": 61100840, "mobilenet_v2": 3504872,
          "vit_b_16": 86567656}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    with lehr.device("meta"):
        model = models.get_model(name)
    assert sum(p.numel() for p in model.parameters()) == COUNTS[name]


def test_a_model_learns():
    lehr.manual_seed(0)
    model = models.resnet18(num_classes=3)
    optimizer = lehr.optim.SGD(model.parameters(), lr=0.05)
    x, y = lehr.randn(6, 3, 32, 32), lehr.tensor([0, 1, 2, 0, 1, 2])
    losses = []
    for _ in range(6):
        loss = lehr.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert list(model.state_dict())[:3] == ["conv1.weight", "bn1.weight", "bn1.bias"]


def test_weights_are_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    kind = models.MobileNet_V2_Weights
    with pytest.raises(FileNotFoundError, match=kind.DEFAULT.value):
        models.mobilenet_v2(weights="DEFAULT")
    with pytest.raises(TypeError, match="MobileNet_V2_Weights"):
        models.mobilenet_v2(weights=models.ResNet18_Weights.DEFAULT)
    source = models.mobilenet_v2()
    kind.DEFAULT.path.parent.mkdir(parents=True)
    lehr.save(source.state_dict(), kind.DEFAULT.path)
    made = models.mobilenet_v2(weights=kind.IMAGENET1K_V2)
    assert lehr.equal(made.features[0][0].weight, source.features[0][0].weight)
    assert kind.DEFAULT.transforms()(lehr.rand(3, 300, 280)).shape == (3, 224, 224)


def photo(h=40, w=50, seed=0):
    a = np.random.RandomState(seed).randint(0, 255, (h // 5, w // 5, 3), dtype=np.uint8)
    return Image.fromarray(a.repeat(5, 0).repeat(5, 1))


def test_pictures_and_tensors():
    img = photo()
    t = picture.to_tensor(img)
    assert t.shape == (3, 40, 50) and t.dtype is lehr.float32
    np.testing.assert_array_equal(t.mul(255).byte().permute(1, 2, 0).numpy(), np.asarray(img))
    assert picture.to_tensor(np.zeros((4, 5), np.float32)).shape == (1, 4, 5)
    back = picture.to_pil_image(t)
    np.testing.assert_array_equal(np.asarray(back), np.asarray(img))
    with pytest.raises(TypeError, match="PIL Image or ndarray"):
        picture.to_tensor(t)
    with pytest.raises(ValueError, match="std evaluated to zero"):
        picture.normalize(t, [0.5], [0.0])
    made = picture.normalize(t, [0.1, 0.2, 0.3], [0.5, 0.5, 2.0])
    np.testing.assert_allclose(made[2].numpy(), (t[2].numpy() - 0.3) / 2, rtol=1e-5)
    assert picture.convert_image_dtype(lehr.tensor([255], dtype=lehr.uint8)).item() == 1
    assert picture.convert_image_dtype(lehr.tensor([1.0]), lehr.uint8).item() == 255


@pytest.mark.parametrize("change", [
    lambda x: picture.crop(x, 3, 4, 20, 21), lambda x: picture.center_crop(x, (60, 30)),
    picture.hflip, picture.vflip, lambda x: picture.pad(x, [1, 2, 3, 4], 7),
    lambda x: picture.pad(x, 3, padding_mode="reflect"),
    lambda x: picture.rgb_to_grayscale(x, 3), lambda x: picture.adjust_brightness(x, 1.3),
    lambda x: picture.adjust_saturation(x, 0.4), lambda x: picture.adjust_contrast(x, 0.5),
    lambda x: picture.rotate(x, 30), lambda x: picture.invert(x),
    lambda x: picture.resize(x, 24), lambda x: picture.resize(x, (60, 70)),
    lambda x: picture.gaussian_blur(x, 5, 1.5), lambda x: picture.solarize(x, 100)])
def test_tensors_and_pil_images_agree(change):
    img = photo()
    t = picture.pil_to_tensor(img)
    a, b = picture.pil_to_tensor(change(img)), change(t)
    assert a.shape == b.shape
    assert (a.int() - b.int()).abs().float().mean() < 1.5


def test_random_transforms_repeat_with_the_seed():
    change = transforms.Compose([
        transforms.Resize(36), transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.RandomRotation(10), transforms.RandomAffine(5, (0.1, 0.1), (0.9, 1.1), 5),
        transforms.RandomResizedCrop(24), transforms.RandomGrayscale(), transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.5] * 3), transforms.RandomErasing(1.0)])
    made = []
    for seed in (1, 1, 2):
        lehr.manual_seed(seed)
        made.append(change(photo()))
    assert made[0].shape == (3, 24, 24)
    assert lehr.equal(made[0], made[1]) and not lehr.equal(made[0], made[2])
    assert "RandomCrop(size=(32, 32), padding=4)" in repr(change)
    with pytest.raises(ValueError, match="larger than input"):
        transforms.RandomCrop(100)(photo())
    flips = sum(lehr.equal(transforms.RandomHorizontalFlip(0.25)(lehr.arange(2)),
                           lehr.tensor([1, 0])) for _ in range(400))
    assert 60 < flips < 140


def test_grids(tmp_path):
    x = lehr.rand(5, 1, 4, 6)
    grid = utils.make_grid(x, nrow=3, padding=1, pad_value=0.5)
    assert grid.shape == (3, 2 * 5 + 1, 3 * 7 + 1)
    assert lehr.equal(grid[0, 6:10, 8:14], x[4, 0]) and grid[0, 0, 0] == 0.5
    utils.save_image(x, tmp_path / "a.png", nrow=3, padding=1)
    got = np.asarray(Image.open(tmp_path / "a.png"))
    np.testing.assert_array_equal(got[6:10, 8:14, 0], (x[4, 0] * 255 + 0.5).byte().numpy())
    spread = utils.make_grid(x * 10 - 3, normalize=True, padding=0)
    assert spread.min() == 0 and spread.max() == 1


def test_mnist(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    pixels = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    (raw / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">HBBIII", 0, 8, 3, 3, 28, 28) + pixels.tobytes())
    (raw / "train-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 3) + b"\7\1\0")
    data = datasets.MNIST(tmp_path, transform=transforms.ToTensor())
    x, y = data[0]
    assert len(data) == 3 and y == 7 and x.shape == (1, 28, 28)
    np.testing.assert_array_equal((x * 255).round().byte()[0].numpy(), pixels[0])
    assert data.targets.tolist() == [7, 1, 0] and data.data.shape == (3, 28, 28)
    with pytest.raises(RuntimeError, match="download=True"):
        datasets.MNIST(tmp_path, train=False)
    (raw / "train-labels-idx1-ubyte").write_bytes(b"\0\0\10\1\0\0\0\5\1")
    with pytest.raises(ValueError, match="cut"):
        datasets.MNIST(tmp_path)


def test_downloads_are_checked(tmp_path):
    class Small(datasets.MNIST):
        mirrors = [(tmp_path / "away").as_uri() + "/", (tmp_path / "there").as_uri() + "/"]
        resources = {}
    there = tmp_path / "there"
    there.mkdir()
    for name, body in (("train-images-idx3-ubyte",
                        struct.pack(">HBBIII", 0, 8, 3, 1, 2, 2) + b"abcd"),
                       ("train-labels-idx1-ubyte", struct.pack(">HBBI", 0, 8, 1, 1) + b"\3")):
        (there / f"{name}.gz").write_bytes(gzip.compress(body))
        Small.resources[name] = datasets.md5(there / f"{name}.gz")
    assert Small(tmp_path / "root", download=True)[0][1] == 3
    Small.resources["train-images-idx3-ubyte"] = "0" * 32
    with pytest.raises(RuntimeError, match="damaged"):
        Small(tmp_path / "other", download=True)


def test_cifar_checks_sums_before_it_unpickles(tmp_path):
    class Small(datasets.CIFAR10):
        train_list, names = [], None
    folder = tmp_path / Small.base_folder
    folder.mkdir()
    rows = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    for name, content in (("one", {"data": rows, "labels": [3, 4]}),
                          ("meta", {"label_names": ["a"]})):
        (folder / name).write_bytes(pickle.dumps(content))
    Small.train_list = [("one", datasets.md5(folder / "one"))]
    Small.names = ("meta", "label_names", datasets.md5(folder / "meta"))
    data = Small(tmp_path)
    image, label = data[1]
    assert label == 4 and image.size == (32, 32) and data.classes == ["a"]
    np.testing.assert_array_equal(np.asarray(image)[:, :, 2], rows[1, 2048:].reshape(32, 32))
    (folder / "one").write_bytes(pickle.dumps(print))
    with pytest.raises(RuntimeError, match="corrupted"):
        Small(tmp_path)


def test_folders(tmp_path):
    for name in ("cat", "ant"):
        (tmp_path / name / "deep").mkdir(parents=True)
        photo(10, 10).save(tmp_path / name / "deep" / "x.png")
    (tmp_path / "ant" / "note.txt").write_text("no picture")
    data = datasets.ImageFolder(str(tmp_path), transform=transforms.ToTensor())
    assert data.classes == ["ant", "cat"] and data.targets == [0, 1]
    assert data[1][0].shape == (3, 10, 10) and data[1][1] == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty"):
        datasets.ImageFolder(str(tmp_path))
    fake = datasets.FakeData(3, (3, 8, 8), 4, transform=transforms.ToTensor())
    assert lehr.equal(fake[1][0], fake[1][0]) and not lehr.equal(fake[0][0], fake[1][0])


def test_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    source = tmp_path / "w.pt"
    lehr.save({"a": lehr.ones(2)}, source)
    assert hub.load_state_dict_from_url(source.as_uri())["a"].tolist() == [1, 1]
    assert (tmp_path / "home" / "hub" / "checkpoints" / "w.pt").exists()
    with pytest.raises(RuntimeError, match="invalid hash"):
        hub.download_url_to_file(source.as_uri(), str(tmp_path / "z"), "0000")
    assert not (tmp_path / "z").exists() and not list(tmp_path.glob("z*"))
    (tmp_path / "hubconf.py").write_text("def small(n=3):\n    'Doc.'\n    return n\n")
    assert hub.load(str(tmp_path), "small", n=4, source="local") == 4
    assert "small" in hub.list(str(tmp_path), source="local")
    with pytest.raises(NotImplementedError, match="does not download and run code"):
        hub.load("someone/something", "model")
