"""The code blocks of the Python pages run, each page's one after the other; the training example learns."""

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("linnet", reason="the package is not built: make build")
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["../README.md", "python.md", "own-recurrence.md", "from-fla.md"])
def test_the_code_of_a_page_runs(page):
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.S | re.M)
    assert blocks
    subprocess.run([sys.executable, "-c", "\n".join(blocks)], check=True)


def test_the_training_example_learns(tmp_path):
    picture = tmp_path / "loss.svg"
    run = subprocess.run([sys.executable, DOCS / "examples/train.py", "--steps", "60", "--plot", picture],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, last = map(float, re.match(r"loss ([\d.]+) -> ([\d.]+)", run.stdout).groups())
    assert last < 0.9 * first and "60/60" in run.stderr
    assert "<polyline" in picture.read_text()


def test_the_reference_is_what_the_docstrings_say():
    page = subprocess.run([sys.executable, DOCS / "reference.py"], capture_output=True, text=True, check=True).stdout
    assert page == (DOCS / "python-reference.md").read_text(), "run: python docs/reference.py > docs/python-reference.md"
