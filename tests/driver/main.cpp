#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/driver/fixture.h"

int main(int argc, char** argv) {
  setenv("LINNET_CUDA_DRIVER", FAKE_CUDA, 1);
  setenv("LINNET_NVRTC", FAKE_NVRTC, 1);
  driver_test::Directory cache;
  setenv("LINNET_CACHE_DIR", (cache / "cache").c_str(), 1);
  for (const char* name : {"LINNET_BUNDLE", "LINNET_JIT", "LINNET_LOG"}) unsetenv(name);
  return doctest::Context(argc, argv).run();
}
