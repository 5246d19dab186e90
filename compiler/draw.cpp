#include "compiler/draw.h"

#include <fmt/format.h>

namespace linnet {

using namespace chunk;
using mlir::Value;

namespace {

class Drawing {
 public:
  explicit Drawing(GraphOp graph) : graph_(graph) {}

  std::string draw() {
    line("digraph \"{}\" {{", graph_.getSymName().str());
    line("  rankdir=TB; newrank=true; fontname=\"Helvetica\"; labelloc=t; fontsize=20;");
    line("  label=\"{} (chunk of {})\";", graph_.getSymName().str(), graph_.getChunkSize());
    line(
        "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11, "
        "color=\"#555555\"];");
    line("  edge [color=\"#777777\", fontname=\"Helvetica\", fontsize=9];");
    draw_block(graph_.getBody().front());
    for (const std::string& edge : edges_) line("  {}", edge);
    line("}}");
    return text_;
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string fresh() { return fmt::format("n{}", count_++); }

  void draw_block(mlir::Block& block) {
    for (mlir::Operation& op : block) {
      if (auto map = llvm::dyn_cast<MapOp>(op))
        draw_map(map);
      else if (auto scan = llvm::dyn_cast<ScanOp>(op))
        draw_scan(scan);
      else if (auto output = llvm::dyn_cast<OutputOp>(op))
        draw_output(output);
      else if (llvm::isa<BroadcastOp>(op))
        nodes_[op.getResult(0)] = nodes_[op.getOperand(0)];  // drawn as its source
      else if (!llvm::isa<YieldOp, mlir::arith::ConstantOp>(op))
        draw_op(op);
    }
  }

  void open_stage(llvm::StringRef name, llvm::StringRef kind, const char* color) {
    line("  subgraph \"cluster_{}\" {{", count_++);
    line("    label=\"{}: {}\"; style=\"rounded,filled\"; color=\"{}\"; fontsize=14;", kind.str(),
         name.str(), color);
  }

  void draw_map(MapOp map) {
    open_stage(map.getStage(), "map, every chunk on its own", "#eef4fb");
    draw_block(map.block());
    line("  }}");
    for (auto [result, value] : llvm::zip(map.getResults(), map.yield().getValues()))
      nodes_[result] = nodes_[value];
  }

  void draw_scan(ScanOp scan) {
    open_stage(scan.getStage().value_or("scan"),
               scan.getReverse() ? "scan, last chunk to first" : "scan, chunk after chunk",
               "#fdf1e3");
    for (auto [argument, init] : llvm::zip(scan.block().getArguments(), scan.getInit())) {
      nodes_[argument] = fresh();
      line("    {} [label=\"{}\", shape=ellipse, fillcolor=\"#f7c98b\"];", nodes_[argument],
           name_of(argument));
      edges_.push_back(fmt::format("{} -> {} [style=dashed];", nodes_[init], nodes_[argument]));
    }
    draw_block(scan.block());
    line("  }}");
    auto yielded = scan.yield().getValues();
    for (auto [argument, next] : llvm::zip(scan.block().getArguments(), yielded))
      edges_.push_back(fmt::format(
          "{} -> {} [style=bold, color=\"#d07000\", constraint=false, label=\"next chunk\"];",
          nodes_[next], nodes_[argument]));
    for (auto [result, value] : llvm::zip(scan.getResults(), yielded))
      nodes_[result] = nodes_[value];
  }

  void draw_output(OutputOp output) {
    std::string node = fresh();
    line("  {} [label=\"{}\", shape=ellipse, fillcolor=\"#cfe8cf\"];", node,
         output.getName().str());
    edges_.push_back(fmt::format("{} -> {};", nodes_[output.getValue()], node));
  }

  void draw_op(mlir::Operation& op) {
    std::string node = nodes_[op.getResult(0)] = fresh();
    bool input = llvm::isa<InputOp>(op);
    std::string name = name_of(op.getResult(0)), kind = op.getName().stripDialect().str();
    std::string label = input ? name : name.empty() ? kind : fmt::format("{}\\n{}", name, kind);
    line("    {} [label=\"{}\", fillcolor=\"{}\"{}];", node, label,
         input                 ? "#dddddd"
         : is_contraction(&op) ? "#f3b6b6"
                               : "#ffffff",
         input ? ", shape=ellipse" : "");
    llvm::SetVector<Value> operands(op.operand_begin(), op.operand_end());
    for (Value operand : operands)
      if (!nodes_[operand].empty())
        edges_.push_back(fmt::format("{} -> {};", nodes_[operand], node));
  }

  GraphOp graph_;
  std::string text_;
  std::vector<std::string> edges_;
  llvm::DenseMap<Value, std::string> nodes_;
  int count_ = 0;
};

}  // namespace

std::string draw_dot(GraphOp graph) { return Drawing(graph).draw(); }

}  // namespace linnet
