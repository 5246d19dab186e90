// Modules, libraries, functions and their attributes.
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "driver/boundary.h"
#include "driver/kernel_launch.h"
#include "exec/loader.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

// The binary formats other drivers accept begin with these bytes.
constexpr char kElf[] =
    "\x7f"
    "ELF";
constexpr unsigned kFatbinMagic = 0xba55ed50u;

void refuse_binary(const char* image) {
  unsigned magic = 0;
  std::memcpy(&magic, image, 4);
  if (std::memcmp(image, kElf, 4) == 0 || magic == kFatbinMagic)
    throw DriverError(CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "the virtual GPU executes PTX; this image is machine code. Compile to PTX.");
}

ModuleHandle* load_module(State& state, const void* image) {
  if (!image) invalid_value("image is null");
  const auto* text = static_cast<const char*>(image);
  refuse_binary(text);
  auto handle = std::make_unique<ModuleHandle>();
  handle->program = load_program(std::string_view(text), *state.memory);
  const int needed = std::atoi(handle->program->module.target.c_str() +
                               std::min<size_t>(3, handle->program->module.target.size()));
  if (needed > state.profile->major * 10 + state.profile->minor)
    throw DriverError(CUDA_ERROR_NO_BINARY_FOR_GPU,
                      fmt::format("the module is for {}, the device is {}",
                                  handle->program->module.target, state.profile->arch));
  for (const auto& code : handle->program->codes) {
    if (!code->is_entry) continue;
    auto function = std::make_unique<FunctionHandle>();
    function->module = handle.get();
    function->code = code.get();
    handle->functions[code->name] = std::move(function);
  }
  state.modules.insert(handle.get());
  return handle.release();
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DriverError(CUDA_ERROR_FILE_NOT_FOUND, fmt::format("cannot open '{}'", path));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void unload(State& state, ModuleHandle* module) {
  checked(state.modules, module, "module");
  state.modules.erase(module);
  delete module;
}

FunctionHandle* find_function(State& state, ModuleHandle* module, const char* name) {
  checked(state.modules, module, "module");
  const auto found = module->functions.find(std::string_view(&required(name, "name")));
  if (found == module->functions.end())
    throw DriverError(CUDA_ERROR_NOT_FOUND, fmt::format("the module has no kernel '{}'", name));
  return found->second.get();
}

void find_global(State& state, ModuleHandle* module, const char* name, CUdeviceptr* address,
                 size_t* bytes) {
  checked(state.modules, module, "module");
  const auto& globals = module->program->globals;
  const auto found = globals.find(std::string_view(&required(name, "name")));
  if (found == globals.end())
    throw DriverError(CUDA_ERROR_NOT_FOUND, fmt::format("the module has no variable '{}'", name));
  if (address) *address = found->second.address;
  if (bytes) *bytes = found->second.bytes;
}

FunctionHandle& known_function(State& state, FunctionHandle* function) {
  required(function, "function");
  if (!state.modules.count(function->module))
    throw DriverError(CUDA_ERROR_INVALID_HANDLE, "not a valid function handle");
  return *function;
}

int function_attribute(const State& state, const FunctionHandle& function, int attribute) {
  const Code& code = *function.code;
  const int arch = state.profile->major * 10 + state.profile->minor;
  switch (attribute) {
    case 0:
      return max_threads(code);
    case 1:
      return static_cast<int>(code.static_shared);
    case 2:
      return 0;
    case 3:
      return static_cast<int>(code.local_bytes);
    case 4:
      return estimated_registers(code);
    case 5:
      return arch;
    case 6:
      return arch;
    case 7:
      return 0;
    case 8:
      return function.max_dynamic_shared ? function.max_dynamic_shared
                                         : state.profile->shared_per_block;
    case 9:
      return function.carveout;
    default:
      if (attribute < 0 || attribute > 15)
        invalid_value("unknown function attribute " + std::to_string(attribute));
      return 0;
  }
}

void set_function_attribute(const State& state, FunctionHandle& function, int attribute,
                            int value) {
  if (attribute == 8) {
    const int room =
        state.profile->shared_per_block_optin - static_cast<int>(function.code->static_shared);
    if (value < 0 || value > room)
      invalid_value(
          fmt::format("{} bytes of dynamic shared memory; there is room for {}", value, room));
    function.max_dynamic_shared = value;
  } else if (attribute == 9) {
    function.carveout = value;
  } else {
    invalid_value("attribute " + std::to_string(attribute) + " cannot be set");
  }
}

void param_info(const FunctionHandle& function, size_t index, size_t* offset, size_t* size) {
  if (index >= function.code->param_sizes.size()) invalid_value("no such parameter");
  if (offset) *offset = function.code->param_offsets[index];
  if (size) *size = function.code->param_sizes[index];
}

}  // namespace

VGPU_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return guarded_context("cuModuleLoadData", [&](State& state) {
    required(module, "module") = load_module(state, image);
  });
}

VGPU_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                                     int* options, void** values) {
  const CUresult result = cuModuleLoadData(module, image);
  // 5 and 6 are the error log and its size: the one option that says something here.
  char* log = nullptr;
  size_t size = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == 5) log = static_cast<char*>(values[i]);
    if (options[i] == 6) size = reinterpret_cast<size_t>(values[i]);
  }
  if (result != CUDA_SUCCESS && log && size > 0)
    std::snprintf(log, size, "%s", State::get().last_error.c_str());
  return result;
}

