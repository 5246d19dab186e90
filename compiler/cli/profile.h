// What `linnet profile` found, and the forms it is shown in.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "linnet/problem.h"
#include "runtime/virtual/model/scaling.h"

namespace linnet::cli {

struct ProfiledKernel {
  vgpu::KernelCounts counts;  // of the whole call
  vgpu::KernelResources resources;
  vgpu::Cost cost;
  double error = 0;  // of the law the counts were scaled by
};

struct Profile {
  std::string op, what, device;  // "kda", "forward, bf16, K = V = 128, chunk 16", "virtual:sm_90"
  vgpu::DeviceProfile gpu;       // whose times are modelled
  vgpu::CallShape shape;
  std::vector<int64_t> scaled_from;  // tokens of the small calls; empty: the whole call was run
  int64_t small_heads = 0;
  bool exact = true, cut = false;  // cut: sequences into segments
  double host_seconds = 0;         // the virtual GPU took for the largest call
  std::vector<ProfiledKernel> kernels;
  std::map<std::string, std::string> sources;  // by file name
  std::string lines;  // JSON of linnet_virtual_counts() for the largest call that was run

  double seconds() const;
  double sum(double (vgpu::KernelCounts::*of)() const) const;
  double flop() const;         // of products, by mma
  double token_heads() const;  // tokens times value heads
  std::string law() const;     // where the counts come from, as a sentence
};

std::string profile_table(const Profile& profile);
std::string profile_json(const Profile& profile);
std::string profile_page(const Profile& profile);  // one self-contained HTML file
std::string roofline(const Profile& profile);      // SVG

}  // namespace linnet::cli
