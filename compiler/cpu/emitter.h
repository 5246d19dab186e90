// Writes vector code: constants, loads and stores, loops, and elementary functions, in MLIR's
// arith, vector, scf and LLVM.
#pragma once

#include <functional>

#include "compiler/cpu/target.h"
#include "compiler/dialect/chunk.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace linnet::cpu {

using Values = llvm::SmallVector<mlir::Value>;

// Which cache a line is asked for into: the first (near), the second if there is much to ask for,
// or the one of the two that this processor has room in.
enum class Ahead { near, some, much };

class Emitter {
 public:
  Emitter(mlir::OpBuilder& builder, const Target& target);

  mlir::OpBuilder& builder() { return b_; }
  int64_t lanes() const { return lanes_; }

  mlir::Value i64(int64_t value);
  mlir::Value f32(float value);
  mlir::Value splat(float value);
  mlir::Value splat(mlir::Value scalar);
  mlir::Value int_splat(int32_t value);
  mlir::Value lane_numbers();  // 0, 1, 2, ... as i32

  mlir::Value add(mlir::Value a, mlir::Value b);  // integers
  mlir::Value sub(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value add(mlir::Value a, int64_t b);
  mlir::Value mul(mlir::Value a, int64_t b);
  mlir::Value minimum(mlir::Value a, mlir::Value b);
  mlir::Value divide(mlir::Value a, int64_t b);  // of what is not negative

  mlir::Value fadd(mlir::Value a, mlir::Value b);
  mlir::Value fsub(mlir::Value a, mlir::Value b);
  mlir::Value fmul(mlir::Value a, mlir::Value b);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c);
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);
  mlir::Value total(mlir::Value vector);  // the sum of its lanes, as a tree
  void transpose(Values& rows);           // a square block, a vector a row
  // Lanes whose column is at most (below: less than) the row.
  mlir::Value columns_up_to(mlir::Value first_column, mlir::Value row, bool below);

  // An element of a buffer of `type`, counted in elements.
  mlir::Value at(mlir::Value pointer, mlir::Value index, mlir::Type type);
  mlir::Value at(mlir::Value pointer, mlir::Value index);  // of f32
  mlir::Value load(mlir::Value pointer);
  mlir::Value load_vector(mlir::Value pointer);
  void store(mlir::Value value, mlir::Value pointer);
  // A vector that no cache shall keep; others see it after the fence.
  void store_past_caches(mlir::Value vector, mlir::Value pointer);
  void fence_stores();
  void prefetch(mlir::Value pointer, bool write = false, Ahead ahead = Ahead::some);  // a line
  mlir::Value load_int(mlir::Value pointer);
  mlir::Value load_pointer(mlir::Value pointer);

  // Numbers and vectors of numbers in a format, counted in elements.
  mlir::Type type_of(chunk::Precision storage);
  mlir::Value load_as_f32(mlir::Value from, mlir::Value index, chunk::Precision storage,
                          bool vector);
  void store_as(mlir::Value value, mlir::Value to, mlir::Value index, chunk::Precision storage);

  void loop(mlir::Value from, mlir::Value to, int64_t step,
            llvm::function_ref<void(mlir::Value)> body);
  Values loop(mlir::Value from, mlir::Value to, int64_t step, const Values& init,
              llvm::function_ref<Values(mlir::Value, const Values&)> body);
  void when(mlir::Value condition, llvm::function_ref<void()> then,
            llvm::function_ref<void()> otherwise = {});
  // Two steps a turn, and the odd one after the loop.
  Values loop_by_two(int64_t from, int64_t to, Values values,
                     llvm::function_ref<Values(mlir::Value, const Values&)> step);

  // Elementary functions of vectors; at most 2 ulp.
  mlir::Value exp(mlir::Value x);
  mlir::Value log(mlir::Value x);
  mlir::Value sigmoid(mlir::Value x);
  mlir::Value softplus(mlir::Value x);
  mlir::Value tanh(mlir::Value x);

  mlir::Type f32_type() { return b_.getF32Type(); }
  mlir::VectorType vector_type() { return mlir::VectorType::get(lanes_, b_.getF32Type()); }
  mlir::VectorType int_vector_type() { return mlir::VectorType::get(lanes_, b_.getI32Type()); }
  mlir::Type pointer_type() { return mlir::LLVM::LLVMPointerType::get(b_.getContext()); }
  mlir::Location loc() { return b_.getUnknownLoc(); }

 private:
  // Two rows of a block to be transposed: parts of `half` lanes change places across the diagonal.
  std::pair<mlir::Value, mlir::Value> exchange(mlir::Value a, mlir::Value b, int64_t half);
  mlir::Value constant(mlir::TypedAttr value);
  mlir::Value compare(mlir::arith::CmpFPredicate predicate, mlir::Value a, mlir::Value b);
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<float> coefficients);
  mlir::Value widen(mlir::Value value);
  mlir::Value narrow(mlir::Value value, chunk::Precision storage);

  mlir::OpBuilder& b_;
  int64_t lanes_, ahead_into_;
  bool has_fma_, has_f16_, rounds_to_bf16_;
};

}  // namespace linnet::cpu
