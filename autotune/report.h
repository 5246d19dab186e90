// What a search saw, drawn: every candidate's time, with the best and the default marked.
#pragma once

#include <filesystem>

#include "autotune/tuner.h"

namespace linnet::autotune {

// A picture, or with the ending .html a page with the pictures and every number. Throws UserError
// for another ending or a file that cannot be written.
void write_report(const std::filesystem::path& path, const std::vector<Tuned>& tuned);

}  // namespace linnet::autotune
