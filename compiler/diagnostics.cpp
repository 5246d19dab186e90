#include "compiler/diagnostics.h"

#include "compiler/dialect/chunk.h"

namespace linnet {

Diagnostics::Diagnostics(mlir::MLIRContext* context)
    : handler_(context, [this](mlir::Diagnostic& diagnostic) {
        if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error) return;
        if (auto file =
                llvm::dyn_cast<mlir::FileLineColLoc>(chunk::unnamed(diagnostic.getLocation()));
            file && !line_)
          line_ = file.getLine();
        std::string place = chunk::place_of(diagnostic.getLocation());
        text_ +=
            (text_.empty() ? "" : "\n") + (place.empty() ? "" : place + ": ") + diagnostic.str();
      }) {}

}  // namespace linnet
