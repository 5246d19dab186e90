"""pip install into a fresh environment, and the README's example there. A whole build: with LINNET_TEST_ALL=1 only."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

pytest.importorskip("torch")
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not os.environ.get("LINNET_TEST_ALL"), reason="builds everything: LINNET_TEST_ALL=1")


def test_the_readme_works_after_pip_install(tmp_path):
    def run(*command, **options):
        env = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(list(map(str, command)), check=True, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                              env={**env, "LINNET_CACHE_DIR": str(tmp_path / "cache")}, **options).stdout

    run(sys.executable, "-m", "venv", tmp_path / "fresh")
    python = tmp_path / "fresh/bin/python"
    # torch and the packages a build needs come from this environment, not over the network.
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-C", f"build-dir={tmp_path}/build", "-w",
        tmp_path, REPOSITORY)
    run(python, "-m", "pip", "install", "--no-deps", *tmp_path.glob("linnet-*.whl"))
    assert run(python, "-c", "import linnet; print(linnet.__file__)").startswith(str(site))
    (tmp_path / "readme.py").write_text("\n".join(
        re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.S | re.M)))
    run(python, "readme.py")
