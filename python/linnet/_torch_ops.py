"""linnet::<op>_forward and linnet::<op>_backward as torch ops: schemas, kernels, shapes for tracing, autograd.

linnet::<op>_inference is the forward without autograd and without states between; linnet::<op>_decode is the plain
recurrence on states that are read and written in place.
All take the tensors of `_laws.OPS` in order, then

    A_log [HV], dt_bias [HV, K] or [HV], initial_state [N, HV, K, V], cu_seqlens [N + 1]

and how they are meant: scale (None: K**-0.5), gate ("pre", "softplus", "bounded") with its lower_bound, beta_mode
("plain", "sigmoid", "twice_sigmoid"), l2norm, state_v_first, device ("": the tensors' own). The forward gives o, the
final states and the states at the start of every `states_every` tokens, the last two empty if not asked for. The
backward gives the gradients of the tensors that are wanted, in order.
"""

import torch

from . import _device
from ._laws import OPS

_LIBRARY = torch.library.Library("linnet", "DEF")
_EXTRA = ("A_log", "dt_bias", "initial_state")  # tensors that have gradients, but may be missing
_MODES = "float? scale, str gate, float lower_bound, str beta_mode, bool l2norm, bool state_v_first, str device"
_MODE_COUNT = 7
_RENAMED = {"state": "initial_state", "slots": "ssm_state_indices"}  # in C++ -> in Python


