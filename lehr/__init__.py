"""lehr: a PyTorch-compatible deep-learning framework and its compiler.

Names are resolved at their first use: importing the package loads nothing but this table.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The threads of OpenBLAS (numpy's, lehr's) look out for work for 2**26 ticks, 25 ms to 0.1 s of a
# processor, when they begin and after each product; 2**16 serve as well. A value that is set stays.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")

# Public module -> module -> names that come from there ("here=there" where they differ).
# A public module without a file of its own is made from its entry.
TABLE: dict[str, dict[str, str]] = {
    "lehr": {
        "lehr.base.dtype":
            "dtype=DType bool=bool_ uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
            "complex64 complex128 half=float16 float=float32 double=float64 short=int16 int=int32 "
            "long=int64 cfloat=complex64 cdouble=complex128",
        "lehr.tensor.tensor": "Tensor Size is_tensor",
        "lehr.tensor.format":
            "memory_format=MemoryFormat contiguous_format channels_last channels_last_3d "
            "preserve_format layout=Layout strided sparse_coo sparse_csr sparse_csc sparse_bsr "
            "sparse_bsc jagged",
        "lehr.tensor.mode":
            "no_grad enable_grad set_grad_enabled inference_mode is_grad_enabled "
            "is_inference_mode_enabled is_anomaly_enabled is_anomaly_check_nan_enabled",
        "lehr.tensor.create":
            "tensor as_tensor asarray from_numpy frombuffer from_file from_dlpack to_dlpack "
            "empty_strided range",
        "lehr.tensor.random":
            "Generator default_generator manual_seed seed initial_seed get_rng_state set_rng_state "
            "rand randn randint randperm normal rand_like randn_like randint_like bernoulli "
            "multinomial poisson binomial dropout dropout_ alpha_dropout alpha_dropout_ "
            "feature_dropout feature_dropout_ feature_alpha_dropout feature_alpha_dropout_ rrelu "
            "_standard_gamma",
        "lehr.tensor.attribute":
            "is_floating_point is_complex is_signed is_inference is_conj is_neg resolve_conj "
            "resolve_neg is_same_size is_nonzero numel get_device",
        "lehr.tensor.func": "vmap",
        "lehr.tensor.show": "set_printoptions get_printoptions",
        "lehr.tensor.info": "finfo iinfo",
        "lehr.tensor.index": "where",
        "lehr.tensor.memory": "as_strided is_storage resize_as_ UntypedStorage TypedStorage",
        "lehr.tensor.lowrank": "svd_lowrank pca_lowrank",
        "lehr.tensor.sparse": "sparse_coo_tensor spmm",
        "lehr.tensor.branch": "cond",
        "lehr.tensor.override": "DisableTorchFunctionSubclass DisableTorchFunction",
        "lehr.tensor.setting":
            "device=Device set_default_device get_default_device use_deterministic_algorithms "
            "are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled "
            "set_deterministic_debug_mode get_deterministic_debug_mode set_num_threads "
            "get_num_threads set_num_interop_threads get_num_interop_threads "
            "set_float32_matmul_precision get_float32_matmul_precision set_flush_denormal "
            "set_warn_always is_warn_always_enabled compiled_with_cxx11_abi",
        "lehr.tensor.legacy":
            "FloatTensor DoubleTensor HalfTensor BFloat16Tensor ByteTensor CharTensor ShortTensor "
            "IntTensor LongTensor BoolTensor ComplexFloatTensor ComplexDoubleTensor FloatStorage "
            "DoubleStorage HalfStorage BFloat16Storage ByteStorage CharStorage ShortStorage "
            "IntStorage LongStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage "
            "set_default_tensor_type typename",
        "lehr.tensor.symbol":
            "sym_int sym_float sym_not sym_max sym_min sym_ite sym_sum sym_sqrt _check "
            "_check_index _check_value _check_type _check_not_implemented _check_is_size "
            "_check_tensor_all _assert",
        "lehr.tensor.promote":
            "result_type promote_types can_cast get_default_dtype set_default_dtype",
        "lehr.compiler.compile": "compile",
        "lehr.compiler.capture.directive": "_disable_dynamo=disable",
        "lehr.tensor.autocast":
            "autocast is_autocast_enabled set_autocast_enabled get_autocast_dtype "
            "set_autocast_dtype is_autocast_cache_enabled set_autocast_cache_enabled "
            "clear_autocast_cache is_autocast_cpu_enabled get_autocast_cpu_dtype "
            "get_autocast_gpu_dtype",
        "lehr.amp.scaler": "GradScaler",
        "lehr.io": "save load",
        "lehr.accelerator.cpu": "Stream Event",
        "lehr.accelerator.cuda": "OutOfMemoryError",
    },
    "lehr.autograd": {
        "lehr.tensor.gradient": "backward grad",
        "lehr.tensor.mode":
            "no_grad enable_grad set_grad_enabled inference_mode detect_anomaly set_detect_anomaly "
            "is_anomaly_enabled is_anomaly_check_nan_enabled",
        "lehr.tensor.function": "Function NestedIOFunction",
        "lehr.tensor.check": "gradcheck=gradcheck gradgradcheck=gradgradcheck",
        "lehr.tensor.variable": "Variable",
    },
    "lehr.autograd.function": {
        "lehr.tensor.function":
            "Function FunctionCtx BackwardCFunction FunctionMeta InplaceFunction NestedIOFunction "
            "once_differentiable",
    },
    "lehr.autograd.graph": {
        "lehr.tensor.graph":
            "GradientEdge Node allow_mutation_on_saved_tensors disable_saved_tensors_hooks "
            "get_gradient_edge increment_version register_multi_grad_hook save_on_cpu "
            "saved_tensors_hooks",
        "lehr.tensor.hook": "RemovableHandle=Handle",
    },
    "lehr.autograd.profiler": {
        "lehr.utils.profile": "profile=Older record_function EventList=Averages",
    },
    "lehr.autograd.functional": {
        "lehr.tensor.jacobian": "jacobian hessian vjp jvp vhp hvp",
    },
    "lehr.autograd.forward_ad": {
        "lehr.tensor.dual": "dual_level make_dual unpack_dual enter_dual_level exit_dual_level",
    },
    "lehr.autograd.variable": {
        "lehr.tensor.variable": "Variable",
    },
    "lehr.autograd.gradcheck": {
        "lehr.tensor.check": "gradcheck gradgradcheck GradcheckError",
    },
    "lehr.autograd.grad_mode": {
        "lehr.tensor.mode": "no_grad enable_grad set_grad_enabled inference_mode",
    },
    "lehr.autograd.anomaly_mode": {
        "lehr.tensor.mode": "detect_anomaly set_detect_anomaly",
    },
    "lehr.overrides": {
        "lehr.tensor.override":
            "TorchFunctionMode BaseTorchFunctionMode has_torch_function has_torch_function_unary "
            "has_torch_function_variadic handle_torch_function wrap_torch_function is_tensor_like "
            "is_tensor_method_or_property resolve_name",
    },
    "lehr.testing": {
        "lehr.tensor.testing": "assert_close assert_allclose make_tensor",
    },
    "lehr.func": {
        "lehr.tensor.func":
            "grad grad_and_value vjp jvp jacrev jacfwd hessian vmap linearize functionalize",
        "lehr.nn.utils.stateless": "functional_call stack_module_state",
    },
    "lehr.types": {
        "lehr.tensor.types": "Number Device FileLike Storage",
        "lehr.tensor.tensor": "Tensor",
        "lehr.tensor.size": "_size=Size",
        "lehr.base.dtype": "_dtype=DType",
        "lehr.base.device": "_device=Device",
    },
    "lehr._utils": {
        "lehr.tensor.bundle":
            "_flatten_dense_tensors _unflatten_dense_tensors _take_tensors",
    },
    "lehr.distributed._functional_collectives": {
        "lehr.distributed.functional":
            "all_gather_tensor all_reduce all_to_all_single broadcast reduce_scatter_tensor "
            "wait_tensor",
    },
    "lehr.distributed.algorithms": {},
    "lehr.distributed.algorithms._checkpoint": {},
    "lehr.distributed.algorithms._checkpoint.checkpoint_wrapper": {
        "lehr.distributed.wrapper":
            "CheckpointImpl CheckpointWrapper apply_activation_checkpointing checkpoint_wrapper",
    },
    "lehr.futures": {"lehr.utils.future": "Future collect_all wait_all"},
    "lehr.utils.model_zoo": {"lehr.io.hub": "load_url=load_state_dict_from_url"},
    "lehr.nn.modules.module": {"lehr.nn.state": "_IncompatibleKeys=Keys"},
    "lehr._C": {
        "lehr.tensor.override":
            "DisableTorchFunction DisableTorchFunctionSubclass "
            "_disabled_torch_function_impl=disabled",
        "lehr.compat.switch":
            "_get_tracing_state _jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu "
            "_jit_set_nvfuser_enabled _jit_set_profiling_executor _jit_set_profiling_mode "
            "_jit_set_texpr_fuser_enabled",
        "lehr.tensor.random": "Generator",
        "lehr.base.device": "device=Device",
        "lehr.base.dtype": "dtype=DType",
        "lehr.tensor.tensor": "TensorBase=Tensor Size",
    },
    "lehr.signal": {},
    "lehr.signal.windows": {
        "lehr.tensor.window":
            "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming "
            "hann kaiser nuttall",
    },
    "lehr.sparse": {
        "lehr.tensor.sparse":
            "mm addmm sampled_addmm sum spdiags FloatTensor DoubleTensor LongTensor IntTensor "
            "HalfTensor",
    },
    "lehr.masked": {
        "lehr.tensor.masked":
            "amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean median "
            "norm normalize prod softmax softmin std sum var",
    },
    "lehr.random": {
        "lehr.tensor.random":
            "manual_seed seed initial_seed get_rng_state set_rng_state fork_rng default_generator",
    },
    "lehr.compiler": {
        "lehr.compiler.counters": "stats",
        "lehr.compiler.compile": "compile reset list_backends",
        "lehr.compiler.stance": "set_stance",
        "lehr.compiler.explain": "explain",
        "lehr.compiler.dynamo": "cudagraph_mark_step_begin",
        "lehr.tensor.mode": "is_compiling is_dynamo_compiling=is_compiling",
        "lehr.compiler.capture.directive":
            "disable error_on_graph_break graph_break allow_in_graph assume_constant_result "
            "nested_compile_region wrap_numpy is_exporting",
    },
    "lehr._dynamo": {
        "lehr.compiler.compile": "list_backends lookup_backend register_backend",
        "lehr.compiler.stance": "set_stance",
        "lehr.compiler.explain": "explain",
        "lehr.compiler.module": "OptimizedModule",
        "lehr.compiler.dynamo":
            "optimize optimize_assert run mark_dynamic mark_static maybe_mark_dynamic "
            "mark_unbacked mark_static_address reset",
        "lehr.tensor.mode": "is_compiling is_dynamo_compiling=is_compiling",
        "lehr.compiler.capture.directive":
            "disable error_on_graph_break graph_break allow_in_graph assume_constant_result "
            "nested_compile_region",
    },
    "lehr._dynamo.decorators": {
        "lehr.compiler.stance": "set_stance",
        "lehr.compiler.dynamo":
            "mark_dynamic mark_static maybe_mark_dynamic mark_unbacked mark_static_address",
        "lehr.compiler.capture.directive":
            "disable error_on_graph_break graph_break allow_in_graph",
    },
    "lehr._dynamo.eval_frame": {
        "lehr.compiler.module": "OptimizedModule",
        "lehr.compiler.dynamo": "optimize optimize_assert run",
        "lehr.compiler.explain": "explain",
        "lehr.compiler.capture.directive": "disable",
    },
    "lehr._dynamo.exc": {
        "lehr.compiler.site":
            "TorchDynamoException=CompilerError Unsupported "
            "RecompileLimitExceeded=RecompileLimit FailOnRecompileLimitHit=RecompileLimit",
    },
    "lehr._dynamo.utils": {
        "lehr.compiler.dynamo": "counters compile_times clone_inputs",
    },
    "lehr._dynamo.backends": {},
    "lehr._dynamo.backends.registry": {
        "lehr.compiler.compile": "list_backends lookup_backend register_backend",
    },
    "lehr._inductor": {
        "lehr.compiler.dynamo": "cudagraph_mark_step_begin",
    },
    "lehr._inductor.utils": {
        "lehr.compiler.dynamo": "fresh_cache fresh_inductor_cache=fresh_cache",
    },
    "lehr._functorch": {},
    "lehr._logging": {
        "lehr.compiler.setting": "set_logs",
    },
    "lehr.special": {},
    "lehr.linalg": {},
    "lehr.fft": {},
    "lehr.serialization": {
        "lehr.io": "save load",
        "lehr.io.location": "location_tag normalize_storage_type",
        "lehr.io.trust":
            "add_safe_globals clear_safe_globals get_safe_globals safe_globals",
    },
    "lehr.library": {
        "lehr.tensor.custom":
            "custom_op register_fake register_kernel register_autograd CustomOpDef",
    },
    "lehr.multiprocessing": {
        "lehr.compat.multiprocessing": "spawn",
    },
    "lehr.cuda.amp": {
        "lehr.amp.device":
            "custom_fwd custom_bwd autocast=cuda_autocast GradScaler=CudaScaler",
    },
    "lehr.cuda.amp.autocast_mode": {
        "lehr.amp.device": "custom_fwd custom_bwd autocast=cuda_autocast",
    },
    "lehr.cuda.amp.grad_scaler": {
        "lehr.amp.device": "GradScaler=CudaScaler",
    },
    "lehr.cpu.amp.autocast_mode": {
        "lehr.amp.device": "autocast=cpu_autocast",
    },
    "lehr.utils.dlpack": {
        "lehr.tensor.create": "from_dlpack to_dlpack",
    },
    "lehr.storage": {
        "lehr.tensor.memory": "UntypedStorage TypedStorage",
    },
    "lehr.distributions.utils": {
        "lehr.distributions.distribution":
            "broadcast_all=tensors clamp_probs logits_to_probs=from_logits "
            "probs_to_logits=from_probs",
    },
    "lehr.cpu.amp": {
        "lehr.amp.device": "autocast=cpu_autocast",
    },
    "lehr.amp.autocast_mode": {
        "lehr.tensor.autocast": "autocast is_autocast_available",
        "lehr.amp.custom": "custom_fwd custom_bwd",
    },
    "lehr.nn.functional": {
        "lehr.nn.inplace":
            "relu relu6 elu selu celu leaky_relu silu mish hardtanh hardsigmoid hardswish "
            "threshold",
        "lehr.nn.noise":
            "dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rrelu "
            "rrelu_ "
            "gumbel_softmax scaled_dot_product_attention",
        "lehr.nn.running": "batch_norm instance_norm",
        "lehr.nn.window":
            "max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d "
            "adaptive_max_pool3d",
        "lehr.nn.loss": "triplet_margin_with_distance_loss",
        "lehr.nn.lookup": "embedding embedding_bag",
        "lehr.nn.attention": "multi_head_attention_forward",
        "lehr.nn.fraction":
            "fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices "
            "fractional_max_pool3d_with_indices",
    },
}

# Public module without a file -> modules that it holds everything of.
MIRRORS: dict[str, str] = {
    "lehr.cuda": "lehr.accelerator.cuda",
    "lehr.cuda.memory": "lehr.accelerator.cuda",
    "lehr.cuda.random": "lehr.accelerator.cuda",
    "lehr.functional": "lehr",
    "lehr.cuda.nvtx": "lehr.accelerator.nvtx",
    "lehr.cpu": "lehr.accelerator.cpu",
    **{f"lehr.{kind}": "lehr.accelerator.families" for kind in ("xpu", "mps", "mtia")},
    "lehr.utils._pytree": "lehr.compat.pytree",
    "lehr.profiler": "lehr.utils.profile",
    "lehr.profiler.profiler": "lehr.utils.profile",
    "lehr.jit": "lehr.compat.jit",
    "lehr.jit.annotations": "lehr.compat.jit",
    "lehr.hub": "lehr.io.hub",
    "lehr.utils.model_zoo": "lehr.io.hub",
    "lehr.onnx": "lehr.compat.onnx",
    **{f"lehr.distributions.{name}": "lehr.distributions.continuous" for name in (
        "beta", "cauchy", "chi2", "dirichlet", "exponential", "gamma", "gumbel", "laplace",
        "pareto", "studentT", "uniform", "weibull")},
    **{f"lehr.distributions.{name}": "lehr.distributions.discrete" for name in (
        "bernoulli", "binomial", "categorical", "geometric", "multinomial",
        "one_hot_categorical", "poisson", "relaxed_bernoulli", "relaxed_categorical")},
    **{f"lehr.distributions.{name}": "lehr.distributions.normal" for name in (
        "half_normal", "independent", "log_normal", "multivariate_normal")},
    **{f"lehr.distributions.{name}": "lehr.distributions.transform" for name in (
        "transformed_distribution", "transforms")},
    "lehr.distributions.constraints": "lehr.distributions.constraint",
    "lehr.distributions.mixture_same_family": "lehr.distributions.mixture",
    "lehr.distributions.exp_family": "lehr.distributions.distribution",
    "lehr.vision.utils": "lehr.vision.grid",
    "lehr.vision.transforms.functional": "lehr.vision.picture",
    "lehr.vision.transforms.transforms": "lehr.vision.transforms",
    "lehr.vision.transforms.v2": "lehr.vision.transforms",
    "lehr.vision.transforms.v2.functional": "lehr.vision.picture",
    "lehr.vision.models.vision_transformer": "lehr.vision.models.transformer",
    "lehr.vision.models.mobilenetv2": "lehr.vision.models.mobilenet",
    "lehr.vision.models.alexnet": "lehr.vision.models.vgg",
    **{f"lehr.vision.datasets.{name}": "lehr.vision.datasets" for name in (
        "mnist", "cifar", "folder", "vision")},
    "lehr.version": "lehr.compat.version",
    "lehr.torch_version": "lehr.compat.version",
    "lehr.multiprocessing": "lehr.compat.multiprocessing",
    "lehr.multiprocessing.spawn": "lehr.compat.multiprocessing",
    "lehr.nn.modules": "lehr.nn",
    "lehr.nn.modules.activation": "lehr.nn.activation lehr.nn.attention",
    "lehr.nn.modules.adaptive": "lehr.nn.adaptive",
    "lehr.nn.modules.batchnorm": "lehr.nn.batch",
    "lehr.nn.modules.container": "lehr.nn.container",
    "lehr.nn.modules.conv": "lehr.nn.conv",
    "lehr.nn.modules.distance": "lehr.nn.loss",
    "lehr.nn.modules.dropout": "lehr.nn.dropout",
    "lehr.nn.modules.flatten": "lehr.nn.shape",
    "lehr.nn.modules.fold": "lehr.nn.shape",
    "lehr.nn.modules.instancenorm": "lehr.nn.batch",
    "lehr.nn.modules.lazy": "lehr.nn.lazy",
    "lehr.nn.modules.linear": "lehr.nn.linear lehr.nn.lazy",
    "lehr.nn.modules.loss": "lehr.nn.loss",
    "lehr.nn.modules.module": "lehr.nn.module lehr.nn.hook lehr.nn.state",
    "lehr.nn.modules.normalization": "lehr.nn.norm",
    "lehr.nn.modules.padding": "lehr.nn.pad",
    "lehr.nn.modules.pixelshuffle": "lehr.nn.shape",
    "lehr.nn.modules.pooling": "lehr.nn.pool lehr.nn.fraction",
    "lehr.nn.modules.rnn": "lehr.nn.recurrent lehr.nn.cell",
    "lehr.nn.modules.sparse": "lehr.nn.embedding",
    "lehr.nn.modules.transformer": "lehr.nn.transformer",
    "lehr.nn.modules.upsampling": "lehr.nn.shape",
    "lehr.nn.modules.utils": "lehr.nn.conv lehr.nn.state",
    **{f"lehr.optim.{name}": "lehr.optim.adaptive" for name in (
        "adadelta", "adagrad", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop")},
    "lehr.nn.parallel": "lehr.nn.replicate lehr.distributed.parallel",
    "lehr.nn.parallel.distributed": "lehr.distributed.parallel",
    "lehr.distributed.distributed_c10d":
        "lehr.distributed lehr.distributed.world lehr.distributed.collective",
    "lehr.nn.parallel.data_parallel": "lehr.nn.replicate",
    "lehr.optim.adamw": "lehr.optim.adam",
    "lehr.optim.swa_utils": "lehr.optim.average",
    "lehr.utils.data.dataloader": "lehr.utils.data.loader lehr.utils.data.worker",
    "lehr.utils.data.distributed": "lehr.utils.data.sampler",
    "lehr.utils.data._utils": "lehr.utils.data",
    "lehr.utils.data._utils.collate": "lehr.utils.data.collate",
}

# Public module -> the word of `Op.where` whose functions it also holds, made from the op registry.
GENERATED = {"lehr": "function", "lehr.special": "special", "lehr.linalg": "linalg",
             "lehr.fft": "fft",
             "lehr.nn.functional": "nn"}

CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793,
             "e": 2.718281828459045, "newaxis": None}


@functools.cache
def _names(space: str) -> dict[str, str]:
    """Name -> "module:attribute" of one public module."""
    return {word.split("=")[0]: f"{module}:{word.split('=')[-1]}"
            for module, words in TABLE.get(space, {}).items() for word in words.split()}


class Package(ModuleType):
    """A public module: a submodule (`lehr.tensor`) does not hide the function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _names(self.__name__)):
            super().__setattr__(name, value)


