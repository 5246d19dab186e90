"""For every test here and the processes it starts."""

import os

# OpenMP's threads sleep while they wait: tests share their machine with builds.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
