#include "tests/conformance/subject.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "compiler/interpreter/tile.h"

namespace linnet::conformance {

using chunk::Scope;

Subject::Subject(const Problem& p)
    : problem(p),
      context_(make_context()),
      module_(derive(*context_, ops::find(p.op).define, p, {.chunk_size = 16})) {
  for (auto input : graph_of(*module_).getBody().getOps<chunk::InputOp>()) {
    scopes_[input.getName().str()] = input.getScope();
    scopes_["d" + input.getName().str()] = input.getScope();
  }
  for (auto output : graph_of(*module_).getBody().getOps<chunk::OutputOp>()) {
    scopes_[output.getName().str()] = output.getScope();
    scopes_["d" + output.getName().str()] = output.getScope();
  }
}

Tensors Subject::arguments(Direction direction, const Layout& layout,
                           const check::InputOptions& options) const {
  auto graph = graph_of(const_cast<Subject*>(this)->module_.get());
  Tensors all = check::random_inputs(graph, problem, layout, options);
  if (direction == Direction::backward)
    all.merge(check::random_output_gradients(graph, layout, options.seed));
  return all;
}

Tensors Subject::select(const Tensors& tensors, const Layout& layout,
                        const std::vector<size_t>& sequences) const {
  std::vector<int64_t> first = {0};
  for (int64_t length : layout.lengths) first.push_back(first.back() + length);
  bool results = tensors.contains("o") || tensors.contains("dinitial_state");
  Tensors selected;
  for (const auto& [name, values] : tensors) {
    Scope scope = scopes_.at(name);
    bool by_token = scope == Scope::token;
    if (!by_token && scope != Scope::sequence) {
      if (!results) selected[name] = values;
      continue;
    }
    int64_t units = by_token ? layout.tokens() : static_cast<int64_t>(layout.lengths.size());
    int64_t width = static_cast<int64_t>(values.size()) / units;
    auto& own = selected[name];
    for (size_t s : sequences) {
      auto start = static_cast<int64_t>(by_token ? first[s] : s);
      int64_t count = by_token ? layout.lengths[s] : 1;
      own.insert(own.end(), values.begin() + start * width,
                 values.begin() + (start + count) * width);
    }
  }
  return selected;
}

Tensors Subject::tokens(const Tensors& tensors, const Layout& layout, int64_t first,
                        int64_t count) const {
  Tensors some = tensors;
  for (auto& [name, values] : some) {
    if (scopes_.at(name) != Scope::token) continue;
    int64_t width = static_cast<int64_t>(values.size()) / layout.tokens();
    values = {values.begin() + first * width, values.begin() + (first + count) * width};
  }
  return some;
}

bool is_thorough(const Device& device) {
  return device.name() == "cpu" || std::getenv("LINNET_TEST_ALL");
}

Layout select(const Layout& layout, const std::vector<size_t>& sequences) {
  Layout some{layout.heads, layout.value_heads, {}};
  for (size_t s : sequences) some.lengths.push_back(layout.lengths[s]);
  return some;
}

void check_same(const Tensors& a, const Tensors& b) {
  for (const auto& [name, values] : a) {
    CAPTURE(name);
    auto other = b.find(name);
    REQUIRE(other != b.end());
    REQUIRE(other->second.size() == values.size());
    CHECK(std::memcmp(values.data(), other->second.data(), values.size() * sizeof(double)) == 0);
  }
  CHECK(a.size() == b.size());
  CHECK_FALSE(a.empty());
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = a.size() == b.size() ? 0 : INFINITY, size = 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double d = std::fabs(a[i] - b[i]);
    difference = std::max(difference, std::isnan(d) ? INFINITY : d);
    size = std::max(size, std::fabs(b[i]));
  }
  return difference / size;
}

std::vector<double> rounded_to_bf16(std::vector<double> values) {
  for (double& x : values) x = interpreter::round_to(static_cast<float>(x), chunk::Precision::bf16);
  return values;
}

const Device& cpu_device(int threads) {
  static std::map<int, Device> devices;
  auto found = devices.find(threads);
  if (found == devices.end())
    found = devices.emplace(threads, Device::open("cpu", {.threads = threads})).first;
  return found->second;
}

const char* name_of(Direction direction) {
  static const char* names[] = {"forward", "backward", "decode"};
  return names[static_cast<int>(direction)];
}

}  // namespace linnet::conformance
