// SHA-256 (FIPS 180-4): names cache entries and tells damaged files from whole ones.
#pragma once

#include <string>
#include <string_view>

namespace linnet {

// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

// The same without the processor's SHA instructions, so that tests reach it on every machine.
std::string sha256_hex_portable(std::string_view bytes);

}  // namespace linnet
