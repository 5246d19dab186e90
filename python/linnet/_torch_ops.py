"""linnet::<op>_forward and linnet::<op>_backward as torch ops: schemas, kernels, shapes for tracing, autograd.

linnet::<op>_inference is the forward without autograd, which costs a call of one token a fifth of its time.
All take the tensors of `_laws.OPS` in order, then

    A_log [HV], dt_bias [HV, K] or [HV], initial_state [N, HV, K, V], cu_seqlens [N + 1]

and how they are meant: scale (None: K**-0.5), gate ("pre", "softplus", "bounded") with its lower_bound, beta_mode
("plain", "sigmoid", "twice_sigmoid"), l2norm, state_v_first. The forward gives o, the final states and the states at
the start of every `states_every` tokens, the last two empty if not asked for. The backward gives the gradients of the
tensors that are wanted, in order.
"""

import torch

from . import _device
from ._laws import OPS

_LIBRARY = torch.library.Library("linnet", "DEF")
_EXTRA = ("A_log", "dt_bias", "initial_state")  # tensors that have gradients, but may be missing
_MODES = "float? scale, str gate, float lower_bound, str beta_mode, bool l2norm, bool state_v_first"


class _Kernels:
    """The two ops of one row of the table."""

    def __init__(self, op):
        self.op = op
        self.names = [x.law_name for x in op.inputs]
        self.count = len(self.names)
        self.value = next(i for i, x in enumerate(op.inputs) if x.axes == "BTUV")
        self.gate = next((i for i, x in enumerate(op.inputs) if x.kind == "gate"), None)

    # Problems and shapes

    def build(self, tensors, A_log, modes, direction):
        _, gate, lower_bound, beta_mode, l2norm, state_v_first = modes
        gate_dtype = torch.float32 if self.gate is None else tensors[self.gate].dtype
        return _device.build(self.op.law, tensors[0].shape[-1], tensors[self.value].shape[-1], tensors[0].dtype,
                             gate_dtype, gate, lower_bound, A_log is not None, beta_mode, l2norm, state_v_first,
                             direction, _device.schedules.get(direction, ""))

    def sequences(self, tensors, cu_seqlens):
        return tensors[0].shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1

    def state_shape(self, tensors, count, state_v_first):
        key, value = tensors[0].shape[-1], tensors[self.value]
        return (count, value.shape[2], *((value.shape[3], key) if state_v_first else (key, value.shape[3])))

    def state_count(self, tensors, cu_seqlens, every):
        """Of states at the start of every so many tokens."""
        if cu_seqlens is None:
            return tensors[0].shape[0] * -(-tensors[0].shape[1] // every)
        offsets = cu_seqlens.tolist()
        return sum(-(-(end - start) // every) for start, end in zip(offsets, offsets[1:]))

    def arguments(self, tensors, A_log, dt_bias, initial_state, cu_seqlens, scale):
        arguments = dict(zip(self.names, tensors))
        for name, x in zip((*_EXTRA, "cu_seqlens"), (A_log, dt_bias, initial_state, cu_seqlens)):
            if x is not None:
                arguments[name] = x
        if scale is not None:
            arguments["scale"] = scale
        return arguments

    def run(self, built, arguments):
        try:
            built.run(arguments)
        except (TypeError, ValueError) as error:
            raise type(error)(self.renamed(str(error))) from None

    def renamed(self, message):
        """A message of C++ begins with the law's name of an argument; here it has another."""
        name, colon, rest = message.partition(":")
        if name in self.names:
            name = self.op.inputs[self.names.index(name)].name
        return name + colon + rest

    # Forward

    def forward(self, *args):
        n = self.count
        tensors, (A_log, dt_bias, initial_state, cu_seqlens) = args[:n], args[n:n + 4]
        modes, (decode, final_state, states_every) = args[n + 4:n + 10], args[n + 10:]
        built = self.build(tensors, A_log, modes, "decode" if decode else "forward")
        results = self.empty_results(tensors, cu_seqlens, modes[-1], final_state,
                                     states_every and self.state_count(tensors, cu_seqlens, states_every))
        arguments = self.arguments(tensors, A_log, dt_bias, initial_state, cu_seqlens, modes[0])
        arguments["o"] = results[0]
        if final_state:
            arguments["final_state"] = results[1]
        if states_every:
            arguments["states"], arguments["states_every"] = results[2], float(states_every)
        self.run(built, arguments)
        return results

    def forward_fake(self, *args):
        n = self.count
        tensors, cu_seqlens, states_every = args[:n], args[n + 3], args[-1]
        states = 0
        if states_every:
            states = (torch.library.get_ctx().new_dynamic_size() if cu_seqlens is not None
                      else self.state_count(tensors, None, states_every))
        return self.empty_results(tensors, cu_seqlens, args[n + 9], args[-2], states)

    def empty_results(self, tensors, cu_seqlens, state_v_first, final_state, states):
        value = tensors[self.value]
        count = self.sequences(tensors, cu_seqlens)
        none = (0,)
        final = self.state_shape(tensors, count, state_v_first) if final_state else none
        every = none if isinstance(states, int) and not states else self.state_shape(tensors, states, state_v_first)
        return (value.new_empty(value.shape), value.new_empty(final, dtype=torch.float32),
                value.new_empty(every, dtype=torch.float32))

    # Backward

    def backward(self, *args):
        n = self.count
        tensors, (A_log, dt_bias, initial_state, cu_seqlens, grad_o, grad_state) = args[:n], args[n:n + 6]
        modes, wanted = args[n + 6:n + 12], args[n + 12]
        built = self.build(tensors, A_log, modes, "backward")
        arguments = self.arguments(tensors, A_log, dt_bias, initial_state, cu_seqlens, modes[0])
        arguments["do"] = grad_o
        if grad_state is not None:
            arguments["dfinal_state"] = grad_state
        gradients = self.backward_fake(*args)
        names = [name for name, want in zip((*self.names, *_EXTRA), wanted) if want]
        arguments.update(zip(("d" + name for name in names), gradients))
        self.run(built, arguments)
        return gradients

    def backward_fake(self, *args):
        n = self.count
        return [x.new_empty(x.shape) for x, want in zip(args[:n + 3], args[n + 12]) if want]

    # Autograd

    def save(self, ctx, inputs, output):
        n = self.count
        ctx.save_for_backward(*inputs[:n + 4])
        ctx.modes, ctx.has_final_state = inputs[n + 4:n + 10], inputs[n + 11]
        ctx.set_materialize_grads(False)
        ctx.sizes = output[0].shape

    def differentiate(self, ctx, grad_o, grad_final_state, _):
        n = self.count
        tensors = ctx.saved_tensors
        wanted = [x is not None and need for x, need in zip(tensors[:n + 3], ctx.needs_input_grad)]
        if grad_o is None:
            grad_o = tensors[self.value].new_zeros(ctx.sizes)
        if not ctx.has_final_state:
            grad_final_state = None
        backward = getattr(torch.ops.linnet, self.op.name + "_backward").default
        gradients = iter(backward(*tensors, grad_o, grad_final_state, *ctx.modes, wanted))
        return (*(next(gradients) if want else None for want in wanted), *(None for _ in range(10)))

    def refuse_second(self, ctx, *_):
        raise NotImplementedError(f"{self.op.name}: gradients of gradients are not there")

    # Registration

    def register(self):
        inputs = ", ".join("Tensor " + x.name for x in self.op.inputs)
        inputs += ", Tensor? A_log, Tensor? dt_bias, Tensor? initial_state, Tensor? cu_seqlens"
        name, forward, backward = self.op.name, self.op.name + "_forward", self.op.name + "_backward"
        tags = (torch.Tag.pt2_compliant_tag,)
        for way in (forward, name + "_inference"):
            _LIBRARY.define(f"{way}({inputs}, {_MODES}, bool decode, bool final_state, int states_every) "
                            "-> (Tensor, Tensor, Tensor)", tags=tags)
            _LIBRARY.impl(way, self.forward, "CPU")
            torch.library.register_fake(f"linnet::{way}", self.forward_fake, lib=_LIBRARY)
        _LIBRARY.define(f"{backward}({inputs}, Tensor grad_o, Tensor? grad_final_state, {_MODES}, bool[] wanted) "
                        "-> Tensor[]", tags=tags)
        _LIBRARY.impl(backward, self.backward, "CPU")
        torch.library.register_fake(f"linnet::{backward}", self.backward_fake, lib=_LIBRARY)
        torch.library.register_autograd(f"linnet::{forward}", self.differentiate, setup_context=self.save,
                                        lib=_LIBRARY)
        torch.library.register_autograd(f"linnet::{backward}", self.refuse_second, lib=_LIBRARY)


for _op in OPS.values():
    _Kernels(_op).register()
INFERENCE = {name: getattr(torch.ops.linnet, name + "_inference").default for name in OPS}
FORWARD = {name: getattr(torch.ops.linnet, name + "_forward").default for name in OPS}
