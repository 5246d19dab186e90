#include <iostream>
#include <fmt/format.h>
#include "compiler/pipeline.h"
#include "ops/registry.h"
#include "tests/check/check.h"
int main(int argc, char** argv) {
  using namespace linnet;
  try {
    if (std::string(argv[1]) == "check") {
      for (auto& e : ops::registry()) {
        if (argc > 2 && e.name != argv[2]) continue;
        int n = 0, bad = 0;
        auto t0 = std::chrono::steady_clock::now();
        for (auto& c : check::cases_of(e.name, false)) {
          ++n;
          try {
          for (auto& r : check::check(c)) {
            if (!r.passed) { ++bad; fmt::print("FAIL {}: {} {:.2e} > {:.0e}\n", c.name(), r.measure, r.error, r.limit); }
            else if (argc > 3) fmt::print("  ok {}: {} {:.2e}\n", c.name(), r.measure, r.error);
          }
          } catch (const std::exception& ex) { ++bad; fmt::print("FAIL {}: threw {}\n", c.name(), ex.what()); }
          std::fflush(stdout);
        }
        fmt::print("{} {} cases {} bad {:.1f} s\n", e.name, n, bad, std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
      }
      return 0;
    }
    auto ctx = make_context();
    Problem p; p.op = argv[1];
    PipelineOptions o;
    for (int i = 2; i < argc; ++i) {
      std::string a = argv[i];
      if (a == "bwd") o.direction = Direction::backward;
      else if (a == "law") { auto m = build_law(*ctx, p.op, ops::find(p.op).define, 128, 64); std::cout << print(*m); return 0; }
      else if (a == "sep") o.stages.separate_output = true;
      else if (a[0] == 'c') o.chunk_size = std::stoi(a.substr(1));
      else o.stop_after = a;
    }
    p.value_dim = 64;
    auto m = derive(*ctx, ops::find(p.op).define, p, o);
    auto t = print(*m);
    std::cout << t;
    auto m2 = parse_module(*ctx, t, "x.mlir");
    if (print(*m2) != t) { std::cout << "ROUNDTRIP DIFFERS\n" << print(*m2); }
  } catch (const std::exception& e) { std::cerr << e.what() << "\n"; return 1; }
}
