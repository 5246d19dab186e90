// The runtime against a driver that remembers: order of calls, each of them failing, and that
// everything made is given back.
#include <set>
#include <thread>

#include "linnet/error.h"
#include "runtime/cuda/device.h"
#include "tests/driver/fixture.h"

using namespace linnet;
using namespace driver_test;

namespace {

using Calls = std::vector<std::string>;

// What a program does: a device, memory, an op, a call that brings a workspace and one that brings
// none, results.
void use_everything() {
  Device device = Device::open("cuda:0");
  Buffer buffer = device.allocate(100);
  char bytes[100] = {};
  device.write(buffer.data(), bytes, sizeof bytes);
  Op op = device.build(problem());
  run(op, 20);
  device.synchronise();
  device.read(bytes, buffer.data(), sizeof bytes);
}

}  // namespace

TEST_CASE("driver: a program's calls, in order") {
  compiler();
  FakeDriver driver;
  use_everything();
  const Calls expected = {
      // the device
      "cuInit", "cuDeviceGetCount", "cuDeviceGet 0", "cuDeviceGetAttribute 75",
      "cuDeviceGetAttribute 76", "cuDeviceGetAttribute 97", "cuDevicePrimaryCtxRetain",
      "cuCtxSetCurrent", "cuStreamCreate",
      // memory
      "cuCtxSetCurrent", "cuMemAlloc_v2", "cuCtxSetCurrent", "cuMemcpyHtoDAsync_v2",
      "cuCtxSetCurrent", "cuStreamSynchronize",
      // the op: its module and kernels, each allowed its shared memory
      "cuCtxSetCurrent", "cuModuleLoadData a cubin:", "cuModuleGetFunction fake_map",
      "cuFuncSetAttribute 8 1000", "cuModuleGetFunction fake_scan", "cuFuncSetAttribute 8 0",
      // the call: a workspace, two kernels over 2 slots and 2 heads, 1 sequence
      "cuCtxSetCurrent", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuLaunchKernel fake_map 4 128 1000",
      "cuLaunchKernel fake_scan 4 64 0",
      // results
      "cuCtxSetCurrent", "cuStreamSynchronize", "cuCtxSetCurrent", "cuMemcpyDtoHAsync_v2",
      "cuCtxSetCurrent", "cuStreamSynchronize",
      // everything back, the context last
      "cuCtxSetCurrent", "cuMemFree_v2", "cuCtxSetCurrent", "cuModuleUnload", "cuCtxSetCurrent",
      "cuMemFree_v2", "cuCtxSetCurrent", "cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"};
  CHECK(driver.calls() == expected);
  CHECK(driver.problems() == "");
  CHECK(driver.alive() == 0);
}

TEST_CASE("driver: whichever call fails, the error says so and nothing is left behind") {
  compiler();
  int calls;
  {
    FakeDriver driver;
    use_everything();
    calls = static_cast<int>(driver.calls().size());
  }
  REQUIRE(calls > 30);
  for (int i = 0; i < calls; ++i) {
    CAPTURE(i);
    FakeDriver driver({.fail_at = i, .major = 8, .minor = 0, .shared_bytes = 160 * 1024});
    std::string message = message_of<DeviceError>(use_everything);
    const Calls made = driver.calls();
    REQUIRE(static_cast<int>(made.size()) > i);
    CAPTURE(made[i]);
    // What is given back has no one to tell. All else stops there, but for giving back.
    static const std::set<std::string> back = {
        "cuMemFree_v2", "cuModuleUnload", "cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"};
    bool giving_back = back.contains(made[i]);
    for (int j = i + 1; j < static_cast<int>(made.size()) && !giving_back; ++j)
      CHECK_MESSAGE((back.contains(made[j]) || made[j] == "cuCtxSetCurrent"), made[j], " after it");
    if (giving_back || made[i] == "cuCtxSetCurrent") {
      if (giving_back) CHECK(message == "nothing was thrown");
    } else {
      CHECK(message.find("CUDA_ERROR_FAKE (as the test wished)") != std::string::npos);
    }
    CHECK(driver.alive() == 0);
    // Without a context to make current, giving back is tried all the same.
    if (made[i] != "cuCtxSetCurrent") CHECK(driver.problems() == "");
  }
}

TEST_CASE("driver: a failing launch is named with its grid, a failing copy with its size") {
  compiler();
  auto message_at = [](const std::string& call) {
    FakeDriver first;
    use_everything();
    int index = 0;
    for (const std::string& made : first.calls()) {
      if (made.starts_with(call)) break;
      ++index;
    }
    FakeDriver driver({.fail_at = index, .major = 8, .minor = 0, .shared_bytes = 160 * 1024});
    return message_of<DeviceError>(use_everything);
  };
  CHECK(message_at("cuLaunchKernel fake_map").starts_with("fake_map on 4 blocks of 128 threads: "));
  CHECK(message_at("cuMemcpyHtoDAsync_v2").starts_with("copying 100 bytes to the device: "));
  CHECK(message_at("cuMemAlloc_v2").starts_with("allocating 100 bytes: "));
  CHECK(message_at("cuModuleGetFunction fake_scan").starts_with("kernel fake_scan: "));
  CHECK(message_at("cuInit").starts_with("cuInit: "));
}

