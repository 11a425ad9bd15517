"""The workloads for frameworks with PyTorch's API: lehr, or torch answering to that name."""

import importlib
from typing import Any

import numpy as np

import lehr as torch
from lehr import nn
from lehr.cli.bench import workload
from lehr.cli.bench.cases.resnet import ResNet
from lehr.cli.bench.workload import Arrays
from lehr.cli.demo.model import GPT, Block

F = nn.functional
FREEZING = "freezing"


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def mlp(given, compiled):
    pairs = zip(workload.MLP, workload.MLP[1:], strict=False)
    layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())]
    return module(nn.Sequential(*layers[:-1]), given, compiled)


def vit_block(given, compiled):
    model = Block(workload.VIT_WIDTH, workload.VIT_HEADS, causal=False)
    return module(model, given, compiled)


def module(model, given, compiled):
    x = given.pop("x")
    model.load_state_dict(given)
    return compiled(model.eval()), (x,)


def gpt(given, compiled, whole):
    tokens, targets = given.pop("tokens"), given.pop("targets")
    model = GPT(
        workload.GPT_LAYERS, workload.GPT_WIDTH, workload.GPT_HEADS, workload.GPT_CONTEXT
    )
    model.load_state_dict(given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=workload.RATE)
    forward = model if whole else compiled(model)

    def step(tokens, targets):
        loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return compiled(step) if whole else step, (tokens, targets)


def resnet18(given, compiled):
    images, labels = given.pop("images"), given.pop("labels")
    model = ResNet(workload.STAGES, workload.CLASSES)
    model.load_state_dict(given)
    optimizer = torch.optim.SGD(model.parameters(), lr=workload.RATE, momentum=workload.MOMENTUM)

    def step(images, labels):
        loss = model(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return compiled(step), (images, labels)


def bn_relu(given, compiled):
    mean, var = torch.zeros(64), torch.ones(64)

    def f(x, weight, bias):
        return F.relu(F.batch_norm(x, mean, var, weight, bias, True))

    return compiled(f), tuple(given.values())


def gemm(given, compiled):
    return compiled(lambda x, other: x @ other), (given["x"], given["other"])


def copy(given, compiled):
    return compiled(lambda x: x.clone()), (given["x"],)


def softmax(given, compiled):
    return compiled(lambda x: torch.softmax(x, -1)), (given["x"],)


def ln_gelu_add(given, compiled):
    def f(x, residual, weight, bias):
        return F.gelu(F.layer_norm(x, (x.shape[-1],), weight, bias)) + residual

    return compiled(f), tuple(given.values())


def pointwise6(given, compiled):
    def f(x):
        return torch.sqrt(torch.relu(torch.sigmoid(x * 1.5 + 0.25) * x)).sum()

    return compiled(f), (given["x"],)


def tiny_call(given, compiled):
    return compiled(lambda x: x * 2 + 1), (given["x"],)


CASES = {
    "gemm": gemm,
    "copy": copy,
    "mlp": mlp,
    "vit_block": vit_block,
    "gpt_step": lambda given, compiled: gpt(given, compiled, whole=True),
    "gpt_model": lambda given, compiled: gpt(given, compiled, whole=False),
    "resnet18_step": resnet18,
    "bn_relu": bn_relu,
    "softmax": softmax,
    "ln_gelu_add": ln_gelu_add,
    "pointwise6": pointwise6,
    "tiny_call": tiny_call,
}
TRAINING = {"gpt_step", "gpt_model", "resnet18_step"}


def build(name: str, mode: str, arrays: Arrays, tuning: str):
    """(run, read): `run()` computes once and gives a result; `read` turns one into numpy."""
    if tuning == FREEZING:  # a setting beside the modes: weights become constants of the program
        settings: Any = importlib.import_module(f"{torch.__name__}._inductor.config")
        settings.freezing = True
        tuning = "default"
    more = {} if mode in ("eager", "compiled") else {"options": {"library": mode}}

    def compiled(f):
        return f if mode == "eager" else torch.compile(f, mode=tuning, **more)

    name, half = name.removesuffix("_bf16"), workload.WORKLOADS[name].half
    function, inputs = CASES[name](tensors(arrays), compiled)

    def infer():
        with torch.no_grad():
            return function(*inputs)

    plain = (lambda: function(*inputs)) if name in TRAINING else infer

    def rounded():
        with torch.autocast("cpu", torch.bfloat16):
            return plain()

    return rounded if half else plain, lambda result: np.asarray(result.float().numpy())


def threads(count: int) -> None:
    torch.set_num_threads(count)
