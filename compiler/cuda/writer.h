// Writes indented source text. The only place where text is put together line by line.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

namespace linnet::cuda {

class Writer {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    put(fmt::format(format, std::forward<Args>(args)...));
  }
  void blank() { text_ += "\n"; }
  void comment(const std::string& text) { put("// " + text); }
  // `head {`, what `body` writes one step further in, and `}` with what closes the statement.
  void block(const std::string& head, const std::function<void()>& body,
             const std::string& tail = "");
  // What another writer wrote, at this one's depth.
  void append(const Writer& other);

  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text);
  std::string text_;
  int depth_ = 0;
};

}  // namespace linnet::cuda
