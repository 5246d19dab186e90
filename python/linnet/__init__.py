"""Linnet: chunk-wise linear attention for torch, without Triton. See docs/python.md."""

from ._C import Error, __version__
from .kda import chunk_kda, fused_recurrent_kda

__all__ = ["Error", "__version__", "chunk_kda", "fused_recurrent_kda"]