class _Kernels:
    """The torch ops of one row of the table."""

    def __init__(self, op):
        self.op = op
        self.names = [x.law_name for x in op.inputs]
        self.count = len(self.names)
        self.key = op.first(lambda x: x.axes[-1] == "K")
        self.value = op.first(lambda x: x.axes == "BTUV")
        self.gate = op.first(lambda x: x.kind == "gate")
        self.strength = op.first(lambda x: x.kind == "strength")

    # Problems and shapes

    def build(self, tensors, A_log, modes, direction, chunk=0):
        _, gate, lower_bound, beta_mode, l2norm, state_v_first, device = modes
        value = tensors[self.value]
        return _device.build(
            _device.name_for(value, device), self.op.law, self.op.text, tensors[self.key].shape[-1], value.shape[-1],
            value.dtype, torch.float32 if self.gate is None else tensors[self.gate].dtype,
            value.dtype if self.strength is None else tensors[self.strength].dtype, gate, lower_bound,
            A_log is not None, beta_mode, l2norm, state_v_first, direction, chunk, _device.schedules.get(direction, ""))

    def sequences(self, tensors, cu_seqlens):
        return tensors[self.value].shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1

    def state_shape(self, tensors, count, state_v_first):
        key, value = tensors[self.key].shape[-1], tensors[self.value]
        return (count, value.shape[2], *((value.shape[3], key) if state_v_first else (key, value.shape[3])))

    def state_count(self, tensors, cu_seqlens, every):
        """Of states at the start of every so many tokens."""
        if cu_seqlens is None:
            B, T = tensors[self.value].shape[:2]
            return B * -(-T // every)
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

    def needed(self, built, tensors, arguments):
        """Of the arguments those the kernels take. An input that means nothing to them is only looked at, and its gradient
        is 0. Only a law of the user's has such inputs."""
        if not self.op.text:
            return arguments
        unused = [name for name in arguments if not built.takes(name)]
        if not unused:
            return arguments
        self.check_sizes(tensors)
        for name in unused:
            x = arguments.pop(name)
            if name.startswith("d") and name[1:] in (*self.names, *_EXTRA):
                x.zero_()
        return arguments

    def check_sizes(self, tensors):
        """That tensors fit each other, where no kernel looks at all of them."""
        sizes = {}
        for x, tensor in zip(self.op.inputs, tensors):
            expected = [sizes.setdefault(axis, size) for axis, size in zip(x.axes, tensor.shape)]
            if expected != list(tensor.shape):
                raise ValueError(f"{x.name}: expected {x.shape} = {expected}, got {list(tensor.shape)}")

    def run(self, built, tensors, arguments):
        arguments = self.needed(built, tensors, arguments)
        value = tensors[self.value]
        try:
            if value.is_cpu:
                built.run(arguments)
            else:  # memory of torch's allocator, which knows what the current stream still uses
                workspace = torch.empty(built.workspace_bytes(arguments), dtype=torch.uint8, device=value.device)
                stream = torch.cuda.current_stream(value.device).cuda_stream
                built.run(arguments, stream, workspace.data_ptr(), workspace.numel())
        except (TypeError, ValueError) as error:
            raise type(error)(self.renamed(str(error))) from None
        if _device.watchers():
            _device.watch(built, arguments)

    def renamed(self, message):
        """A message of C++ begins with the law's name of an argument; here it has another."""
        name, colon, rest = message.partition(":")
        if name in self.names:
            name = self.op.inputs[self.names.index(name)].name
        return _RENAMED.get(name, name) + colon + rest

    # Forward

    def forward(self, *args):
        states_every, n = args[-1], self.count
        states = self.empty_states(args, self.state_count(args[:n], args[n + 3], states_every) if states_every else None)
        extra = {"states": states, "states_every": float(states_every)} if states_every else {}
        return *self.inference(*args[:-1], **extra), states

    def inference(self, *args, **states):
        n = self.count
        tensors, (A_log, dt_bias, initial_state, cu_seqlens) = args[:n], args[n:n + 4]
        modes, (decode, final_state) = args[n + 4:n + 4 + _MODE_COUNT], args[n + 4 + _MODE_COUNT:]
        built = self.build(tensors, A_log, modes, "decode" if decode else "forward",
                           _chunk_for(states["states_every"]) if states else 0)
        results = self.inference_fake(*args, empty=_room(built, tensors[self.value], initial_state))
        arguments = self.arguments(tensors, A_log, dt_bias, initial_state, cu_seqlens, modes[0])
        arguments["o"] = results[0]
        if final_state:
            arguments["final_state"] = results[1]
        if states:
            arguments.update(states)
        self.run(built, tensors, arguments)
        return results

    def forward_fake(self, *args):
        n = self.count
        cu_seqlens, states_every, states = args[n + 3], args[-1], None
        if states_every:
            states = (torch.library.get_ctx().new_dynamic_size() if cu_seqlens is not None
                      else self.state_count(args[:n], None, states_every))
        return *self.inference_fake(*args[:-1]), self.empty_states(args, states)

    def inference_fake(self, *args, empty=torch.Tensor.new_empty):
        n = self.count
        tensors, value = args[:n], args[self.value]
        final = (self.state_shape(tensors, self.sequences(tensors, args[n + 3]), args[n + 9]) if args[-1] else (0,))
        return empty(value, value.shape), empty(value, final, dtype=_state_dtype(value))

    def empty_states(self, args, states):
        value = args[self.value]
        shape = (0,) if states is None else self.state_shape(args[:self.count], states, args[self.count + 9])
        return value.new_empty(shape, dtype=_state_dtype(value))

    # States in place

    def decode(self, *args):
        n = self.count
        tensors, (A_log, dt_bias, state, slots, cu_seqlens) = args[:n], args[n:n + 5]
        modes = args[n + 5:]
        built = self.build(tensors, A_log, modes, "decode")
        arguments = self.arguments(tensors, A_log, dt_bias, None, cu_seqlens, modes[0])
        o = self.decode_fake(*args)
        arguments["o"], arguments["state"] = o, state
        if slots is not None:
            o.zero_()  # a sequence that is left out gives zeros
            arguments["slots"] = slots
        self.run(built, tensors, arguments)
        return o

    def decode_fake(self, *args):
        value = args[self.value]
        return value.new_empty(value.shape)

    # Backward

    def backward(self, *args):
        n = self.count
        tensors, (A_log, dt_bias, initial_state, cu_seqlens, grad_o, grad_state) = args[:n], args[n:n + 6]
        modes, wanted = args[n + 6:n + 6 + _MODE_COUNT], args[n + 6 + _MODE_COUNT]
        built = self.build(tensors, A_log, modes, "backward")
        arguments = self.arguments(tensors, A_log, dt_bias, initial_state, cu_seqlens, modes[0])
        arguments["do"] = grad_o
        if grad_state is not None:
            arguments["dfinal_state"] = grad_state
        gradients = self.backward_fake(*args, empty=_room(built, tensors[self.value], initial_state))
        names = [name for name, want in zip((*self.names, *_EXTRA), wanted) if want]
        arguments.update(zip(("d" + name for name in names), gradients))
        self.run(built, tensors, arguments)
        return gradients

    def backward_fake(self, *args, empty=torch.Tensor.new_empty):
        n = self.count
        return [empty(x, x.shape) for x, want in zip(args[:n + 3], args[n + 6 + _MODE_COUNT]) if want]

    # Autograd

    def save(self, ctx, inputs, output):
        n = self.count
        ctx.save_for_backward(*inputs[:n + 4])
        ctx.modes, ctx.has_final_state = inputs[n + 4:n + 4 + _MODE_COUNT], inputs[-2]
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
        return (*(next(gradients) if want else None for want in wanted), *(None for _ in range(4 + _MODE_COUNT)))

    def refuse_second(self, ctx, *_):
        raise NotImplementedError(f"{self.op.name}: gradients of gradients are not there")

    # Registration

    def register(self):
        inputs = ", ".join("Tensor " + x.name for x in self.op.inputs) + ", Tensor? A_log, Tensor? dt_bias"
        state, name = "Tensor? initial_state, Tensor? cu_seqlens", self.op.name
        results = "bool decode, bool final_state"
        _define(f"{name}_forward({inputs}, {state}, {_MODES}, {results}, int states_every) -> (Tensor, Tensor, Tensor)",
                self.forward, self.forward_fake)
        _define(f"{name}_inference({inputs}, {state}, {_MODES}, {results}) -> (Tensor, Tensor)", self.inference,
                self.inference_fake)
        _define(f"{name}_backward({inputs}, {state}, Tensor grad_o, Tensor? grad_final_state, {_MODES}, bool[] wanted) "
                "-> Tensor[]", self.backward, self.backward_fake)
        _define(f"{name}_decode({inputs}, Tensor(a!) state, Tensor? slots, Tensor? cu_seqlens, {_MODES}) -> Tensor",
                self.decode, self.decode_fake)
        torch.library.register_autograd(f"linnet::{name}_forward", self.differentiate, setup_context=self.save,
                                        lib=_LIBRARY)
        torch.library.register_autograd(f"linnet::{name}_backward", self.refuse_second, lib=_LIBRARY)
        for table, way in ((FORWARD, "forward"), (INFERENCE, "inference"), (DECODE, "decode")):
            table[name] = getattr(torch.ops.linnet, f"{name}_{way}").default
        KERNELS[name] = self


def _define(schema, kernel, fake):
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, key)
    torch.library.register_fake(f"linnet::{name}", fake, lib=_LIBRARY)


def _room(built, value, state=None):
    """new_empty for results like these; those on the CPU that are large get memory that is kept from call to call."""
    large = value.numel() >= _device.LARGE or (state is not None and state.numel() >= _device.LARGE)
    if not large or not getattr(built, "on_cpu", False):
        return torch.Tensor.new_empty
    return lambda like, shape, dtype=None: _device.empty(shape, dtype or like.dtype)


def _chunk_for(states_every):
    """States leave at the end of chunks: the largest chunk that divides their interval; 0: the default."""
    if not states_every:
        return 0
    return next(chunk for chunk in range(16, 0, -1) if states_every % chunk == 0)


def _state_dtype(value):
    return torch.float64 if value.dtype == torch.float64 else torch.float32


FORWARD, INFERENCE, DECODE, KERNELS = {}, {}, {}, {}  # by the op's name


def register(op):
    """Makes a row of the table callable; the same row twice is one op."""
    if op.name not in FORWARD:
        OPS[op.name] = op
        _Kernels(op).register()


for _op in list(OPS.values()):
    register(_op)
