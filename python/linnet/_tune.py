"""Schedules: found offline by `tune`, insisted on by `schedule`. See docs/autotune.md."""

from . import _C, _device


class schedule:
    """Calls inside `with linnet.schedule("chunk=32 register_rows=6"):` take this schedule instead of the tuned or default one.

    direction: "forward", "backward" or "decode"; without, forward and backward. A schedule that a call cannot take is a
    ValueError of that call. Holds for all threads of the process; kernels of a new schedule are compiled at its first call.
    """

    def __init__(self, text, direction=None):
        if direction not in (None, "forward", "backward", "decode"):
            raise ValueError(f"direction: expected forward, backward or decode, got {direction!r}")
        self.text = _C.check_schedule(text)
        self.directions = ("forward", "backward") if direction is None else (direction,)

    def __enter__(self):
        self._before = dict(_device.schedules)
        _device.schedules.update(dict.fromkeys(self.directions, self.text))
        return self

    def __exit__(self, *_):
        _device.schedules.clear()
        _device.schedules.update(self._before)


def tune(ops, *, device="cpu", budget=0.0, directions=("forward", "backward", "decode"), lengths=("short", "medium", "long"),
         key_dim=128, value_dim=128, dtype="float32", gate_dtype="float32", gate="pre", lower_bound=0.0, threads=0,
         directory="", report=""):
    """Finds the best schedules of some ops and keeps them for this and later processes: what `linnet tune` does.

    ops: a law of `linnet list`, or several. budget: seconds for everything together, 0 for no bound. report: a .html or .svg
    file to draw into. Gives one dict for every direction and class of shapes. Ctrl-C keeps what is found; the same call goes
    on where it was.
    """
    names = [ops] if isinstance(ops, str) else list(ops)
    try:
        return _C.tune(ops=names, key_dim=key_dim, value_dim=value_dim, dtype=dtype, gate_dtype=gate_dtype, gate=gate,
                       lower_bound=lower_bound, device=device, directions=list(directions), lengths=list(lengths),
                       budget=float(budget), threads=threads, directory=str(directory), report=str(report))
    finally:
        _device.forget()
