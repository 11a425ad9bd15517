"""Code as it is written in public model hubs: configurations, outputs, caches, masks."""

import functools
import inspect
import math
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Optional

import lehr as torch
import lehr.nn.functional as F
from lehr import nn
from lehr.utils.checkpoint import checkpoint

from styles.case import style

B, T, D = 2, 6, 16


@dataclass
class Config:
    hidden_size: int = D
    num_attention_heads: int = 2
    num_hidden_layers: int = 2
    vocab_size: int = 20
    hidden_act: str = "gelu_new"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.0
    use_cache: bool = False
    output_attentions: bool = False
    tie: bool = True
    extra: dict = field(default_factory=dict)
    attribute_map = {"n_embd": "hidden_size"}

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads

    @property
    def use_return_dict(self):
        return self.extra.get("return_dict", True)

    def __getattr__(self, name):
        mapped = type(self).attribute_map.get(name)
        if mapped is None:
            raise AttributeError(name)
        return getattr(self, mapped)


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3.0))))


class Activations(OrderedDict):
    def __getitem__(self, key):
        content = super().__getitem__(key)
        cls, kwargs = content if isinstance(content, tuple) else (content, {})
        return cls(**kwargs)


ACT2FN = Activations(gelu_new=NewGELU, relu=nn.ReLU, leaky=(nn.LeakyReLU, {"negative_slope": 0.2}))


class Output(OrderedDict):
    """A record that is a dict, a tuple and has attributes."""

    def __post_init__(self):
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None:
                self[f.name] = value

    def __getitem__(self, key):
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclass
class LMOutput(Output):
    loss: Optional[torch.Tensor] = None
    logits: torch.Tensor = None
    hidden_states: Optional[tuple] = None


class Cache:
    def __init__(self):
        self.key_cache, self.value_cache = [], []
        self._seen = 0

    def update(self, k, v, layer_idx, cache_kwargs=None):
        if layer_idx == 0:
            self._seen += k.shape[-2]
        if len(self.key_cache) <= layer_idx:
            self.key_cache.append(k)
            self.value_cache.append(v)
        else:
            self.key_cache[layer_idx] = torch.cat([self.key_cache[layer_idx], k], dim=-2)
            self.value_cache[layer_idx] = torch.cat([self.value_cache[layer_idx], v], dim=-2)
        return self.key_cache[layer_idx], self.value_cache[layer_idx]

    def get_seq_length(self, layer_idx=0):
        return 0 if len(self.key_cache) <= layer_idx else self.key_cache[layer_idx].shape[-2]

    def __len__(self):
        return len(self.key_cache)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


def apply_rope(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)


class Rotary(nn.Module):
    inv_freq: torch.Tensor

    def __init__(self, dim, base=10000):
        super().__init__()
        inv = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
        self.register_buffer("inv_freq", inv, persistent=False)
        self.original = self.inv_freq

    @torch.no_grad()
    def forward(self, x, position_ids):
        inv = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        positions = position_ids[:, None, :].float()
        with torch.autocast(device_type=x.device.type, enabled=False):
            freqs = (inv.float() @ positions.float()).transpose(1, 2)
            emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype=x.dtype), emb.sin().to(dtype=x.dtype)


def repeat_kv(x, n_rep):
    b, heads, t, d = x.shape
    if n_rep == 1:
        return x
    return x[:, :, None, :, :].expand(b, heads, n_rep, t, d).reshape(b, heads * n_rep, t, d)


class Attention(nn.Module):
    def __init__(self, config, layer_idx=None):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.num_heads = config.num_attention_heads
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(config.hidden_size, self.num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.head_dim, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask=None, position_embeddings=None,
                past_key_value=None, output_attentions=False, **kwargs):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        q = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        k = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        v = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        q, k = apply_rope(q, k, *position_embeddings)
        if past_key_value is not None:
            k, v = past_key_value.update(k, v, self.layer_idx, {"position": 0})
        k, v = repeat_kv(k, self.num_heads), repeat_kv(v, self.num_heads)
        weights = torch.matmul(q, k.transpose(2, 3)) * self.scaling
        if attention_mask is not None:
            weights = weights + attention_mask[:, :, :, : k.shape[-2]]
        weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        weights = nn.functional.dropout(weights, p=0.0 if not self.training else 0.0)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous()
        out = self.o_proj(out.reshape(*input_shape, -1).contiguous())
        return out, weights if output_attentions else None


