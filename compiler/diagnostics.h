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
  // The line of the first error, or 0.
  unsigned line() const { return line_; }

 private:
  std::string text_;
  unsigned line_ = 0;
  mlir::ScopedDiagnosticHandler handler_;
};

}  // namespace linnet
