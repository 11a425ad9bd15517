"""Optimizers and learning-rate schedules."""

from lehr.optim import lr_scheduler, swa_utils  # type: ignore[attr-defined]
from lehr.optim.adam import Adam, AdamW
from lehr.optim.adaptive import (
    ASGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adamax,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)
from lehr.optim.lbfgs import LBFGS
from lehr.optim.muon import Muon
from lehr.optim.optimizer import Optimizer
from lehr.optim.sgd import SGD
from lehr.optim.sparse import SparseAdam

__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
           "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler",
           "swa_utils"]
