"""Whole training steps as people write them."""

import copy
import math

import lehr as torch
import lehr.nn.functional as F
from lehr import nn
from lehr.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations, weight_norm
from lehr.nn.utils.parametrize import register_parametrization
from styles.case import style

D = 8


def net(dropout=0.0):
    return nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.GELU(), nn.Dropout(dropout),
                         nn.Linear(D, 3))


def batches(n=3):
    return [(torch.randn(4, D), torch.randint(0, 3, (4,))) for _ in range(n)]


def scheduled(make, n=8):
    """A step with a scheduler over `n` batches."""
    m = net()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    sched = make(opt)

    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        return loss, opt.param_groups[0]["lr"]
    return step, batches(n), lambda: (list(m.parameters()), sched.state_dict())


S = torch.optim.lr_scheduler
# The first step and later ones differ (a scheduler asks whether it is at its start), and a warm-up
# ends.
SCHEDULERS = {
    "cosine": lambda o: S.CosineAnnealingLR(o, T_max=20),
    "lambda": lambda o: S.LambdaLR(o, lambda n: 0.9**n),
    "lambda_cosine": lambda o: S.LambdaLR(o, lambda n: 0.5 * (1 + math.cos(math.pi * n / 20))),
    "warmup": lambda o: S.LambdaLR(o, lambda n: min(1.0, (n + 1) / 4)),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "step": lambda o: S.StepLR(o, step_size=30),
    "multistep": lambda o: S.MultiStepLR(o, milestones=[30, 80]),
    "linear": lambda o: S.LinearLR(o, start_factor=0.3, total_iters=20),
    "constant": lambda o: S.ConstantLR(o, factor=0.3, total_iters=20),
    "polynomial": lambda o: S.PolynomialLR(o, total_iters=20, power=2.0),
    "one_cycle": lambda o: S.OneCycleLR(o, max_lr=0.5, total_steps=100),
    "cyclic": lambda o: S.CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=50),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=30),
    "sequential": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, total_iters=20),
                                               S.ExponentialLR(o, 0.9)], milestones=[20]),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 20), S.ExponentialLR(o, 0.9)]),
}


def _scheduler(name, make):
    def case():
        return scheduled(make)
    case.__name__ = f"train_{name}"
    style(case, captures=3 if name == "warmup" else 2)


for _name, _make in SCHEDULERS.items():
    _scheduler(_name, _make)


@style(captures=2)
def train_by_hand_schedule():
    """The rate is set by the user's own function of the iteration."""
    m = net()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2)

    def rate(it, warmup=5, lr=1e-2, least=1e-3, decay=50):
        if it < warmup:
            return lr * (it + 1) / (warmup + 1)
        if it > decay:
            return least
        ratio = (it - warmup) / (decay - warmup)
        return least + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (lr - least)

    def step(x, y):
        F.cross_entropy(m(x), y).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    def run(x, y, lr):
        for group in opt.param_groups:
            group["lr"] = lr
        step(x, y)
    args = [(*b, rate(i)) for i, b in enumerate(batches(9))]
    return run, args, lambda: list(m.parameters())


@style
def train_accumulation():
    m = net()
    opt = torch.optim.Adam(m.parameters(), lr=1e-2)

    def step(x, y):
        total = 0.0
        for part in range(2):
            loss = F.cross_entropy(m(x[part::2]), y[part::2]) / 2
            loss.backward()
            total += loss.detach()
        norm = clip_grad_norm_(m.parameters(), 0.1)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return total, norm
    return step, batches(), lambda: list(m.parameters())


@style
def train_ema():
    m = net()
    shadow = copy.deepcopy(m)
    for p in shadow.parameters():
        p.requires_grad_(False)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    def step(x, y, decay=0.9):
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for s, p in zip(shadow.parameters(), m.parameters()):
                s.mul_(decay).add_(p.data, alpha=1 - decay)
            current = dict(m.named_buffers())
            for name, b in shadow.named_buffers():
                b.copy_(current[name])
        return loss.detach()
    return step, batches(), lambda: (list(m.parameters()), list(shadow.parameters()))


