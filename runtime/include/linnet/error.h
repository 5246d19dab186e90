// The exceptions of the public API, by whose fault it is.
#pragma once

#include <stdexcept>
#include <string>

namespace linnet {

// Base of everything Linnet throws.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The caller's: a wrong argument, a law that has no chunk form, a file that does not parse.
struct UserError : Error {
  using Error::Error;
};

// The machine's: a missing driver or tool, no memory, a failing launch.
struct DeviceError : Error {
  using Error::Error;
};

// Ours: a bug in Linnet.
struct InternalError : Error {
  using Error::Error;
};

}  // namespace linnet
