"""Code that imports FLA's functions gets Linnet's.

    import linnet.integrations.fla
    linnet.integrations.fla.enable()
    from fla.ops.kda import chunk_kda    # linnet.chunk_kda

Call it before such code is imported: a function already imported by name stays what it was. Where FLA's modules can be
imported their functions are replaced; where they cannot (no Triton, no FLA) modules with Linnet's functions alone stand
in for them.
"""

import importlib
import sys
import types

import linnet

_MODULES = {  # of fla.ops -> its functions here
    "kda": "chunk_kda fused_recurrent_kda fused_kda_gate",
    "kda.chunk": "chunk_kda",
    "kda.fused_recurrent": "fused_recurrent_kda",
    "kda.gate": "fused_kda_gate",
    "gated_delta_rule": "chunk_gated_delta_rule chunk_gdn fused_recurrent_gated_delta_rule fused_recurrent_gdn",
    "gated_delta_rule.chunk": "chunk_gated_delta_rule chunk_gdn",
    "gated_delta_rule.fused_recurrent": "fused_recurrent_gated_delta_rule fused_recurrent_gdn",
    "gated_delta_rule.gate": "fused_gdn_gate",
    "delta_rule": "chunk_delta_rule fused_recurrent_delta_rule",
    "gla": "chunk_gla fused_recurrent_gla",
    "simple_gla": "chunk_simple_gla fused_recurrent_simple_gla",
    "retention": "chunk_retention fused_recurrent_retention",
    "lightning_attn": "chunk_lightning_attn fused_recurrent_lightning_attn",
    "linear_attn": "chunk_linear_attn fused_recurrent_linear_attn",
    "rwkv6": "chunk_rwkv6 fused_recurrent_rwkv6",
    "rwkv7": "chunk_rwkv7 fused_recurrent_rwkv7 fused_mul_recurrent_rwkv7",
    "generalized_delta_rule": "chunk_dplr_delta_rule fused_recurrent_dplr_delta_rule",
    "comba": "chunk_comba fused_recurrent_comba",
    "gdn2": "chunk_gdn2 fused_recurrent_gdn2",
    "gated_delta_product": "chunk_gated_delta_product",
}
_before = []  # (module, name, what it was, or _NOTHING)
_stand_ins = []  # names in sys.modules
_NOTHING = object()


def enable():
    """FLA's functions are Linnet's from now on. Does nothing the second time."""
    if _before:
        return
    top = _module("fla.ops")
    for folder, names in _MODULES.items():
        module = _module("fla.ops." + folder)
        for name in names.split():
            for place in (module, top):
                _before.append((place, name, vars(place).get(name, _NOTHING)))
                setattr(place, name, getattr(linnet, name))


def disable():
    """FLA is as it was before enable()."""
    for module, name, was in reversed(_before):
        delattr(module, name) if was is _NOTHING else setattr(module, name, was)
    for path in _stand_ins:
        sys.modules.pop(path, None)
    _before.clear()
    _stand_ins.clear()


def _module(path):
    """The module of that name, or one that stands in for it."""
    try:
        return importlib.import_module(path)
    except Exception:  # whatever a missing Triton makes of it
        parent, _, name = path.rpartition(".")
        if parent == "fla":
            _module("fla")
        module = types.ModuleType(path, "Stands in for FLA's module; see linnet.integrations.fla.")
        module.__path__ = []
        sys.modules[path] = module
        _stand_ins.append(path)
        if parent in sys.modules:
            setattr(sys.modules[parent], name, module)
        return module
