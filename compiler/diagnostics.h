// Collects what MLIR reports, so that it can be thrown with its place.
#pragma once

#include <string>

#include "mlir/IR/Diagnostics.h"

namespace linnet {

class Diagnostics {
 public:
  explicit Diagnostics(mlir::MLIRContext* context);
  // "file:line: message", one a line.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  mlir::ScopedDiagnosticHandler handler_;
};

}  // namespace linnet
