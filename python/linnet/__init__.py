"""Linnet: chunk-wise linear attention for torch, without Triton. See docs/python.md."""

from ._C import Error, __version__
from ._device import device
from ._explain import explain, show
from ._law import LawError
from ._check import check
from ._tune import schedule, tune
from .delta import (chunk_comba, chunk_delta_rule, chunk_gated_delta_product, chunk_gated_delta_rule, chunk_gdn,
                    chunk_gdn2, fused_recurrent_comba, fused_recurrent_delta_rule,
                    fused_recurrent_gated_delta_product, fused_recurrent_gated_delta_rule, fused_recurrent_gdn,
                    fused_recurrent_gdn2)
from .gate import fused_gdn_gate, fused_kda_gate, kda_gate
from .gla import (chunk_gla, chunk_lightning_attn, chunk_linear_attn, chunk_retention, chunk_simple_gla,
                  fused_recurrent_gla, fused_recurrent_lightning_attn, fused_recurrent_linear_attn,
                  fused_recurrent_retention, fused_recurrent_simple_gla)
from .kda import chunk_kda, fused_recurrent_kda
from .recurrence import Recurrence, law
from .rwkv import (chunk_dplr_delta_rule, chunk_rwkv6, chunk_rwkv7, fused_mul_recurrent_rwkv7,
                   fused_recurrent_dplr_delta_rule, fused_recurrent_rwkv6, fused_recurrent_rwkv7)

__all__ = ["Error", "LawError", "Recurrence", "__version__", "check", "device", "explain", "kda_gate", "law", "schedule",
           "show", "tune",
           *(name for name in dir() if name.startswith(("chunk_", "fused_")))]
