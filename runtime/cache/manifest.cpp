#include "runtime/cache/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "linnet/error.h"
#include "runtime/cache/sha256.h"

namespace linnet {

namespace {

// Letters, digits, dots, dashes: a name from a damaged manifest must not lead out of its directory.
bool is_file_name(std::string_view name) {
  auto fine = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= 100 && name[0] != '.' && name != manifest_name &&
         std::all_of(name.begin(), name.end(), fine);
}

std::string quoted(std::string_view text) {
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

// Reads the JSON that Manifest::text writes: its members in their order, and nothing else.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}'", c));
  }

  void expect_member(const char* name) {
    if (string() != name) fail(fmt::format("\"{}\"", name));
    expect(':');
  }

  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') out += character();
    expect('"');
    return out;
  }

  template <class T>
  T number() {
    skip_space();
    T value{};
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number");
    at_ = end - text_.data();
    return value;
  }

  // { "name": <member>, ... }
  template <class F>
  void object(F member) {
    expect('{');
    if (take('}')) return;
    do {
      std::string name = string();
      expect(':');
      member(name);
    } while (take(','));
    expect('}');
  }

  void expect_end() {
    skip_space();
    if (at_ != text_.size()) fail("its end");
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  char character() {
    char c = text_[at_++];
    if (c != '\\') return c;
    c = at_ < text_.size() ? text_[at_++] : '\0';
    if (c == '"' || c == '\\') return c;
    if (c == 'n') return '\n';
    unsigned code = 0;
    std::string_view digits = text_.substr(at_, 4);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (c != 'u' || error != std::errc() || end != digits.data() + 4 || code > 0x1f)
      fail("an escape");
    at_ += 4;
    return static_cast<char>(code);
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(fmt::format("{}: expected {} at byte {}", manifest_name, expected, at_));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Manifest Manifest::of(const CacheKey& key, const Files& files, int64_t created) {
  Manifest manifest{key, created, {}};
  for (const auto& [name, bytes] : files) {
    if (!is_file_name(name))
      throw InternalError(fmt::format("cache entry: expected a plain file name; got '{}'", name));
    manifest.files[name] = {bytes.size(), sha256_hex(bytes)};
  }
  return manifest;
}

std::string Manifest::text() const {
  std::string out = fmt::format("{{\n  \"format\": 1,\n  \"key\": {},\n  \"created\": {},\n",
                                quoted(key.hex()), created);
  auto object = [&](const char* name, const auto& members, auto value_of) {
    out += fmt::format("  \"{}\": {{", name);
    const char* separator = "";
    for (const auto& [member, value] : members) {
      out += fmt::format("{}\n    {}: {}", separator, quoted(member), value_of(value));
      separator = ",";
    }
    out += "\n  }";
  };
  object("fields", key.fields(), [](const std::string& text) { return quoted(text); });
  out += ",\n";
  object("files", files, [](const File& file) {
    return fmt::format("{{\"bytes\": {}, \"sha256\": {}}}", file.bytes, quoted(file.sha256));
  });
  return out + "\n}\n";
}

Manifest Manifest::parse(std::string_view text) {
  Reader reader(text);
  reader.expect('{');
  reader.expect_member("format");
  if (auto format = reader.number<int64_t>(); format != 1)
    throw Error(fmt::format("{}: expected format 1, got {}", manifest_name, format));
  reader.expect(',');
  reader.expect_member("key");
  std::string hex = reader.string();
  reader.expect(',');
  reader.expect_member("created");
  auto created = reader.number<int64_t>();
  reader.expect(',');
  reader.expect_member("fields");
  CacheKey::Fields fields;
  reader.object([&](const std::string& name) { fields.emplace_back(name, reader.string()); });
  Manifest manifest{CacheKey(std::move(fields)), created, {}};
  if (manifest.key.hex() != hex)
    throw Error(fmt::format("{}: its fields do not give its key", manifest_name));
  reader.expect(',');
  reader.expect_member("files");
  reader.object([&](const std::string& name) {
    if (!is_file_name(name)) throw Error(fmt::format("{}: a wrong file name", manifest_name));
    File& file = manifest.files[name];
    reader.expect('{');
    reader.expect_member("bytes");
    file.bytes = reader.number<uint64_t>();
    reader.expect(',');
    reader.expect_member("sha256");
    file.sha256 = reader.string();
    reader.expect('}');
  });
  reader.expect('}');
  reader.expect_end();
  return manifest;
}

}  // namespace linnet
