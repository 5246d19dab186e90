#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "compiler/cli/commands.h"
#include "linnet/error.h"
#include "ops/registry.h"

namespace linnet::cli {

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw UserError(fmt::format("{}: expected a readable file; it cannot be opened", path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

void GraphArguments::add_to(CLI::App& command) {
  command.add_option("op", op, "a recurrence of `linnet list`, or a .mlir file with a law")
      ->required();
  command.add_option("--gate", gate, "how the gate input is activated: pre, softplus or bounded")
      ->capture_default_str();
  command.add_option(
      "--lower-bound", problem.lower_bound,
      "of a bounded gate, in [-5, 0); for --gate pre a promise of the caller (0: none)");
  command.add_flag("--no-A-log", no_A_log, "a bounded gate without A_log");
  command.add_option("--beta", beta, "how beta is given: plain, sigmoid or 2sigmoid (a logit)")
      ->capture_default_str();
  command.add_flag("--l2norm", problem.l2norm, "divide q and k by their l2 norms");
  command
      .add_option("--chunk", options.chunk_size, "tokens of a chunk: 1 to 16, or a multiple of 16")
      ->capture_default_str();
  command.add_option("--key-dim", problem.key_dim, "key channels of a head")->capture_default_str();
  command.add_option("--value-dim", problem.value_dim, "value channels of a head")
      ->capture_default_str();
  command
      .add_option("--precision", precision,
                  "of inputs and operands of products: f32, tf32, bf16 or f16")
      ->capture_default_str();
  command.add_flag("--separate-output", options.stages.separate_output,
                   "a stage of its own for the output");
  command.add_flag("--distribute-inverse", options.stages.distribute_inverse,
                   "Z b - (Z E) S instead of Z (b - E S): a shorter serial chain, more products");
  command.add_option("--schedule", schedule_text,
                     "how, e.g. \"chunk=16 segment=1024\", instead of --chunk and the two before");
}

void GraphArguments::finish() {
  problem.gate = one_of<Gate>(
      "gate", gate, {{"pre", Gate::pre}, {"softplus", Gate::softplus}, {"bounded", Gate::bounded}});
  problem.beta = one_of<Beta>(
      "beta", beta,
      {{"plain", Beta::plain}, {"sigmoid", Beta::sigmoid}, {"2sigmoid", Beta::twice_sigmoid}});
  choose_precision(problem, one_of<chunk::Precision>("precision", precision,
                                                     {{"f32", chunk::Precision::f32},
                                                      {"tf32", chunk::Precision::tf32},
                                                      {"bf16", chunk::Precision::bf16},
                                                      {"f16", chunk::Precision::f16}}));
  if (!schedule_text.empty()) {
    schedule = Schedule::parse(schedule_text, "--schedule");
    options.chunk_size = schedule.chunk;
    options.stages = schedule.stages;
  }
  options.direction = one_of<Direction>("direction", direction,
                                        {{"forward", Direction::forward},
                                         {"backward", Direction::backward},
                                         {"decode", Direction::decode}});
  if (options.direction == Direction::decode) {  // the forward graph of one token
    options.direction = Direction::forward;
    options.chunk_size = 1;
  }
  schedule.chunk = options.chunk_size;
  schedule.stages = options.stages;
  problem.has_A_log = !no_A_log;
  if (problem.gate == Gate::bounded && problem.lower_bound == 0) problem.lower_bound = -5;
  problem.op = op;
  const auto names = pass_names(options);
  if (!options.stop_after.empty() &&
      std::find(names.begin(), names.end(), options.stop_after) == names.end()) {
    std::string known;
    for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
    throw UserError(
        fmt::format("--stop-after: expected one of {}; got '{}'", known, options.stop_after));
  }
}

mlir::OwningOpRef<mlir::ModuleOp> GraphArguments::law(mlir::MLIRContext& context) {
  if (op.ends_with(".mlir")) return parse_module(context, read_file(op), op);
  return build_law(context, op, ops::find(op).define, problem.key_dim, problem.value_dim);
}

mlir::OwningOpRef<mlir::ModuleOp> GraphArguments::derive(mlir::MLIRContext& context) {
  auto module = law(context);
  run_pipeline(*module, problem, options);
  return module;
}

}  // namespace linnet::cli
