// What the runtime asks of the compiler, and what a compiled kernel is. The compiler is a library
// of its own, opened when the cache has no kernel: programs that run from a cache never load it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "linnet/problem.h"
#include "linnet/schedule.h"

namespace linnet {

// Of what there is one: every token, sequence, head, or the whole call.
enum class ArgumentScope { token, sequence, head, constant };

// One argument as a kernel sees it: a pointer to the first row of one sequence and head, and the
// step between rows.
struct KernelArgument {
  std::string name;
  ArgumentScope scope;
  bool key_heads, is_output;
  DType storage;     // in the kernel's memory
  DType result;      // what a summed output is rounded to in the end
  std::string axes;  // of one row: "k", "v", "" or of a state "kv"
};

// Machine code for one processor. Every entry is a function `void (const int64_t* arguments)` for
// one sequence, one value head and one block of value channels; of chunks of one token, whose work
// is short, for heads that follow each other:
//   [0] tokens  [1] scratch  [2] kept tiles
//   [3] where states go, or null  [4] numbers between two of them  [5] chunks between two of them
//   [6] numbers between two rows of one
//   [7] heads
//   [8] passed tiles  [9] carried tiles to start from, or null  [10] to leave, or null
//   [11] the block's first value channel: these four where there is one entry a loop
//   [12] ... pointer, row step (numbers) and head step (bytes) of each argument.
// With one entry a loop a call may be for a part of a sequence; a result a head has a row for each
// chunk then, which the caller adds up from the last chunk back.
struct CpuKernel {
  static constexpr int64_t kFirstArgument = 12, kArgumentSlots = 3;
  std::string code;  // bytes
  struct Entry {
    int64_t offset = 0;  // in `code`
    // A loop whose chunks may be computed in any order, by any number of calls, each for all value
    // channels.
    bool parallel = false;
    int64_t pass = 0;        // entries that go over a sequence together, window by window
    bool backwards = false;  // the pass starts at its end
  };
  std::vector<Entry> entries;  // one for everything, or one a loop, to be called in order
  std::vector<KernelArgument> arguments;
  int64_t chunk = 0;              // tokens
  int64_t value_block = 0;        // value channels of one call
  bool uses_matrix_unit = false;  // AMX, which a process must ask the system for
  // What code for a named processor takes for granted besides, in Linux' names ("avx2").
  std::vector<std::string> needs;
  int64_t scratch_floats = 0;
  // Tiles of one chunk that a later pass takes, and those that only later loops of a pass take.
  int64_t kept_floats = 0, passed_floats = 0;
  int64_t carried_floats = 0;  // of one head, from one part of a sequence to the next

  std::string describe() const;  // everything but the code, as text
  static CpuKernel parse(const std::string& description, std::string code);
};

struct CpuRequest {
  Problem problem;
  Direction direction = Direction::forward;
  // Without fused stages there is one entry a loop. value_block is ignored where channels are
  // summed over.
  Schedule schedule;
  bool grouped =
      false;  // several value heads share a head: its gradients leave in f32, to be summed
  bool matrix_unit = true;       // AMX may be used, if the processor has it
  std::string target_cpu;        // LLVM's name of a processor; empty: this machine's
  std::string describe() const;  // for the cache's key
};

// What a CUDA kernel has one block for.
enum class CudaGrid {
  chunks,     // every chunk slot and value head
  sequences,  // every sequence, value head and block of value channels
  gather,     // every `threads` numbers of the outputs that are summed
  segments,   // every segment's slot, value head and block of value channels
  maps,       // the same, but none if no sequence has more than one segment
  merge,      // as for sequences, but none then
};

// Numbers that a thread of a gathering kernel adds up, where rows are multiples of that; else one.
inline constexpr int kGathered = 4;

struct CudaKernel {
  std::string name;
  CudaGrid grid = CudaGrid::chunks;
  int threads = 0, shared_bytes = 0, value_blocks = 1;
  // In order: "q" for an argument (struct Tensor of templates/sequence.cuh; a float if it is one of
  // the whole call), "dq.partial" for its partial sums, "workspace" (a pointer), "batch" and
  // "states" (structs Batch and States), "tokens" and "slots" (64-bit counts), "segments" (a
  // pointer to their records) and "segment" (64 bits, tokens of one).
  std::vector<std::string> parameters;
};

// CUDA source with the headers it includes, and how its kernels are launched, in order.
struct CudaProgram {
  std::string name, source;
  std::map<std::string, std::string> headers;
  std::vector<KernelArgument> arguments;
  std::vector<CudaKernel> kernels;
  int64_t chunk = 0;
  int64_t workspace_bytes = 0;  // of one chunk and value head
  int64_t segment = 0;          // tokens; 0: sequences are not cut
  int64_t segment_bytes = 0;    // of the record of one segment and value head

  std::string describe() const;  // everything but the texts
  static CudaProgram parse(const std::string& description);
};

struct CudaRequest {
  Problem problem;
  Direction direction = Direction::forward;
  Schedule schedule;
  std::string describe() const;
};

// What becomes of a law on its way to a kernel, as text: law, graph, backward, stages, decode,
// tile, asm or cuda.
struct ShowRequest {
  Problem problem;
  Direction direction = Direction::forward;
  int64_t chunk = 64;
  std::string stage = "graph";
};

// A graph run in float64, slowly: no code is made. Tensors are row-major, the tokens of all
// sequences one after another.
struct InterpretRequest {
  Problem problem;
  Direction direction = Direction::forward;
  int64_t chunk = 16;  // 1: the plain recurrence
  int64_t heads = 1, value_heads = 1;
  std::vector<int64_t> lengths;  // of the sequences
};
using Numbers = std::map<std::string, std::vector<double>>;

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual CpuKernel compile(const CpuRequest& request) = 0;
  virtual CudaProgram emit(const CudaRequest& request) = 0;
  // The loops, tiles and blocks of a CPU kernel as text, without compiling it: alike for schedules
  // that give the same kernel.
  virtual std::string outline(const CpuRequest& request) = 0;
  virtual std::string show(const ShowRequest& request) = 0;
  virtual Numbers interpret(const InterpretRequest& request, const Numbers& inputs) = 0;
};

// The compiler in use, opened if it was not. Throws DeviceError if there is none, or if LINNET_JIT
// is 0.
Compiler& open_compiler();
// The compiler to use from now on, for programs that contain it; others need not say anything.
void use_compiler(Compiler* compiler);

}  // namespace linnet

// What the compiler's library exports.
extern "C" linnet::Compiler* linnet_compiler();
