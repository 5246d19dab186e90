#include "runtime/cache/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "linnet/error.h"
#include "runtime/cache/sha256.h"
#include "runtime/json.h"

namespace linnet {

namespace {

// Letters, digits, dots, dashes: a name from a damaged manifest must not lead out of its directory.
bool is_file_name(std::string_view name) {
  auto fine = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= 100 && name[0] != '.' && name != manifest_name &&
         std::all_of(name.begin(), name.end(), fine);
}

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
                                json_quoted(key.hex()), created);
  auto object = [&](const char* name, const auto& members, auto value_of) {
    out += fmt::format("  \"{}\": {{", name);
    const char* separator = "";
    for (const auto& [member, value] : members) {
      out += fmt::format("{}\n    {}: {}", separator, json_quoted(member), value_of(value));
      separator = ",";
    }
    out += "\n  }";
  };
  object("fields", key.fields(), [](const std::string& text) { return json_quoted(text); });
  out += ",\n";
  object("files", files, [](const File& file) {
    return fmt::format("{{\"bytes\": {}, \"sha256\": {}}}", file.bytes, json_quoted(file.sha256));
  });
  return out + "\n}\n";
}

Manifest Manifest::parse(std::string_view text) try {
  constexpr int64_t most = int64_t{1} << 53;  // what a number of JSON holds exactly
  Json json = Json::parse(text);
  if (auto format = json.number_at("format"); format != 1)
    throw Error(fmt::format("expected format 1, got {}", format));
  CacheKey::Fields fields;
  for (const auto& [name, value] : json.at("fields", Json::Kind::object).members) {
    if (value.kind != Json::Kind::string) throw Error("expected texts as \"fields\"");
    fields.emplace_back(name, value.text);
  }
  Manifest manifest{CacheKey(std::move(fields)), json.whole_at("created", -most, most), {}};
  if (manifest.key.hex() != json.string_at("key")) throw Error("its fields do not give its key");
  for (const auto& [name, value] : json.at("files", Json::Kind::object).members) {
    if (!is_file_name(name)) throw Error("a wrong file name");
    manifest.files[name] = {static_cast<uint64_t>(value.whole_at("bytes", 0, most)),
                            value.string_at("sha256")};
  }
  return manifest;
} catch (const Error& error) {
  throw Error(fmt::format("{}: {}", manifest_name, error.what()));
}

}  // namespace linnet
