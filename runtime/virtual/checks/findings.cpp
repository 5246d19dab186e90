#include "checks/findings.h"

#include <fmt/format.h>

#include <iterator>

namespace linnet::vgpu {
namespace {

struct KindRow {
  const char* name;
  bool fault;
};

constexpr KindRow kKinds[] = {
    {"out-of-bounds", true},
    {"misaligned", true},
    {"use-after-free", true},
    {"shared-bounds", true},
    {"local-bounds", true},
    {"invalid-address", true},
    {"uninitialised", false},
    {"shared-race", false},
    {"global-race", false},
    {"async-hazard", false},
    {"divergent-barrier", false},
    {"bad-sync-mask", false},
    {"deadlock", true},
    {"trap", true},
    {"assert", true},
    {"illegal-instruction", true},
};

}  // namespace

std::string finding_name(FindingKind kind) { return kKinds[static_cast<size_t>(kind)].name; }
bool is_fault(FindingKind kind) { return kKinds[static_cast<size_t>(kind)].fault; }

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      quoted += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      quoted += c;
  }
  return quoted + "\"";
}

std::string Finding::message() const {
  const std::string where =
      file.empty() ? fmt::format("PTX line {}", ptx_line) : fmt::format("{}:{}", file, line);
  return fmt::format(
      "{}: {}\n  at {} in kernel {} ({}), thread ({},{},{}), block ({},{},{}), address {:#x}{}",
      finding_name(kind), text, where, kernel, instruction, thread[0], thread[1], thread[2],
      block[0], block[1], block[2], address, times > 1 ? fmt::format(", {} times", times) : "");
}

std::string Finding::json() const {
  return fmt::format(
      "{{\"kind\":\"{}\",\"fault\":{},\"kernel\":{},\"file\":{},\"line\":{},\"ptx_line\":{},"
      "\"instruction\":{},\"thread\":[{},{},{}],\"block\":[{},{},{}],\"address\":{},\"text\":{},"
      "\"times\":{}}}",
      finding_name(kind), is_fault(kind), json_string(kernel), json_string(file), line, ptx_line,
      json_string(instruction), thread[0], thread[1], thread[2], block[0], block[1], block[2],
      address, json_string(text), times);
}

void Findings::add(const Finding& finding) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string key =
      fmt::format("{}/{}/{}", finding.kernel, finding_name(finding.kind), finding.ptx_line);
  const auto [entry, fresh] = known_.emplace(key, findings_.size());
  if (fresh)
    findings_.push_back(finding);
  else
    ++findings_[entry->second].times;
}

std::vector<Finding> Findings::all() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return findings_;
}

size_t Findings::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return findings_.size();
}

void Findings::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  findings_.clear();
  known_.clear();
}

std::string Findings::json() const {
  std::string text = "[";
  for (const Finding& finding : all()) {
    if (text.size() > 1) text += ",";
    text += finding.json();
  }
  return text + "]";
}

}  // namespace linnet::vgpu