class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, 2 * config.n_embd)
        self.down = nn.Linear(2 * config.n_embd, config.hidden_size)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down(self.act(self.gate(x)))


class Checkpointed(nn.Module):
    gradient_checkpointing = False

    def __call__(self, *args, **kwargs):
        if self.gradient_checkpointing and self.training:
            call = functools.partial(super().__call__, **kwargs)
            return checkpoint(call, *args, use_reentrant=False)
        return super().__call__(*args, **kwargs)


class Layer(Checkpointed):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn = Attention(config=config, layer_idx=layer_idx)
        self.mlp = MLP(config)
        self.norm1 = RMSNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.norm2 = RMSNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states, **kwargs):
        residual = hidden_states
        hidden_states, attn = self.self_attn(hidden_states=self.norm1(hidden_states), **kwargs)
        hidden_states = residual + hidden_states
        hidden_states = hidden_states + self.mlp(self.norm2(hidden_states))
        outputs = (hidden_states,)
        if kwargs.get("output_attentions"):
            outputs += (attn,)
        return outputs


class Model(nn.Module):
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size)
        self.rotary = Rotary(config.head_dim)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie:
            self.lm_head.weight = self.embed_tokens.weight

    @property
    def dtype(self):
        return next(p for p in self.parameters() if p.is_floating_point()).dtype

    @property
    def device(self):
        return next(self.parameters()).device

    def _causal(self, attention_mask, t, past):
        total = past + t
        lowest = torch.finfo(self.dtype).min
        mask = torch.full((t, total), fill_value=lowest, dtype=self.dtype, device=self.device)
        if t != 1:
            mask = torch.triu(mask, diagonal=1)
        mask *= torch.arange(total) > torch.arange(past, total).reshape(-1, 1)
        mask = mask[None, None, :, :].expand(B, 1, -1, -1)
        if attention_mask is not None:
            mask = mask.clone()
            n = attention_mask.shape[-1]
            padding = mask[:, :, :, :n] + attention_mask[:, None, None, :]
            padding = padding == 0
            mask[:, :, :, :n] = mask[:, :, :, :n].masked_fill(padding, lowest)
        return mask

    def forward(self, input_ids=None, attention_mask=None, labels=None, past_key_values=None,
                use_cache=None, output_attentions=None, output_hidden_states=None,
                return_dict=None, **kwargs):
        use_cache = use_cache if use_cache is not None else self.config.use_cache
        output_attentions = (output_attentions if output_attentions is not None
                             else self.config.output_attentions)
        return_dict = return_dict if return_dict is not None else self.config.use_return_dict
        if input_ids is None:
            raise ValueError("You have to specify input_ids")
        if use_cache and past_key_values is None:
            past_key_values = Cache()
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        hidden = self.embed_tokens(input_ids)
        t = hidden.shape[1]
        position_ids = torch.arange(past, past + t, device=hidden.device).unsqueeze(0)
        mask = self._causal(attention_mask, t, past)
        embeddings = self.rotary(hidden, position_ids)
        every = () if output_hidden_states else None
        for idx, layer in enumerate(self.layers[: self.config.num_hidden_layers]):
            if output_hidden_states:
                every += (hidden,)
            hidden = layer(hidden, attention_mask=mask, position_embeddings=embeddings,
                           past_key_value=past_key_values,
                           output_attentions=output_attentions, idx=idx)[0]
        hidden = self.norm(hidden)
        logits = self.lm_head(hidden).float()
        loss = None
        if labels is not None:
            shift = logits[..., :-1, :].contiguous()
            target = labels[..., 1:].contiguous()
            loss = F.cross_entropy(shift.view(-1, self.config.vocab_size), target.view(-1),
                                   ignore_index=-100)
        if not return_dict:
            output = (logits, every)
            return ((loss, *output)) if loss is not None else output
        return LMOutput(loss=loss, logits=logits, hidden_states=every)


