#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "compiler/cli/bench_table.h"
#include "linnet/error.h"

namespace linnet::cli {

namespace {

constexpr double kLeft = 230, kWidth = 620, kBar = 16, kGap = 12, kTitle = 22;

}  // namespace

// Bars on a logarithmic scale: what is measured goes over four orders of magnitude.
void plot_bars(const std::string& path, const std::vector<Bars>& lines) {
  double least = INFINITY, most = 0, height = 40;
  for (const Bars& line : lines) {
    height += kTitle + kGap + kBar * static_cast<double>(line.ms.size());
    for (const auto& [name, ms] : line.ms) least = std::min(least, ms), most = std::max(most, ms);
  }
  double from = std::floor(std::log10(least)), to = std::max(from + 1, std::ceil(std::log10(most)));
  auto x = [&](double ms) { return kLeft + kWidth * (std::log10(ms) - from) / (to - from); };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n",
      kLeft + kWidth + 90, height);
  for (double power = from; power <= to; ++power)
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"18\" x2=\"{0}\" y2=\"{1}\" stroke=\"#ddd\"/><text x=\"{0}\" "
        "y=\"14\" "
        "text-anchor=\"middle\" fill=\"#666\">{2:g} ms</text>\n",
        x(std::pow(10, power)), height - 10, std::pow(10, power));
  double y = 30;
  for (const Bars& line : lines) {
    svg +=
        fmt::format("<text x=\"10\" y=\"{}\" font-weight=\"bold\">{}</text>\n", y + 12, line.title);
    y += kTitle;
    for (size_t i = 0; i < line.ms.size(); ++i, y += kBar) {
      const auto& [name, ms] = line.ms[i];
      svg += fmt::format(
          "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{}\" y=\"{}\" "
          "width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{}\">{:.4g}</text>\n",
          kLeft - 8, y + 12, name, kLeft, y + 2, x(ms) - kLeft, kBar - 4,
          i == 0 ? "#2a7ab0" : "#c9a27a", x(ms) + 5, y + 12, ms);
    }
    y += kGap;
  }
  svg += "</svg>\n";
  std::ofstream file(path);
  file << svg;
  if (!file.flush())
    throw UserError(fmt::format("--plot: expected a file that can be written, got '{}'", path));
}

}  // namespace linnet::cli
