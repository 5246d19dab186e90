"""Which function of FLA or transformers computes which recurrence, and how to call it. None of their code is here.

All tensors are laid out as Linnet and FLA do: q, k [B, T, H, K]; v, o [B, T, HV, V]; beta, and g of one decay a token,
[B, T, HV]; g of a decay a channel [B, T, HV, K]; states [B, HV, K, V].
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import pathlib
import sys
from dataclasses import dataclass

INPUTS = {  # of each op, by the names `linnet list` uses; all scale by key_dim**-0.5
    "kda": ("q", "k", "v", "g", "beta"),
    "gated_delta_rule": ("q", "k", "v", "g", "beta"),
    "delta_rule": ("q", "k", "v", "beta"),
    "gla": ("q", "k", "v", "g"),
    "simple_gla": ("q", "k", "v", "g"),
    "linear_attention": ("q", "k", "v"),
}
DECAY_PER_CHANNEL = ("kda", "gla")
DIRECTIONS = ("forward", "backward", "decode")
PACKAGES = {"transformers": "transformers", "fla": "fla-core"}


class Refused(ValueError):
    """What was asked cannot be done; the message is for the user."""


@dataclass(frozen=True)
class Function:
    """A function of a peer and what is particular about calling it."""

    module: str
    name: str
    arguments: tuple  # our inputs in the order of its parameters
    keeps_state: bool = True  # takes initial_state and output_final_state
    heads_first: bool = False  # wants [B, H, T, D]
    shares_keys: bool = False  # takes fewer key heads than value heads
    multiple: int = 1  # the token count must be a multiple of this

    @property
    def package(self):
        return self.module.split(".")[0]

    def load(self):
        module = load_fla_file(self.module) if self.package == "fla" else importlib.import_module(self.module)
        # transformers puts a wrapper around its functions that calls FLA's Triton kernels where they can be
        # imported. The peer is the torch function inside.
        return inspect.unwrap(getattr(module, self.name))

    def bind(self):
        """The function as run(inputs, state, want_state) -> (o, final state or None)."""
        function = self.load()

        def run(inputs, state=None, want_state=False):
            tensors = dict(inputs)
            groups = tensors["v"].shape[2] // tensors["q"].shape[2]
            if groups > 1 and not self.shares_keys:  # as transformers' own layers do before the call
                for name in ("q", "k"):
                    tensors[name] = tensors[name].repeat_interleave(groups, dim=2)
            if self.heads_first:
                tensors = {name: x.transpose(1, 2) for name, x in tensors.items()}
            options = {"initial_state": state, "output_final_state": want_state} if self.keeps_state else {}
            result = function(*(tensors[name] for name in self.arguments), **options)
            o, final = result if isinstance(result, tuple) else (result, None)
            return (o.transpose(1, 2) if self.heads_first else o), (final if want_state else None)

        return run


def transformers_function(model, name, arguments):
    return Function(f"transformers.models.{model}.modeling_{model}", name, tuple(arguments.split()))


def fla_function(folder, name, arguments, **particulars):
    return Function(f"fla.ops.{folder}.naive", name, tuple(arguments.split()), **particulars)


# op -> family -> (chunk form, token by token); None where the peer has none
FUNCTIONS = {
    "kda": {
        "transformers": (
            transformers_function("kimi_linear", "chunk_kimi_delta_attention", "q k v g beta"),
            transformers_function("kimi_linear", "recurrent_kimi_delta_attention", "q k v g beta"),
        ),
        "fla_naive": (
            fla_function("kda", "naive_chunk_kda", "q k v g beta", shares_keys=True, multiple=64),
            fla_function("kda", "naive_recurrent_kda", "q k v g beta", shares_keys=True),
        ),
    },
    "gated_delta_rule": {
        "transformers": (
            transformers_function("qwen3_next", "torch_chunk_gated_delta_rule", "q k v g beta"),
            transformers_function("qwen3_next", "torch_recurrent_gated_delta_rule", "q k v g beta"),
        ),
        "fla_naive": (
            fla_function("gated_delta_rule", "naive_chunk_gated_delta_rule", "q k v g beta"),
            fla_function("gated_delta_rule", "naive_recurrent_gated_delta_rule", "q k v beta g"),
        ),
    },
    "delta_rule": {
        "fla_naive": (
            fla_function("delta_rule", "delta_rule_chunkwise", "q k v beta",
                         heads_first=True, keeps_state=False, multiple=32),
            fla_function("delta_rule", "delta_rule_recurrence", "q k v beta", heads_first=True),
        ),
    },
    "gla": {"fla_naive": (None, fla_function("gla", "naive_recurrent_gla", "q k v g"))},
    "simple_gla": {
        "fla_naive": (
            fla_function("simple_gla", "naive_chunk_simple_gla", "q k v g"),
            fla_function("simple_gla", "naive_recurrent_simple_gla", "q k v g"),
        ),
    },
    "linear_attention": {
        "fla_naive": (
            fla_function("linear_attn", "naive_chunk_linear_attn", "q k v", keeps_state=False, multiple=64),
            fla_function("linear_attn", "naive_recurrent_linear_attn", "q k v"),
        ),
    },
}

# peer -> (family, directions the chunk form serves, directions the token loop serves, torch.compile)
PEERS = {
    "transformers": ("transformers", ("forward", "backward"), ("decode",), False),
    "transformers_compiled": ("transformers", ("forward", "backward"), ("decode",), True),
    "fla_naive_chunk": ("fla_naive", ("forward", "backward"), (), False),
    "fla_naive_chunk_compiled": ("fla_naive", ("forward", "backward"), (), True),
    "fla_naive_recurrent": ("fla_naive", (), DIRECTIONS, False),
}


def version(package):
    """The installed version, or None."""
    try:
        return importlib.metadata.version(PACKAGES[package])
    except importlib.metadata.PackageNotFoundError:
        return None


def load_fla_file(module):
    """Importing fla.ops needs Triton, its naive.py files do not: they are loaded from their files."""
    name = "linnet_bench_" + module.replace(".", "_")
    if name not in sys.modules:
        root = pathlib.Path(importlib.util.find_spec("fla").submodule_search_locations[0])
        spec = importlib.util.spec_from_file_location(name, root.joinpath(*module.split(".")[1:]).with_suffix(".py"))
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        sys.modules[name] = loaded  # torch.compile looks it up there
    return sys.modules[name]


def find(op, peer, direction):
    """The Function, and whether it is to be compiled; None if there is none."""
    family, chunk_directions, token_directions, compiled = PEERS[peer]
    chunk, token = FUNCTIONS[op].get(family, (None, None))
    function = chunk if direction in chunk_directions else token if direction in token_directions else None
    return (function, compiled) if function else None


def require(op, peer, direction):
    """As find(), but says what is wrong."""
    for what, value, known in (("op", op, INPUTS), ("peer", peer, PEERS), ("direction", direction, DIRECTIONS)):
        if not isinstance(value, str) or value not in known:
            raise Refused(f"{what}: expected one of {', '.join(known)}; got {value!r}")
    found = find(op, peer, direction)
    if not found:
        raise Refused(f"{peer} has no function for {op} {direction}")
    if not version(found[0].package):
        raise Refused(f"{PACKAGES[found[0].package]} is not installed: ./setup.sh --peers")
    return found


def catalogue():
    """Which peers there are for each op and direction, by really loading every function."""
    ops, functions, missing = {}, {}, {}
    for op in INPUTS:
        ops[op] = {direction: [] for direction in DIRECTIONS}
        functions[op] = {}
        for peer in PEERS:
            for direction in DIRECTIONS:
                found = find(op, peer, direction)
                if not found:
                    continue
                try:
                    require(op, peer, direction)[0].load()
                except Exception as error:
                    missing[f"{op} {peer}"] = f"{error}"
                    continue
                ops[op][direction].append(peer)
                functions[op].setdefault(peer, {})[direction] = f"{found[0].module}.{found[0].name}"
    return {"ops": ops, "functions": functions, "missing": missing}
