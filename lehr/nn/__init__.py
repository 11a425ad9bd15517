"""Layers, containers, losses, and what models are made of."""

from lehr.nn import functional, init
from lehr.nn.activation import *  # noqa: F403
from lehr.nn.container import *  # noqa: F403
from lehr.nn.dropout import *  # noqa: F403
from lehr.nn.embedding import *  # noqa: F403
from lehr.nn.linear import *  # noqa: F403
from lehr.nn.module import Module
from lehr.nn.norm import *  # noqa: F403
from lehr.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Module", "Parameter", "functional", "init"]
