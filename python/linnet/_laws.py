"""What each torch op takes: its law in C++, and its tensors by name and axes.

Axes are letters: B batch, T tokens, H heads of q and k, U value heads (HV, a multiple of H), K and V channels.
`kind` says which number format a tensor has: "data" that of the call (float32, bfloat16 or float16), "gate" and
"strength" their own, "head" float32 (trained parameters, one a head).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Input:
    name: str  # in Python
    law_name: str  # in C++
    axes: str
    shape: str  # the axes as people write them: [B, T, HV, K]
    rank: int
    kind: str  # "data", "gate", "strength" or "head"


@dataclass(frozen=True)
class Op:
    name: str  # of the torch op: linnet::<name>
    law: str  # in C++
    inputs: tuple
    text: str = ""  # of a law that C++ does not have

    def __post_init__(self):  # asked for in every call
        object.__setattr__(self, "has_head_inputs", self.first(lambda x: x.kind == "head") is not None)

    def first(self, holds):
        """The number of the first input of which that holds, or None."""
        return next((i for i, x in enumerate(self.inputs) if holds(x)), None)


def make_input(name, axes, kind, law_name=None):
    shape = "[" + ", ".join("HV" if axis == "U" else axis for axis in axes) + "]"
    return Input(name, law_name or name, axes, shape, len(axes), kind)


def _op(name, inputs, law=None, rename=()):
    rename = dict(rename)
    made = []
    for word in inputs.split():
        law_name, axes = word.split(":")
        kind = "head" if axes[0] == "U" else "gate" if law_name == "g" else "strength" if axes == "BTU" else "data"
        made.append(make_input(rename.get(law_name, law_name), axes, kind, law_name))
    return Op(name, law or name, tuple(made))


_QKV = "q:BTHK k:BTHK v:BTUV "
_DPLR = _QKV + "a:BTHK b:BTHK g:BTUK"

OPS = {op.name: op for op in (
    _op("kda", _QKV + "g:BTUK beta:BTU"),
    _op("gated_delta_rule", _QKV + "g:BTU beta:BTU"),
    _op("delta_rule", _QKV + "beta:BTU"),
    _op("gla", _QKV + "g:BTUK"),
    _op("simple_gla", _QKV + "g:BTU"),
    _op("retention", _QKV + "g:U"),
    _op("lightning_attn", _QKV + "g:U", law="lightning"),
    _op("linear_attn", _QKV.strip(), law="linear_attention"),
    _op("rwkv6", _QKV + "g:BTUK u:UK", rename={"q": "r", "g": "w"}),
    _op("rwkv7", _DPLR, rename={"q": "r", "g": "w"}),
    _op("dplr_delta_rule", _DPLR, law="rwkv7", rename={"g": "gk"}),
    _op("comba", _QKV + "p:BTHK g:BTU beta:BTU"),
    _op("gdn2", _QKV + "g:BTUK b:BTUK w:BTUV"),
    _op("gated_delta_product", "q:BTHK g:BTU k1:BTHK v1:BTUV beta1:BTU k2:BTHK v2:BTUV beta2:BTU"),
)}
