"""States with parameters by name, and modules whose activations are computed again."""

import pytest
from lehr.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapper

import lehr
from lehr import nn
from lehr.distributed import P2POp, isend
from lehr.distributed.checkpoint import state_dict as by_name


def model(wrapped=False):
    lehr.manual_seed(0)
    made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    if wrapped:
        wrapper.apply_activation_checkpointing(made, check_fn=lambda m: isinstance(m, nn.Linear))
    return made


def train(m, *optimizers, steps=3):
    lehr.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = lehr.randn(8, 3)
        loss = (m(x) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        for o in optimizers:
            o.step()
            o.zero_grad()
    return losses


def optimizers(m):
    weights = [p for n, p in m.named_parameters() if n.endswith("weight")]
    rest = [p for n, p in m.named_parameters() if not n.endswith("weight")]
    return (lehr.optim.AdamW([{"params": weights, "lr": 0.1}, {"params": rest, "lr": 0.2}]),)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_training_goes_on_where_it_was(flat, wrapped):
    options = by_name.StateDictOptions(flatten_optimizer_state_dict=flat, cpu_offload=True)
    m = model()
    o = optimizers(m)
    train(m, *o)
    state = by_name.get_state_dict(m, o, options=options)
    assert set(state[0]) == set(m.state_dict())
    if not flat:
        assert set(state[1]["state"]) == {n for n, _ in m.named_parameters()}
    want = train(m, *o)
    other = model(wrapped)
    compiled = lehr.compile(other) if wrapped else other
    again = optimizers(other)
    missing = by_name.set_state_dict(compiled, again, model_state_dict=state[0],
                                     optim_state_dict=state[1], options=options)
    assert not missing.missing_keys and not missing.unexpected_keys
    assert train(other, *again) == pytest.approx(want, rel=1e-6)
    assert set(by_name.get_model_state_dict(compiled)) == set(state[0])


def test_the_order_of_parameters_may_differ():
    m, other = model(), model()
    first, second = lehr.optim.Adam(m.parameters()), lehr.optim.Adam(list(other.parameters())[::-1])
    train(m, first)
    by_name.set_optimizer_state_dict(other, second, by_name.get_optimizer_state_dict(m, first))
    for (name, p), q in zip(m.named_parameters(), other.parameters(), strict=True):
        assert lehr.equal(first.state[p]["exp_avg"], second.state[q]["exp_avg"]), name


def test_a_state_without_a_parameter_is_refused():
    m = model()
    o = lehr.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    state = by_name.get_optimizer_state_dict(m, o)
    assert all("momentum_buffer" in v for v in state["state"].values())
    assert o.param_groups[0]["lr"] == 0.1
    state["param_groups"][0]["params"].remove("3.bias")
    with pytest.raises(RuntimeError, match="no parameter '3.bias'"):
        by_name.set_optimizer_state_dict(m, o, state)
    m[0].weight.requires_grad_(False)
    few = by_name.get_model_state_dict(m, options=by_name.StateDictOptions(
        ignore_frozen_params=True))
    assert "0.weight" not in few and "0.bias" in few and "1.running_mean" in few


@pytest.mark.parametrize("impl", list(wrapper.CheckpointImpl))
def test_wrapped_modules_compute_again(impl):
    seen = []

    class Layer(nn.Linear):
        def forward(self, x):
            seen.append(1)
            return super().forward(x)

    layer = Layer(3, 3)
    made = wrapper.checkpoint_wrapper(layer, impl)
    assert set(made.state_dict()) == {"weight", "bias"} and made.in_features == 3
    assert [n for n, _ in made.named_parameters()] == ["weight", "bias"]
    made.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()})
    x = lehr.randn(2, 3, requires_grad=True)
    made(x).square().sum().backward()
    have = x.grad.clone()
    assert len(seen) == 2
    x.grad = None
    layer(x).square().sum().backward()
    assert lehr.allclose(have, x.grad)
    assert isinstance(made, wrapper.CheckpointWrapper)


def test_what_a_message_needs():
    with pytest.raises(RuntimeError, match="Invalid ``op``"):
        P2POp(lambda: None, lehr.ones(1), 0)
    with pytest.raises((RuntimeError, ValueError)):
        P2POp(isend, lehr.ones(1), 0)
