#include "compiler/cli/sass.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "linnet/error.h"
#include "runtime/cuda/nvrtc.h"

namespace linnet::cli {

namespace {

// Opcodes begin with one of these. The first that fits counts: LDGSTS is cp.async, not LDG.
const std::vector<std::pair<std::string, std::vector<const char*>>> kClasses = {
    {"mma", {"HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "UTCHMMA"}},
    {"ldmatrix", {"LDSM", "STSM"}},
    {"async", {"LDGSTS", "LDGDEPBAR", "DEPBAR", "UBLKCP", "UTMALDG", "SYNCS"}},
    {"shared", {"LDS", "STS", "ATOMS"}},
    {"global", {"LDG", "STG", "LD.", "ST.", "ATOMG", "RED.", "REDG"}},
    {"local", {"LDL", "STL"}},
    {"barrier", {"BAR", "WARPSYNC", "MEMBAR"}},
    {"shuffle", {"SHFL", "REDUX", "VOTE", "MATCH"}},
    {"special", {"MUFU"}},
    {"float",
     {"FADD", "FMUL", "FFMA", "FSETP", "FSEL", "FMNMX", "F2F", "HADD", "HMUL", "HFMA", "HSET",
      "HMNMX", "FCHK", "FSET", "F2FP", "FRND", "I2F", "F2I"}},
    {"branch", {"BRA", "BRX", "EXIT", "CALL", "RET", "BSYNC", "BSSY", "BREAK", "JMP"}},
    {"integer", {""}},  // addresses, moves, predicates and whatever else there is
};

struct TemporaryFile {
  explicit TemporaryFile(const std::string& bytes) {
    path = (std::filesystem::temp_directory_path() / "linnet-XXXXXX").string();
    int file = mkstemp(path.data());
    bool written = file >= 0 &&
                   ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    if (file >= 0) ::close(file);
    if (!written) throw DeviceError(fmt::format("{}: cannot be written", path));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path.c_str()); }
  std::string path;
};

}  // namespace

bool has_disassembler() { return !cuda::cuda_tool("nvdisasm").empty(); }

void require_disassembler() {
  if (!has_disassembler())
    throw DeviceError(
        "nvdisasm: expected it in the Python environment, the CUDA toolkit or PATH, found none "
        "(pip install nvidia-cuda-nvdisasm)");
}

std::string sass_of(const std::string& cubin) {
  require_disassembler();
  TemporaryFile file(cubin);
  std::string command =
      fmt::format("'{}' -c '{}'", cuda::cuda_tool("nvdisasm").string(), file.path);
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw DeviceError(fmt::format("{}: cannot be started", command));
  std::string text;
  char part[4096];
  while (size_t bytes = fread(part, 1, sizeof part, pipe)) text.append(part, bytes);
  if (pclose(pipe) != 0) throw DeviceError(fmt::format("{}: failed", command));
  return text;
}

const std::vector<std::string>& instruction_classes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, opcodes] : kClasses) list.push_back(name);
    return list;
  }();
  return names;
}

// Lines of nvdisasm: ".text.kda_scan:" begins a kernel, "/*0010*/  @P0 LDG.E R2, ... ;" is an
// instruction.
std::map<std::string, InstructionMix> instruction_mix(const std::string& sass) {
  std::map<std::string, InstructionMix> kernels;
  InstructionMix* mix = nullptr;
  std::istringstream lines(sass);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(".text.") && line.ends_with(":"))
      mix = &kernels[line.substr(6, line.size() - 7)];
    size_t at = line.find("/*"), end = line.find("*/");
    if (!mix || at == std::string::npos || end == std::string::npos || !line.ends_with(";"))
      continue;
    std::istringstream words(line.substr(end + 2));
    std::string opcode;
    words >> opcode;
    if (opcode.starts_with("@")) words >> opcode;
    if (opcode == "NOP" || opcode.empty()) continue;  // what fills the last lines
    ++mix->total;
    for (const auto& [name, opcodes] : kClasses) {
      bool fits = false;
      for (const char* begin : opcodes) fits |= opcode.starts_with(begin);
      if (!fits) continue;
      ++mix->classes[name];
      break;
    }
  }
  return kernels;
}

}  // namespace linnet::cli
