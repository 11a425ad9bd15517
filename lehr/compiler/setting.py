"""PyTorch's settings of its compiler, as options of lehr: tables, and the modules that show them.

A setting without an option has nothing to switch here: what it asks for always holds, or there is
no such part. It is remembered, so that programs read back what they wrote.
"""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from lehr.base import log, options
from lehr.compiler import stance


class Setting(NamedTuple):
    """One setting of PyTorch.

    default  what it is at first
    option   the option of lehr that it sets
    words    its value -> that option's value; empty: the same value
    act      what setting it does, where that is no option
    """

    default: Any
    option: str | None = None
    words: Mapping[Any, Any] = {}
    act: Callable[[Any], Any] | None = None


NOT = {True: False, False: True}
DYNAMIC = {True: None, False: False}        # sizes generalise as they change, or never


def stance_while(name: str) -> Callable[[Any], Any]:
    return lambda on: stance.change(name if on else "default")


DYNAMO: dict[str, Setting] = {
    "recompile_limit": Setting(8, "recompile_limit"),
    "cache_size_limit": Setting(8, "recompile_limit"),
    "suppress_errors": Setting(True, "suppress_errors"),
    "automatic_dynamic_shapes": Setting(True, "dynamic", DYNAMIC),
    "error_on_recompile": Setting(False, act=stance_while("fail_on_recompile")),
    "disable": Setting(False, act=stance_while("force_eager")),
    # What these ask for always holds here.
    **{name: Setting(True) for name in (
        "guard_nn_modules", "inline_inbuilt_nn_modules", "capture_scalar_outputs",
        "capture_dynamic_output_shape_ops", "assume_static_by_default", "trace_numpy",
        "force_parameter_static_shapes", "force_nn_module_property_static_shapes", "dynamic_shapes",
        "allow_rnn", "verbose", "nested_graph_breaks", "capture_func_transforms", "specialize_int",
        "specialize_float", "use_graph_deduplication")},
    # There is no such part.
    **{name: Setting(False) for name in (
        "compiled_autograd", "caching_precompile", "track_nodes_for_deduplication",
        "report_guard_failures", "log_compilation_metrics", "prepare_freezing",
        "skip_fsdp_hooks", "only_allow_pt2_compliant_ops", "replay_record_enabled")},
    "optimize_ddp": Setting(True), "accumulated_cache_size_limit": Setting(256),
    "accumulated_recompile_limit": Setting(256), "base_dir": Setting(""),
    "repro_tolerance": Setting(1e-3), "repro_after": Setting(None), "repro_level": Setting(2),
    "log_level": Setting(logging.WARNING), "log_file_name": Setting(None),
}

INDUCTOR: dict[str, Setting] = {
    "max_autotune": Setting(False, "mode", {True: "max-autotune", False: "default"}),
    "triton.cudagraphs": Setting(False, "cudagraphs"),
    "fx_graph_cache": Setting(True, "cache"),
    "force_disable_caches": Setting(False, "cache", NOT),
    "compile_threads": Setting(2, "jobs"),
    "cpp.threads": Setting(0, "threads", {-1: 0}),
    "cpp.weight_prepack": Setting(True, "pack_weights"),
    **{name: Setting(False) for name in (
        "coordinate_descent_tuning", "max_autotune_gemm", "max_autotune_pointwise", "freezing",
        "benchmark_kernel", "benchmark_fusion", "fallback_random", "emulate_precision_casts",
        "force_fuse_int_mm_with_mul", "use_mixed_mm", "memory_planning", "debug", "cpp_wrapper",
        "coordinate_descent_check_all_directions", "group_fusion", "autotune_local_cache",
        "trace.enabled", "trace.graph_diagram", "triton.cudagraph_trees",
        "profiler_mark_wrapper_call", "triton.unique_kernel_names", "triton.store_cubin",
        "triton.autotune_pointwise",
        "triton.tiling_prevents_pointwise_fusion", "cpp.descriptive_names",
        "cpp.enable_kernel_profile", "cpp.enable_floating_point_contract_flag")},
    **{name: Setting(True) for name in (
        "epilogue_fusion", "shape_padding", "pattern_matcher", "conv_1x1_as_mm", "split_reductions",
        "reorder_for_locality", "dce", "allow_buffer_reuse", "layout_optimization",
        "fx_graph_remote_cache", "bundled_autotune_remote_cache", "b2b_gemm_pass",
        "reorder_for_compute_comm_overlap", "triton.persistent_reductions")},
    "cpp.simdlen": Setting(None), "cpp.min_chunk_size": Setting(4096), "cpp.cxx": Setting(None),
    "max_autotune_gemm_backends": Setting("ATEN,TRITON,CPP"), "joint_graph_constant_folding":
        Setting(True), "max_fusion_size": Setting(64), "unroll_reductions_threshold": Setting(8),
}


FUNCTORCH: dict[str, Setting] = {
    "activation_memory_budget": Setting(1.0, "activation_memory_budget"),
    # What these ask for always holds here.
    **{name: Setting(True) for name in (
        "treat_parameters_as_free_to_save", "functionalize_rng_ops", "cse", "recompute_views",
        "view_replay_for_aliased_outputs")},
    # How the budget is spent is not to be chosen.
    "activation_memory_budget_runtime_estimator": Setting("flops"),
    "activation_memory_budget_solver": Setting("dp"),
    **{name: Setting(False) for name in (
        "ban_recompute_used_far_apart", "ban_recompute_long_fusible_chains",
        "ban_recompute_materialized_backward", "ban_recompute_not_in_allowlist",
        "ban_recompute_reductions", "aggressive_recomputation", "donated_buffer", "debug_assert",
        "debug_partitioner")},
}


