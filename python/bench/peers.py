"""Times what people who run linear attention on a CPU have today: the torch functions of Hugging Face transformers and of
FLA, plain and under torch.compile.

Without --table it is a server for `linnet bench --peers`: one JSON object a line comes in, one goes out, logs go to
stderr. The first line out says {"ready": true, ...}. The commands are in python/bench/README.md.

  python python/bench/peers.py --table --op kda --tokens 1024
  python python/bench/peers.py --table --op gated_delta_rule --direction backward --compiled
  echo '{"do":"mm"}' | python python/bench/peers.py
"""

import argparse
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

DIRECTIONS = ("forward", "backward", "decode")
GIVE_UP_S = 300


class Worker:
    """worker.py in a process of its own, since torch.compile may take hours and a peer may run out of memory."""

    def __init__(self, threads, scratch):
        self.threads, self.scratch, self.process = threads, scratch, None

    def start(self):
        """Starts it and returns its first line, or an error."""
        environment = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", **os.environ,
                       "TORCHINDUCTOR_CACHE_DIR": self.scratch}
        script = pathlib.Path(__file__).with_name("worker.py")
        self.process = subprocess.Popen(
            [sys.executable, script, "--threads", str(self.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment, start_new_session=True)
        return self.read(time.monotonic() + GIVE_UP_S)

    def ask(self, command):
        give_up = command.get("give_up_s", GIVE_UP_S)
        if isinstance(give_up, bool) or not isinstance(give_up, (int, float)) or not 0 < give_up < 1e6:
            return {"error": f"give_up_s: expected seconds above 0; got {give_up!r}"}
        if not self.process:
            ready = self.start()
            if not ready.get("ready"):
                return ready or {"error": "the worker did not start"}
        deadline = time.monotonic() + give_up  # a restart is not the command's fault
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            pass  # it is dead: read() says so
        reply = self.read(deadline)
        return reply if reply else {"error": f"gave up after give_up_s = {give_up:g}", "gave_up": True}

    def read(self, deadline):
        """A line of the worker's; an empty object, and no worker any more, after the deadline."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                self.stop()
                return {}
            piece = os.read(self.process.stdout.fileno(), 1 << 20)
            if not piece:
                code = self.process.wait()
                self.process = None
                return {"error": f"the worker ended by {signal.Signals(-code).name}" if code < 0 else
                        f"the worker ended with code {code}; its log says why"}
            line += piece
        return json.loads(line)

    def stop(self):
        """Ends it with all it has started: compilers too are in its session."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


def serve(worker):
    say = lambda message: print(json.dumps(message), flush=True)
    ready = worker.start()
    if not ready.get("ready"):
        say({"ready": False, "error": ready.get("error", "the worker did not start")})
        return 1
    say(ready)
    sys.stdin.reconfigure(errors="replace")
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            command = json.loads(line)
        except (ValueError, RecursionError) as error:
            say({"error": f"not JSON: {error}"})
            continue
        if not isinstance(command, dict):
            say({"error": f"expected a JSON object; got {type(command).__name__}"})
            continue
        if command.get("do") == "quit":
            break
        say(worker.ask(command))
    return 0


def table(worker, arguments):
    ready = worker.start()
    if not ready.get("ready"):
        sys.exit(ready.get("error", "the worker did not start"))
    peers = ", ".join(f"{peer['name']} {peer['version']}" for peer in ready["peers"]) or "no peers: ./setup.sh --peers"
    print(f"torch {ready['torch']}, {ready['threads']} threads; {peers}")
    shape = {name: getattr(arguments, name) for name in
             ("batch", "tokens", "heads", "value_heads", "key_dim", "value_dim", "dtype", "threads", "limit_s", "give_up_s")
             if getattr(arguments, name) is not None}
    there = worker.ask({"do": "list"})
    if "error" in there:
        sys.exit(there["error"])
    for name, why in there.get("missing", {}).items():
        print(f"  without {name}: {why}", file=sys.stderr)
    print(f"{'op':<18}{'direction':<11}{'peer':<26}{'best ms':>10}{'median':>10}{'runs':>6}{'compile s':>11}{'other load':>12}")
    failed = False
    for op in arguments.op or there["ops"]:
        if op not in there["ops"]:
            sys.exit(f"--op: expected one of {', '.join(there['ops'])}; got {op}")
        for direction in arguments.direction or DIRECTIONS:
            for peer in there["ops"][op][direction]:
                if peer not in arguments.peer if arguments.peer else peer.endswith("_compiled") and not arguments.compiled:
                    continue
                reply = worker.ask({"do": "time", "op": op, "peer": peer, "direction": direction, **shape})
                row = f"{op:<18}{direction:<11}{peer:<26}"
                if "error" in reply:
                    failed = True
                    print(f"{row}  {reply['error']}", flush=True)
                    continue
                compiled, other = reply.get("compile_s", ""), reply["other_load"]
                print(f"{row}{reply['ms']:>10.2f}{reply['median_ms']:>10.2f}{len(reply['runs']):>6}{compiled:>11}"
                      f"{'' if other is None else other:>12}  {reply.get('note', '')}".rstrip(), flush=True)
    return int(failed)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print a table and end, rather than serve")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads (2)")
    group = parser.add_argument_group("with --table")
    group.add_argument("--op", action="append", help="a recurrence as `linnet list` names it; may be repeated (all)")
    group.add_argument("--direction", action="append", choices=DIRECTIONS,
                       help="backward is forward and backward together, decode one token a sequence (all)")
    group.add_argument("--peer", action="append", help="only this peer; may be repeated")
    group.add_argument("--compiled", action="store_true", help="also under torch.compile, which may take minutes")
    group.add_argument("--tokens", type=int, default=1024, help="length of the sequence (1024)")
    group.add_argument("--batch", type=int, default=1, help="sequences (1)")
    group.add_argument("--heads", type=int, default=8, help="heads of q and k (8)")
    group.add_argument("--value-heads", type=int, help="heads of v, a multiple of --heads (as many)")
    group.add_argument("--key-dim", type=int, default=128, help="key channels of a head (128)")
    group.add_argument("--value-dim", type=int, default=128, help="value channels of a head (128)")
    group.add_argument("--dtype", default="f32", choices=("f32", "bf16"), help="of all inputs but the gates (f32)")
    group.add_argument("--limit-s", type=float, default=5, help="seconds of repeated runs for each row (5)")
    group.add_argument("--give-up-s", type=float, default=GIVE_UP_S,
                       help=f"end a row after this, compilation included ({GIVE_UP_S})")
    return parser.parse_args()


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what follows cleans up
    with tempfile.TemporaryDirectory(prefix="linnet-peers-", ignore_cleanup_errors=True) as scratch:
        worker = Worker(arguments.threads, scratch)
        try:
            return table(worker, arguments) if arguments.table else serve(worker)
        except (KeyboardInterrupt, BrokenPipeError):
            return 130
        finally:
            worker.stop()


if __name__ == "__main__":
    sys.exit(main())
