// The derivations, in the order of compiler/pipeline.cpp; each pass is one file of this folder.
#pragma once

#include <memory>

#include "compiler/problem.h"
#include "linnet/schedule.h"
#include "mlir/Pass/Pass.h"

namespace linnet {

// law -> chunk graph of `chunk_size` tokens (MATH.md a').
std::unique_ptr<mlir::Pass> derive_chunk_form(int64_t chunk_size);
// Puts gate activation, beta and l2 norm in front of the graph (MATH.md b).
std::unique_ptr<mlir::Pass> fold_gate(const Problem& problem);
// graph -> the graph of its gradients, by reverse mode over every op, the scan included.
std::unique_ptr<mlir::Pass> differentiate();
// Folds a graph of one token a chunk to the plain recurrence.
std::unique_ptr<mlir::Pass> decode();
// Gives every exponential a bounded, causal form (MATH.md c, E0 to E5).
std::unique_ptr<mlir::Pass> stabilise(const Problem& problem);

// Top level ops -> map / scan / map stages.
std::unique_ptr<mlir::Pass> split_stages(StageOptions options);
// The terms of a sum in the order in which their factors are there.
std::unique_ptr<mlir::Pass> order_sums();
// Says where values are rounded: operands of products, inputs, outputs, and what is stored between
// stages.
std::unique_ptr<mlir::Pass> set_precision(const Problem& problem);
// Depth-first order from the outputs: the same graph always prints and hashes the same.
std::unique_ptr<mlir::Pass> canonical_order();

// Moves out of a scan what does not depend on what it carries.
void hoist_invariant(chunk::ScanOp scan);
// Walks up from a value to every op it depends on, through stages too; stops where `visit` says
// false.
void walk_sources(mlir::Value value, llvm::function_ref<bool(mlir::Operation*)> visit);

}  // namespace linnet
