"""Layers, containers, losses, and what models are made of."""

from lehr.nn import functional, init
from lehr.nn.activation import *  # noqa: F403
from lehr.nn.adaptive import *  # noqa: F403
from lehr.nn.attention import *  # noqa: F403
from lehr.nn.batch import *  # noqa: F403
from lehr.nn.cell import *  # noqa: F403
from lehr.nn.container import *  # noqa: F403
from lehr.nn.conv import *  # noqa: F403
from lehr.nn.dropout import *  # noqa: F403
from lehr.nn.embedding import *  # noqa: F403
from lehr.nn.fraction import *  # noqa: F403
from lehr.nn.lazy import *  # noqa: F403
from lehr.nn.linear import *  # noqa: F403
from lehr.nn.loss import *  # noqa: F403
from lehr.nn.module import Module
from lehr.nn.norm import *  # noqa: F403
from lehr.nn.pad import *  # noqa: F403
from lehr.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from lehr.nn.pool import *  # noqa: F403
from lehr.nn.recurrent import *  # noqa: F403
from lehr.nn.replicate import *  # noqa: F403
from lehr.nn.shape import *  # noqa: F403
from lehr.nn.transformer import *  # noqa: F403

from lehr.nn import modules, parallel, utils  # type: ignore[attr-defined]  # isort: skip

__all__ = ["Buffer", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter",
           "functional",
           "init", "modules", "parallel", "utils"]
