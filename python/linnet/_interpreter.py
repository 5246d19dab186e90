"""Ops in float64 through the compiler's interpreter: no kernels, any size, slow. For gradcheck and linnet.check."""

import torch

from . import _C

_STATES = ("initial_state", "final_state", "dinitial_state", "dfinal_state")


class Interpreter:
    """Looks like an op built for a device, and runs the derived graph instead."""

    def __init__(self, problem, direction, chunk):
        if problem.state_v_first:
            raise ValueError("state_v_first: expected False on the interpreter, got True")
        self.problem, self.direction = problem, direction
        self.chunk = chunk or (1 if direction == "decode" else 16)

    def takes(self, name):
        return True

    def run(self, arguments):
        for name in ("states", "state"):
            if name in arguments:
                raise ValueError(f"{name}: expected nothing on the interpreter, got a tensor")
        tensors = {name: x for name, x in arguments.items() if isinstance(x, torch.Tensor) and name != "cu_seqlens"}
        of_tokens = [x for name, x in tensors.items() if x.dim() >= 3 and name not in _STATES]
        (B, T), heads = of_tokens[0].shape[:2], [x.shape[2] for x in of_tokens]
        offsets = arguments["cu_seqlens"].tolist() if "cu_seqlens" in arguments else [n * T for n in range(B + 1)]
        inputs = {name: x.flatten().tolist() for name, x in tensors.items()}
        inputs["scale"] = [arguments.get("scale", self.problem.key_dim**-0.5)]
        made = _C.interpret(self.problem, "backward" if self.direction == "backward" else "forward", self.chunk,
                            min(heads), max(heads), [end - start for start, end in zip(offsets, offsets[1:])], inputs)
        for name in made.keys() & tensors.keys():
            tensors[name].copy_(torch.tensor(made[name], dtype=torch.float64).reshape(tensors[name].shape))
        for gradient in {"d" + name for name in tensors} & tensors.keys() - made.keys():
            tensors[gradient].zero_()  # of an input the results do not depend on
