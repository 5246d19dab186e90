#include "compiler/cuda/writer.h"

#include <sstream>

namespace linnet::cuda {

namespace {
constexpr size_t kColumns = 100;
}

// A line too long for a screen goes on, four columns further in, after its last comma that fits or,
// if none does, after its equals sign.
void Writer::put(const std::string& text) {
  std::string rest = std::string(2 * depth_, ' ') + text;
  bool is_comment = text.starts_with("//");
  while (!is_comment && rest.size() > kColumns) {
    size_t at = rest.rfind(", ", kColumns - 1);
    size_t least = 2 * static_cast<size_t>(depth_) + 8;
    if (at == std::string::npos || at < least) {
      at = rest.find(" = ");
      if (at == std::string::npos || at < least) break;
      ++at;
    }
    text_ += rest.substr(0, at + 1) + "\n";
    rest = std::string(2 * depth_ + 4, ' ') + rest.substr(at + 2);
  }
  text_ += rest + "\n";
}

void Writer::block(const std::string& head, const std::function<void()>& body,
                   const std::string& tail) {
  put(head + " {");
  ++depth_;
  body();
  --depth_;
  put("}" + tail);
}

void Writer::append(const Writer& other) {
  std::istringstream lines(other.text());
  for (std::string line; std::getline(lines, line);)
    text_ += line.empty() ? "\n" : std::string(2 * depth_, ' ') + line + "\n";
}

}  // namespace linnet::cuda
