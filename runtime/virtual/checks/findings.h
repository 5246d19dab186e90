// What the checks found: one record a defect, with the source line, thread, block and address.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace linnet::vgpu {

enum class FindingKind : uint8_t {
  OutOfBounds,
  Misaligned,
  UseAfterFree,
  SharedBounds,
  LocalBounds,
  InvalidAddress,
  Uninitialised,
  SharedRace,
  GlobalRace,
  AsyncHazard,
  DivergentBarrier,
  BadSyncMask,
  Deadlock,
  Trap,
  Assert,
  IllegalInstruction,
};

std::string finding_name(FindingKind kind);
// Memory faults and hangs end the kernel; the other kinds are recorded and it goes on.
bool is_fault(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::OutOfBounds;
  std::string kernel;
  std::string file;
  int line = 0;
  int ptx_line = 0;
  std::string instruction;
  uint32_t thread[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  uint64_t address = 0;
  std::string text;
  uint64_t times = 1;

  std::string message() const;
  std::string json() const;
};

// Ends a launch; the finding says why.
class KernelFault : public std::exception {
 public:
  explicit KernelFault(Finding finding)
      : finding_(std::move(finding)), message_(finding_.message()) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const Finding& finding() const { return finding_; }

 private:
  Finding finding_;
  std::string message_;
};

// Collects findings of a process; repeats of one defect at one instruction are counted, not stored.
class Findings {
 public:
  void add(const Finding& finding);
  std::vector<Finding> all() const;
  size_t size() const;
  void clear();
  std::string json() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Finding> findings_;
  std::map<std::string, size_t> known_;
};

std::string json_string(const std::string& text);

}  // namespace linnet::vgpu