def translate(given: Mapping[str, Any]) -> dict[str, Any]:
    """`options=` of `lehr.compile` by lehr's own names; an unknown name stays as it is."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        setting = INDUCTOR.get(name)
        if name in options.FIELDS or setting is None:
            found[name] = value
        elif setting.option is not None:
            found[setting.option] = setting.words.get(value, value)
    return found


class Config(ModuleType):
    """The module of a table of settings: attributes read and write them, for all threads."""

    def __getattr__(self, name: str) -> Any:
        return Group.read(self.__dict__["root"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self.__dict__["root"].write(name, value)

    def __dir__(self) -> list[str]:
        return sorted({"patch", *(n.split(".")[0] for n in self.__dict__["root"].table)})

    def patch(self, *given: Any, **changes: Any) -> Patch:
        """Settings that hold inside a context manager or decorated function: `patch(name=value)`,
        `patch({name: value})` or `patch(name, value)`.
        """
        return Patch(self.__dict__["root"], named(given, changes))


def equip(module: ModuleType, table: dict[str, Setting]) -> None:
    """Makes a module the `Config` of a table."""
    module.__dict__["root"] = Group(module.__name__, table, "", {})
    module.__class__ = Config


class Group:
    """Settings whose names begin alike: `config.triton`."""

    title: str
    table: dict[str, Setting]
    prefix: str
    kept: dict[str, Any]

    def __init__(self, title: str, table: dict[str, Setting], prefix: str, kept: dict[str, Any]
                 ) -> None:
        self.__dict__.update(title=title, table=table, prefix=prefix, kept=kept)

    def read(self, name: str) -> Any:
        full = self.prefix + name
        setting = self.table.get(full)
        if setting is None:
            if full in self.kept:
                return self.kept[full]
            if any(n.startswith(full + ".") for n in self.table):
                return Group(self.title, self.table, full + ".", self.kept)
            raise AttributeError(f"{self.title} has no setting {full!r}{self.near(full)}")
        if setting.option is None:
            return self.kept.get(full, setting.default)
        now = getattr(options.default(), setting.option)
        return next((k for k, v in setting.words.items() if v == now), now)

    def write(self, name: str, value: Any) -> None:
        """AttributeError where the name stands for a group; a warning where it is unknown."""
        full = self.prefix + name
        setting = self.table.get(full)
        if setting is None:
            if any(n.startswith(full + ".") for n in self.table):
                raise AttributeError(f"{self.title}.{full} holds settings and is none itself")
            log.warn_once(("setting", self.title, full),
                          f"{self.title} knows no setting {full!r}, which changes nothing"
                          f"{self.near(full)}")
        elif setting.option is not None:
            new = setting.words.get(value, value)
            options.set_default(options.default().replace(**{setting.option: new}))
            return
        elif setting.act is not None:
            setting.act(value)
        self.kept[full] = value

    def near(self, name: str) -> str:
        found = difflib.get_close_matches(name, self.table, 3, 0.6)
        return f"; is it {' or '.join(found)}?" if found else ""

    __getattr__, __setattr__ = read, write


class Patch:
    """Settings changed for a while."""

    def __init__(self, group: Group, changes: dict[str, Any]) -> None:
        self.group, self.changes = group, changes
        self.before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self.before.append({n: self.group.read(n) for n in self.changes})
        self.put(self.changes)

    def __exit__(self, *exc: Any) -> None:
        self.put(self.before.pop())

    def put(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.group.write(name, value)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def patched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return patched


def named(given: tuple[Any, ...], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings that `patch` was given in one of its forms."""
    if len(given) == 2:
        return {given[0]: given[1], **changes}
    return {**(given[0] if given else {}), **changes}


# Name in `torch._logging.set_logs` -> channels of lehr.
LOGS: dict[str, tuple[str, ...]] = {
    "all": tuple(log.CHANNELS), "dynamo": ("breaks", "capture", "recompiles"), "aot": ("passes",),
    "inductor": ("emit", "fusion", "memory", "passes"), "graph_breaks": ("breaks",),
    "recompiles": ("recompiles",), "recompiles_verbose": ("recompiles", "guards"),
    "guards": ("guards",), "graph": ("graph",), "graph_code": ("graph",), "aot_graphs": ("graph",),
    "aot_joint_graph": ("graph",), "graph_sizes": ("graph",), "output_code": ("emit",),
    "kernel_code": ("emit",), "fusion": ("fusion",), "schedule": ("fusion",), "bytecode": (),
    "overlap": (), "perf_hints": ("tune",), "autotuning": ("tune",), "cudagraphs": ("run",),
    "dynamic": (), "ddp_graphs": (), "distributed": (), "onnx": (), "torch": (), "export": (),
    "benchmarking": ("tune",), "cudagraph_static_inputs": (), "trace_source": (),
    "trace_call": (), "trace_bytecode": (), "verbose_guards": ("guards",), "modules": ()}


def set_logs(**wanted: Any) -> None:
    """Prints what the compiler does, to standard error; a call replaces the one before.

    wanted: name -> True, or a level of `logging` up to INFO. ValueError for a name not in LOGS.
    """
    unknown = [n for n in wanted if n not in LOGS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], LOGS, 3) or sorted(LOGS)
        raise ValueError(f"set_logs() knows no {unknown[0]!r}; is it {', '.join(near)}?")
    on = sorted(set(channels(wanted)))
    options.set_default(options.default().replace(log=",".join(on)))
    log.refresh()


def channels(wanted: Mapping[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if value is True or type(value) is int and 0 < value <= logging.INFO:
            yield from LOGS[name]
