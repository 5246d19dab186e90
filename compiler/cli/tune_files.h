// `linnet tune show|export|import|merge|diff`: what is done with tuning files.
#pragma once

#include <CLI/CLI.hpp>

namespace linnet::cli {

void add_tune_files(CLI::App& tune);

}  // namespace linnet::cli
