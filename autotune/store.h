// Writes tuning files so that several processes can, and one that dies harms nothing.
#pragma once

#include "runtime/tuning/file.h"

namespace linnet::autotune {

// Adds entries to the file at a path, in place of those for the same; other entries stay, and so do
// the commands that made them (`made_by`). The file is replaced in one step, under a lock. One that
// cannot be read is kept under another name, with a line in the log. Throws DeviceError if nothing
// can be written there.
void update_tuning_file(const std::filesystem::path& path, const std::string& architecture,
                        const std::vector<TuningEntry>& entries, const std::string& made_by);

// Writes a file anew, in one step. Throws DeviceError.
void write_tuning_file(const std::filesystem::path& path, const TuningFile& file);

}  // namespace linnet::autotune
