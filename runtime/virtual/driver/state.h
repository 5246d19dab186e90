// The objects behind the handles of the Driver API and the one device they live on.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks/findings.h"
#include "counts/counters.h"
#include "driver/cuda_types.h"
#include "exec/launch.h"
#include "exec/program.h"
#include "linnet_virtual.h"
#include "memory/device_memory.h"
#include "profile.h"
#include "settings.h"

namespace linnet::vgpu::driver {

// A failed call: the code it returns and the text linnet_virtual_last_error() gives.
class DriverError : public std::runtime_error {
 public:
  DriverError(CUresult code, const std::string& what) : std::runtime_error(what), code_(code) {}
  CUresult code() const { return code_; }

 private:
  CUresult code_;
};

struct FunctionHandle {
  ModuleHandle* module = nullptr;
  const Code* code = nullptr;
  int max_dynamic_shared = 0;
  int carveout = -1;
};

struct ModuleHandle {
  std::unique_ptr<Program> program;
  std::map<std::string, std::unique_ptr<FunctionHandle>, std::less<>> functions;
};

struct Context {
  unsigned flags = 0;
  bool primary = false;
  uint64_t id = 0;
  std::map<int, size_t> limits;
};

// Work runs when it is submitted, so a stream only remembers whether it is being captured.
struct Stream {
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  Context* context = nullptr;
  Graph* capture = nullptr;
  bool capture_origin = false;
};

struct Event {
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
  Graph* capture = nullptr;
};

struct MemoryPool {
  uint64_t release_threshold = 0;
  uint64_t used = 0;
  uint64_t used_high = 0;
  std::map<int, int> flags;
};

enum class NodeKind : int { Kernel = 0, Memcpy = 1, Memset = 2, Host = 3, Empty = 5 };

// One captured operation; the order of capture is a valid order of execution.
struct GraphNode {
  NodeKind kind = NodeKind::Empty;
  std::function<void()> run;
};

struct Graph {
  std::vector<std::shared_ptr<GraphNode>> nodes;
};

struct GraphExec {
  std::vector<std::shared_ptr<GraphNode>> nodes;
};

// What is kept of a launch: numbers, and everything as JSON.
struct FinishedLaunch {
  linnet_virtual_launch record;
  std::string json;
};

class State {
 public:
  static State& get();

  void initialise();
  bool initialised() const { return memory != nullptr; }
  Context& primary();
  Context& current();  // throws when there is none
  // The object of a stream handle; the default streams share one.
  Stream& stream(CUstream handle);

  // Runs `work` now, or records it when the stream is being captured.
  void submit(CUstream handle, NodeKind kind, std::function<void()> work);
  void check_failure();  // throws the error of an earlier launch
  void fail(CUresult code, const std::string& text);
  void reset();  // forgets failures, findings and counts

  std::recursive_mutex mutex;
  Settings settings = settings_from_environment();
  const DeviceProfile* profile = nullptr;
  std::unique_ptr<DeviceMemory> memory;
  Findings findings;
  std::string last_error;
  CUresult failure = CUDA_SUCCESS;
  std::string failure_text;
  uint16_t launch_serial = 0;
  std::deque<FinishedLaunch> reports;  // the last launches

  std::set<Context*> contexts;
  std::set<ModuleHandle*> modules;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Graph*> graphs;
  std::set<GraphExec*> graph_execs;
  std::set<MemoryPool*> pools;
  std::map<uint64_t, MemoryPool*> pool_of;  // allocations made from a pool
  MemoryPool default_pool;
  MemoryPool* current_pool = &default_pool;
  Context primary_context;
  int primary_references = 0;
  Stream default_stream;
  uint64_t next_id = 1;
};

// The calling thread's context stack.
std::vector<Context*>& context_stack();

// Objects of a set, by handle: throws when the handle is not one of them.
template <class T>
T& checked(const std::set<T*>& known, T* handle, const char* what) {
  if (!known.count(handle))
    throw DriverError(CUDA_ERROR_INVALID_HANDLE, std::string("not a valid ") + what + " handle");
  return *handle;
}

[[noreturn]] void invalid_value(const std::string& what);
template <class T>
T& required(T* pointer, const char* name) {
  if (!pointer) invalid_value(std::string(name) + " is null");
  return *pointer;
}

}  // namespace linnet::vgpu::driver