@style
def train_ema_dict():
    """A moving average kept as a dictionary of tensors."""
    m = net()

    class EMA:
        def __init__(self, model, decay):
            self.decay = decay
            self.shadow = {k: v.clone().detach() for k, v in model.named_parameters()}
            self.updates = 0

        @torch.no_grad()
        def update(self, model):
            for k, v in model.named_parameters():
                if v.requires_grad:
                    self.shadow[k] = self.decay * self.shadow[k] + (1.0 - self.decay) * v.data

    ema = EMA(m, 0.9)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, y):
        F.cross_entropy(m(x), y).backward()
        opt.step()
        opt.zero_grad()
        ema.update(m)
    return step, batches(), lambda: (ema.shadow, ema.updates)


@style
def train_autocast():
    m = net()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)

    def step(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = m(x)
            kind = out.dtype
            loss = F.cross_entropy(out.float(), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss, kind
    return step, batches(), lambda: list(m.parameters())


@style(captures=2)
def train_grad_scaler():
    """The factor comes into being in the first call."""
    m = net()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=2)

    def step(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(m(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss
    args = batches(6)
    args[3] = (args[3][0] * float("inf"), args[3][1])
    return step, args, lambda: (list(m.parameters()), scaler.state_dict(), scaler.skipped)


@style
def train_two_optimizers():
    """A game of two players."""
    g, d = nn.Sequential(nn.Linear(2, D), nn.ReLU(), nn.Linear(D, D)), nn.Linear(D, 1)
    og, od = torch.optim.Adam(g.parameters(), lr=1e-2), torch.optim.Adam(d.parameters(), lr=1e-2)
    bce = nn.BCEWithLogitsLoss()

    def step(real, z):
        od.zero_grad()
        fake = g(z)
        loss_d = bce(d(real), torch.ones(4, 1)) + bce(d(fake.detach()), torch.zeros(4, 1))
        loss_d.backward()
        od.step()
        og.zero_grad()
        loss_g = bce(d(fake), torch.ones(4, 1))
        loss_g.backward()
        og.step()
        return loss_d, loss_g
    args = [(torch.randn(4, D), torch.randn(4, 2)) for _ in range(3)]
    return step, args, lambda: (list(g.parameters()), list(d.parameters()))


@style(captures=2)
def train_param_groups():
    m = net()
    decay = [p for n, p in m.named_parameters() if p.dim() >= 2]
    rest = [p for n, p in m.named_parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                             {"params": rest, "weight_decay": 0.0, "lr": 1e-3}], lr=1e-2)

    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        clip_grad_value_(m.parameters(), 0.01)
        opt.step()
        return {"loss": loss.detach(), "lrs": [g["lr"] for g in opt.param_groups]}
    return step, batches(), lambda: list(m.parameters())


@style
def train_frozen_backbone():
    body, head = net(), nn.Linear(3, 2)
    for p in body.parameters():
        p.requires_grad = False
    opt = torch.optim.SGD(filter(lambda p: p.requires_grad, [*body.parameters(),
                                                             *head.parameters()]), lr=0.1)

    def step(x, y):
        with torch.no_grad():
            features = body(x)
        loss = F.cross_entropy(head(features), y.clamp(max=1))
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, batches(), lambda: list(head.parameters())


@style
def train_dropout_and_batch_norm():
    m = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Dropout(0.3), nn.Linear(D, 3))
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.5)

    def step(x, y):
        m.train()
        loss = F.cross_entropy(m(x), y, label_smoothing=0.1)
        loss.backward()
        opt.step()
        opt.zero_grad()
        m.eval()
        with torch.no_grad():
            accuracy = (m(x).argmax(1) == y).float().mean()
        return loss, accuracy
    return step, batches(), lambda: (list(m.parameters()), list(m.buffers()), m.training)


@style
def train_gradient_penalty():
    d = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 1))
    opt = torch.optim.Adam(d.parameters(), lr=1e-2)

    def step(real, fake):
        alpha = torch.rand(real.shape[0], 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = d(mixed)
        grads = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True,
                                    retain_graph=True)[0]
        penalty = ((grads.norm(2, dim=1) - 1) ** 2).mean()
        loss = d(fake).mean() - d(real).mean() + 10 * penalty
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss, penalty
    args = [(torch.randn(4, D), torch.randn(4, D)) for _ in range(3)]
    return step, args, lambda: list(d.parameters())


@style
def train_closure():
    m = net()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, y):
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            return loss
        return opt.step(closure)
    return step, batches(), lambda: list(m.parameters())


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high=1.0):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        ctx.names = ["low", "high"]
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        inside = (x >= getattr(ctx, ctx.names[0])) & (x <= ctx.high)
        assert ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        return grad * inside, None, None


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable()
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad):
        return None if grad is None else grad.view(ctx.shape)


