// An NVRTC that "compiles" by writing down what it was asked. FAKE_NVRTC_VERSION ("13.4.92") and
// FAKE_NVRTC_ARCHS ("80 90") say what it poses as.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Program {
  std::string source, name, log, image;
  bool cubin = false;
};

std::string variable(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text ? text : otherwise;
}

std::string version() { return variable("FAKE_NVRTC_VERSION", "13.4.92"); }

std::vector<int> architectures() {
  std::istringstream text(variable("FAKE_NVRTC_ARCHS", "80 86 90"));
  std::vector<int> numbers;
  for (int number; text >> number;) numbers.push_back(number);
  return numbers;
}

int compiled = 0;

int give(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 0;
}

}  // namespace

extern "C" {

int fake_nvrtc_compiled() { return compiled; }

int nvrtcVersion(int* major, int* minor) {
  std::sscanf(version().c_str(), "%d.%d", major, minor);
  return 0;
}
const char* nvrtcGetErrorString(int result) {
  return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OTHER";
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(architectures().size());
  return 0;
}
int nvrtcGetSupportedArchs(int* numbers) {
  for (int number : architectures()) *numbers++ = number;
  return 0;
}
int nvrtcCreateProgram(void** program, const char* source, const char* name, int,
                       const char* const*, const char* const*) {
  *program = new Program{source, name, "", ""};
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
  auto& program = *static_cast<Program*>(handle);
  std::string list;
  for (int i = 0; i < count; ++i) {
    list += std::string(options[i]) + " ";
    program.cubin |= std::strncmp(options[i], "--gpu-architecture=sm_", 22) == 0;
  }
  if (program.source.find("mistake") != std::string::npos) {
    program.log = program.name + "(2): error: a mistake";
    return 6;
  }
  if (!program.source.empty()) ++compiled;
  if (program.source.find("many registers") != std::string::npos)
    program.log =
        "ptxas info    : Compiling entry function 'fake_map' for 'sm_80'\n"
        "    16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers\n"
        "ptxas info    : Compiling entry function 'fake_scan' for 'sm_80'\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 31 registers, used 1 barriers\n";
  program.image = (program.cubin ? "a cubin: " : "some PTX: ") + list + program.source +
                  "\n// Cuda compilation tools, release 13.4, V" + version() + "\n";
  return 0;
}
int nvrtcGetPTXSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->image.size() + 1;
  return 0;
}
int nvrtcGetPTX(void* program, char* to) { return give(static_cast<Program*>(program)->image, to); }
int nvrtcGetCUBINSize(void* program, size_t* size) { return nvrtcGetPTXSize(program, size); }
int nvrtcGetCUBIN(void* program, char* to) { return nvrtcGetPTX(program, to); }
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* to) {
  return give(static_cast<Program*>(program)->log, to);
}

}  // extern "C"
