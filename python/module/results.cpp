#include "python/module/results.h"

#include <deque>
#include <mutex>
#include <vector>

namespace py = pybind11;

namespace linnet::python {

namespace {

// DLPack's tensor, as its specification lays it out (version 0, which every torch reads).
struct DLTensor {
  void* data;
  int32_t device_type = 1, device_id = 0;  // kDLCPU
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes = 1;
  int64_t* sizes;
  int64_t* strides = nullptr;  // none: without gaps
  uint64_t byte_offset = 0;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
static_assert(sizeof(DLManagedTensor) == 64);

constexpr size_t kMostKept = size_t{256} << 20;

// Nobody waits for the lock: who does not get it at once does without. So a process forked while it
// was held is not stuck.
class Kept {
 public:
  // A block that is large enough and not much larger, or a new one.
  Buffer take(const Device& device, size_t bytes) {
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock)
      for (auto block = blocks_.begin(); block != blocks_.end(); ++block)
        if (block->bytes() >= bytes && block->bytes() <= bytes + bytes / 4) {
          Buffer found = std::move(*block);
          blocks_.erase(block);
          bytes_ -= found.bytes();
          return found;
        }
    return device.allocate(bytes);
  }

  // The oldest go first.
  void give(Buffer block) {
    std::vector<Buffer> gone;  // back to the system after the lock
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || block.bytes() > kMostKept) return;
    for (; bytes_ + block.bytes() > kMostKept; blocks_.pop_front()) {
      bytes_ -= blocks_.front().bytes();
      gone.push_back(std::move(blocks_.front()));
    }
    bytes_ += block.bytes();
    blocks_.push_back(std::move(block));
    lock.unlock();
  }

  size_t bytes() {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::deque<Buffer> blocks_;
  size_t bytes_ = 0;
};

Kept& kept() {
  static Kept* const all = new Kept;  // tensors outlive this library's static objects
  return *all;
}

struct Result {
  DLManagedTensor managed;
  Buffer block;
  std::vector<int64_t> sizes;
};

void give_back(DLManagedTensor* managed) {
  auto* result = static_cast<Result*>(managed->context);
  kept().give(std::move(result->block));
  delete result;
}

// Of a capsule nobody took.
void destroy(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor"))
    give_back(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
}

}  // namespace

py::capsule make_result(const Device& device, const py::tuple& sizes, DType dtype) {
  std::vector<int64_t> shape;
  size_t bytes = size_of(dtype);
  for (py::handle size : sizes) {
    shape.push_back(size.cast<int64_t>());
    bytes *= shape.back();
  }
  auto* result = new Result{{}, kept().take(device, bytes), std::move(shape)};
  result->managed = {.tensor = {.data = result->block.data(),
                                .rank = static_cast<int32_t>(result->sizes.size()),
                                .code = static_cast<uint8_t>(dtype == DType::bf16 ? 4 : 2),
                                .bits = static_cast<uint8_t>(8 * size_of(dtype)),
                                .sizes = result->sizes.data()},
                     .context = result,
                     .deleter = give_back};
  return py::capsule(&result->managed, "dltensor", destroy);
}

size_t kept_bytes() { return kept().bytes(); }

}  // namespace linnet::python