@style
def train_custom_functions():
    fc = nn.Linear(D, D)

    def step(x, y):
        out = Straight.apply(Clamp.apply(fc(x), -0.5, 0.5) * 4)
        loss = (out.sum(1) - y).pow(2).mean()
        loss.backward()
        grads = [p.grad.clone() for p in fc.parameters()]
        fc.zero_grad()
        return loss, grads
    return step, batches(), None


@style
def train_hooks():
    m = nn.Sequential(nn.Linear(D, D), nn.Linear(D, 3))
    seen, norms = [], []
    m[0].register_forward_hook(lambda mod, args, out: seen.append(out.detach().mean()) or out * 2)
    m[1].register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    m[1].weight.register_hook(lambda g: g * 0.5)
    m[0].register_full_backward_hook(lambda mod, gin, gout: norms.append(gout[0].norm()))

    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        grads = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        return loss, grads
    return step, batches(), lambda: (seen, norms)


@style
def train_post_accumulate_hooks():
    """Each weight is updated as soon as its gradient is there."""
    m = net()
    opts = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}

    def hook(p):
        opts[p].step()
        opts[p].zero_grad()
    for p in m.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        return loss
    return step, batches(), lambda: list(m.parameters())


@style
def train_weight_norm():
    m = nn.Sequential(weight_norm(nn.Linear(D, D)), parametrizations.weight_norm(nn.Linear(D, D)),
                      nn.ReLU(), nn.Linear(D, 3))
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, batches(), lambda: list(m.parameters())


@style
def train_spectral_norm():
    m = nn.Sequential(nn.utils.spectral_norm(nn.Linear(D, D)),
                      parametrizations.spectral_norm(nn.Linear(D, 3)))
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, batches(), lambda: (list(m.parameters()), list(m.buffers()))


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


