"""python/bench/peers.py: the server that times what others have."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

PEERS = pathlib.Path(__file__).resolve().parents[2] / "python/bench/peers.py"
SMALL = {"tokens": 64, "heads": 2, "key_dim": 16, "value_dim": 8, "limit_s": 0.1, "give_up_s": 60}


def missing(package, module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None,
                              reason=f"{package} is not installed: ./setup.sh --peers")


needs_transformers = missing("transformers", "transformers")
needs_fla = missing("fla-core", "fla")


class Server:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, PEERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.ready = json.loads(self.process.stdout.readline())

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, do, **command):
        return self.send(json.dumps({"do": do, **command}))


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.process.stdin.write('{"do":"quit"}\n')
    server.process.stdin.close()
    assert server.process.wait(timeout=20) == 0


def test_the_first_line_says_what_there_is(server):
    assert server.ready["ready"] is True and server.ready["torch"] and server.ready["threads"] == 2
    assert all(peer["version"] for peer in server.ready["peers"])


def test_mm_and_scale_are_timed(server):
    reply = server.ask("mm", limit_s=0.5)
    assert reply["ms"] == min(reply["runs"]) > 0 and reply["gflops"] > 0
    reply = server.ask("scale", bytes=1 << 20, limit_s=0.1)
    assert reply["bytes"] == 1 << 20 and reply["gb_per_s"] > 0


@pytest.mark.parametrize("line, words", [
    ("{not json", "not JSON"),
    ("[1, 2]", "expected a JSON object; got list"),
    ("{}", "do: expected one of"),
    ('{"do": ["time"]}', "do: expected one of"),
    ('{"do": "time"}', "op: expected one of"),
    ('{"do": "time", "op": "nope", "peer": "transformers", "direction": "forward"}', "got 'nope'"),
    ('{"do": "time", "op": "kda", "peer": "nobody", "direction": "forward"}', "got 'nobody'"),
    ('{"do": "time", "op": "gla", "peer": "transformers", "direction": "forward"}', "has no function for gla"),
    ('{"do": "mm", "threads": true}', "threads: expected a whole number"),
    ('{"do": "mm", "give_up_s": Infinity}', "give_up_s: expected seconds"),
    ('{"do": "mm", "give_up_s": "soon"}', "give_up_s: expected seconds"),
    ('{"do": "scale", "bytes": -1}', "bytes: expected a whole number"),
])
def test_a_wrong_command_gets_an_error_and_the_server_lives(server, line, words):
    assert words in server.send(line)["error"]


def test_a_command_that_takes_too_long_is_given_up_and_the_next_one_works(server):
    assert server.ask("mm", give_up_s=0.001)["gave_up"] is True
    assert server.ask("scale", bytes=4096, limit_s=0.1)["ms"] > 0


@needs_transformers
@pytest.mark.parametrize("op", ["kda", "gated_delta_rule"])
@pytest.mark.parametrize("direction", ["forward", "backward", "decode"])
def test_transformers_is_timed(server, op, direction):
    reply = server.ask("time", op=op, peer="transformers", direction=direction, **SMALL)
    assert reply["ms"] == min(reply["runs"]) > 0, reply
    assert reply["check"]["rms_o"] > 0 and (direction != "backward" or reply["check"]["rms_dg"] > 0)


def relative_rms(got, expected):
    torch = pytest.importorskip("torch")
    got, expected = torch.tensor(got), torch.tensor(expected)
    return ((got - expected).square().mean().sqrt() / expected.square().mean().sqrt()).item()


@needs_fla
@pytest.mark.parametrize("op", ["kda", "gated_delta_rule", "delta_rule", "simple_gla", "linear_attention"])
def test_fla_chunk_and_token_forms_agree_with_gradients_and_shared_keys(server, op):
    shape = {**SMALL, "value_heads": 4}
    chunk, token = (server.ask("values", op=op, peer=peer, direction="backward", **shape)
                    for peer in ("fla_naive_chunk", "fla_naive_recurrent"))
    assert chunk["inputs"] == token["inputs"] and chunk["outputs"].keys() == token["outputs"].keys()
    for name, value in chunk["outputs"].items():
        assert relative_rms(value, token["outputs"][name]) < 1e-4, name


@needs_transformers
@needs_fla
@pytest.mark.parametrize("op", ["kda", "gated_delta_rule"])
@pytest.mark.parametrize("direction", ["forward", "backward", "decode"])
def test_transformers_and_fla_agree(server, op, direction):
    one, other = (server.ask("values", op=op, peer=peer, direction=direction, **SMALL)
                  for peer in ("transformers", "fla_naive_recurrent"))
    assert one["inputs"] == other["inputs"] and one["outputs"].keys() == other["outputs"].keys()
    for name, value in one["outputs"].items():
        assert relative_rms(value, other["outputs"][name]) < 1e-4, name


@needs_transformers
@needs_fla
def test_list_names_functions_that_load(server):
    reply = server.ask("list")
    assert reply["missing"] == {}
    assert "transformers" in reply["ops"]["kda"]["forward"]
    assert reply["ops"]["gla"]["forward"] == ["fla_naive_recurrent"]


@needs_fla
@pytest.mark.parametrize("change, words", [
    ({"tokens": 65}, "multiples of 64; got 65"),
    ({"tokens": 0}, "tokens: expected a whole number"),
    ({"value_heads": 3}, "value_heads: expected a multiple of heads, 2; got 3"),
    ({"dtype": []}, "dtype: expected f32 or bf16; got []"),
])
def test_a_shape_that_the_function_cannot_take_is_refused(server, change, words):
    reply = server.ask("time", op="kda", peer="fla_naive_chunk", direction="forward", **{**SMALL, **change})
    assert words in reply["error"]
