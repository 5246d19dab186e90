// Where tiles lie: formats and names of tile types, and the workspace kernels hand tiles over in.
#pragma once

#include "compiler/cuda/source.h"

namespace linnet::cuda {

// Shared memory of a block that every GPU has.
constexpr int64_t kMostSharedBytes = 99 * 1024;
// With more channels tiles take twice the registers, and a state half of all a thread has.
constexpr int64_t kWide = 128;
// Rows of a tile of a state that goes by in bands.
constexpr int64_t kBandRows = 16;

constexpr int64_t padded(int64_t x) { return (x + 15) / 16 * 16; }

// "float", "bf16" or "f16": what numbers of a format are stored as.
std::string element_of(chunk::Precision precision);
int64_t bytes_of(const std::string& element);
// "Precision::bf16"
std::string text_of(chunk::Precision precision);
std::string text_of(chunk::Triangle triangle);
// How many lines of so many numbers, of a tile too large for shared memory, are in it at a time.
int64_t band_of(int64_t numbers, const std::string& element);
// A number as C++ writes a float: "-128.f".
std::string literal(double x);
// Operands that are f32 in memory have products of tf32 at the least.
chunk::Precision at_least_tf32(chunk::Precision precision);
chunk::Precision or_f32(std::optional<chunk::Precision> precision);

// A tile of a workspace: one for every chunk and value head.
struct Stored {
  int64_t offset;       // bytes into the slot's record
  std::string element;  // vectors and scalars: float
  bool flipped;         // rows and columns exchanged: value channels first
  int64_t rows, stride;
};

class Workspace {
 public:
  explicit Workspace(const TileProgram& program);
  const Stored& at(mlir::Value value) const;
  int64_t bytes_per_slot() const { return bytes_; }

 private:
  void place(const TileProgram& program, mlir::Value value, bool in_scan);
  llvm::DenseMap<mlir::Value, size_t> index_;
  std::vector<Stored> stored_;
  int64_t bytes_ = 0;
};

}  // namespace linnet::cuda
