from torch import Tensor

__version__: str

class Error(RuntimeError):
    """What is not the caller's fault: the machine's, or a bug in Linnet."""

class ArgumentInfo:
    name: str
    shape: str
    dtype: str
    is_output: bool
    is_optional: bool

class Op:
    arguments: list[ArgumentInfo]
    def run(self, arguments: dict[str, Tensor | float]) -> None: ...

class Device:
    name: str
    threads: int
    def __init__(self, name: str = "cpu", threads: int = 0) -> None: ...
    def build(self, op: str, key_dim: int, value_dim: int, dtype: str = "float32", gate_dtype: str = "float32",
              state_dtype: str = "float32", gate: str = "pre", lower_bound: float = 0.0, has_A_log: bool = True,
              beta: str = "plain", l2norm: bool = False, state_v_first: bool = False, direction: str = "forward",
              chunk: int = 0, schedule: str = "") -> Op: ...

def tune(*, ops: list[str], key_dim: int, value_dim: int, dtype: str, gate_dtype: str, gate: str, lower_bound: float,
         device: str, directions: list[str], lengths: list[str], budget: float, threads: int, directory: str,
         report: str) -> list[dict[str, object]]: ...
def check_schedule(text: str) -> str: ...
