#include "autotune/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "linnet/error.h"

namespace linnet::autotune {

namespace {

constexpr double kLeft = 60, kPlot = 760, kHeight = 150, kPanel = 235, kRight = 20;
constexpr const char* kColours[] = {"#8a8a8a", "#c98b2e", "#2a7ab0",
                                    "#3d9960", "#a34e86", "#6d5fb5"};

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

std::string text(double x, double y, const std::string& what, const std::string& style = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y,
                     style.empty() ? "" : " " + style, escaped(what));
}

double gain(const Tuned& t) { return 1 / t.result.best.ratio; }

// One search: candidates from the fastest to the slowest, coloured by chunk, on a logarithmic scale
// in times of the default.
std::string panel(const Tuned& tuned, double top) {
  std::vector<const Trial*> trials;
  for (const Trial& t : tuned.result.trials)
    if (t.runs > 0) trials.push_back(&t);
  std::stable_sort(trials.begin(), trials.end(),
                   [](const Trial* a, const Trial* b) { return a->ratio < b->ratio; });
  double least = 1, most = 1;
  for (const Trial* t : trials) least = std::min(least, t->ratio), most = std::max(most, t->ratio);
  least *= 0.95, most *= 1.05;
  auto y = [&](double ratio) {
    return top + 45 + kHeight * (1 - std::log(ratio / least) / std::log(most / least));
  };
  std::string out = text(10, top + 16, tuned.entry.place(), "font-weight=\"bold\"");
  out += text(10, top + 32,
              fmt::format("{} candidates {} at {}; best: {} ({:.2f} x the default's speed)",
                          trials.size(), tuned.entry.how, tuned.entry.workload,
                          tuned.entry.schedule.describe(), gain(tuned)),
              "fill=\"#555\"");
  for (double ratio : {0.25, 0.5, 0.7, 1., 1.5, 2., 4., 8., 16.})
    if (ratio >= least && ratio <= most)
      out +=
          fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n",
                      kLeft, y(ratio), kLeft + kPlot, y(ratio), ratio == 1 ? "#999" : "#e4e4e4") +
          text(kLeft - 6, y(ratio) + 4, fmt::format("{:g} x", ratio),
               "text-anchor=\"end\" fill=\"#666\"");
  std::map<int64_t, const char*> colours;
  for (const Trial* t : trials) colours[t->schedule.chunk];
  size_t next = 0;
  for (auto& [chunk, colour] : colours) colour = kColours[next++ % std::size(kColours)];
  double step = kPlot / static_cast<double>(trials.size());
  for (size_t i = 0; i < trials.size(); ++i) {
    const Trial& t = *trials[i];
    double x = kLeft + step * (static_cast<double>(i) + 0.5);
    bool best = t.schedule == tuned.entry.schedule, standard = t.rank == 0;
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"{}><title>{}: {:.3f} x, {} "
        "runs</title></circle>\n",
        x, y(t.ratio), best || standard ? 6 : 3, colours[t.schedule.chunk],
        best || standard ? " stroke=\"black\"" : "", escaped(t.schedule.describe()), t.ratio,
        t.runs);
    if (best) out += text(x + 9, y(t.ratio) - 6, standard ? "best = default" : "best");
    if (standard && !best) out += text(x + 9, y(t.ratio) - 6, "default");
  }
  double x = kLeft;
  for (auto [chunk, colour] : colours) {
    out += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"/>\n", x + 6,
                       top + kPanel - 22, colour) +
           text(x + 14, top + kPanel - 18, fmt::format("chunk {}", chunk), "fill=\"#555\"");
    x += 90;
  }
  return out;
}

std::string picture(const std::vector<Tuned>& tuned) {
  double width = kLeft + kPlot + kRight, height = kPanel * static_cast<double>(tuned.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"white\"/>\n",
      width, height);
  for (size_t i = 0; i < tuned.size(); ++i) svg += panel(tuned[i], kPanel * static_cast<double>(i));
  return svg + "</svg>\n";
}

std::string page(const std::vector<Tuned>& tuned) {
  std::string html =
      "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>linnet tune</title>\n<style>body "
      "{ font-family: sans-serif; } td, th { padding: 1px 10px; text-align: left; } td.n "
      "{ text-align: right; }</style>\n<h1>linnet tune</h1>\n";
  if (!tuned.empty())
    html += fmt::format("<p>{} on {}, {}, by {}. Times are held against the default's.</p>\n",
                        tuned[0].entry.how, escaped(tuned[0].entry.device), tuned[0].entry.date,
                        escaped(tuned[0].entry.generator));
  html += "<table><tr><th>what</th><th>best schedule</th><th>speed, defaults</th></tr>\n";
  for (const Tuned& t : tuned)
    html += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{:.2f}</td></tr>\n",
                        escaped(t.entry.place()), escaped(t.entry.schedule.describe()), gain(t));
  html += "</table>\n";
  for (const Tuned& t : tuned) {
    html += picture({t});
    html += "<details><summary>every candidate</summary><table>\n";
    for (const Trial& trial : t.result.trials)
      html += trial.runs > 0
                  ? fmt::format(
                        "<tr><td>{}</td><td class=\"n\">{:.3f} x</td><td class=\"n\">{} "
                        "runs</td></tr>\n",
                        escaped(trial.schedule.describe()), trial.ratio, trial.runs)
                  : fmt::format("<tr><td>{}</td><td colspan=\"2\">{}</td></tr>\n",
                                escaped(trial.schedule.describe()), escaped(trial.error));
    html += "</table></details>\n";
  }
  return html;
}

}  // namespace

void write_report(const std::filesystem::path& path, const std::vector<Tuned>& tuned) {
  bool html = path.extension() == ".html";
  if (!html && path.extension() != ".svg")
    throw UserError(fmt::format("--report: expected a file that ends with .html or .svg, got '{}'",
                                path.string()));
  std::ofstream file(path);
  file << (html ? page(tuned) : picture(tuned));
  if (!file.flush())
    throw UserError(
        fmt::format("--report: expected a file that can be written, got '{}'", path.string()));
}

}  // namespace linnet::autotune
