// The list of recurrences, by name.
#pragma once

#include <string>
#include <vector>

#include "compiler/law.h"

namespace linnet::ops {

struct Entry {
  std::string name;
  LawFunction define;
};

const std::vector<Entry>& registry();
// Throws UserError with the known names if there is no such op.
const Entry& find(const std::string& name);

}  // namespace linnet::ops
