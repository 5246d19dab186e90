// Tiles that one loop makes and others take: a set for each chunk, in memory of the call's.
#pragma once

#include "compiler/cpu/prefetch.h"
#include "compiler/cpu/scratch.h"

namespace linnet::cpu {

class Workspace {
 public:
  // `past_caches`: whether the processor can store vectors to memory and not into a cache.
  Workspace(Emitter& emitter, const TileProgram& program, const Scratch& scratch, bool past_caches);

  int64_t floats() const { return floats_; }  // of one chunk
  bool has(mlir::Value value) const { return offsets_.contains(value); }

  void start(mlir::Value base) { base_ = base; }
  void go_to(mlir::Value chunk) { chunk_ = e_.at(base_, e_.mul(chunk, floats_)); }
  // Where a tile lies, in the chunk at hand.
  Buffer at(mlir::Value value) const;
  // After a loop: what it stored past the caches is seen by others.
  void finish(const Loop& loop) const {
    if (past_caches_ && !loop.scan) e_.fence_stores();
  }
  // What a loop finds in the next chunk, maybe in another core's cache; and what a loop that
  // carries nothing, of which threads take parts, leaves there in this one's.
  void plan_prefetches(const Loop& loop, size_t index, Prefetches& prefetches) const;

 private:
  bool goes_past_caches(mlir::Value result) const;

  Emitter& e_;
  const TileProgram& program_;
  const Scratch& scratch_;
  bool past_caches_;
  llvm::DenseMap<mlir::Value, int64_t> offsets_;
  int64_t floats_ = 0;
  mlir::Value base_, chunk_;
};

}  // namespace linnet::cpu
