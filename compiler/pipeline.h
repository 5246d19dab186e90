// From a law to staged graphs: what the compiler does, in order.
#pragma once

#include <memory>
#include <string>

#include "compiler/law.h"
#include "compiler/passes/passes.h"
#include "compiler/problem.h"

namespace linnet {

struct PipelineOptions {
  int64_t chunk_size = 64;  // 1: the plain recurrence
  Direction direction = Direction::forward;
  StageOptions stages;
  std::string stop_after;  // a pass's name: the program as it is then; empty: to the end
};

// A context with the dialects of chunk graphs loaded.
std::unique_ptr<mlir::MLIRContext> make_context();

// Throws UserError for numbers of channels no kernel is made for.
void check_sizes(const Problem& problem);

// The law as a module, and everything derived from it. Throws UserError for a law that has no chunk
// form or a problem that does not fit the law, InternalError if a pass leaves an invalid graph.
mlir::OwningOpRef<mlir::ModuleOp> derive(mlir::MLIRContext& context, LawFunction define,
                                         const Problem& problem, const PipelineOptions& options);
// The same from a module that holds a law, or a forward graph where derivation may start later.
void run_pipeline(mlir::ModuleOp module, const Problem& problem, const PipelineOptions& options);
// The names of the passes, in order, for --stop-after.
std::vector<std::string> pass_names(const PipelineOptions& options);

// The module's only graph.
chunk::GraphOp graph_of(mlir::ModuleOp module);

// The text of a module, and back. Parsing throws UserError with file:line; names of values are
// kept.
std::string print(mlir::ModuleOp module);
mlir::OwningOpRef<mlir::ModuleOp> parse_module(mlir::MLIRContext& context, llvm::StringRef text,
                                               llvm::StringRef file);
// A law whose text leaves sizes open (Problem::law), for these numbers of channels. Messages name
// its lines as "<law>:3".
mlir::OwningOpRef<mlir::ModuleOp> parse_law(mlir::MLIRContext& context, llvm::StringRef text,
                                            int64_t key_dim, int64_t value_dim);

}  // namespace linnet
