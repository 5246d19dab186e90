// Tiles that one loop makes and others take: a set for each chunk, in memory of the call's.
#pragma once

#include "compiler/cpu/prefetch.h"
#include "compiler/cpu/scratch.h"

namespace linnet::cpu {

class Workspace {
 public:
  // `past_caches`: whether the processor can store vectors to memory and not into a cache.
  // `value_channels`: of the tiles there, where a program computes only some of them; 0: all.
  Workspace(Emitter& emitter, const TileProgram& program, const Scratch& scratch, bool past_caches,
            int64_t value_channels);

  // Of one chunk: tiles for a later pass over the sequence, and tiles for later loops of the same.
  int64_t kept_floats() const { return sizes_[kKept]; }
  int64_t passed_floats() const { return sizes_[kPassed]; }
  // What the scans carry, between two calls for parts of a sequence.
  int64_t carried_floats() const;
  bool has(mlir::Value value) const { return places_.contains(value); }

  void start(mlir::Value kept, mlir::Value passed, mlir::Value first_channel);
  void go_to(mlir::Value chunk);
  // Where a tile lies, in the chunk at hand.
  Buffer at(mlir::Value value) const;
  // The same of a carried tile, in memory for what is carried.
  Buffer carried_at(mlir::Value memory, const Loop& loop, mlir::Value carried) const;
  // After a loop: what it stored past the caches is seen by others.
  void finish() const {
    if (past_caches_) e_.fence_stores();
  }
  // What a loop finds in the next chunk, maybe in another core's cache; and what a loop that
  // carries nothing, of which threads take parts, leaves there in this one's.
  void plan_prefetches(const Loop& loop, size_t index, Prefetches& prefetches) const;

 private:
  enum Region { kKept, kPassed };
  struct Place {
    Region region;
    int64_t offset;
  };
  void place(mlir::Value value);
  Region region_of(mlir::Value value) const;
  chunk::Tile whole(mlir::Value value) const;  // with all value channels
  Buffer part_of(mlir::Value pointer, mlir::Value value) const;
  bool goes_past_caches(mlir::Value result) const;

  Emitter& e_;
  const TileProgram& program_;
  const Scratch& scratch_;
  bool past_caches_;  // where loops are functions of their own, which threads take parts of
  int64_t value_channels_;
  llvm::DenseMap<mlir::Value, Place> places_;
  std::array<int64_t, 2> sizes_{};
  std::array<mlir::Value, 2> bases_, chunks_;
  mlir::Value first_channel_;
};

}  // namespace linnet::cpu
