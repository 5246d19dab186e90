"""Makes the package of a build importable from the Python that runs this: `python link.py build/python`.

Writes one line into site-packages/linnet.pth; run again it changes nothing.
"""

import pathlib
import sys
import sysconfig


def link(directory):
    directory = pathlib.Path(directory).resolve()
    if not list(directory.glob("linnet/_C.*")):
        sys.exit(f"link: expected a built package in {directory}/linnet, found no _C module there")
    file = pathlib.Path(sysconfig.get_path("purelib"), "linnet.pth")
    line = f"{directory}\n"
    if not file.exists() or file.read_text() != line:
        file.write_text(line)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python link.py DIRECTORY")
    link(sys.argv[1])