VGPU_API CUresult cuModuleLoad(CUmodule* module, const char* path) {
  return guarded_context("cuModuleLoad", [&](State& state) {
    const std::string text = read_file(&required(path, "path"));
    required(module, "module") = load_module(state, text.c_str());
  });
}

VGPU_API CUresult cuModuleUnload(CUmodule module) {
  return guarded_context("cuModuleUnload", [&](State& state) { unload(state, module); });
}

VGPU_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return guarded_context("cuModuleGetFunction", [&](State& state) {
    required(function, "function") = find_function(state, module, name);
  });
}

VGPU_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                       const char* name) {
  return guarded_context("cuModuleGetGlobal",
                         [&](State& state) { find_global(state, module, name, address, bytes); });
}

VGPU_API CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return guarded_context("cuModuleGetFunctionCount", [&](State& state) {
    required(count, "count") =
        static_cast<unsigned>(checked(state.modules, module, "module").functions.size());
  });
}

VGPU_API CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count,
                                             CUmodule module) {
  return guarded_context("cuModuleEnumerateFunctions", [&](State& state) {
    unsigned i = 0;
    for (const auto& [name, function] : checked(state.modules, module, "module").functions)
      if (i < count) functions[i++] = function.get();
  });
}

VGPU_API CUresult cuModuleGetLoadingMode(int* mode) {
  return guarded("cuModuleGetLoadingMode", [&](State&) { required(mode, "mode") = 1; });
}

VGPU_API CUresult cuLibraryLoadData(CUlibrary* library, const void* image, int*, void**, unsigned,
                                    int*, void**, unsigned) {
  return guarded_device("cuLibraryLoadData", [&](State& state) {
    required(library, "library") = load_module(state, image);
  });
}

VGPU_API CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, int*, void**,
                                        unsigned, int*, void**, unsigned) {
  return guarded_device("cuLibraryLoadFromFile", [&](State& state) {
    const std::string text = read_file(&required(path, "path"));
    required(library, "library") = load_module(state, text.c_str());
  });
}

VGPU_API CUresult cuLibraryUnload(CUlibrary library) {
  return guarded_device("cuLibraryUnload", [&](State& state) { unload(state, library); });
}

VGPU_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return guarded_device("cuLibraryGetKernel", [&](State& state) {
    required(kernel, "kernel") = find_function(state, library, name);
  });
}

VGPU_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return guarded_device("cuLibraryGetModule", [&](State& state) {
    required(module, "module") = &checked(state.modules, library, "library");
  });
}

VGPU_API CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                                     const char* name) {
  return guarded_device("cuLibraryGetGlobal",
                        [&](State& state) { find_global(state, library, name, address, bytes); });
}

VGPU_API CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return cuModuleGetFunctionCount(count, library);
}

VGPU_API CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return cuModuleEnumerateFunctions(kernels, count, library);
}

VGPU_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return guarded_context("cuKernelGetFunction", [&](State& state) {
    required(function, "function") = &known_function(state, kernel);
  });
}

VGPU_API CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  return guarded_device("cuKernelGetLibrary", [&](State& state) {
    required(library, "library") = known_function(state, kernel).module;
  });
}

VGPU_API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  return guarded_device("cuFuncGetAttribute", [&](State& state) {
    required(value, "value") =
        function_attribute(state, known_function(state, function), attribute);
  });
}

VGPU_API CUresult cuKernelGetAttribute(int* value, int attribute, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(value, attribute, kernel);
}

VGPU_API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  return guarded_device("cuFuncSetAttribute", [&](State& state) {
    set_function_attribute(state, known_function(state, function), attribute, value);
  });
}

VGPU_API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice) {
  return cuFuncSetAttribute(kernel, attribute, value);
}

VGPU_API CUresult cuFuncSetCacheConfig(CUfunction function, int) {
  return guarded_device("cuFuncSetCacheConfig",
                        [&](State& state) { known_function(state, function); });
}

VGPU_API CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  return guarded_device("cuFuncGetModule", [&](State& state) {
    required(module, "module") = known_function(state, function).module;
  });
}

VGPU_API CUresult cuFuncGetName(const char** name, CUfunction function) {
  return guarded_device("cuFuncGetName", [&](State& state) {
    required(name, "name") = known_function(state, function).code->name.c_str();
  });
}

VGPU_API CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return cuFuncGetName(name, kernel);
}

VGPU_API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                     size_t* size) {
  return guarded_device("cuFuncGetParamInfo", [&](State& state) {
    param_info(known_function(state, function), index, offset, size);
  });
}

VGPU_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset,
                                       size_t* size) {
  return cuFuncGetParamInfo(kernel, index, offset, size);
}

VGPU_API CUresult cuFuncIsLoaded(int* loaded, CUfunction function) {
  return guarded_device("cuFuncIsLoaded", [&](State& state) {
    known_function(state, function);
    required(loaded, "state") = 1;
  });
}

VGPU_API CUresult cuFuncLoad(CUfunction function) {
  return guarded_device("cuFuncLoad", [&](State& state) { known_function(state, function); });
}
