// Machine code of a GPU as text, through NVIDIA's disassembler, and what it is made of.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace linnet::cli {

// Throws DeviceError that says where nvdisasm comes from, if it is not on this machine.
void require_disassembler();
bool has_disassembler();

// The kernels of a cubin as nvdisasm prints them.
std::string sass_of(const std::string& cubin);

// How many instructions of each class a kernel has, as written; how often each runs is not known.
struct InstructionMix {
  int total = 0;
  std::map<std::string, int> classes;
};
// The classes, in the order they are printed.
const std::vector<std::string>& instruction_classes();
// Of every kernel in the text of sass_of.
std::map<std::string, InstructionMix> instruction_mix(const std::string& sass);

}  // namespace linnet::cli
