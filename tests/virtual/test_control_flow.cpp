#include <doctest/doctest.h>

#include "exec/control_flow.h"
#include "exec/program.h"

using namespace linnet::vgpu;

TEST_CASE("control flow: a diamond reconverges at its end") {
  // 0: branch to 3; 1; 2: jump to 4; 3; 4: return
  const std::map<int, Flow> flows{
      {0, {{3}, true, false}}, {2, {{4}, false, false}}, {4, {{}, false, true}}};
  CHECK(reconvergence_points(5, flows).at(0) == 4);
}

TEST_CASE("control flow: a loop's branch reconverges behind the loop") {
  // 0; 1: branch to 4; 2; 3: jump to 1; 4: return
  const std::map<int, Flow> flows{
      {1, {{4}, true, false}}, {3, {{1}, false, false}}, {4, {{}, false, true}}};
  CHECK(reconvergence_points(5, flows).at(1) == 4);
}

TEST_CASE("control flow: lanes that return early are not waited for") {
  // if (x) { if (y) return; 3 } 4   as   0: branch to 4; 1: branch to 3; 2: return; 3; 4: return
  const std::map<int, Flow> flows{{0, {{4}, true, false}},
                                  {1, {{3}, true, false}},
                                  {2, {{}, false, true}},
                                  {4, {{}, false, true}}};
  CHECK(reconvergence_points(5, flows).at(0) == 4);
  CHECK(reconvergence_points(5, flows).at(1) == 3);
}

TEST_CASE("control flow: an endless loop has no reconvergence point and does not hang the loader") {
  const std::map<int, Flow> flows{{0, {{0}, true, false}}, {1, {{0}, false, false}}};
  CHECK(reconvergence_points(2, flows).at(0) == kNoPc);
}
