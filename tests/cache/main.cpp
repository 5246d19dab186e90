#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "runtime/log.h"

int main(int argc, char** argv) {
  // This process is quiet; what its helpers say is read by the tests.
  ::setenv("LINNET_LOG", "quiet", 1);
  linnet::log_level();
  ::unsetenv("LINNET_LOG");
  return doctest::Context(argc, argv).run();
}
