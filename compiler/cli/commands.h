// The subcommands of `linnet`; each adds itself to the application and runs when it is parsed.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "compiler/pipeline.h"
#include "linnet/error.h"

namespace linnet::cli {

void add_list(CLI::App& app);
void add_show(CLI::App& app);
void add_inspect(CLI::App& app);
void add_check(CLI::App& app);
void add_draw(CLI::App& app);
void add_bench(CLI::App& app);
void add_cache(CLI::App& app);
void add_compile(CLI::App& app);
void add_tune(CLI::App& app);
void add_profile(CLI::App& app);

// The options that say which graph: the same for every command that derives one.
struct GraphArguments {
  std::string op;
  Problem problem;
  PipelineOptions options;
  std::string gate = "pre", beta = "plain", precision = "f32", direction = "forward";
  std::string schedule_text;
  Schedule schedule;  // what it says
  bool no_A_log = false;

  void add_to(CLI::App& command);
  // Fills problem and options from the texts above; throws UserError.
  void finish();
  // The graph up to `stop_after`, of the op or the .mlir file named by `op`.
  mlir::OwningOpRef<mlir::ModuleOp> derive(mlir::MLIRContext& context);
  mlir::OwningOpRef<mlir::ModuleOp> law(mlir::MLIRContext& context);
};

// The value a text stands for; throws UserError with the known ones.
template <class T>
T one_of(const std::string& option, const std::string& text,
         const std::vector<std::pair<std::string, T>>& values) {
  std::string known;
  for (const auto& [name, value] : values) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw UserError(fmt::format("--{}: expected one of {}; got '{}'", option, known, text));
}

// The result of a command when it is not success.
struct ExitCode {
  int code;
};

}  // namespace linnet::cli