TEST_CASE("driver: a call with a workspace allocates and waits for nothing, so graphs capture it") {
  compiler();
  FakeDriver driver;
  Device device = Device::open("cuda:0");
  Op op = device.build(problem());
  Buffer workspace = device.allocate(1 << 20);
  driver.forget_calls();
  run(op, 20,
      {.workspace = workspace.data(), .workspace_bytes = 1 << 20, .stream = kCallersStream});
  CHECK(driver.calls() == Calls{"cuCtxSetCurrent", "cuLaunchKernel fake_map 4 128 1000",
                                "cuLaunchKernel fake_scan 4 64 0"});
  std::string small = message_of<UserError>(
      [&] { run(op, 20, {.workspace = workspace.data(), .workspace_bytes = 8}); });
  CHECK(small.starts_with("workspace: expected at least"));
  CHECK(driver.problems() == "");
}

TEST_CASE("driver: without a workspace each stream gets one of its own, kept and grown") {
  compiler();
  FakeDriver driver;
  Device device = Device::open("cuda:0");
  Op op = device.build(problem());
  auto allocations = [&](int64_t tokens, void* stream) {
    driver.forget_calls();
    run(op, tokens, {.stream = stream});
    int count = 0;
    for (const std::string& call : driver.calls()) {
      count += call == "cuMemAlloc_v2";
      CHECK(call != "cuStreamSynchronize");
    }
    return count;
  };
  CHECK(allocations(20, nullptr) == 1);
  CHECK(allocations(20, nullptr) == 0);
  CHECK(allocations(10, nullptr) == 0);
  CHECK(allocations(20, kCallersStream) == 1);
  CHECK(allocations(20, kOtherStream) == 1);
  CHECK(allocations(20, kCallersStream) == 0);
  CHECK(allocations(2000, kCallersStream) == 1);
  CHECK(allocations(20, nullptr) == 0);
}

TEST_CASE("driver: things may be used and given back on another thread") {
  compiler();
  FakeDriver driver;
  Device device = Device::open("cuda:0");
  auto op = std::make_unique<Op>(device.build(problem()));
  auto buffer = std::make_unique<Buffer>(device.allocate(16));
  std::jthread([&] {
    run(*op, 20);
    char bytes[16] = {};
    device.write(buffer->data(), bytes, 16);
    op.reset();
    buffer.reset();
  }).join();
  CHECK(driver.problems() == "");
  CHECK(driver.alive() == 2);  // the context and the stream
}

TEST_CASE("driver: devices that are not there, or cannot run these kernels, are refused") {
  compiler();
  FakeDriver driver;
  CHECK(message_of<DeviceError>([] { Device::open("cuda:1"); }) ==
        "device: expected a number below 1, the GPUs there are; got 1");
  for (const char* name : {"cuda:", "cuda:x", "cuda:0x", "cuda:-1", "cuda: 0"})
    CHECK(message_of<UserError>([&] { Device::open(name); }) ==
          std::string("device: expected cuda:<number>, got '") + name + "'");
  CHECK(driver.alive() == 0);
  FakeDriver old({.fail_at = -1, .major = 7, .minor = 5, .shared_bytes = 64 * 1024});
  CHECK(message_of<DeviceError>([] { Device::open("cuda:0").build(problem()); }) ==
        "device: expected a GPU of sm_80 or later, got sm_75");
  CHECK(old.alive() == 0);
  FakeDriver small({.fail_at = -1, .major = 8, .minor = 0, .shared_bytes = 999});
  CHECK(message_of<DeviceError>([] { Device::open("cuda:0").build(problem()); }) ==
        "fake_map: expected at most 999 bytes of shared memory on sm_80, needs 1000");
  CHECK(small.alive() == 0);
}

TEST_CASE("driver: a library that is not there, or lacks a function, is named") {
  compiler();
  {
    Variable library("LINNET_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    CHECK(message_of<DeviceError>([] {
            Device::open("cuda:0");
          }).starts_with("/nowhere/libcuda.so.1: expected a library that loads"));
  }
  Variable library("LINNET_CUDA_DRIVER", FAKE_NVRTC);
  CHECK(message_of<DeviceError>([] { Device::open("cuda:0"); }) ==
        std::string(FAKE_NVRTC) + ": expected a function cuInit, found none");
}
