// Machine code put into memory that may be executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace linnet {

// Asks the system to let this process use the matrix unit (AMX); whether it may.
bool allow_matrix_unit();

class Code {
 public:
  // Throws DeviceError if the system gives no such memory.
  explicit Code(std::string_view image);
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code();

  using Function = void (*)(const int64_t* arguments);
  Function at(int64_t offset) const {
    return reinterpret_cast<Function>(static_cast<char*>(memory_) + offset);
  }

 private:
  void* memory_;
  size_t bytes_;
};

}  // namespace linnet
