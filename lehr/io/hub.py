"""`torch.hub`: weights by URL. Code by URL (`torch.hub.load`) is not run unless it is local."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from lehr.io.load import load as read

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
CHUNK = 1 << 20
TIMEOUT = 60.0  # seconds without an answer

_DIR: list[str | None] = [None]


def _get_torch_home() -> str:
    base = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(base, "torch")))


def get_dir() -> str:
    """The folder of downloads: `set_dir`'s, else hub below TORCH_HOME or ~/.cache/torch."""
    return _DIR[0] or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """The folder of downloads."""
    _DIR[0] = os.path.expanduser(os.fspath(d))


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None,
                         progress: bool = True) -> None:
    """Downloads to a path, which appears when the file is complete.

    RuntimeError where its SHA-256 does not begin with `hash_prefix`; OSError (URLError) where the
    network or the server fails.
    """
    from tqdm import tqdm
    target = Path(os.path.expanduser(dst))
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "lehr.hub"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, open(part, "wb") as file:
            size = answer.headers.get("Content-Length")
            quiet = not (progress and sys.stderr.isatty())
            with tqdm(total=int(size) if size else None, unit="B", unit_scale=True,
                      disable=quiet) as bar:
                while block := answer.read(CHUNK):
                    file.write(block)
                    digest.update(block)
                    bar.update(len(block))
        if hash_prefix is not None and digest.hexdigest()[: len(hash_prefix)] != hash_prefix:
            raise RuntimeError(f'invalid hash value of {url} (expected "{hash_prefix}", got '
                               f'"{digest.hexdigest()}")')
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None,
                             progress: bool = True, check_hash: bool = False,
                             file_name: str | None = None, weights_only: bool = True) -> Any:
    """The object in the checkpoint at a URL, downloaded once to checkpoints below `get_dir()`.

    With check_hash the name must end in a dash and the first digits of its SHA-256. A zip file that
    holds one checkpoint is unpacked. The same errors as `download_url_to_file` and `torch.load`.
    """
    folder = Path(model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urllib.parse.urlparse(url).path)
    path = folder / name
    if not path.exists():
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(path), match.group(1) if match else None, progress)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            inner = [i for i in archive.infolist() if not i.is_dir()]
            if len(inner) == 1:
                return read(archive.extract(inner[0], folder), map_location,
                            weights_only=weights_only)
    return read(path, map_location, weights_only=weights_only)


def _hubconf(repo: str, source: str) -> Any:
    if source != "local":
        raise NotImplementedError(
            f"torch.hub of the repository {repo!r}: lehr does not download and run code. Get the "
            "repository yourself and give its folder: torch.hub.load(folder, model, "
            "source='local')")
    path = Path(repo) / "hubconf.py"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(repo)))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(Path(repo)))
    return module


def _entry(repo: str, model: str, source: str) -> Any:
    found = getattr(_hubconf(repo, source), model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf of {repo}")
    return found


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = None,
         force_reload: bool = False, verbose: bool = True, skip_validation: bool = False,
         **kwargs: Any) -> Any:
    """What the entry `model` of a folder's hubconf.py returns; NotImplementedError for a repository
    that is not a local folder (source="local")."""
    return _entry(repo_or_dir, model, source)(*args, **kwargs)


def list(github: str, force_reload: bool = False, skip_validation: bool = False,
         trust_repo: Any = None, verbose: bool = True, source: str = "github") -> Any:
    """The names of the entries of a folder's hubconf.py."""
    module = _hubconf(github, source)
    return [name for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False,
         trust_repo: Any = None, source: str = "github") -> Any:
    """The docstring of an entry of a folder's hubconf.py."""
    return _entry(github, model, source).__doc__
