#include <fmt/format.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/cli/profile.h"

namespace linnet::cli {

using vgpu::KernelCounts;

namespace {

constexpr struct {
  const char* name;
  linnet_virtual_count which;
} kCounts[] = {{"blocks", LINNET_COUNT_BLOCKS},
               {"warp_instructions", LINNET_COUNT_INSTRUCTIONS},
               {"moves", LINNET_COUNT_MOVES},
               {"float", LINNET_COUNT_FLOAT},
               {"integer", LINNET_COUNT_INTEGER},
               {"mufu", LINNET_COUNT_MUFU},
               {"mma", LINNET_COUNT_MMA},
               {"barriers", LINNET_COUNT_BARRIERS},
               {"flop", LINNET_COUNT_FLOP},
               {"load_sectors", LINNET_COUNT_LOAD_SECTORS},
               {"store_sectors", LINNET_COUNT_STORE_SECTORS},
               {"local_sectors", LINNET_COUNT_LOCAL_SECTORS},
               {"load_sectors_minimum", LINNET_COUNT_LOAD_MINIMUM},
               {"store_sectors_minimum", LINNET_COUNT_STORE_MINIMUM},
               {"wavefronts", LINNET_COUNT_WAVEFRONTS},
               {"wavefronts_minimum", LINNET_COUNT_WAVEFRONT_MINIMUM},
               {"compulsory_bytes_read", LINNET_COUNT_BYTES_READ},
               {"compulsory_bytes_written", LINNET_COUNT_BYTES_WRITTEN}};

// "12.3 M"
std::string short_number(double x) {
  const char* units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (x >= 9999.5 && unit < 4) x /= 1000, ++unit;
  return fmt::format("{:.4g}{}", x, units[unit]);
}

std::string counted_table(const Profile& p) {
  std::string text = fmt::format(
      "{:<34} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>7} {:>10} {:>9}\n", "counted", "blocks",
      "instr.", "mma", "MUFU", "moved B", "needed B", "reuse", "wavefronts", "conflicts");
  for (const ProfiledKernel& kernel : p.kernels) {
    const KernelCounts& c = kernel.counts;
    const double extra = c[LINNET_COUNT_WAVEFRONTS] - c[LINNET_COUNT_WAVEFRONT_MINIMUM];
    text += fmt::format("{:<34} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>7.2f} {:>10} {:>8.1f}%\n",
                        c.kernel, short_number(c[LINNET_COUNT_BLOCKS]),
                        short_number(c[LINNET_COUNT_INSTRUCTIONS]),
                        short_number(c[LINNET_COUNT_MMA]), short_number(c[LINNET_COUNT_MUFU]),
                        short_number(c.bytes_moved()), short_number(c.bytes_compulsory()),
                        c.bytes_moved() / std::max(1.0, c.bytes_compulsory()),
                        short_number(c[LINNET_COUNT_WAVEFRONTS]),
                        100 * extra / std::max(1.0, c[LINNET_COUNT_WAVEFRONT_MINIMUM]));
  }
  return text +
         fmt::format(
             "a token and head: {:.0f} bytes moved, {:.0f} needed, {:.0f} FLOP of products\n",
             p.sum(&KernelCounts::bytes_moved) / p.token_heads(),
             p.sum(&KernelCounts::bytes_compulsory) / p.token_heads(), p.flop() / p.token_heads());
}

std::string modelled_table(const Profile& p) {
  std::string text = fmt::format("{:<34} {:>5} {:>5} {:>7} {:>7}", "modelled, us", "regs", "spill",
                                 "shared", "blk/SM");
  for (int i = 0; i < vgpu::kBounds; ++i)
    text += fmt::format(" {:>8}", vgpu::name_of(static_cast<vgpu::Bound>(i)));
  text += fmt::format(" {:>9} {}\n", "time", "bound");
  for (const ProfiledKernel& kernel : p.kernels) {
    text += fmt::format("{:<34} {:>5} {:>5} {:>7} {:>7}", kernel.counts.kernel,
                        kernel.resources.registers, kernel.resources.spilled_bytes,
                        kernel.counts.shared_bytes, kernel.cost.blocks_per_sm);
    for (const double part : kernel.cost.parts) text += fmt::format(" {:>8.1f}", part * 1e6);
    text +=
        fmt::format(" {:>9.1f} {}\n", kernel.cost.seconds * 1e6, vgpu::name_of(kernel.cost.bound));
  }
  return text + fmt::format("all: {:.1f} us modelled\n", p.seconds() * 1e6);
}

}  // namespace

std::string profile_table(const Profile& p) {
  return fmt::format("{}: {}\n{} sequences of {} tokens, {} heads, on {}\n{}\n\n{}\n{}", p.op,
                     p.what, p.shape.sequences, p.shape.tokens, p.shape.value_heads, p.device,
                     p.law(), counted_table(p),
                     fmt::format("as {}, from data sheets:\n", p.gpu.name) + modelled_table(p));
}

std::string profile_json(const Profile& p) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream, 1);
  json.object([&] {
    json.attribute("op", p.op);
    json.attribute("what", p.what);
    json.attribute("device", p.device);
    json.attribute("sequences", p.shape.sequences);
    json.attribute("tokens", p.shape.tokens);
    json.attribute("heads", p.shape.value_heads);
    json.attribute("counts_exact", p.exact);
    json.attribute("counts_from", p.law());
    json.attribute("modelled_gpu", p.gpu.name);
    json.attribute("modelled_seconds", p.seconds());
    json.attributeArray("kernels", [&] {
      for (const ProfiledKernel& kernel : p.kernels)
        json.object([&] {
          json.attribute("kernel", kernel.counts.kernel);
          json.attribute("threads", kernel.counts.threads);
          json.attribute("shared_bytes", kernel.counts.shared_bytes);
          json.attribute("registers", kernel.resources.registers);
          json.attribute("spilled_bytes", kernel.resources.spilled_bytes);
          json.attribute("law_error", kernel.error);
          json.attributeObject("counted", [&] {
            for (const auto& [name, which] : kCounts)
              json.attribute(name, static_cast<int64_t>(kernel.counts[which]));
          });
          json.attributeObject("modelled", [&] {
            json.attribute("seconds", kernel.cost.seconds);
            json.attribute("bound", vgpu::name_of(kernel.cost.bound));
            json.attribute("blocks_per_sm", kernel.cost.blocks_per_sm);
            json.attribute("block_clocks", kernel.counts[LINNET_COUNT_BLOCK_CLOCKS]);
            json.attributeObject("parts", [&] {
              for (int i = 0; i < vgpu::kBounds; ++i)
                json.attribute(vgpu::name_of(static_cast<vgpu::Bound>(i)),
                               kernel.cost.parts[static_cast<size_t>(i)]);
            });
          });
        });
    });
  });
  return text + "\n";
}

}  // namespace linnet::cli