@style
def train_parametrized():
    fc = nn.Linear(D, D)
    register_parametrization(fc, "weight", Symmetric())
    opt = torch.optim.Adam(fc.parameters(), lr=1e-2)

    def step(x, y):
        loss = (fc(x).sum(1) - y).pow(2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss, fc.weight
    return step, batches(), lambda: list(fc.parameters())


class MoE(nn.Module):
    def __init__(self, experts=4, k=2):
        super().__init__()
        self.gate = nn.Linear(D, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(D, 2 * D), nn.SiLU(), nn.Linear(2 * D, D))
            for _ in range(experts))
        self.k = k

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        weights, chosen = torch.topk(scores, self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        dense = torch.zeros_like(scores).scatter_(-1, chosen, weights)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out += dense[:, i, None] * expert(x)
        load = F.one_hot(chosen, len(self.experts)).float().sum(1).mean(0)
        return out, (load * scores.mean(0)).sum() * len(self.experts)


@style
def train_mixture_of_experts():
    moe, head = MoE(), nn.Linear(D, 3)
    opt = torch.optim.AdamW([*moe.parameters(), *head.parameters()], lr=1e-2)

    def step(x, y):
        h, balance = moe(x)
        loss = F.cross_entropy(head(x + h), y) + 0.01 * balance
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss, balance
    return step, batches(), lambda: list(moe.parameters())


@style
def train_vae():
    enc, dec = nn.Linear(D, 4), nn.Linear(2, D)
    opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-3)

    def step(x, y):
        mu, logvar = enc(x).chunk(2, dim=-1)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        rec = F.mse_loss(dec(z), x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = rec + kld
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, batches(), lambda: list(enc.parameters())


@style
def train_vector_quantizer():
    codes = nn.Embedding(5, D)
    opt = torch.optim.SGD(codes.parameters(), lr=0.1)

    def step(x, y):
        flat = x.view(-1, D)
        d = (flat**2).sum(1, keepdim=True) + (codes.weight**2).sum(1) - 2 * flat @ codes.weight.t()
        index = d.argmin(1).unsqueeze(1)
        one = torch.zeros(index.shape[0], 5, device=x.device)
        one.scatter_(1, index, 1)
        q = torch.matmul(one, codes.weight).view(x.shape)
        loss = F.mse_loss(q.detach(), x) + 0.25 * F.mse_loss(q, x.detach())
        q = x + (q - x).detach()
        probs = torch.mean(one, dim=0)
        perplexity = torch.exp(-torch.sum(probs * torch.log(probs + 1e-10)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, q, perplexity
    return step, batches(), lambda: list(codes.parameters())


@style
def train_contrastive():
    enc = nn.Linear(D, D)
    scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))
    opt = torch.optim.AdamW([*enc.parameters(), scale], lr=1e-2)

    def step(a, b):
        fa, fb = F.normalize(enc(a), dim=-1), F.normalize(enc(b), dim=-1)
        logits = scale.exp() * fa @ fb.t()
        labels = torch.arange(len(a), device=a.device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        loss.backward()
        opt.step()
        opt.zero_grad()
        with torch.no_grad():
            scale.clamp_(0, math.log(100))
        return loss
    return step, [(torch.randn(4, D), torch.randn(4, D)) for _ in range(3)], lambda: [scale]


@style
def train_policy_gradient():
    policy = nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, 3))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def step(states, rewards):
        returns, running = [], 0
        for r in rewards.flip(0).unbind():
            running = r + 0.9 * running
            returns.insert(0, running)
        returns = torch.stack(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        logp = F.log_softmax(policy(states), dim=-1)
        actions = torch.multinomial(logp.exp(), 1)
        loss = -(logp.gather(1, actions).squeeze(1) * returns).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, actions
    return step, [(torch.randn(5, D), torch.randn(5)) for _ in range(3)], lambda: list(
        policy.parameters())


@style
def train_double_q():
    online, target = nn.Linear(D, 3), nn.Linear(D, 3)
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=1e-2)

    def step(s, a, r, s2, done):
        q = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            goal = r + 0.99 * target(s2).gather(1, best).squeeze(1) * (1 - done.float())
        loss = F.smooth_l1_loss(q, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        for t, p in zip(target.parameters(), online.parameters()):
            t.data.copy_(0.005 * p.data + t.data * (1.0 - 0.005))
        return loss
    args = [(torch.randn(4, D), torch.randint(0, 3, (4,)), torch.randn(4), torch.randn(4, D),
             torch.rand(4) > 0.5) for _ in range(3)]
    return step, args, lambda: list(target.parameters())


@style
def train_per_sample_weights_and_metrics():
    m = net()
    opt = torch.optim.Adagrad(m.parameters(), lr=1e-2)
    meters = {"loss": [], "acc": []}

    def step(x, y):
        logits = m(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        weights = torch.where(y == 0, torch.tensor(2.0), torch.tensor(1.0))
        loss = (losses * weights).sum() / weights.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        meters["loss"].append(loss.detach())
        meters["acc"].append((logits.argmax(-1) == y).float().mean())
        return logits
    return step, batches(), lambda: meters


@style
def train_lstm_loop():
    cell, head = nn.LSTMCell(D, D), nn.Linear(D, 1)
    opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

    def step(x, y):
        h, c = torch.zeros(4, D), torch.zeros(4, D)
        outs = []
        for t in x.split(1, dim=1):
            h, c = cell(t.squeeze(1), (h, c))
            outs.append(head(h))
        loss = F.mse_loss(torch.cat(outs, dim=1), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, [(torch.randn(4, 3, D), torch.randn(4, 3)) for _ in range(3)], None


@style(captures=2)
def train_truncated_bptt():
    """The state of one call is the start of the next."""
    rnn = nn.GRU(D, D, batch_first=True)
    opt = torch.optim.SGD(rnn.parameters(), lr=0.1)

    class Runner:
        hidden = torch.zeros(1, 4, D)

        def step(self, x):
            self.hidden = self.hidden.detach()
            out, self.hidden = rnn(x, self.hidden)
            loss = out.pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()
    runner = Runner()
    runner.hidden = torch.zeros(1, 4, D)
    return runner.step, [(torch.randn(4, 3, D),) for _ in range(3)], None


@style
def train_pooled_norms():
    """Rows normalised twice, then a mean over them: three loops over the same values."""
    norms, head = [nn.LayerNorm(32), nn.LayerNorm(32)], nn.Linear(32, 3)
    params = [p for m in (*norms, head) for p in m.parameters()]
    opt = torch.optim.SGD(params, lr=0.1)

    def step(x, y):
        h = norms[0](x)
        h += x
        loss = F.cross_entropy(head(norms[1](h).mean(dim=1)), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, [(torch.randn(4, 16, 32), torch.tensor([0, 1, 2, 0])) for _ in range(3)], lambda: (
        params)
