// The file to read first: how a law becomes the stages of a kernel.
#include "compiler/pipeline.h"

#include <fmt/format.h>

#include "compiler/diagnostics.h"
#include "linnet/error.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace linnet {

using namespace chunk;

namespace {

struct Step {
  std::string name;
  std::function<std::unique_ptr<mlir::Pass>()> make;
  bool tidy;  // followed by folding, common subexpressions and canonical order
};

std::vector<Step> steps(const Problem& problem, const PipelineOptions& options) {
  std::vector<Step> list;
  auto then = [&](const char* name, auto make, bool tidy = true) {
    list.push_back({name, make, tidy});
  };

  then("derive-chunk-form", [=] { return derive_chunk_form(options.chunk_size); });
  then("fold-gate", [=] { return fold_gate(problem); });
  if (options.direction == Direction::backward)
    then("differentiate", [] { return differentiate(); });
  if (options.chunk_size == 1) then("decode", [] { return decode(); });
  then("stabilise", [=] { return stabilise(problem); });
  then("split-stages", [=] { return split_stages(options.stages); });
  if (options.direction == Direction::backward)
    then("order-sums", [] { return order_sums(); }, /*tidy=*/false);
  then("set-precision", [=] { return set_precision(problem); }, /*tidy=*/false);
  return list;
}

// Runs passes on every graph (or on the module, for a pass that makes graphs); what they report is
// the user's doing.
void run(mlir::ModuleOp module, const std::string& name,
         std::vector<std::unique_ptr<mlir::Pass>> passes) {
  Diagnostics diagnostics(module.getContext());
  mlir::PassManager manager(module.getContext());
  manager.enableVerifier(false);
  for (auto& pass : passes) {
    bool on_graphs = pass->getOpName() == GraphOp::getOperationName() || !pass->getOpName();
    (on_graphs ? manager.nest<GraphOp>() : static_cast<mlir::OpPassManager&>(manager))
        .addPass(std::move(pass));
  }
  if (failed(manager.run(module))) throw UserError(diagnostics.text());
  if (failed(mlir::verify(module)))
    throw InternalError(fmt::format("{} left an invalid graph:\n{}", name, diagnostics.text()));
}

void check(mlir::ModuleOp module, const Problem& problem) {
  auto refuse = [](const std::string& message) { throw UserError(message); };
  auto has_role = [&](Role role) {
    bool found = false;
    module.walk([&](InputOp input) {
      found |= input.getRole() == role && (role != Role::gate || input.getScope() == Scope::token);
    });
    return found;
  };
  if (problem.gate != Gate::pre && !has_role(Role::gate))
    refuse(fmt::format("gate: {} has no gate per token to activate, expected pre", problem.op));
  if (problem.beta != Beta::plain && !has_role(Role::strength))
    refuse(fmt::format("beta: {} has no beta to activate, expected plain", problem.op));
  if (problem.l2norm && !has_role(Role::normalised))
    refuse(fmt::format("l2norm: {} has no keys to normalise, expected false", problem.op));
  if (problem.gate == Gate::bounded && !(problem.lower_bound < 0 && problem.lower_bound >= -5))
    refuse(fmt::format("lower_bound: expected a number in [-5, 0), got {}", problem.lower_bound));
  if (problem.gate != Gate::bounded && !(problem.lower_bound <= 0 && problem.lower_bound >= -5))
    refuse(fmt::format("lower_bound: expected 0 (no promise) or a number in [-5, 0), got {}",
                       problem.lower_bound));
}

void check_formats(const Problem& problem) {
  auto check_format = [](const char* name, DType type) {
    if (type != DType::f32 && type != DType::bf16 && type != DType::f16)
      throw UserError(fmt::format("{}: expected f32, bf16 or f16, got a format of integers", name));
  };
  check_format("dtype", problem.dtype);
  check_format("gate_dtype", problem.gate_dtype);
  if (problem.beta_dtype) check_format("beta_dtype", *problem.beta_dtype);
  check_format("state_dtype", problem.state_dtype);
}

void check_range(const char* name, int64_t value, int64_t most) {
  if (value < 1 || value > most)
    throw UserError(fmt::format("{}: expected a number from 1 to {}, got {}", name, most, value));
}

void check_chunk(const PipelineOptions& options) {
  check_range("chunk", options.chunk_size, 256);
  if (options.chunk_size > 16 && options.chunk_size % 16 != 0)
    throw UserError(
        fmt::format("chunk: expected at most 16 or a multiple of 16, got {}", options.chunk_size));
}

// How many of the steps a module that was read from text has behind it: none for a law, the first
// for a graph written by hand, those up to the one it names for a graph that was derived.
size_t steps_done(mlir::ModuleOp module, const std::vector<Step>& steps) {
  auto graphs = module.getOps<GraphOp>();
  if (graphs.empty()) return 0;
  auto after = (*graphs.begin()).getAfter();
  if (!after) return 1;
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i].name == *after) return i + 1;
  throw UserError(
      fmt::format("{}: expected a law or a graph on the way to what is asked; this one is past {}",
                  (*graphs.begin()).getSymName().str(), after->str()));
}

}  // namespace

void check_sizes(const Problem& problem) {
  check_range("key_dim", problem.key_dim, 1024);
  check_range("value_dim", problem.value_dim, 1024);
}

std::unique_ptr<mlir::MLIRContext> make_context() {
  auto context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  context->loadDialect<ChunkDialect, mlir::arith::ArithDialect, mlir::math::MathDialect>();
  attach_names(*context);
  return context;
}

std::vector<std::string> pass_names(const PipelineOptions& options) {
  std::vector<std::string> names;
  for (const Step& step : steps({}, options)) names.push_back(step.name);
  return names;
}

void run_pipeline(mlir::ModuleOp module, const Problem& problem, const PipelineOptions& options) {
  check(module, problem);
  check_formats(problem);
  check_sizes(problem);
  check_chunk(options);
  std::vector<Step> todo = steps(problem, options);
  todo.erase(todo.begin(), todo.begin() + steps_done(module, todo));
  for (const Step& step : todo) {
    std::vector<std::unique_ptr<mlir::Pass>> passes;
    passes.push_back(step.make());
    if (step.tidy) {
      passes.push_back(mlir::createCanonicalizerPass());
      passes.push_back(mlir::createCSEPass());
      passes.push_back(canonical_order());
    }
    run(module, step.name, std::move(passes));
    for (auto graph : module.getOps<GraphOp>()) graph.setAfter(step.name);
    if (step.name == options.stop_after) break;
  }
}

mlir::OwningOpRef<mlir::ModuleOp> derive(mlir::MLIRContext& context, LawFunction define,
                                         const Problem& problem, const PipelineOptions& options) {
  check_sizes(problem);
  auto module = build_law(context, problem.op, define, problem.key_dim, problem.value_dim);
  run_pipeline(*module, problem, options);
  return module;
}

GraphOp graph_of(mlir::ModuleOp module) {
  auto graphs = module.getOps<GraphOp>();
  if (!llvm::hasSingleElement(graphs))
    throw UserError("expected a module with exactly one chunk.graph");
  return *graphs.begin();
}

}  // namespace linnet
