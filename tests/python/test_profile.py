"""`linnet profile`: counts and modelled times as a table, JSON, a picture and a page."""

import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

import pytest

LINNET = pathlib.Path(__file__).parents[2] / "build" / "bin" / "linnet"
SMALL = ["--key-dim", "32", "--value-dim", "32", "--device", "virtual:sm_80"]


def profile(*arguments, tmp_path):
    result = subprocess.run([str(LINNET), "profile", *arguments], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "LINNET_CACHE_DIR": str(tmp_path / "cache")})
    if "libnvrtc" in result.stderr:
        pytest.skip("NVRTC is not installed")
    return result


def test_counts_scale_exactly_and_are_what_the_whole_call_does(tmp_path):
    shape = ["kda", *SMALL, "--tokens", "128", "--heads", "2", "--json"]
    scaled = profile(*shape, "--html", str(tmp_path / "page.html"), "--plot", str(tmp_path / "roof.svg"), tmp_path=tmp_path)
    assert scaled.returncode == 0, scaled.stderr
    whole = profile(*shape, "--whole", tmp_path=tmp_path)
    scaled, whole = json.loads(scaled.stdout), json.loads(whole.stdout)
    assert scaled["counts_exact"] and "exact" in scaled["counts_from"]
    assert [k["kernel"] for k in scaled["kernels"]] == ["kda_prepare", "kda_scan"]
    for ours, truth in zip(scaled["kernels"], whole["kernels"]):
        assert ours["counted"] == truth["counted"]
        assert ours["registers"] > 0
        assert ours["modelled"]["seconds"] > 0
        parts = ours["modelled"]["parts"]
        assert ours["modelled"]["bound"] == max(parts, key=parts.get)
    # q, k, v, g (f32), beta and o are needed once at least, and the workspace between the kernels.
    needed = sum(k["counted"]["compulsory_bytes_read"] + k["counted"]["compulsory_bytes_written"] for k in scaled["kernels"])
    assert needed > 128 * 2 * (4 * 32 * 2 + 32 * 4 + 2)

    xml.etree.ElementTree.parse(tmp_path / "roof.svg")
    page = (tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert [launch["kernel"] for launch in data["launches"]] == ["kda_prepare", "kda_scan"]
    files = {pathlib.Path(line["file"]).name for launch in data["launches"] for line in launch["lines"]}
    assert "kda.cu" in files and files - {""} <= set(data["sources"])
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", page.split("<script")[0])  # nothing is loaded from elsewhere


@pytest.mark.parametrize("op, direction", [("kda", "backward"), ("gated_delta_rule", "forward")])
def test_default_kernels_meet_no_bank_conflict_and_move_few_bytes_twice(op, direction, tmp_path):
    result = profile(op, "--device", "virtual:sm_90", "--direction", direction, "--tokens", "64", "--heads", "1", "--whole", "--json",
                     tmp_path=tmp_path)
    assert result.returncode == 0, result.stderr
    kernels = json.loads(result.stdout)["kernels"]
    assert len(kernels) == (2 if direction == "forward" else 4)  # no gather where heads are not shared
    for kernel in kernels:
        counted = kernel["counted"]
        assert counted["wavefronts"] == counted["wavefronts_minimum"] > 0, kernel["kernel"]
        needed = counted["compulsory_bytes_read"] + counted["compulsory_bytes_written"]
        in_maps = kernel["kernel"].endswith(("prepare", "finish"))  # two blocks of value channels read a scan's records
        moved = 32 * (counted["load_sectors"] + counted["store_sectors"])
        assert needed <= moved <= (1.1 if in_maps else 1.8) * needed, kernel["kernel"]


def test_another_gpu_is_modelled_from_the_same_counts(tmp_path):
    def on(gpu):
        result = profile("gla", *SMALL, "--tokens", "4096", "--heads", "16", "--json", "--gpu", gpu, tmp_path=tmp_path)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    slow, fast = on("sm_89"), on("sm_90")
    assert [k["counted"] for k in slow["kernels"]] == [k["counted"] for k in fast["kernels"]]
    assert slow["kernels"][0]["modelled"]["parts"]["DRAM"] > 3 * fast["kernels"][0]["modelled"]["parts"]["DRAM"]


@pytest.mark.parametrize("arguments, message", [
    (["kda", "--device", "cpu"], "--device: expected virtual:sm_<arch>, got 'cpu'"),
    (["kda", "--gpu", "sm_1"], "--gpu: expected one of"),
    (["kda", "--tokens", "0"], "--tokens: expected at least 1, got 0"),
    (["nothing"], "nothing"),
])
def test_wrong_arguments_are_named(arguments, message, tmp_path):
    result = profile(*arguments, tmp_path=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
