// What becomes of a law on its way to a kernel, as text: `linnet show` and Python's linnet.show.
#pragma once

#include <string>

#include "compiler/pipeline.h"

namespace linnet {

// One of law, graph, backward, stages, decode, tile, asm and cuda; `target_cpu` is for asm, empty
// for this machine; `schedule` is for cuda, what the options do not say. Throws UserError for
// another stage.
std::string show(mlir::ModuleOp law, const std::string& stage, const Problem& problem,
                 PipelineOptions options, const std::string& target_cpu = {},
                 const Schedule& schedule = {});

}  // namespace linnet
