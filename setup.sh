#!/usr/bin/env bash
# Installs what a fresh Debian machine lacks to build and test Linnet: packages from Debian and a
# Python environment in .venv. Run again it only checks (well under a second).
#   ./setup.sh --peers    also what Linnet is tested with and measured against: transformers and FLA (make test)
set -euo pipefail
cd "$(dirname "$0")"

peers=false
for argument in "$@"; do
  case "$argument" in
    --peers) peers=true ;;
    *) echo "setup: unknown argument $argument; the one there is: --peers" >&2; exit 2 ;;
  esac
done

packages=(
  build-essential cmake ninja-build ccache
  llvm-19-dev libmlir-19-dev mlir-19-tools
  libfmt-dev doctest-dev libcli11-dev
  python3-venv python3-dev
  graphviz
)
python_packages=(pip wheel pybind11 scikit-build-core "torch==2.13.0" pytest numpy "nvidia-cuda-nvrtc>=13,<14" "nvidia-cuda-nvdisasm>=13,<14" "clang-format==19.1.7" "cuda-bindings>=13,<14")
# For the tests of the integrations and python/bench. Pinned: a peer's speed is a fact about one version. fla-core holds FLA's operations; without
# its extras it asks for neither torch nor Triton.
peer_packages=("transformers==5.22.2" "fla-core==0.6.0")

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

install_peers() {
  local stamp=.venv/linnet-peers wanted
  wanted=$(printf '%s\n' "${peer_packages[@]}")
  [[ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]] || return 0
  say "installing the peers: ${peer_packages[*]}"
  # The constraints keep what is already there, torch above all, at the version it has.
  .venv/bin/python -m pip install -q -c <(.venv/bin/python -m pip freeze) "${peer_packages[@]}"
  echo "$wanted" > "$stamp"
}
if $peers; then install_peers; fi
