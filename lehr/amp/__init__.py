"""Mixed precision: autocast and gradient scaling."""

from lehr.amp import scaler as grad_scaler
from lehr.amp.custom import custom_bwd, custom_fwd
from lehr.amp.scaler import GradScaler
from lehr.tensor.autocast import autocast, is_autocast_available

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "grad_scaler",
           "is_autocast_available"]
