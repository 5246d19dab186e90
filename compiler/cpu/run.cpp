#include "compiler/cpu/run.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "compiler/interpreter/tile.h"
#include "linnet/error.h"

namespace linnet::cpu {

using chunk::Precision;
using chunk::Scope;

namespace {

int64_t bytes_of(Precision storage) {
  return storage == Precision::bf16 || storage == Precision::f16 ? 2 : 4;
}

// An argument's numbers in the caller's format.
struct Typed {
  std::vector<std::byte> data;
  Precision storage;

  Typed(int64_t count, Precision storage) : data(count * bytes_of(storage)), storage(storage) {}
  std::byte* at(int64_t index) { return data.data() + index * bytes_of(storage); }

  void set(int64_t index, float x) {
    x = interpreter::round_to(x, storage);
    if (storage == Precision::bf16) {
      uint16_t bits = std::bit_cast<uint32_t>(x) >> 16;
      std::memcpy(at(index), &bits, 2);
    } else if (storage == Precision::f16) {
      _Float16 half = static_cast<_Float16>(x);
      std::memcpy(at(index), &half, 2);
    } else {
      std::memcpy(at(index), &x, 4);
    }
  }
  float get(int64_t index) {
    if (storage == Precision::bf16) {
      uint16_t bits;
      std::memcpy(&bits, at(index), 2);
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
    if (storage == Precision::f16) {
      _Float16 half;
      std::memcpy(&half, at(index), 2);
      return static_cast<float>(half);
    }
    float x;
    std::memcpy(&x, at(index), 4);
    return x;
  }
};

}  // namespace

Tensors run(const CompiledKernel& kernel, const Layout& layout, const Tensors& inputs) {
  layout.check();
  const Signature& signature = kernel.signature();
  int64_t sequences = layout.lengths.size(), group = layout.value_heads / layout.heads;
  // Results shared by value heads, or by sequences, are written apart and added up afterwards,
  // always in one order.
  auto rows_of = [&](const Argument& a) -> int64_t {
    int64_t heads = a.key_heads && !a.is_output ? layout.heads : layout.value_heads;
    if (a.scope == Scope::token) return layout.tokens() * heads;
    if (a.scope == Scope::constant) return 1;
    return a.scope == Scope::head && !a.is_output ? heads : sequences * heads;
  };
  std::vector<Typed> typed;
  for (const Argument& a : signature.arguments) {
    typed.emplace_back(rows_of(a) * a.row, a.storage);
    if (a.is_output) continue;
    auto found = inputs.find(a.name);
    if (found == inputs.end() && a.scope == Scope::sequence) continue;
    int64_t expected = rows_of(a) * a.row,
            came = found == inputs.end() ? 0 : static_cast<int64_t>(found->second.size());
    if (came != expected)
      throw UserError(fmt::format("{}: expected {} numbers, got {}", a.name, expected, came));
    for (int64_t i = 0; i < came; ++i) typed.back().set(i, static_cast<float>(found->second[i]));
  }

  int64_t longest = 0;
  for (int64_t length : layout.lengths) longest = std::max(longest, length);
  std::vector<float> scratch(signature.scratch_floats + 64);
  std::vector<float> workspace(
      (longest / signature.chunk + 1) * signature.workspace_floats_per_chunk + 64);
  std::vector<int64_t> arguments(3 + 2 * signature.arguments.size());
  int64_t first = 0;
  for (int64_t s = 0; s < sequences; first += layout.lengths[s++])
    for (int64_t head = 0; head < layout.value_heads; ++head) {
      arguments[0] = layout.lengths[s];
      arguments[1] = reinterpret_cast<int64_t>(scratch.data());
      arguments[2] = reinterpret_cast<int64_t>(workspace.data());
      for (size_t i = 0; i < signature.arguments.size(); ++i) {
        const Argument& a = signature.arguments[i];
        bool by_key = a.key_heads && !a.is_output;
        int64_t heads = by_key ? layout.heads : layout.value_heads,
                h = by_key ? head / group : head;
        int64_t row = a.scope == Scope::token                  ? first * heads + h
                      : a.scope == Scope::constant             ? 0
                      : a.scope == Scope::head && !a.is_output ? h
                                                               : s * heads + h;
        arguments[3 + 2 * i] = reinterpret_cast<int64_t>(typed[i].at(row * a.row));
        arguments[4 + 2 * i] = heads * a.row;
      }
      kernel(arguments.data());
    }

  Tensors results;
  for (size_t n = 0; n < signature.arguments.size(); ++n) {
    const Argument& a = signature.arguments[n];
    if (!a.is_output) continue;
    auto& out = results[a.name];
    int64_t rows = rows_of(a), heads = layout.value_heads;
    if (a.scope == Scope::head) {
      out.assign(heads * a.row, 0);
      for (int64_t i = 0; i < rows * a.row; ++i) {
        double& sum = out[i % (heads * a.row)];
        sum = static_cast<float>(sum + typed[n].get(i));
      }
    } else if (a.key_heads) {
      out.assign(rows / group * a.row, 0);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t d = 0; d < a.row; ++d) {
          double& sum = out[row / group * a.row + d];
          sum = static_cast<float>(sum + typed[n].get(row * a.row + d));
        }
      for (double& x : out) x = interpreter::round_to(static_cast<float>(x), a.result);
    } else {
      for (int64_t i = 0; i < rows * a.row; ++i) out.push_back(typed[n].get(i));
    }
  }
  return results;
}

}  // namespace linnet::cpu
