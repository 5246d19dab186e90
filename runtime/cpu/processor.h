// The processor of this machine, as Linux describes it.
#pragma once

#include <string>
#include <string_view>

namespace linnet {

struct Processor {
  std::string vendor, family, model;
  std::string features;  // names between blanks; empty where the system tells none

  // Whether it has a feature; where nothing is known, it is taken to.
  bool has(std::string_view feature) const;
  std::string describe() const;  // everything, as text

  static const Processor& host();
};

}  // namespace linnet
