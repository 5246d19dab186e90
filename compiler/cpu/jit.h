// Turns a kernel's vector code into machine code, and keeps it for as long as it is called.
#pragma once

#include <memory>

#include "compiler/cpu/kernel.h"

namespace llvm::orc {
class LLJIT;
}

namespace linnet::cpu {

class CompiledKernel {
 public:
  // Compiles the staged graph of a tile program. Throws InternalError if LLVM refuses it.
  static CompiledKernel compile(const TileProgram& program, const Target& target);
  CompiledKernel(CompiledKernel&&);
  ~CompiledKernel();

  const Signature& signature() const { return signature_; }
  void operator()(const int64_t* arguments) const { function_(arguments); }

 private:
  CompiledKernel(Signature signature, std::unique_ptr<llvm::orc::LLJIT> jit,
                 void (*function)(const int64_t*));
  Signature signature_;
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  void (*function_)(const int64_t*);
};

// The kernel as assembly for a processor that need not be this one.
std::string assembly_of(const TileProgram& program, const Target& target);

}  // namespace linnet::cpu
