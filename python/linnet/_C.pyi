from torch import Tensor

__version__: str

class Error(RuntimeError):
    """What is not the caller's fault: the machine's, or a bug in Linnet."""

class Problem:
    op: str
    key_dim: int
    value_dim: int
    state_v_first: bool
    def __init__(self, op: str, *, law: str = "", key_dim: int = 128, value_dim: int = 128, dtype: str = "float32",
                 gate_dtype: str = "float32", beta_dtype: str | None = None, state_dtype: str = "float32",
                 gate: str = "pre", lower_bound: float = 0.0, has_A_log: bool = True, beta: str = "plain",
                 l2norm: bool = False, state_v_first: bool = False) -> None: ...

class ArgumentInfo:
    name: str
    shape: str
    dtype: str
    is_output: bool
    is_optional: bool

class KernelInfo:
    what: str
    key: str
    from_cache: bool
    chunk: int
    value_block: int
    loops: int
    bytes: int
    workspace: int

class Op:
    arguments: list[ArgumentInfo]
    kernels: list[KernelInfo]
    problem: Problem
    direction: str
    on_cpu: bool
    device: Device
    def takes(self, name: str) -> bool: ...
    def run(self, arguments: dict[str, Tensor | float], stream: int = 0, workspace: int = 0,
            workspace_bytes: int = 0) -> None: ...
    def workspace_bytes(self, arguments: dict[str, Tensor | float]) -> int: ...

class Buffer:
    address: int
    bytes: int

class Device:
    name: str
    threads: int
    def __init__(self, name: str = "cpu", threads: int = 0, openmp: str = "") -> None: ...
    def allocate(self, bytes: int) -> Buffer: ...
    def write(self, to: Buffer, from_: int, /) -> None: ...
    def read(self, to: int, from_: Buffer, /) -> None: ...
    def synchronise(self) -> None: ...
    def make_result(self, sizes: tuple[int, ...], dtype: str) -> object: ...
    def build(self, problem: Problem, direction: str = "forward", chunk: int = 0, schedule: str = "") -> Op: ...

def kept_bytes() -> int: ...
def show(problem: Problem, stage: str = "graph", direction: str = "forward", chunk: int = 64) -> str: ...
def interpret(problem: Problem, direction: str, chunk: int, heads: int, value_heads: int, lengths: list[int],
              inputs: dict[str, list[float]]) -> dict[str, list[float]]: ...
def tune(*, ops: list[str], key_dim: int, value_dim: int, dtype: str, gate_dtype: str, gate: str, lower_bound: float,
         device: str, directions: list[str], lengths: list[str], budget: float, threads: int, directory: str,
         report: str) -> list[dict[str, object]]: ...
def check_schedule(text: str) -> str: ...