def ids(n=1):
    return [torch.randint(0, 20, (B, T)) for _ in range(n)]


@style
def hub_forward():
    return Model(Config()), [(x,) for x in ids(3)], None


@style
def hub_tuple_output():
    m = Model(Config(extra={"return_dict": False}))
    return (lambda x: m(x, labels=x, output_hidden_states=True)), [(x,) for x in ids(3)], None


@style
def hub_step():
    m = Model(Config())
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2)

    def step(x):
        out = m(input_ids=x, labels=x)
        out.loss.backward()
        opt.step()
        opt.zero_grad()
        return out.loss, out["logits"], out[0]
    return step, [(x,) for x in ids(3)], lambda: list(m.parameters())


@style
def hub_checkpointed_step():
    m = Model(Config())
    for layer in m.layers:
        layer.gradient_checkpointing = True
    opt = torch.optim.SGD(m.parameters(), lr=1e-1)

    def step(x):
        loss = m(input_ids=x, labels=x).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, [(x,) for x in ids(3)], lambda: list(m.parameters())


@style
def hub_padding_mask():
    m = Model(Config()).eval()
    mask = torch.ones(B, T)
    mask[0, :2] = 0
    return m, [(x, mask) for x in ids(3)], None


@style
def hub_cache_inside():
    """Greedy decoding with a cache, all of it in one call."""
    m = Model(Config(use_cache=True)).eval()

    @torch.no_grad()
    def generate(x, n=4):
        cache = Cache()
        logits = m(x, past_key_values=cache).logits
        tokens = [x]
        for _ in range(n):
            new = logits[:, -1:].argmax(-1)
            tokens.append(new)
            logits = m(new, past_key_values=cache).logits
        return torch.cat(tokens, dim=1), len(cache), cache.get_seq_length()
    return generate, [(x,) for x in ids(3)], None


class StaticCache:
    def __init__(self, heads, length, dim):
        self.k, self.v = torch.zeros(B, heads, length, dim), torch.zeros(B, heads, length, dim)

    def update(self, k, v, position):
        self.k.index_copy_(2, position, k)
        self.v.index_copy_(2, position, v)
        return self.k, self.v

    def reset(self):
        self.k.zero_()
        self.v.zero_()


@style
def hub_static_cache():
    cache = StaticCache(1, 8, 4)
    proj = nn.Linear(4, 12)

    def step(x, position):
        q, k, v = proj(x).chunk(3, dim=-1)
        k, v = cache.update(k, v, position)
        mask = torch.arange(k.shape[2]) > position[-1]
        scores = (q @ k.mT).masked_fill(mask, float("-inf"))
        return scores.softmax(-1) @ v
    def run(x, position):
        with torch.no_grad():
            return step(x, position)
    args = [(torch.randn(B, 1, 1, 4), torch.tensor([i])) for i in range(4)]
    return run, args, lambda: [cache.k, cache.v]


@style
def hub_signature_filter():
    """Arguments chosen by the signature of forward."""
    m = Model(Config())
    accepted = set(inspect.signature(m.forward).parameters)

    def call(batch):
        return m(**{k: v for k, v in batch.items() if k in accepted and k != "kwargs"}).logits
    return call, [({"input_ids": x, "labels": x, "idx": 3},) for x in ids(3)], None


