// The families of instructions: each ops_*.cpp lists the opcodes it decodes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "exec/decoder.h"

namespace linnet::vgpu {

std::span<const DecodeRow> integer_family();
std::span<const DecodeRow> bits_family();
std::span<const DecodeRow> arithmetic_family();  // add, mul, ...: all types, forwards to the rest
std::span<const DecodeRow> compare_family();
std::span<const DecodeRow> convert_family();
std::span<const DecodeRow> approx_family();
std::span<const DecodeRow> move_family();
std::span<const DecodeRow> memory_family();
std::span<const DecodeRow> atomic_family();
std::span<const DecodeRow> control_family();
std::span<const DecodeRow> warp_family();
std::span<const DecodeRow> barrier_family();
std::span<const DecodeRow> matrix_family();
std::span<const DecodeRow> mma_family();
std::span<const DecodeRow> wgmma_family();
std::span<const DecodeRow> async_family();
std::span<const DecodeRow> mbarrier_family();

inline std::vector<std::span<const DecodeRow>> decoder_families() {
  return {arithmetic_family(), integer_family(), bits_family(),  compare_family(),
          convert_family(),    approx_family(),  move_family(),  memory_family(),
          atomic_family(),     control_family(), warp_family(),  barrier_family(),
          matrix_family(),     mma_family(),     wgmma_family(), async_family(),
          mbarrier_family()};
}

// Decoders of one type class, called by arithmetic_family for opcodes that several classes share.
void decode_integer_arithmetic(OpBuilder& builder);
void decode_float_arithmetic(OpBuilder& builder);    // f32, f64
void decode_rounded_arithmetic(OpBuilder& builder);  // .rz .rm .rp of f32 and f64
void decode_half_arithmetic(OpBuilder& builder);     // f16, bf16 and their pairs

// Emits an op that reads a special register into a scratch slot of `bytes` (4 or 8).
Slot emit_special(OpBuilder& builder, std::string_view name, int bytes);
Handler approximate_division(bool ftz);                   // div.approx and div.full
void sync_warp(Warp& warp, const Op& op, uint32_t mask);  // bar.warp.sync
Handler dynamic_shared_handler();
Handler local_address_handler();
Handler address_sum_handler();

}  // namespace linnet::vgpu
