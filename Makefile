# make demo: set up, build, and see a law become a chunk algorithm that is checked.
# make test: set up, build, and run every test.
.PHONY: demo test build setup test-all test-virtual format clean

build: setup
	@test -f build/build.ninja || cmake --preset release > /dev/null
	@cmake --build build
	@.venv/bin/python python/link.py build/python

setup:
	@./setup.sh

demo: build
	@echo && echo "== the law of KDA, as ops/kda.cpp has it" && sed -n '/^void/,/^}/p' ops/kda.cpp
	@echo && echo "== the chunk algorithm derived from it" && build/bin/linnet show kda --stage graph
	@echo && echo "== its graphs held against a token-by-token reference, forward and backward" && build/bin/linnet check kda
	@echo && echo "== the same compiled for this machine's CPU" && build/bin/linnet check kda --device cpu --cases 6 --verbose
	@echo && echo "== how fast that is; mm is one torch product of 2048 x 2048 matrices" && build/bin/linnet bench kda && build/bin/linnet bench kda --direction train --tokens 1024
	@echo && echo "== the schedules it took, found offline by linnet tune" && build/bin/linnet tune show
	@echo && echo "== from C++: a prompt, then tokens one by one (docs/examples/embed.cpp)" && build/bin/example_embed
	@echo && echo "== from Python: a small model trained on it" && .venv/bin/python docs/examples/train.py --steps 100 --plot build/loss.svg
	@build/bin/linnet draw kda -o build/kda.svg

# With the peers: their models and functions are among the tests.
test: build
	@./setup.sh --peers
	@ctest --test-dir build -j2 --output-on-failure --no-tests=error
	@.venv/bin/python -m pytest -q tests/python

# Everything, the whole product of modes and sizes included: hours.
test-all: test test-virtual
	@LINNET_TEST_ALL=1 .venv/bin/python -m pytest -q tests/python
	@LINNET_TEST_ALL=1 build/bin/linnet_tests -tc='cuda product*,cuda source*'
	@build/bin/linnet check --all --exhaustive

# The conformance suite on virtual GPUs, in several orders of warps and ways of rounding; the parser fuzzed under asan.
# One op alone: LINNET_TEST_ALL=1 LINNET_TEST_DEVICE=virtual:sm_90 build/bin/linnet_tests -tc='cuda: compiled*' -sc=kda
test-virtual: build
	@for arch in sm_80 sm_90; do \
	  LINNET_TEST_ALL=1 LINNET_TEST_DEVICE=virtual:$$arch build/bin/linnet_tests "-tc=cuda:*,templates:*" || exit 1; done
	@cmake --preset asan > /dev/null && cmake --build build-asan --target virtual_tests
	@LINNET_FUZZ_CASES=100000 build-asan/bin/virtual_tests "-tc=fuzz:*"

clean:
	rm -rf build

format:
	@.venv/bin/clang-format -i $$(git ls-files '*.h' '*.cpp')
