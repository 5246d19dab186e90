#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/cli/profile.h"

namespace linnet::cli {

namespace {

constexpr double kLeft = 70, kTop = 50, kWidth = 640, kHeight = 360;

// Logarithmic axes: FLOP a byte from memory, and FLOP a second.
struct Axes {
  double x_from, x_to, y_from, y_to;  // powers of ten
  double x(double v) const { return kLeft + kWidth * (std::log10(v) - x_from) / (x_to - x_from); }
  double y(double v) const {
    return kTop + kHeight * (1 - (std::log10(v) - y_from) / (y_to - y_from));
  }
};

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

std::string text(double x, double y, const std::string& what, const char* style = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, what);
}

}  // namespace

std::string roofline(const Profile& p) {
  const double bandwidth = p.gpu.bandwidth_gbs * 1e9, peak = p.gpu.tensor_bf16_tflops * 1e12;
  const double reachable = peak * p.gpu.mma_sync_percent / 100;
  Axes axes{-1, 4, 10, std::ceil(std::log10(peak))};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n",
      kLeft + kWidth + 40, kTop + kHeight + 60 + 18 * static_cast<double>(p.kernels.size()));
  svg += text(kLeft, 20, fmt::format("{}: {}", p.op, p.what), "font-weight=\"bold\"");
  svg += text(kLeft, 38,
              fmt::format("{} sequences of {} tokens, {} heads; counted work, modelled times on {}",
                          p.shape.sequences, p.shape.tokens, p.shape.value_heads, p.gpu.name),
              "fill=\"#666\"");
  for (double power = axes.x_from; power <= axes.x_to; ++power) {
    const double at = axes.x(std::pow(10, power));
    svg += line(at, kTop, at, kTop + kHeight, "stroke=\"#ddd\"");
    svg += text(at, kTop + kHeight + 16, fmt::format("{:g}", std::pow(10, power)),
                "text-anchor=\"middle\" fill=\"#666\"");
  }
  for (double power = axes.y_from; power <= axes.y_to; ++power) {
    const double at = axes.y(std::pow(10, power));
    svg += line(kLeft, at, kLeft + kWidth, at, "stroke=\"#ddd\"");
    svg += text(kLeft - 6, at + 4, fmt::format("{:g} TF/s", std::pow(10, power - 12)),
                "text-anchor=\"end\" fill=\"#666\"");
  }
  svg += text(kLeft + kWidth / 2, kTop + kHeight + 34, "FLOP of products a byte of memory",
              "text-anchor=\"middle\"");
  const auto roof = [&](double top, const char* style, const std::string& name) {
    const double ridge = top / bandwidth, lowest = std::pow(10, axes.y_from) / bandwidth;
    const double first = std::max(lowest, std::pow(10, axes.x_from));
    svg += line(axes.x(first), axes.y(first * bandwidth), axes.x(ridge), axes.y(top), style);
    svg += line(axes.x(ridge), axes.y(top), kLeft + kWidth, axes.y(top), style);
    svg += text(kLeft + kWidth - 4, axes.y(top) - 5, name, "text-anchor=\"end\"");
  };
  roof(peak, "stroke=\"#888\" stroke-dasharray=\"4\"",
       fmt::format("tensor cores {:.0f} TF/s", peak * 1e-12));
  if (reachable < peak)
    roof(reachable, "stroke=\"#333\"", fmt::format("mma.sync {:.0f} TF/s", reachable * 1e-12));
  static constexpr const char* colours[] = {"#2a7ab0", "#c0562a", "#3a8a4a", "#8a4aa0", "#b09020"};
  double legend = kTop + kHeight + 54;
  for (size_t i = 0; i < p.kernels.size(); ++i, legend += 18) {
    const ProfiledKernel& kernel = p.kernels[i];
    const char* colour = colours[i % std::size(colours)];
    const double flop = kernel.counts[LINNET_COUNT_FLOP];
    const double intensity = flop / std::max(1.0, kernel.counts.bytes_compulsory());
    const std::string note =
        fmt::format("{}: {:.3g} FLOP/B, {:.1f} us modelled, {} bound", kernel.counts.kernel,
                    intensity, kernel.cost.seconds * 1e6, vgpu::name_of(kernel.cost.bound));
    svg += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"{}\"/>\n", kLeft + 4, legend - 4,
                       colour);
    svg += text(kLeft + 16, legend, flop ? note : note + " (no products)");
    if (!flop) continue;
    const double rate = flop / kernel.cost.seconds;
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\" fill=\"{}\"><title>{}</title></circle>\n",
        std::clamp(axes.x(intensity), kLeft, kLeft + kWidth),
        std::clamp(axes.y(rate), kTop, kTop + kHeight), colour, note);
  }
  return svg + "</svg>\n";
}

}  // namespace linnet::cli
