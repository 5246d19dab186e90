// What users run today on a CPU, timed by python/bench/peers.py in a process beside this one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autotune/workload.h"
#include "llvm/Support/JSON.h"

namespace linnet::cli {

class Peers {
 public:
  // Starts the server; nothing if there is no Python with torch, with `why` saying so.
  static std::unique_ptr<Peers> start(int threads, std::string& why);
  ~Peers();

  // Milliseconds of one torch f32 product of 2048 x 2048 matrices, the yardstick of a machine; 0 if
  // it cannot be had.
  double matmul_ms(double limit_s);
  // Bytes a second, read and written, of scaling an array in place; or 0.
  double scale_bandwidth(int64_t bytes, double limit_s);

  struct Time {
    std::string peer;
    double ms = 0, compile_s = 0;
    std::string error;      // why there is no time
    double other_load = 0;  // cores that other processes used meanwhile
  };
  // The peers that have an op and direction.
  std::vector<std::string> names(const std::string& op, const std::string& direction);
  Time time(const std::string& peer, const std::string& op, const std::string& direction,
            const Shape& shape, const Problem& problem, double give_up_s);

 private:
  Peers(int process, int to, int from) : process_(process), to_(to), from_(from) {}
  llvm::json::Object ask(llvm::json::Object question, double limit_s);
  std::optional<std::string> read_line(double limit_s);

  int process_, to_, from_;
  std::string buffer_;
  std::optional<llvm::json::Object> list_;
};

}  // namespace linnet::cli
