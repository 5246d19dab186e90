"""linnet tune, as a user types it."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINNET = ROOT / "build/bin/linnet"
SMALL = ("linear_attention", "--key-dim", "16", "--value-dim", "16", "--direction", "forward", "--threads", "1")


@pytest.fixture
def tune(tmp_path):
    env = dict(os.environ, LINNET_CACHE_DIR=str(tmp_path / "cache"), LINNET_TUNING_DIR=str(tmp_path / "tuning"))

    def run(*arguments, code=0, start=False):
        command = [LINNET, "tune", *map(str, arguments)]
        if start:
            return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def stored(tmp_path):
    (path,) = (tmp_path / "tuning").glob("cpu*.json")
    return path, json.loads(path.read_text())


def entry(op="kda", gain=1.2, length="long", chunk=32):
    return {"op": op, "direction": "forward", "gate": "pre", "dtype": "f32", "gate_dtype": "f32", "state_dtype": "f32",
            "K": 128, "V": 128, "width": "many", "length": length, "schedule": {"chunk": chunk},
            "found": {"how": "measured", "device": "a test", "generator": "linnet test", "date": "2026-11-16",
                      "workload": "B=1 T=8192 H=8", "ms": 1, "default_ms": gain}}


def write(path, entries, architecture="cpu test", **changes):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"format": 1, "schedules": 1, "architecture": architecture, "made_by": "a test",
                                "entries": entries} | changes))
    return path


def test_tuned_stored_shown_exported(tune, tmp_path):
    text = tune(*SMALL, "--length", "medium", "--budget", "2s", "--report", tmp_path / "report.html")
    assert "x the default's speed, measured" in text
    path, file = stored(tmp_path)
    assert len(file["entries"]) == 1 and file["made_by"].startswith("linnet tune linear_attention --key-dim 16")
    assert file["entries"][0]["found"]["how"] == "measured" and file["entries"][0]["found"]["generator"].startswith("linnet ")
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert "(your file)" in tune("show")
    tune(*SMALL, "--length", "short", "--budget", "1s")
    path, file = stored(tmp_path)
    assert len(file["entries"]) == 2
    # What is shipped is the command's own output, and says by which commands.
    tune("export", tmp_path / "generic.json", "--generic")
    generic = json.loads((tmp_path / "generic.json").read_text())
    assert generic["architecture"] == "cpu" and generic["entries"] == file["entries"]
    assert generic["made_by"].startswith(file["made_by"] + "; linnet tune export --generic (on cpu ")
    assert file["made_by"].count("linnet tune linear_attention") == 2
    tune("diff", path, path)


def test_export_keeps_what_pays_and_the_default_for_the_rest(tune, tmp_path):
    architecture = tune("show").splitlines()[-1].split(":")[0]
    name = "".join(c if c.isalnum() or c == "_" else "-" for c in architecture) + ".json"
    write(tmp_path / "tuning" / name,
          [entry(), entry(gain=1, length="short", chunk=16), entry(op="gla", gain=1.01)], architecture)
    tune("export", tmp_path / "paying.json", "--least-gain", "1.05")
    paying = json.loads((tmp_path / "paying.json").read_text())["entries"]
    assert [(e["op"], e["length"], e["schedule"]["chunk"]) for e in paying] == [
        ("gla", "long", 16), ("kda", "short", 16), ("kda", "long", 32)]
    assert paying[0]["found"]["ms"] == 1.01
    assert "--least-gain" in tune("export", tmp_path / "x.json", "--least-gain", "0.5", code=105)


def test_merge_import_diff(tune, tmp_path):
    a = write(tmp_path / "a.json", [entry(), entry(op="gla")])
    b = write(tmp_path / "b.json", [entry(chunk=64)])
    tune("merge", a, b, "-o", tmp_path / "both.json")
    both = json.loads((tmp_path / "both.json").read_text())
    assert {e["op"]: e["schedule"]["chunk"] for e in both["entries"]} == {"gla": 32, "kda": 64}
    text = tune("diff", a, tmp_path / "both.json", code=1)
    assert "- chunk=32\n+ chunk=64" in text and "gla" not in text
    tune("import", a)
    tune("import", b)
    imported = json.loads((tmp_path / "tuning" / "cpu-test.json").read_text())
    assert {e["op"]: e["schedule"]["chunk"] for e in imported["entries"]} == {"gla": 32, "kda": 64}
    other = write(tmp_path / "other.json", [], "sm_90")
    assert "other.json: expected a file for cpu test, got one for sm_90" in tune("merge", a, other, "-o", "x", code=1)


@pytest.mark.parametrize("text, why", [("{ half a fi", "at byte"), ("", "at byte 0"), (None, "of another version: \"format\" 2")])
def test_a_file_that_cannot_be_used_is_named_ignored_and_kept(tune, tmp_path, text, why):
    broken = write(tmp_path / "broken.json", [], format=2)
    if text is not None:
        broken.write_text(text)
    before = broken.read_text()
    assert f"broken.json: " in tune("import", broken, code=1) and why in tune("import", broken, code=1)
    tune(*SMALL, "--length", "short", "--budget", "1s")
    path, _ = stored(tmp_path)
    path.write_text(before)
    assert why in tune("show") and "ignored: " in tune("show")
    assert "begun anew" in tune(*SMALL, "--length", "short", "--budget", "1s")
    assert len(stored(tmp_path)[1]["entries"]) == 1
    (kept,) = path.parent.glob("*.kept-*")
    assert kept.read_text() == before


def test_killed_it_loses_nothing_and_goes_on(tune, tmp_path):
    """kill -9 in the middle of a search, and Ctrl-C; two of them at once tune into one file."""
    tune(*SMALL, "--length", "short", "--budget", "1s")
    _, first = stored(tmp_path)
    victim = tune(*SMALL, "--length", "medium", start=True)
    deadline = time.time() + 30
    while not list((tmp_path / "tuning").glob("*.search-*")) and time.time() < deadline:
        time.sleep(0.01)
    journal, = (tmp_path / "tuning").glob("*.search-*")
    while journal.read_text().count("\n") < 3 and time.time() < deadline:
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert stored(tmp_path)[1] == first
    again = tune(*SMALL, "--length", "medium", start=True)
    other = tune(*SMALL, "--length", "long", "--budget", "2s", start=True)
    time.sleep(1)
    again.send_signal(signal.SIGINT)
    text = again.communicate(timeout=60)[0]
    assert again.returncode == 0 and "goes on after" in text and "kept in" in text
    assert other.wait(timeout=60) == 0
    path, file = stored(tmp_path)
    assert sorted(e["length"] for e in file["entries"]) == ["long", "medium", "short"]
    assert not list(path.parent.glob("*.new-*"))


def test_wrong_arguments_are_named(tune):
    assert "--budget: expected a time such as 90s, 10m or 1h; got 'soon'" in tune("kda", "--budget", "soon", code=1)
    assert "expected a recurrence of `linnet list`, or --all" in tune(code=1)
    assert "length" in tune("kda", "--length", "endless", code=1)
    assert "device" in tune("kda", "--device", "virtual:sm_75", code=1)
    assert "gate: delta_rule has no gate" in tune("delta_rule", "--gate", "softplus", "--budget", "1s", code=1)


def test_the_list_asks_ptxas_when_told_to(tune):
    pytest.importorskip("nvidia", reason="NVRTC's wheel is not installed")
    text = tune("retention", "--device", "virtual:sm_80", "--direction", "decode", "--key-dim", "32", "--value-dim", "32",
                "--list", "--registers")
    assert "registers, 0 bytes spilled (default)" in text
    assert "--registers: expected --list" in tune("kda", "--registers", code=1)
    assert "--registers: expected a GPU" in tune("kda", "--list", "--registers", code=1)
