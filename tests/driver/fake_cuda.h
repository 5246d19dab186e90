// What tests ask of the fake driver and the fake NVRTC.
#pragma once

#include <cstdint>

struct FakeOptions {
  int fail_at;       // the index of the call that fails; -1: none
  int major, minor;  // the GPU's compute capability
  int shared_bytes;  // the most of a block
};

inline constexpr int kFakeFailure = 2;
// Streams of a caller's own, which the driver did not make for us.
inline void* const kCallersStream = reinterpret_cast<void*>(0x51);
inline void* const kOtherStream = reinterpret_cast<void*>(0x52);

extern "C" {
void fake_reset(const FakeOptions* options);
const char* fake_calls();  // a line each
void fake_forget_calls();
const char* fake_problems();  // things used that are not alive, or without a context
int fake_alive();             // contexts, streams, modules and pieces of memory
}
