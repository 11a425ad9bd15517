"""Process groups: which processes act together, and the one they all belong to.

Processes talk over TCP ("gloo" in PyTorch's words), whatever the backend is called; "nccl" needs
CUDA tensors, of which there are none.
"""

from __future__ import annotations

import os
from typing import Any

from lehr.distributed.mesh import Mesh
from lehr.distributed.store import TIMEOUT, PrefixStore, Store, TCPStore
from lehr.nn.batch import SyncBatchNorm

BACKENDS = {"gloo": "gloo", "cpu:gloo": "gloo", "mpi": None, "nccl": None, "ucc": None,
            "cpu:gloo,cuda:nccl": "gloo"}
ADVICE = ("Start the processes with `lehr launch --nproc-per-node N script.py`, or set RANK, "
          "WORLD_SIZE, MASTER_ADDR and MASTER_PORT")


class Work:
    """An operation that was asked for with async_op: it is done when the call returns."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def wait(self, timeout: Any = None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True: what fails raises at once."""
        return True

    def get_future(self) -> Work:
        """Itself."""
        return self

    def result(self) -> Any:
        """The tensors that were written."""
        return self.value


class ProcessGroup:
    """`ranks`: the members' numbers in the whole, in order. A process outside has rank -1."""

    def __init__(self, mesh: Mesh, ranks: list[int], backend: str) -> None:
        self.mesh, self.ranks, self.backend = mesh, ranks, backend
        self.place = ranks.index(mesh.rank) if mesh.rank in ranks else -1

    def rank(self) -> int:
        """This process's number in the group."""
        return self.place

    def size(self) -> int:
        """How many processes."""
        return len(self.ranks)

    def name(self) -> str:
        """The backend's name."""
        return self.backend


class World:
    """The group of every process, while there is one."""

    group: ProcessGroup | None = None
    store: Any = None
    own_store = False


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return World.group is not None


def is_gloo_available() -> bool:
    """True: processes talk over TCP."""
    return True


def is_nccl_available() -> bool:
    """False: there are no CUDA tensors."""
    return False


is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def is_torchelastic_launched() -> bool:
    """Whether PyTorch's elastic launcher started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _whole() -> ProcessGroup:
    if World.group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call "
                         "init_process_group.")
    return World.group


def resolve(group: Any) -> ProcessGroup:
    """The group meant by an argument; None: every process."""
    if group is None or group is WORLD:
        return _whole()
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{type(group).__name__} is no process group")
    return group


class _World:
    """Stands for the group of every process, as an argument."""


WORLD = _World()


def init_process_group(backend: str | None = None, init_method: str | None = None,
                       timeout: Any = TIMEOUT, world_size: int = -1, rank: int = -1,
                       store: Store | None = None, group_name: str = "", pg_options: Any = None,
                       device_id: Any = None) -> None:
    """Meets the other processes; until `destroy_process_group` they can act together.

    init_method  "env://" (default): RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; or
                 "tcp://host:port" with rank and world_size
    store        instead of init_method
    ValueError where something is not given, NotImplementedError for another backend than gloo,
    RuntimeError where it was called before.
    """
    if World.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "gloo").lower()
    if BACKENDS.get(name) is None:
        raise NotImplementedError(
            f"init_process_group({backend!r}): lehr's processes act together on CPU tensors over "
            "TCP: init_process_group('gloo')")
    host = "127.0.0.1"
    if store is None:
        host, port, rank, world_size = _address(init_method, rank, world_size)
        own = world_size == 1
        store = TCPStore(host, 0 if own else port, None, rank == 0, timeout)
        World.own_store = True
    elif rank < 0 or world_size < 1:
        raise ValueError("init_process_group with a store needs rank and world_size")
    World.store = store
    mesh = Mesh(PrefixStore("world", store), rank, world_size, _reached(store, host), timeout)
    World.group = ProcessGroup(mesh, list(range(world_size)), "gloo")
    SyncBatchNorm.exchange = _alone


def _reached(store: Store, host: str) -> str:
    """The address of this machine on the way to the store."""
    sock = getattr(store, "sock", None)
    return sock.getsockname()[0] if sock is not None else host


def _alone(layer: Any, input: Any) -> Any:
    """SyncBatchNorm of one process. NotImplementedError with more."""
    size = get_world_size(layer.process_group)
    if size > 1:
        raise NotImplementedError(
            f"SyncBatchNorm over {size} processes is not supported: keep BatchNorm, whose "
            "statistics are each process's own, or a norm without batch statistics (GroupNorm)")
    return super(SyncBatchNorm, layer).forward(input)


def _address(method: str | None, rank: int, size: int) -> tuple[str, int, int, int]:
    method = method or "env://"
    if method.startswith("env://"):
        found = {}
        for name, given in (("RANK", rank), ("WORLD_SIZE", size), ("MASTER_ADDR", None),
                            ("MASTER_PORT", None)):
            value = os.environ.get(name) if given is None or given < 0 else given
            if value is None:
                raise ValueError("Error initializing torch.distributed using env:// rendezvous: "
                                 f"environment variable {name} expected, but not set. {ADVICE}")
            found[name] = value
        return (str(found["MASTER_ADDR"]), int(found["MASTER_PORT"]), int(found["RANK"]),
                int(found["WORLD_SIZE"]))
    if method.startswith("tcp://"):
        host, _, port = method.removeprefix("tcp://").partition(":")
        if rank < 0 or size < 1 or not port:
            raise ValueError(f"init_process_group({method!r}) needs rank, world_size and a port")
        return host, int(port), rank, size
    raise NotImplementedError(f"init_method {method!r}: use env:// or tcp://host:port")


def destroy_process_group(group: Any = None) -> None:
    """Ends a group; None: every group, and the connections."""
    if group is not None and group is not WORLD and group is not World.group:
        return
    whole = _whole()
    whole.mesh.close()
    if World.own_store:
        World.store.close()
    World.group = World.store = None
    World.own_store = False


def new_group(ranks: Any = None, timeout: Any = None, backend: str | None = None,
              pg_options: Any = None, use_local_synchronization: bool = False,
              group_desc: str | None = None, device_id: Any = None) -> Any:
    """A group of some of the processes; every process calls it."""
    whole = _whole()
    chosen = list(range(whole.size())) if ranks is None else sorted(ranks)
    if chosen and (chosen[0] < 0 or chosen[-1] >= whole.size() or len(set(chosen)) < len(chosen)):
        raise ValueError(f"ranks {ranks} are not distinct numbers below {whole.size()}")
    made = ProcessGroup(whole.mesh, chosen, whole.backend)
    return made if made.place >= 0 else GroupMember.NON_GROUP_MEMBER


class GroupMember:
    """What `new_group` gives a process that is not in the group."""

    WORLD: Any = None
    NON_GROUP_MEMBER = -100


class group:
    """`group.WORLD`: every process."""

    WORLD = WORLD


def get_rank(group: Any = None) -> int:
    """This process's number in a group; -1 outside it."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else resolve(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many processes a group has; -1 outside it."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else resolve(group).size()


def get_backend(group: Any = None) -> str:
    """"gloo"."""
    return resolve(group).backend


def get_default_backend_for_device(device: Any) -> str:
    """"gloo"."""
    return "gloo"


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The members' numbers in the whole."""
    return list(resolve(group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The number in the whole of a member."""
    return resolve(group).ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The number in a group of a process. ValueError where it is outside."""
    return resolve(group).ranks.index(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK, which launchers set."""
    value = os.environ.get("LOCAL_RANK")
    if value is None and fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank")
    return int(fallback_rank if value is None else value)  # type: ignore[arg-type]
