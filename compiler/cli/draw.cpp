#include "compiler/draw.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "compiler/cli/commands.h"
#include "linnet/error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"

namespace linnet::cli {

namespace {

struct Draw : GraphArguments {
  std::string output;

  void run() {
    finish();
    auto context = make_context();
    auto module = derive(*context);
    std::string dot = draw_dot(graph_of(*module));
    llvm::StringRef format = llvm::StringRef(output).rsplit('.').second;
    if (format == "dot") return write(output, dot);
    if (format != "svg" && format != "png" && format != "pdf")
      throw UserError(
          fmt::format("-o: expected a name ending in .svg, .png, .pdf or .dot; got '{}'", output));
    auto program = llvm::sys::findProgramByName("dot");
    if (!program)
      throw DeviceError(
          "Graphviz's `dot` is not installed (apt-get install graphviz), or write a .dot file");
    llvm::SmallString<128> source;
    if (llvm::sys::fs::createTemporaryFile("linnet", "dot", source))
      throw DeviceError("cannot create a temporary file");
    write(source.str().str(), dot);
    std::string error;
    int code = llvm::sys::ExecuteAndWait(
        *program, {*program, "-T" + format.str(), source.str(), "-o", output}, std::nullopt, {}, 60,
        0, &error);
    llvm::sys::fs::remove(source);
    if (code != 0) throw DeviceError(fmt::format("dot failed ({}): {}", code, error));
    fmt::print("wrote {}\n", output);
  }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) throw UserError(fmt::format("{}: cannot be written", path));
  }
};

}  // namespace

void add_draw(CLI::App& app) {
  auto draw = std::make_shared<Draw>();
  CLI::App* command =
      app.add_subcommand("draw", "draw the stages of a graph as a picture, through Graphviz");
  draw->add_to(*command);
  command->add_option("--direction", draw->direction, "forward or backward")->capture_default_str();
  command->add_option("-o,--output", draw->output, "the picture: .svg, .png, .pdf or .dot")
      ->required();
  command->callback([draw] { draw->run(); });
}

}  // namespace linnet::cli
