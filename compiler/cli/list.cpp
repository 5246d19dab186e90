#include <fmt/format.h>

#include "compiler/cli/commands.h"
#include "ops/registry.h"

namespace linnet::cli {

namespace {

std::string inputs_of(chunk::LawOp law) {
  std::string text;
  for (auto input : law.getBody().getOps<chunk::InputOp>())
    text += (text.empty() ? "" : " ") + input.getName().str();
  return text;
}

void list() {
  auto context = make_context();
  fmt::print("{:<21} {:<40} {}\n", "op", "inputs", "");
  for (const ops::Entry& entry : ops::registry()) {
    auto module = build_law(*context, entry.name, entry.define, 4, 4);
    chunk::LawOp law = *module->getOps<chunk::LawOp>().begin();
    fmt::print("{:<21} {:<40} {}\n", entry.name, inputs_of(law),
               law.getSummary().value_or("").str());
  }
}

}  // namespace

void add_list(CLI::App& app) {
  app.add_subcommand("list", "the recurrences Linnet knows, with their inputs")->callback(list);
}

}  // namespace linnet::cli
