#include "exec/device_printf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "exec/memory_access.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

constexpr size_t kMaxText = 4096;

const uint8_t* device_bytes(Warp& warp, int lane, uint64_t address, uint32_t bytes) {
  LaneAccess access;
  access.mask = 1u << lane;
  access.bytes = bytes;
  std::fill_n(access.address, kLanes, address);
  static const Op kPlain;
  resolve(warp, kPlain, Space::Generic, access);
  return access.host[lane];
}

std::string device_string(Warp& warp, int lane, uint64_t address) {
  std::string text;
  while (text.size() < kMaxText) {
    const char c = static_cast<char>(*device_bytes(warp, lane, address + text.size(), 1));
    if (c == '\0') break;
    text += c;
  }
  return text;
}

// One conversion specification: "%-5.2lf" as written, and its letter.
struct Specification {
  std::string flags;
  int longs = 0;
  char letter = 0;
};

Specification read_specification(const std::string& format, size_t& at) {
  Specification spec;
  while (at < format.size()) {
    const char c = format[at++];
    if (std::string_view("-+ #0123456789.").find(c) != std::string_view::npos)
      spec.flags += c;
    else if (c == 'l' || c == 'z' || c == 'j' || c == 't')
      ++spec.longs;
    else if (c != 'h') {
      spec.letter = c;
      break;
    }
  }
  return spec;
}

template <class T>
std::string print_value(const Specification& spec, const char* length, T value) {
  char text[512];
  const std::string format = fmt::format("%{}{}{}", spec.flags, length, spec.letter);
  const int size = std::snprintf(text, sizeof text, format.c_str(), value);
  return std::string(text, static_cast<size_t>(std::clamp(size, 0, 511)));
}

}  // namespace

uint32_t device_printf(Warp& warp, int lane, uint64_t format_address, uint64_t arguments) {
  const std::string format = device_string(warp, lane, format_address);
  std::string text;
  uint64_t offset = 0;
  uint32_t count = 0;
  const auto next = [&](uint32_t bytes) {
    offset = (offset + bytes - 1) / bytes * bytes;
    uint64_t bits = 0;
    std::memcpy(&bits, device_bytes(warp, lane, arguments + offset, bytes), bytes);
    offset += bytes;
    ++count;
    return bits;
  };
  for (size_t at = 0; at < format.size();) {
    const char c = format[at++];
    if (c != '%') {
      text += c;
      continue;
    }
    const Specification spec = read_specification(format, at);
    if (spec.letter == '%')
      text += '%';
    else if (spec.letter == 's')
      text += print_value(spec, "", device_string(warp, lane, next(8)).c_str());
    else if (std::string_view("fFeEgGaA").find(spec.letter) != std::string_view::npos)
      text += print_value(spec, "", std::bit_cast<double>(next(8)));
    else if (spec.letter == 'p')
      text += print_value(spec, "", reinterpret_cast<void*>(next(8)));
    else if (std::string_view("dic").find(spec.letter) != std::string_view::npos)
      text += spec.longs ? print_value(spec, "ll", static_cast<long long>(next(8)))
                         : print_value(spec, "", static_cast<int>(next(4)));
    else if (std::string_view("uxXo").find(spec.letter) != std::string_view::npos)
      text += spec.longs ? print_value(spec, "ll", static_cast<unsigned long long>(next(8)))
                         : print_value(spec, "", static_cast<unsigned>(next(4)));
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return count;
}

void report_assert(Warp& warp, int lane, uint64_t message, uint64_t file) {
  fault(warp, FindingKind::Assert, lane, 0,
        fmt::format("assertion '{}' failed in {}", device_string(warp, lane, message),
                    device_string(warp, lane, file)));
}

}  // namespace linnet::vgpu
