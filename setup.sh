#!/usr/bin/env bash
# Installs what a fresh Debian machine lacks to build and test Linnet: packages from Debian and a
# Python environment in .venv. Run again it only checks (well under a second).
set -euo pipefail
cd "$(dirname "$0")"

packages=(
  build-essential cmake ninja-build ccache
  llvm-19-dev libmlir-19-dev mlir-19-tools
  libfmt-dev doctest-dev libcli11-dev
  python3-venv python3-dev
  graphviz
)
python_packages=(pip wheel pybind11 "torch==2.13.0" pytest numpy "nvidia-cuda-nvrtc>=13,<14" "clang-format==19.1.7" "cuda-bindings>=13,<14")

say() { printf '\033[1m[setup]\033[0m %s\n' "$*"; }

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || missing+=("$package")
done
if ((${#missing[@]})); then
  say "installing Debian packages: ${missing[*]}"
  sudo=""
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "setup: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    sudo=sudo
  fi
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

stamp=.venv/linnet-packages
wanted=$(printf '%s\n' "${python_packages[@]}")
if [[ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]]; then
  say "making the Python environment in .venv (torch is large: a few minutes the first time)"
  python3 -m venv .venv
  .venv/bin/python -m pip install -q --upgrade "${python_packages[@]}"
  echo "$wanted" > "$stamp"
fi
