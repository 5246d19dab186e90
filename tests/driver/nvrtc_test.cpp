// Where NVRTC is looked for, and which one will not do.
#include <dlfcn.h>

#include <fstream>

#include "linnet/error.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/driver/fixture.h"

using namespace linnet;
using namespace driver_test;

namespace {

// An NVRTC that only has a name.
std::string put(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << "not a library";
  return path;
}

}  // namespace

TEST_CASE("nvrtc: LINNET_NVRTC, then Python's wheels, then the toolkit") {
  Directory directory;
  Variable home("CUDA_HOME", directory / "toolkit");
  std::string toolkit = put(directory / "toolkit/lib64/libnvrtc.so.12");
  {
    // This environment's own wheels may come before the toolkit; nothing else does.
    Variable none("VIRTUAL_ENV", directory / "none");
    unsetenv("LINNET_NVRTC");
    std::string found = cuda::nvrtc_library().string();
    CHECK((found == toolkit || found.find("site-packages/nvidia") != std::string::npos));
    setenv("LINNET_NVRTC", FAKE_NVRTC, 1);
  }
  Variable environment("VIRTUAL_ENV", directory / "venv");
  std::string site = "venv/lib/python3.11/site-packages/nvidia/";
  std::string twelve = put(directory / (site + "cuda_nvrtc/lib/libnvrtc.so.12"));
  put(directory / (site + "cuda_nvrtc/lib/libnvrtc.alt.so.12"));
  put(directory / (site + "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9"));
  unsetenv("LINNET_NVRTC");
  CHECK(cuda::nvrtc_library() == twelve);
  std::string thirteen = put(directory / (site + "cu13/lib/libnvrtc.so.13"));
  CHECK(cuda::nvrtc_library() == thirteen);
  setenv("LINNET_NVRTC", FAKE_NVRTC, 1);
  CHECK(cuda::nvrtc_library() == FAKE_NVRTC);
  Variable folder("LINNET_NVRTC", fs::path(twelve).parent_path().string());
  CHECK(cuda::nvrtc_library() == twelve);
}

TEST_CASE("nvrtc: one that is not where LINNET_NVRTC says is not looked for elsewhere") {
  Directory directory;
  for (const std::string& place : {std::string("/nowhere/libnvrtc.so"), directory.path.string()}) {
    Variable chosen("LINNET_NVRTC", place);
    CHECK(message_of<DeviceError>([] { cuda::nvrtc_library(); }) ==
          "LINNET_NVRTC: expected the library libnvrtc.so or the folder it is in; got '" + place +
              "', where none is");
    CHECK(cuda::nvrtc_identity() == "none");
  }
}

TEST_CASE("nvrtc: no library, another library, or an old one is refused by name") {
  Directory directory;
  std::string file = put(directory / "libnvrtc.so.13");
  CHECK(message_of<DeviceError>([&] {
          cuda::Nvrtc nvrtc(file);
        }).starts_with(file + ": expected a library that loads"));
  CHECK(message_of<DeviceError>([&] { cuda::Nvrtc nvrtc("libm.so.6"); }) ==
        "libm.so.6: expected a function nvrtcVersion, found none");
  Variable version("FAKE_NVRTC_VERSION", "11.8.89");
  CHECK(message_of<DeviceError>([&] {
          cuda::Nvrtc nvrtc(FAKE_NVRTC);
        }).starts_with("NVRTC: expected version 12.0 or later, got 11.8 in " FAKE_NVRTC));
}

TEST_CASE("nvrtc: its full version, and the architectures it knows") {
  Variable version("FAKE_NVRTC_VERSION", "12.3.45"), archs("FAKE_NVRTC_ARCHS", "80 90");
  cuda::Nvrtc nvrtc(FAKE_NVRTC);
  CHECK(nvrtc.version() == "12.3");
  CHECK(nvrtc.full_version() == "12.3.45");
  CHECK(nvrtc.knows("sm_90"));
  CHECK(nvrtc.knows("compute_80"));
  CHECK_FALSE(nvrtc.knows("sm_100"));
  CHECK(message_of<DeviceError>([&] { nvrtc.compile_cubin("", "x.cu", "sm_100", {}); }) ==
        "arch: expected sm_80, sm_90, which NVRTC 12.3 compiles for; got sm_100: no such "
        "architecture, or " FAKE_NVRTC " is too old for it");
  CHECK(message_of<DeviceError>([&] { nvrtc.compile("", "x.cu", "sm_70", {}); }) ==
        "arch: expected sm_80, sm_90, which NVRTC 12.3 compiles for; got compute_70");
  CHECK(message_of<DeviceError>([&] {
          nvrtc.compile("one\na mistake\n", "x.cu", "sm_80", {});
        }).find("line 2: a mistake\nx.cu(2): error: a mistake") != std::string::npos);
}

TEST_CASE("nvrtc: the built-ins beside it are in the process before they are asked for") {
  Directory directory;
  std::string library = directory / "libnvrtc.so.13",
              builtins = directory / "libnvrtc-builtins.so.13.4";
  fs::copy_file(FAKE_NVRTC, library);
  fs::copy_file(FAKE_CUDA, builtins);
  CHECK_FALSE(dlopen(builtins.c_str(), RTLD_NOW | RTLD_NOLOAD));
  cuda::Nvrtc nvrtc(library);
  CHECK(dlopen(builtins.c_str(), RTLD_NOW | RTLD_NOLOAD));
}