@style
def hub_act_registry():
    table = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.acts = table
            self.names = ["tanh", "relu"]
            for i in range(3):
                setattr(self, f"fc_{i}", nn.Linear(D, D))
                self.add_module(f"norm_{i}", nn.LayerNorm(D))

        def forward(self, x):
            for i in range(3):
                x = getattr(self, f"norm_{i}")(getattr(self, f"fc_{i}")(x))
            for name, act in self.acts.items():
                if name in self.names:
                    x = act(x) + self.acts[name](x)
            return x
    return Net(), [(torch.randn(3, D),) for _ in range(3)], None


@style
def hub_warning_once():
    @functools.lru_cache(None)
    def warn_once(text):
        warnings.warn(text, stacklevel=2)

    def forward(x):
        if x.dtype == torch.float64:
            warn_once("double")
        return x * 2
    return forward, [(torch.ones(3),)] * 3, None


class Named(NamedTuple):
    last: torch.Tensor
    pooled: Optional[torch.Tensor] = None


@style
def hub_named_tuple():
    fc = nn.Linear(D, D)

    def forward(x):
        out = Named(fc(x))
        out = out._replace(pooled=out.last.mean(1))
        last, pooled = out
        return out, last + pooled[:, None], out._asdict(), out._fields
    return forward, [(torch.randn(2, 3, D),) for _ in range(3)], None


@style
def hub_chunked_feed_forward():
    fc = nn.Linear(D, D)

    def apply_chunking(fn, size, dim, *tensors):
        assert len(tensors) > 0, f"{tensors} has to be a tuple"
        if size > 0:
            n = tensors[0].shape[dim] // size
            chunks = tuple(t.chunk(n, dim=dim) for t in tensors)
            return torch.cat(tuple(fn(*c) for c in zip(*chunks)), dim=dim)
        return fn(*tensors)
    args = [(torch.randn(2, 6, D),) for _ in range(3)]
    return (lambda x: apply_chunking(fc, 2, 1, x)), args, None


@style
def hub_head_mask_and_pruning():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head_mask = [None, torch.ones(2)]
            self.pruned = set()
            self.fc = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

        def forward(self, x):
            for layer, mask in zip(self.fc, self.head_mask):
                x = layer(x)
                if mask is not None:
                    x = (x.view(-1, 2, D // 2) * mask[:, None]).view(-1, D)
                if len(self.pruned - {0}) > 0:
                    raise RuntimeError("pruned")
            return x
    return Net(), [(torch.randn(4, D),) for _ in range(3)], None


@style
def hub_sampling():
    m = Model(Config()).eval()

    def sample(x, temperature=0.8, top_k=5):
        with torch.no_grad():
            for _ in range(3):
                logits = m(x).logits[:, -1, :] / temperature
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
                probs = F.softmax(logits, dim=-1)
                new = torch.multinomial(probs, num_samples=1)
                x = torch.cat((x, new), dim=1)
        return x
    return sample, [(x,) for x in ids(3)], None


@style
def hub_top_p():
    def warp(logits, top_p=0.7):
        ordered, index = torch.sort(logits, descending=True)
        cumulative = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1)
        remove = cumulative > top_p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = 0
        remove = remove.scatter(1, index, remove)
        return logits.masked_fill(remove, -float("inf"))
    return warp, [(torch.randn(2, 9),) for _ in range(3)], None


@style
def hub_beam_step():
    m = Model(Config()).eval()
    beams = 3

    def search(x):
        with torch.no_grad():
            x = x[:1].repeat_interleave(2, 0)[:1].expand(beams, -1)
            scores = torch.zeros(beams)
            scores[1:] = -1e9
            for _ in range(3):
                logp = F.log_softmax(m_last(x), dim=-1)
                total = scores[:, None] + logp
                scores, flat = total.view(-1).topk(beams)
                beam = torch.div(flat, logp.size(-1), rounding_mode="floor")
                token = flat % logp.size(-1)
                x = torch.cat([x.index_select(0, beam), token[:, None]], dim=-1)
        return x, scores

    def m_last(x):
        h = m.embed_tokens(x)
        return m.lm_head(m.norm(h))[:, -1]
    return search, [(x,) for x in ids(3)], None
