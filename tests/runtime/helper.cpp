// A program of a user who links liblinnet.so alone: builds KDA forward and decode on a device (cpu,
// or the first argument), runs both on fixed numbers and prints sums of what comes out.
#include <cstdio>
#include <vector>

#include "linnet/device.h"

using namespace linnet;

namespace {

double sum_of_run(const Device& device, Direction direction) {
  constexpr int64_t T = 6, K = 16, V = 16;
  Op op = device.build({.op = "kda", .key_dim = K, .value_dim = V}, {.direction = direction});
  std::vector<float> x(T * K), g(T * K, -0.1f), beta(T, 0.5f), o(T * V);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.02f * static_cast<float>(i % 13);
  auto on_device = [&](const std::vector<float>& numbers) {
    Buffer buffer = device.allocate(numbers.size() * 4);
    device.write(buffer.data(), numbers.data(), buffer.bytes());
    return buffer;
  };
  Buffer wide_there = on_device(x), g_there = on_device(g), beta_there = on_device(beta),
         o_there = on_device(o);
  Tensor wide = Tensor::dense(wide_there.data(), DType::f32, {1, T, 1, K});
  op.run({{"q", wide},
          {"k", wide},
          {"v", wide},
          {"g", Tensor::dense(g_there.data(), DType::f32, {1, T, 1, K})},
          {"beta", Tensor::dense(beta_there.data(), DType::f32, {1, T, 1})},
          {"o", Tensor::dense(o_there.data(), DType::f32, {1, T, 1, V})}});
  device.synchronise();
  device.read(o.data(), o_there.data(), o.size() * 4);
  double sum = 0;
  for (float value : o) sum += value;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Device device = Device::open(argc > 1 ? argv[1] : "cpu");
    for (Direction direction : {Direction::forward, Direction::decode})
      std::printf("%.9g\n", sum_of_run(device, direction));
    return 0;
  } catch (const UserError& error) {
    std::printf("UserError: %s\n", error.what());
    return 1;
  } catch (const DeviceError& error) {
    std::printf("DeviceError: %s\n", error.what());
    return 2;
  }
}
