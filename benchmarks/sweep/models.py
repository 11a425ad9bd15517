"""Small whole models of many kinds: name -> (module, what makes its arguments)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Cases = dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]]


def cases(torch: Any) -> Cases:
    made: Cases = {}
    for family in (classifiers, mobile, generators, denoiser, sequences, transformers, others):
        made |= family(torch, torch.nn, torch.nn.functional)
    return made


def of(torch: Any, *shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(shape),)


def head(nn: Any, width: int) -> list[Any]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def classifiers(torch: Any, nn: Any, F: Any) -> Cases:
    lenet = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(128, 10), nn.LogSoftmax(1))
    stages = [layer for i, o in ((3, 64), (64, 128), (128, 256))
              for layer in (nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))]
    vgg = nn.Sequential(*stages, nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))
    return {"lenet": (lenet, of(torch, 32, 1, 28, 28)), "vgg": (vgg, of(torch, 16, 3, 32, 32))}


def mobile(torch: Any, nn: Any, F: Any) -> Cases:
    class Inverted(nn.Module):
        def __init__(self, i: int, o: int, stride: int, wider: int = 4) -> None:
            super().__init__()
            h = i * wider
            self.residual = stride == 1 and i == o
            self.body = nn.Sequential(
                nn.Conv2d(i, h, 1, bias=False), nn.BatchNorm2d(h), nn.ReLU6(),
                nn.Conv2d(h, h, 3, stride, 1, groups=h, bias=False), nn.BatchNorm2d(h), nn.ReLU6(),
                nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.residual else self.body(x)

    class ConvNext(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.depth, self.norm = nn.Conv2d(d, d, 7, padding=3, groups=d), nn.LayerNorm(d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.scale = nn.Parameter(torch.full((d,), 1e-2))

        def forward(self, x: Any) -> Any:
            y = self.norm(self.depth(x).permute(0, 2, 3, 1))
            y = self.down(F.gelu(self.up(y))) * self.scale
            return x + y.permute(0, 3, 1, 2)

    mobilenet = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), Inverted(16, 16, 1), Inverted(16, 24, 2), Inverted(24, 24, 1),
        Inverted(24, 40, 2), Inverted(40, 40, 1), *head(nn, 40))
    convnext = nn.Sequential(
        nn.Conv2d(3, 64, 4, 4), ConvNext(64), ConvNext(64), nn.Conv2d(64, 128, 2, 2),
        ConvNext(128), ConvNext(128), *head(nn, 128))
    return {"mobilenet": (mobilenet, of(torch, 8, 3, 64, 64)),
            "convnext": (convnext, of(torch, 8, 3, 96, 96))}


def generators(torch: Any, nn: Any, F: Any) -> Cases:
    def up(i: int, o: int, stride: int, padding: int) -> list[Any]:
        return [nn.ConvTranspose2d(i, o, 4, stride, padding, bias=False), nn.BatchNorm2d(o),
                nn.ReLU()]

    def down(i: int, o: int) -> list[Any]:
        return [nn.Conv2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.LeakyReLU(0.2)]

    generator = nn.Sequential(*up(64, 128, 1, 0), *up(128, 64, 2, 1), *up(64, 32, 2, 1),
                              nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), *down(32, 64),
                           *down(64, 128), nn.Conv2d(128, 1, 4))

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.out = nn.Linear(784, 400), nn.Linear(400, 784)
            self.mean, self.spread, self.back = (nn.Linear(400, 20), nn.Linear(400, 20),
                                                 nn.Linear(20, 400))

        def forward(self, x: Any) -> Any:
            h = F.relu(self.wide(x))
            mean, spread = self.mean(h), self.spread(h)
            z = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
            return torch.sigmoid(self.out(F.relu(self.back(z))))

    return {"generator": (generator, of(torch, 16, 64, 1, 1)),
            "critic": (critic, of(torch, 16, 3, 32, 32)),
            "autoencoder": (Autoencoder(), of(torch, 128, 784))}


def denoiser(torch: Any, nn: Any, F: Any) -> Cases:
    class Residual(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.before, self.first = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
            self.between, self.second = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
            self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = self.first(F.silu(self.before(x)))
            return self.skip(x) + self.second(F.silu(self.between(y)))

    class Attention(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = (nn.GroupNorm(8, d), nn.Conv2d(d, 3 * d, 1),
                                             nn.Conv2d(d, d, 1))

        def forward(self, x: Any) -> Any:
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).reshape(b, 3, 4, c // 4, h * w).transpose(
                -1, -2).unbind(1)
            y = F.scaled_dot_product_attention(q, k, v)
            return x + self.out(y.transpose(-1, -2).reshape(b, c, h, w))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.out = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
            self.high, self.middle = Residual(32, 32), Residual(64, 64)
            self.down, self.lower = nn.Conv2d(32, 64, 3, 2, 1), nn.Conv2d(64, 64, 3, 2, 1)
            self.low = nn.Sequential(Residual(64, 64), Attention(64), Residual(64, 64))
            self.up, self.upper = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 32, 3, padding=1)
            self.join, self.last = Residual(128, 64), Residual(64, 32)

        def forward(self, x: Any) -> Any:
            a = self.high(self.stem(x))
            b = self.middle(self.down(a))
            c = self.up(F.interpolate(self.low(self.lower(b)), scale_factor=2))
            c = self.upper(F.interpolate(self.join(torch.cat([c, b], 1)), scale_factor=2))
            return self.out(self.last(torch.cat([c, a], 1)))

    return {"unet": (UNet(), of(torch, 4, 3, 32, 32))}


def sequences(torch: Any, nn: Any, F: Any) -> Cases:
    words = torch.randint(0, 1000, (16, 32))

    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(1000, 128)
            self.body, self.out = nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 1000)

        def forward(self, noise: Any) -> Any:
            return self.out(self.body(self.words(words) + noise)[0])

    class Waves(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.wide = nn.ModuleList([nn.Conv1d(d, 2 * d, 3, padding=2**i, dilation=2**i)
                                       for i in range(5)])
            self.out = nn.ModuleList([nn.Conv1d(d, d, 1) for _ in range(5)])

        def forward(self, x: Any) -> Any:
            for wide, out in zip(self.wide, self.out, strict=True):
                a, b = wide(x).chunk(2, 1)
                x = x + out(a.tanh() * b.sigmoid())
            return x

    return {"lstm_language_model": (Language(), of(torch, 1)),
            "waves": (Waves(32), of(torch, 4, 32, 800))}


def transformers(torch: Any, nn: Any, F: Any) -> Cases:
    place = torch.arange(128)[:, None] * (1e4 ** (-torch.arange(0, 32) / 32))[None]
    cos, sin = torch.cat([place.cos()] * 2, -1), torch.cat([place.sin()] * 2, -1)

    class Norm(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    class Llama(nn.Module):
        def __init__(self, d: int = 256, wide: int = 688) -> None:
            super().__init__()
            self.before, self.between = Norm(d), Norm(d)
            self.q, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.k, self.v = nn.Linear(d, 128, bias=False), nn.Linear(d, 128, bias=False)
            self.gate, self.up = nn.Linear(d, wide, bias=False), nn.Linear(d, wide, bias=False)
            self.down = nn.Linear(wide, d, bias=False)

        def forward(self, x: Any) -> Any:
            b, n, d = x.shape
            y = self.before(x)
            q, k, v = (f(y).view(b, n, -1, 64).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = (z * cos + torch.cat([-z[..., 32:], z[..., :32]], -1) * sin for z in (q, k))
            k, v = (z.repeat_interleave(2, 1) for z in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
            y = self.between(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Mixer(nn.Module):
        def __init__(self, n: int, d: int) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(d), nn.LayerNorm(d)
            self.tokens, self.channels = (nn.Sequential(nn.Linear(k, k * f), nn.GELU(),
                                                        nn.Linear(k * f, k))
                                          for k, f in ((n, 2), (d, 4)))

        def forward(self, x: Any) -> Any:
            x = x + self.tokens(self.before(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.between(x))

    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
    return {"llama": (nn.Sequential(*[Llama() for _ in range(3)]), of(torch, 4, 128, 256)),
            "encoder": (nn.TransformerEncoder(layer, 3), of(torch, 8, 64, 128)),
            "mixer": (nn.Sequential(*[Mixer(64, 128) for _ in range(4)]),
                      of(torch, 16, 64, 128))}


def others(torch: Any, nn: Any, F: Any) -> Cases:
    start, end = torch.randint(0, 2000, (20000,)), torch.randint(0, 2000, (20000,))

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 16)

        def forward(self, x: Any) -> Any:
            h = torch.zeros(2000, 128).index_add(0, end, self.first(x)[start])
            h = torch.zeros(2000, 16).index_add(0, end, self.second(F.relu(h))[start])
            return F.log_softmax(h, -1)

    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                           nn.Linear(64, 2))
    return {"graph": (Graph(), of(torch, 2000, 64)), "policy": (policy, of(torch, 32, 4))}
