#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "linnet/compiler.h"

int main(int argc, char** argv) {
  linnet::use_compiler(linnet_compiler());
  // Kernels of the last run are not compiled again, and the user's cache is left alone.
  setenv("LINNET_CACHE_DIR", LINNET_TEST_CACHE, /*overwrite=*/0);
  return doctest::Context(argc, argv).run();
}
