#include "ops/registry.h"

#include <fmt/format.h>

#include "linnet/error.h"

namespace linnet::ops {

#define OP(name) void name(Law& law);
#include "ops/list.def"
#undef OP

const std::vector<Entry>& registry() {
  static const std::vector<Entry> entries = {
#define OP(name) {#name, name},
#include "ops/list.def"
#undef OP
  };
  return entries;
}

const Entry& find(const std::string& name) {
  std::string known;
  for (const Entry& entry : registry()) {
    if (entry.name == name) return entry;
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  throw UserError(fmt::format("op: expected one of {}; got '{}'", known, name));
}

}  // namespace linnet::ops
