"""The command line, as a user types it."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINNET = ROOT / "build/bin/linnet"


def linnet(*arguments, code=0):
    run = subprocess.run([LINNET, *arguments], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == code, run.stderr
    return run.stdout + run.stderr


def test_list_names_every_recurrence():
    text = linnet("list")
    words = [line[3:-1] for line in (ROOT / "ops/list.def").read_text().splitlines() if line.startswith("OP(")]
    assert len(words) >= 13
    for word in words:
        assert f"\n{word} " in text


@pytest.mark.parametrize("stage", ["law", "graph", "backward", "stages", "decode"])
def test_show_prints_text_that_reads_back(stage, tmp_path):
    text = linnet("show", "kda", "--stage", stage, "--key-dim", "32", "--value-dim", "16")
    assert "chunk.input \"q\"" in text
    if stage == "law":
        path = tmp_path / "kda.mlir"
        path.write_text(text)
        graph = linnet("show", str(path), "--stage", "graph")
        assert graph.split("//")[0] == linnet("show", "kda", "--key-dim", "32", "--value-dim", "16").split("//")[0]


@pytest.mark.parametrize("stage", ["graph", "stages"])
def test_a_derived_graph_goes_on_from_where_it_is(stage, tmp_path):
    path = tmp_path / "kda.mlir"
    path.write_text(linnet("show", "kda", "--stage", stage, "--gate", "softplus"))
    expected = linnet("show", "kda", "--stage", "stages", "--gate", "softplus")
    assert linnet("show", str(path), "--stage", "stages", "--gate", "softplus").split("//")[0] == expected.split("//")[0]


def test_show_prints_both_counts():
    text = linnet("show", "kda", "--stage", "graph")
    assert "165888 derived" in text and "165888 written by hand" in text


def test_show_gate_modes_and_stop_after():
    text = linnet("show", "kda", "--gate", "bounded", "--stage", "stages", "--direction", "backward")
    assert "dA_log" in text and "ddt_bias" in text and "anchored" in text
    assert "chunk.scan (" in linnet("show", "gla", "--stop-after", "derive-chunk-form")


def test_check_one_op_with_given_lengths():
    assert "all passed" in linnet("check", "gla", "--tokens", "33,0,7")


def test_draw_writes_a_picture(tmp_path):
    path = tmp_path / "kda.svg"
    linnet("draw", "kda", "-o", str(path))
    text = path.read_text()
    assert "<svg" in text and "A_qk" in text and "next chunk" in text


def test_bench_times_a_kernel_on_this_cpu():
    text = linnet("bench", "gla", "--tokens", "100", "--heads", "2", "--runs", "2", "--dtype", "bf16")
    line = [l for l in text.splitlines() if l.startswith("gla forward T=100 H=2 bf16")][0]
    build, run = line.split("threads" if "threads" in line else "thread")[1].split()[:2]
    assert float(build) > 0 and float(run) > 0


def test_code_for_another_processor_is_checked_and_timed():
    other = ["--target-cpu", "x86-64-v3"]
    assert "3 cases of 1 ops" in linnet("check", "kda", "--device", "cpu", "--cases", "3", *other)
    text = linnet("bench", "gla", "--tokens", "100", "--heads", "2", "--runs", "2", *other)
    assert "gla forward T=100 H=2" in text


def test_show_tile_and_assembly():
    text = linnet("show", "kda", "--stage", "tile", "--chunk", "16")
    assert "loop over chunks of 16, forward" in text and "scratch" in text
    apart = linnet("show", "kda", "--stage", "tile", "--schedule", "chunk=16 fuse_stages=0")
    assert text.count("loop over chunks") == 1 and apart.count("loop over chunks") == 2
    assert "ymm" in linnet("show", "gla", "--stage", "asm", "--chunk", "16", "--target-cpu", "x86-64-v3")


def test_show_cuda_source():
    text = linnet("show", "gla", "--stage", "cuda", "--chunk", "16", "--precision", "bf16")
    assert "gla_scan(const Tensor<const bf16> v_tensor" in text and "plus_product<Precision::bf16>" in text


def test_ptx_inspect_and_the_virtual_gpu():
    small = ["--chunk", "16", "--key-dim", "16", "--value-dim", "16"]
    assert ".target sm_89" in linnet("show", "gla", "--stage", "ptx", "--arch", "sm_89", *small)
    lines = linnet("inspect", "gla", "--arch", "sm_90", *small).splitlines()
    kernel = [l for l in lines if "gla_scan" in l][0].split()
    assert int(kernel[3]) > 0 and int(kernel[4]) == 0  # registers, spilled


def test_sass_and_what_it_is_made_of():
    small = ["--key-dim", "16", "--value-dim", "16", "--arch", "sm_80"]
    text = linnet("show", "gla", "--stage", "sass", "--precision", "bf16", "--chunk", "16", *small)
    assert ".text.gla_scan:" in text and "HMMA" in text
    lines = linnet("inspect", "gla", "--direction", "decode", *small).splitlines()
    heads = [l for l in lines if l.startswith("arch")]
    kernel, mix = [l.split() for l in lines if "gla_" in l]
    assert heads[0].split()[-1] == "occupancy" and 0 < int(kernel[-2]) <= 100
    assert sum(int(n) for n in mix[3:]) == int(mix[2]) > 100
    assert int(mix[3 + heads[1].split()[3:].index("local")]) == 0


def test_compile_makes_a_bundle_that_is_listed_and_checked(tmp_path):
    bundle = str(tmp_path / "bundle")
    text = linnet("compile", "gla", "--arch", "compute_80,sm_90", "-K", "16", "-V", "16", "--direction", "forward,decode",
                  "-o", bundle)
    assert text.count("gla forward pre bf16") == 2 and text.count("gla decode pre bf16") == 2
    assert f"LINNET_BUNDLE={bundle}" in text
    assert "8 entries intact" in linnet("cache", "--dir", bundle, "verify")
    assert "cuda program" in linnet("cache", "--dir", bundle, "list")
    again = linnet("compile", "gla", "--arch", "compute_80", "-K", "16", "-V", "16", "--direction", "decode", "-o", bundle)
    assert "cached" in again
    code = next(pathlib.Path(bundle).rglob("kernels.bin"))
    code.write_bytes(code.read_bytes()[:-1])
    assert "7 entries intact, 1 damaged" in linnet("cache", "--dir", bundle, "verify", code=1)


def test_bench_is_within_the_promise():
    lines = linnet("bench", "--compile", "kda").splitlines()
    line = [l for l in lines if l.startswith("kda")][0]
    assert float(line.split()[-1]) < 30  # ms, forward and backward
    cuda = {l[:44].strip(): l[80:].split() for l in lines}  # what, then goal and figures
    assert cuda["launches, forward / forward + backward"][-6:] == ["2", "/", "7"] * 2
    assert cuda["spilled bytes"][-2:] == ["0", "0"]
    assert "MISSED" not in cuda["warm start, forward + backward, ms"]  # 10 ms, some of the disk's


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["show", "kdda"], ["expected one of", "kda", "got 'kdda'"]),
        (["show", "kda", "--gate", "soft"], ["--gate", "softplus", "got 'soft'"]),
        (["show", "kda", "--chunk", "40"], ["chunk: expected", "got 40"]),
        (["show", "kda", "--stage", "mc"], ["--stage", "expected one of", "sass", "got 'mc'"]),
        (["inspect", "kda", "--arch", "sm_85"], ["arch: expected one of sm_80", "got 'sm_85'"]),
        (["compile", "kdda", "--arch", "sm_80", "-o", "/tmp/x"], ["expected one of", "got 'kdda'"]),
        (["compile", "kda", "--arch", "sm80", "-o", "/tmp/x"], ["arch: expected sm_<number>", "got 'sm80'"]),
        (["compile", "kda", "--arch", "sm_80", "--gate", "soft", "-o", "/tmp/x"], ["--gate", "got 'soft'"]),
        (["compile", "kda", "--arch", "sm_80", "-K", "260", "-o", "/tmp/x"], ["key_dim: expected at most 256", "260"]),
        (["show", "kda", "--stop-after", "x"], ["--stop-after", "fold-gate", "got 'x'"]),
        (["show", "retention", "--gate", "softplus"], ["gate: retention"]),
        (["show", "nothing.mlir"], ["nothing.mlir", "cannot be opened"]),
        (["draw", "kda", "-o", "x.bmp"], ["-o: expected", ".svg", "got 'x.bmp'"]),
        (["draw", "kda", "-o", "/nonexistent/x.dot"], ["/nonexistent/x.dot", "cannot be written"]),
        (["check"], ["expected the names of ops, or --all"]),
        (["check", "kda", "--tokens=-3"], ["--tokens", "-3"]),
        (["check", "kda", "--target-cpu", "x86-64"], ["--target-cpu: expected --device cpu", "got interpreter"]),
        (["check", "kda", "--device", "cpu", "--target-cpu", "z80"], ["target_cpu", "got 'z80'"]),
        (["bench", "kda", "--target-cpu", "z80"], ["target_cpu", "got 'z80'"]),
        (["bench", "kda", "--dtype", "f64"], ["--dtype", "got 'f64'"]),
        (["bench", "kda", "--tokens", "0"], ["--tokens", "at least 1"]),
        (["check", "kda", "--device", "gpu"], ["device: expected cpu", "got 'gpu'"]),
        (["show", "kda", "--stage", "asm", "--target-cpu", "z80"], ["target_cpu", "got 'z80'"]),
    ],
)
def test_bad_input_is_named(arguments, parts):
    text = linnet(*arguments, code=1)
    for part in parts:
        assert part in text


def test_unparsable_file_gives_file_and_line(tmp_path):
    path = tmp_path / "bad.mlir"
    path.write_text("chunk.law @x {\n  %S = chunk.state\n}\n")
    text = linnet("show", str(path), code=1)
    assert f"{path}:2" in text and "%S = chunk.state" in text


def test_help_teaches():
    text = linnet("--help")
    for command in ["list", "show", "check", "draw", "bench"]:
        assert command in text
    assert "decode" in linnet("show", "--help")
