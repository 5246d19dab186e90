#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "linnet/compiler.h"

int main(int argc, char** argv) {
  linnet::use_compiler(linnet_compiler());
  return doctest::Context(argc, argv).run();
}
