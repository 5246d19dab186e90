// The text of graphs: MLIR's own printer and parser, with names of values carried through.
#include <fmt/format.h>

#include "compiler/diagnostics.h"
#include "compiler/pipeline.h"
#include "linnet/error.h"
#include "llvm/Support/SourceMgr.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"

namespace linnet {

namespace {

// The SSA name that stands in the source at a place, without its % and without the printer's
// suffix; empty for numbers.
std::string name_at(llvm::SMLoc place) {
  llvm::StringRef text(place.getPointer());
  text.consume_front("%");
  llvm::StringRef name =
      text.take_while([](char c) { return llvm::isAlnum(c) || c == '_' || c == '$' || c == '-'; });
  if (name.empty() || llvm::isDigit(name.front())) return {};
  llvm::StringRef stem = name.rtrim("0123456789");
  return stem.size() < name.size() && stem.size() > 1 && stem.ends_with("_")
             ? stem.drop_back().str()
             : name.str();
}

llvm::StringRef line_of(llvm::StringRef text, unsigned number) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n');
  return number >= 1 && number <= lines.size() ? lines[number - 1] : llvm::StringRef();
}

void recover_names(mlir::AsmParserState& state) {
  for (auto& definition : state.getOpDefs())
    if (definition.resultGroups.size() == 1 && definition.op->getNumResults() == 1)
      chunk::set_name(definition.op->getResult(0),
                      name_at(definition.resultGroups[0].definition.loc.Start));
  for (auto& block : state.getBlockDefs())
    for (auto [argument, definition] : llvm::zip(block.block->getArguments(), block.arguments))
      chunk::set_name(argument, name_at(definition.loc.Start));
}

}  // namespace

std::string print(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  stream << '\n';
  return text;
}

mlir::OwningOpRef<mlir::ModuleOp> parse_module(mlir::MLIRContext& context, llvm::StringRef text,
                                               llvm::StringRef file) {
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, file), {});
  Diagnostics diagnostics(&context);
  mlir::AsmParserState state;
  mlir::Block block;
  if (failed(mlir::parseAsmSourceFile(sources, &block, mlir::ParserConfig(&context), &state)))
    throw UserError(fmt::format("{}\n  {}", diagnostics.text(),
                                line_of(text, diagnostics.line()).trim().str()));
  recover_names(state);
  auto modules = block.getOps<mlir::ModuleOp>();
  if (llvm::hasSingleElement(modules) && llvm::hasSingleElement(block)) {
    mlir::ModuleOp module = *modules.begin();
    module->remove();
    return module;
  }
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  module->getBody()->getOperations().splice(module->getBody()->end(), block.getOperations());
  return module;
}

mlir::OwningOpRef<mlir::ModuleOp> parse_law(mlir::MLIRContext& context, llvm::StringRef text,
                                            int64_t key_dim, int64_t value_dim) {
  // On the first line, so that the lines of messages are those of the text.
  std::string sized = fmt::format(
      "!K = tensor<{0}xf32, #chunk.axes<key>> !V = tensor<{1}xf32, #chunk.axes<value>> "
      "!KxV = tensor<{0}x{1}xf32, #chunk.axes<key, value>> {2}",
      key_dim, value_dim, text.str());
  auto module = parse_module(context, sized, "<law>");
  if (!llvm::hasSingleElement(module->getOps<chunk::LawOp>()))
    throw UserError("law: expected a text with exactly one chunk.law");
  return module;
}

}  // namespace linnet
