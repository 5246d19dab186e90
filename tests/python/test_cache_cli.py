"""`linnet cache`, on entries written here from the description of their format."""

import hashlib
import json
import os
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINNET = ROOT / "build/bin/linnet"


def cache(directory, *arguments, code=0, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LINNET_")}
    environment |= {"LINNET_CACHE_DIR": str(directory), **variables}
    run = subprocess.run(
        [LINNET, "cache", *arguments], capture_output=True, text=True, timeout=60, env=environment
    )
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout + run.stderr


def key_of(fields):
    text = "linnet cache 1\n"
    for name, value in sorted(fields.items()):
        text += f"{len(name.encode())} {name} {len(value.encode())} {value}\n"
    return hashlib.sha256(text.encode()).hexdigest()


def store(directory, problem, size=1000, age=0):
    """Writes an entry as the runtime does, and returns its directory."""
    fields = {"problem": problem, "target": "x86-64-v3", "generator": "linnet 0.1.0"}
    key = key_of(fields)
    entry = directory / key[:2] / key
    entry.mkdir(parents=True)
    code = os.urandom(size)
    (entry / "kernel.bin").write_bytes(code)
    created = int(time.time()) - age
    files = {"kernel.bin": {"bytes": size, "sha256": hashlib.sha256(code).hexdigest()}}
    manifest = {"format": 1, "key": key, "created": created, "fields": fields, "files": files}
    (entry / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False))
    os.utime(entry / "manifest.json", (created, created))
    return entry


def test_list_of_an_empty_cache_says_so(tmp_path):
    assert cache(tmp_path / "none", "list") == f"{tmp_path}/none: empty\n"
    assert not (tmp_path / "none").exists()


def test_list_prints_key_size_age_and_what_it_is(tmp_path):
    old = store(tmp_path, "gla forward K 64", size=5 << 20, age=3 * 3600)
    new = store(tmp_path, "kda forward K 128", size=1000)
    lines = cache(tmp_path, "list").splitlines()
    assert lines[0].split() == ["key", "size", "built", "used", "what", "it", "is"]
    assert new.name[:12] in lines[1] and "1.3 KB" in lines[1]
    assert "problem: kda forward K 128; target: x86-64-v3; generator: linnet 0.1.0" in lines[1]
    assert old.name[:12] in lines[2] and "5.0 MB" in lines[2] and "3 h" in lines[2]
    assert lines[3] == f"{tmp_path}: 2 entries, 5.0 MB of 1.0 GB"


def test_list_shows_an_entry_with_a_broken_manifest(tmp_path):
    (store(tmp_path, "kda") / "manifest.json").write_text("garbage")
    assert "damaged: manifest.json" in cache(tmp_path, "list")


def test_verify_of_intact_entries(tmp_path):
    store(tmp_path, "kda")
    store(tmp_path, 'gla "quoted" \\ é')
    assert cache(tmp_path, "verify") == f"{tmp_path}: 2 entries intact, 0 damaged\n"


def test_verify_names_damaged_entries_and_ends_with_1(tmp_path):
    store(tmp_path, "kda")
    changed, cut = store(tmp_path, "gla"), store(tmp_path, "rwkv7")
    (changed / "kernel.bin").write_bytes(bytes(1000))
    (cut / "kernel.bin").write_bytes(b"short")
    text = cache(tmp_path, "verify", code=1)
    assert f"{changed}: kernel.bin: its digest is not the manifest's\n" in text
    assert f"{cut}: kernel.bin: expected 1000 bytes, got 5\n" in text
    assert "1 entry intact, 2 damaged" in text and "built again" in text


def test_prune_keeps_the_most_recently_used(tmp_path):
    entries = [store(tmp_path, f"kda {i}", size=4 << 20, age=100 * i) for i in range(4)]
    text = cache(tmp_path, "prune", "--size", "10M")
    assert "removed 2 entries" in text and "8.0 MB left" in text
    assert [entry.exists() for entry in entries] == [True, True, False, False]
    assert "removed 0 entries" in cache(tmp_path, "prune")
    assert "removed 1 entry" in cache(tmp_path, "prune", LINNET_CACHE_SIZE="5M")


def test_prune_all_leaves_nothing(tmp_path):
    store(tmp_path, "kda")
    (store(tmp_path, "gla") / "manifest.json").unlink()
    assert "removed 2 entries" in cache(tmp_path, "prune", "--all")
    assert "empty" in cache(tmp_path, "list")


def test_another_directory(tmp_path):
    store(tmp_path / "a", "kda")
    assert "1 entry" in cache(tmp_path / "b", "--dir", str(tmp_path / "a"), "list")
    assert "1 entry" in cache(tmp_path / "b", "list", "--dir", str(tmp_path / "a"))


@pytest.mark.parametrize(
    "arguments, variables, parts",
    [
        (["prune", "--size", "ten"], {}, ["--size: expected a number of bytes", "got 'ten'"]),
        (["list"], {"LINNET_CACHE_DIR": ""}, ["LINNET_CACHE_DIR: expected a directory", "empty"]),
        (["list"], {"LINNET_CACHE_SIZE": "1T"}, ["LINNET_CACHE_SIZE: expected", "got '1T'"]),
    ],
)
def test_bad_input_is_named(tmp_path, arguments, variables, parts):
    text = cache(tmp_path, *arguments, code=1, **variables)
    for part in parts:
        assert part in text


def test_help_teaches():
    text = subprocess.run([LINNET, "cache", "--help"], capture_output=True, text=True).stdout
    for part in ["list", "verify", "prune --size 100M", "LINNET_CACHE_DIR", "LINNET_CACHE_SIZE", "default: 1G"]:
        assert part in text
