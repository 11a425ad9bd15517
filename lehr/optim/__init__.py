"""Optimizers and learning-rate schedules."""

from lehr.optim.adam import Adam, AdamW
from lehr.optim.optimizer import Optimizer
from lehr.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
