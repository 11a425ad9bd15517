"""Probability distributions: draws, densities, entropies, divergences."""

from lehr.distributions import constraint, continuous, discrete, transform
from lehr.distributions import constraint as constraints
from lehr.distributions import transform as transforms
from lehr.distributions.continuous import *  # noqa: F403
from lehr.distributions.discrete import *  # noqa: F403
from lehr.distributions.distribution import Distribution, ExponentialFamily
from lehr.distributions.kl import kl_divergence, register_kl
from lehr.distributions.mixture import MixtureSameFamily
from lehr.distributions.normal import (
    HalfNormal,
    Independent,
    LogNormal,
    MultivariateNormal,
    Normal,
)
from lehr.distributions.transform import *  # noqa: F403

__all__ = [*continuous.__all__, *discrete.__all__, *transform.__all__, "Distribution",
           "ExponentialFamily", "HalfNormal", "Independent", "LogNormal", "MixtureSameFamily",
           "MultivariateNormal", "Normal", "constraint", "constraints", "kl_divergence",
           "register_kl", "transforms"]
