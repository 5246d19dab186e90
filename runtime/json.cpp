#include "runtime/json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "linnet/error.h"

namespace linnet {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Json whole() {
    Json value = this->value(0);
    skip_space();
    if (at_ != text_.size()) fail("its end");
    return value;
  }

 private:
  static constexpr int kMostDeep = 32;  // a file of brackets must not use up the stack

  Json value(int depth) {
    if (depth > kMostDeep) fail("fewer brackets in brackets");
    Json json;
    switch (peek()) {
      case '{':
        json.kind = Json::Kind::object;
        list('}', [&] {
          std::string name = string();
          expect(':');
          json.members.emplace_back(std::move(name), value(depth + 1));
        });
        return json;
      case '[':
        json.kind = Json::Kind::array;
        list(']', [&] { json.items.push_back(value(depth + 1)); });
        return json;
      case '"':
        json.kind = Json::Kind::string;
        json.text = string();
        return json;
      default:
        return word();
    }
  }

  Json word() {
    for (auto [name, kind, number] : {std::tuple{"null", Json::Kind::null, 0.},
                                      {"true", Json::Kind::boolean, 1.},
                                      {"false", Json::Kind::boolean, 0.}})
      if (text_.substr(at_).starts_with(name)) {
        at_ += std::string_view(name).size();
        return {.kind = kind, .number = number};
      }
    Json json{.kind = Json::Kind::number};
    auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), json.number);
    if (error != std::errc()) fail("a value");
    at_ = end - text_.data();
    return json;
  }

  template <class F>
  void list(char close, F item) {
    ++at_;
    if (take(close)) return;
    do item();
    while (take(','));
    expect(close);
  }

  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') out += character();
    expect('"');
    return out;
  }

  char character() {
    char c = text_[at_++];
    if (c != '\\') return c;
    c = at_ < text_.size() ? text_[at_++] : '\0';
    if (c == '"' || c == '\\' || c == '/') return c;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    unsigned code = 0;
    std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (c != 'u' || error != std::errc() || end != digits.data() + 4 || code > 0x7f)
      fail("an escape");
    at_ += 4;
    return static_cast<char>(code);
  }

  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}'", c));
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \n\r\t").find(text_[at_]) != std::string::npos)
      ++at_;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(fmt::format("expected {} at byte {}", expected, at_));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) { return Reader(text).whole(); }

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : members)
    if (key == name) return &value;
  return nullptr;
}

const Json& Json::at(std::string_view name, Kind wanted) const {
  const Json* value = find(name);
  static const char* kinds[] = {"null", "a boolean", "a number", "a text", "a list", "an object"};
  if (!value || value->kind != wanted)
    throw Error(fmt::format("expected {} as \"{}\"", kinds[static_cast<int>(wanted)], name));
  return *value;
}

int64_t Json::whole_at(std::string_view name, int64_t least, int64_t most) const {
  double number = number_at(name);
  bool fits = number >= static_cast<double>(least) && number <= static_cast<double>(most);
  if (!fits || number != std::trunc(number))  // what is no number does not fit
    throw Error(fmt::format("expected another \"{}\" than {}", name, number));
  return static_cast<int64_t>(number);
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c < 0x20)
      out += fmt::format("\\u{:04x}", c);
    else
      out += static_cast<char>(c);
  }
  return out + '"';
}

}  // namespace linnet
