"""What programs ask of torch's namespaces on a machine without a GPU: the same answers."""

from __future__ import annotations

import inspect
import warnings

import pytest

import lehr

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("torch has a GPU here", allow_module_level=True)

SAME = """
cuda.is_available()
cuda.device_count()
cuda.empty_cache()
cuda.memory_allocated()
cuda.max_memory_allocated()
cuda.memory_reserved()
cuda.manual_seed(1)
cuda.manual_seed_all(1)
cuda.synchronize()
cuda.current_device()
cuda.get_device_properties(0)
cuda.get_device_name(0)
cuda.get_device_capability()
cuda.is_initialized()
cuda.get_rng_state_all()
cuda.set_rng_state_all([])
cuda.mem_get_info()
cuda.get_rng_state()
cuda.default_stream()
cuda.get_arch_list()
cuda.FloatTensor(2)
isinstance(lib.ones(2), cuda.FloatTensor)
cuda.device_of(lib.ones(1)).__enter__()
cuda.memory_stats()
cuda.amp.GradScaler(enabled=False).is_enabled()
cuda.no_such
cpu.is_available()
cpu.device_count()
cpu.synchronize()
cpu.amp.autocast().fast_dtype.itemsize
xpu.is_available()
xpu.device_count()
mps.is_available()
accelerator.is_available()
accelerator.device_count()
accelerator.current_accelerator()
backends.cudnn.is_available()
backends.cudnn.version()
backends.cudnn.enabled
backends.cudnn.benchmark
backends.cudnn.deterministic
backends.cudnn.allow_tf32
backends.cudnn.no_such
backends.cuda.is_built()
backends.cuda.matmul.allow_tf32
backends.cuda.flash_sdp_enabled()
backends.cuda.math_sdp_enabled()
backends.mps.is_available()
backends.mps.is_built()
backends.mha.get_fastpath_enabled()
version.cuda
version.hip
jit.is_scripting()
jit.is_tracing()
jit.annotate(int, 3)
onnx.is_in_onnx_export()
distributed.is_available()
distributed.is_initialized()
distributed.get_rank()
distributed.is_nccl_available()
hub.HASH_REGEX.pattern
multiprocessing.spawn.__name__
utils._pytree.tree_flatten([1, (2, {"a": 3})])[0]
utils._pytree.tree_map(lambda v: v + 1, {"a": [1, (2,)]})
utils._pytree.tree_map_only(int, lambda v: v + 1, ["x", 2])
utils._pytree.tree_leaves((1, [2, None]))
utils._pytree.tree_all(lambda v: v > 0, [1, (2,)])
""".strip().splitlines()


def outcome(lib, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            first = text.partition("(")[2] if text.startswith("isinstance") else text
            head = (first.partition("lib.ones(2), ")[2] or first).split(".")[0]
            return repr(eval(text, {"lib": lib, head: getattr(lib, head)}))
        except Exception as error:
            return type(error).__name__


@pytest.mark.parametrize("text", SAME)
def test_answers(text):
    import importlib
    for name in ("backends.cudnn", "utils._pytree", "cuda.amp", "cpu.amp", "hub", "onnx",
                 "multiprocessing", "distributed"):
        importlib.import_module(f"torch.{name}")
    assert outcome(lehr, text) == outcome(torch, text)


def test_switches_keep_what_they_are_given():
    for lib in (torch, lehr):
        lib.backends.cudnn.benchmark = True
        with lib.backends.cudnn.flags(enabled=False, benchmark=False):
            assert not lib.backends.cudnn.enabled and not lib.backends.cudnn.benchmark
        assert lib.backends.cudnn.enabled and lib.backends.cudnn.benchmark
        lib.backends.cudnn.benchmark = False
        lib.backends.cuda.enable_flash_sdp(False)
        assert not lib.backends.cuda.flash_sdp_enabled()
        lib.backends.cuda.enable_flash_sdp(True)
    lehr.backends.cuda.matmul.allow_tf32 = True
    try:
        assert lehr.get_float32_matmul_precision() == "high"
    finally:
        lehr.backends.cuda.matmul.allow_tf32 = False
    assert lehr.get_float32_matmul_precision() == "highest"


def test_scripted_code_runs_as_python():
    class Net(lehr.nn.Module):
        __constants__ = ["n"]
        n: lehr.jit.Final[int] = 3

        @lehr.jit.export
        def other(self, x):
            return x * self.n

        @lehr.jit.unused
        def spare(self):
            return 1

        @lehr.jit.ignore(drop=True)
        def left(self):
            return 2

        def forward(self, x):
            return self.other(x) if not lehr.jit.is_scripting() else x
    net = lehr.jit.script(Net())
    assert net(lehr.ones(1)).item() == 3 and net.left() == 2
    assert lehr.jit.trace(net, lehr.ones(1)) is net and lehr.jit.freeze(net.eval()) is net
    with pytest.raises(RuntimeError, match="eval mode"):
        lehr.jit.freeze(net.train())
    with pytest.raises(NotImplementedError, match="state_dict"):
        lehr.jit.save(net, "x.pt")
    with pytest.raises(NotImplementedError, match="ONNX"):
        lehr.onnx.export(net, lehr.ones(1), "x.onnx")


@pytest.mark.parametrize("name", [
    "cuda.set_device", "cuda.manual_seed", "cuda.stream", "backends.cudnn.set_flags",
    "hub.load_state_dict_from_url", "hub.load", "hub.download_url_to_file",
    "multiprocessing.spawn", "distributed.init_process_group", "distributed.all_reduce",
    "distributed.broadcast", "distributed.all_gather", "distributed.barrier",
    "distributed.gather", "distributed.scatter", "distributed.new_group",
    "distributed.all_gather_object", "distributed.broadcast_object_list",
    "distributed.reduce_scatter_tensor", "distributed.send", "distributed.recv",
    "nn.parallel.DistributedDataParallel", "profiler.profile", "profiler.schedule",
    "profiler.record_function", "utils.tensorboard.SummaryWriter.add_scalar",
    "distributions.Normal", "distributions.Categorical", "distributions.kl_divergence",
    "jit.script", "jit.trace", "onnx.is_in_onnx_export", "utils._pytree.tree_map"])
def test_parameters_have_torchs_names(name):
    """Every parameter of torch's that has no underscore is a parameter here, in the same order."""
    import torch.distributed
    import torch.profiler
    import torch.utils._pytree
    if "tensorboard" in name:
        pytest.importorskip("tensorboard")
        import torch.utils.tensorboard
    ours, theirs = lehr, torch
    for part in name.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    mine = inspect.signature(ours).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in mine.values()):
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [p for p in inspect.signature(theirs).parameters.values()
              if not p.name.startswith("_") and p.kind in kinds]
    have = [p.name for p in mine.values() if not p.name.startswith("_") and p.kind in kinds]
    shared = [p.name for p in wanted][:len(have)]
    assert have[:len(shared)] == shared
