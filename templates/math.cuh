// Elementary functions of f32: exponentials through ex2, and the activations of gates.
#pragma once
#include "base.cuh"

namespace linnet {

constexpr float kLog2e = 1.44269504f;

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(x) = 2^(x log2 e). The product is rounded once more than the true exponent: its remainder is
// put back, so that the error stays near that of ex2 however negative x is.
__device__ inline float exp_of(float x) {
  constexpr float kLog2eRest = 1.92596299e-8f, kLn2 = 0.69314718f;
  float t = x * kLog2e, y = power_of_two(t);
  float rest = fmaf(x, kLog2e, -t) + x * kLog2eRest;
  return fmaf(y, rest * kLn2, y);
}

__device__ inline float log_of(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y * 0.69314718f;
}

__device__ inline float rsqrt_of(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y * fmaf(-0.5f * x * y, y, 1.5f);  // one step of Newton's method: all bits
}

__device__ inline float sqrt_of(float x) {
  float y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float divide(float x, float y) {
  float z;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

__device__ inline float sigmoid_of(float x) {
  float small = exp_of(-fabsf(x));  // at most one: finite for every x
  float y = divide(1.f, 1.f + small);
  return x >= 0 ? y : small * y;
}

// log(1 + y) for y in [0, 1], without losing small y.
__device__ inline float log1p_of(float y) {
  float u = 1.f + y;
  float rest = y - (u - 1.f);
  return y < 1e-4f ? y * fmaf(-0.5f, y, 1.f) : log_of(u) + divide(rest, u);
}

__device__ inline float softplus_of(float x) { return fmaxf(x, 0.f) + log1p_of(exp_of(-fabsf(x))); }

__device__ inline float tanh_of(float x) {
  float small = exp_of(-2.f * fabsf(x));
  float y = divide(1.f - small, 1.f + small);
  return x >= 0 ? y : -y;
}

}  // namespace linnet