def _resolve(space: str, name: str) -> Any:
    """`__getattr__` of a public module."""
    place = _names(space).get(name)
    if name.startswith("__") and name != "__version__":
        found = MISSING
    elif place is not None:
        module, _, attribute = place.partition(":")
        found = getattr(_module(module, space, name), attribute)
    else:
        found = _submodule(f"{space}.{name}")
        if found is None and space in GENERATED:
            from lehr.tensor import api
            found = api.function(name, GENERATED[space])
        if found is None:
            found = _mirrored(space, name)
    if found is MISSING:
        raise AttributeError(f"module {space!r} has no attribute {name!r}")
    sys.modules[space].__dict__[name] = found
    return found


MISSING = object()


def _mirrored(space: str, name: str) -> Any:
    """What one of the modules that `space` mirrors has under the name (it may be None)."""
    for module in MIRRORS.get(space, "").split():
        found = getattr(importlib.import_module(module), name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def _module(path: str, space: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise
        raise AttributeError(f"{space}.{name} is not part of this build: it has no module "
                             f"{error.name}") from None


def _submodule(full: str) -> ModuleType | None:
    return importlib.import_module(full) if importlib.util.find_spec(full) is not None else None


def _listing(space: str) -> list[str]:
    """`__dir__` of a public module."""
    found = {*vars(sys.modules[space]), *_names(space)}
    found |= {name for module in MIRRORS.get(space, "").split()
              for name in vars(importlib.import_module(module)) if not name.startswith("__")}
    found |= {m.rpartition(".")[2] for m in TABLE if m.rpartition(".")[0] == space}
    if space in GENERATED:
        from lehr.tensor import api
        found |= set(api.names(GENERATED[space]))
    return sorted(found)


def _equip(module: ModuleType) -> None:
    space = module.__name__
    module.__dict__["__getattr__"] = functools.partial(_resolve, space)
    module.__dict__["__dir__"] = functools.partial(_listing, space)
    module.__class__ = Package


class Finder:
    """Makes the public modules that have no file, after Python's own finders have looked."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in TABLE and name not in MIRRORS:
            return None
        return ModuleSpec(name, Finder, is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        _equip(module)


# Packages with a file whose submodules are attributes before they are imported, as in PyTorch.
PACKAGES = frozenset(parent for name in (*TABLE, *MIRRORS, "lehr.utils.tensorboard.writer")
                     if (parent := name.rpartition(".")[0]) not in (*TABLE, *MIRRORS, ""))


class Loader(SourceFileLoader):
    """Loads one of PACKAGES."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.__dict__.setdefault("__getattr__", functools.partial(_child, module.__name__))


def _child(space: str, name: str) -> Any:
    """`__getattr__` of one of PACKAGES."""
    found = None if name.startswith("__") else _submodule(f"{space}.{name}")
    if found is None:
        raise AttributeError(f"module {space!r} has no attribute {name!r}",
                             name=name, obj=sys.modules[space])
    return found


class PackageFinder:
    """Finds PACKAGES, before Python's own finders do."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in PACKAGES else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


globals().update(CONSTANTS)
_equip(sys.modules[__name__])
sys.meta_path.append(Finder)  # type: ignore[arg-type]
sys.meta_path.insert(0, PackageFinder)  # type: ignore[arg-type]

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
