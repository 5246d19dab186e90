// Kernels of GPUs: the two keys of the cache, and bundles compiled ahead.
#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "linnet/error.h"
#include "runtime/cache/cache.h"
#include "tests/driver/fixture.h"

using namespace linnet;
using namespace driver_test;

namespace {

struct Counts {
  int emitted = compiler().asked, compiled = compiled_by_nvrtc();
  // What was done since: sources written, kernels compiled.
  std::pair<int, int> since() const {
    return {compiler().asked - emitted, compiled_by_nvrtc() - compiled};
  }
};
using Done = std::pair<int, int>;

void build(const DeviceOptions& options = {}) { Device::open("cuda:0", options).build(problem()); }

// The module the last device loaded.
std::string loaded(const FakeDriver& driver) {
  for (const std::string& call : driver.calls())
    if (call.starts_with("cuModuleLoadData ")) return call.substr(17);
  return "none";
}

// The files of a bundle, or cache, that have a name.
std::vector<fs::path> files_named(const fs::path& root, const std::string& name) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().filename() == name) found.push_back(entry.path());
  return found;
}

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("kernels: a warm process asks neither compiler nor NVRTC; a changed source both") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  FakeDriver driver;
  Counts cold;
  build();
  CHECK(cold.since() == Done(1, 1));
  Counts warm;
  build();
  CHECK(warm.since() == Done(0, 0));
  Counts other;
  Device::open("cuda:0").build(problem(), {.chunk = 32});  // another problem, the same source
  CHECK(other.since() == Done(1, 0));
  fs::remove_all(directory.path);
  std::string before = compiler().source;
  compiler().source += "// changed\n";
  Counts changed;
  build();
  CHECK(changed.since() == Done(1, 1));
  compiler().source = before;
}

TEST_CASE(
    "kernels: the same NVRTC put elsewhere compiles nothing again; its version is in the key") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  FakeDriver driver;
  build();
  fs::create_directories(directory / "nvrtc");
  std::string copy = directory / "nvrtc/libnvrtc.so.13";
  fs::copy_file(FAKE_NVRTC, copy);
  Variable nvrtc("LINNET_NVRTC", copy);
  Counts moved;
  build();
  // Another file, so the short key is another; its version is the same, and so is the full key.
  CHECK(moved.since() == Done(1, 0));
  timespec times[2] = {{1, 0}, {1, 0}};
  REQUIRE(utimensat(AT_FDCWD, copy.c_str(), times, 0) == 0);
  Counts touched;
  build();
  CHECK(touched.since() == Done(1, 0));
  // The full key names the version that NVRTC tells of itself, and everything else.
  bool seen = false;
  for (const fs::path& manifest : files_named(directory / "cache", "manifest.json")) {
    std::string text = text_of(manifest);
    if (text.find("cuda code") == std::string::npos) continue;
    seen = true;
    for (const char* part : {"13.4.92", "sm_80", "\"source\"", "\"templates\"", "\"options\""})
      CHECK_MESSAGE(text.find(part) != std::string::npos, part);
  }
  CHECK(seen);
}

TEST_CASE("kernels: code that is gone or damaged is compiled again, and only that") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  FakeDriver driver;
  build();
  for (bool remove : {true, false}) {
    auto files = files_named(directory / "cache", "kernels.bin");
    REQUIRE(files.size() == 1);
    if (remove)
      fs::remove_all(files[0].parent_path());
    else
      std::ofstream(files[0]) << "spoilt";
    Counts counts;
    build();
    CHECK(counts.since() == Done(1, 1));
    Counts again;
    build();
    CHECK(again.since() == Done(0, 0));
  }
}

TEST_CASE("kernels: a GPU newer than NVRTC gets PTX for the newest there is") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  FakeDriver driver({.fail_at = -1, .major = 12, .minor = 0, .shared_bytes = 99 * 1024});
  auto says_so = [](const std::string& text) {
    return text.find("no code for sm_120, compute_90 is used, which the driver compiles") !=
           std::string::npos;
  };
  CHECK(says_so(logged([] { build(); })));
  CHECK(loaded(driver) == "some PTX");
  Counts warm;
  CHECK(says_so(logged([] { build(); })));
  CHECK(warm.since() == Done(0, 0));
}

TEST_CASE("kernels: spilled registers are a line in the log") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  FakeDriver driver;
  std::string before = compiler().source;
  compiler().source += "// many registers\n";
  CHECK(logged([] { build(); }) ==
        "linnet: fake_map for sm_80: registers do not suffice, 24 bytes are spilled\n");
  compiler().source = before;
}

TEST_CASE("bundle: a program runs from it without compiler and NVRTC, and writes nothing") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  Bundled made = compile_ahead(problem(), {}, "sm_80", directory / "bundle");
  CHECK(made.kernels == 2);
  CHECK(made.key.size() == 64);
  CHECK_FALSE(made.cached);
  CHECK(compile_ahead(problem(), {}, "sm_80", directory / "again").cached);
  fs::remove_all(directory / "cache");
  Variable jit("LINNET_JIT", "0");
  Variable nvrtc("LINNET_NVRTC", "/nowhere");
  FakeDriver driver;
  Counts counts;
  SUBCASE("by the API") { build({.bundles = {directory / "bundle"}}); }
  SUBCASE("by the environment") {
    Variable bundle("LINNET_BUNDLE", directory / "bundle");
    build();
  }
  SUBCASE("one of several") {
    fs::create_directories(directory / "empty");
    Variable bundle("LINNET_BUNDLE", (directory / "empty") + ":" + (directory / "bundle"));
    build();
  }
  CHECK(counts.since() == Done(0, 0));
  CHECK_FALSE(fs::exists(directory / "cache"));
}

TEST_CASE("bundle: a kernel that is not in it is an error with its key where nothing is compiled") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  std::string bundle = directory / "bundle";
  std::string key = compile_ahead(problem(), {.chunk = 32}, "sm_80", bundle).key;
  CHECK(key != compile_ahead(problem(), {}, "sm_90", bundle).key);
  FakeDriver driver;
  // Where it is compiled, the log says so.
  CHECK(logged([&] {
          build({.bundles = {bundle}});
        }).find("compiling what no bundle has: fake forward") != std::string::npos);
  fs::remove_all(directory / "cache");
  Variable jit("LINNET_JIT", "0");
  std::string message = message_of<DeviceError>([&] { build({.bundles = {bundle}}); });
  CHECK(message.starts_with("no kernel in a bundle or the cache for: fake forward K 16 V 16"));
  CHECK(message.find("chunk 16 for sm_80 (key ") != std::string::npos);
  CHECK(message.find("LINNET_JIT=0") != std::string::npos);
  // The same kernel, made by a Linnet of another build.
  Store store(bundle);
  CacheKey::Fields fields = store.read_manifest(key).key.fields();
  for (auto& [name, text] : fields) {
    if (name == "generator") text = "another";
    if (name == "what") text.replace(text.find("chunk 32"), 8, "chunk 16");
  }
  store.write(CacheKey(fields), *store.read(key).files);
  CHECK(message_of<DeviceError>([&] {
          build({.bundles = {bundle}});
        }).find("which a bundle has from another build of Linnet") != std::string::npos);
}

TEST_CASE("bundle: what a GPU can run of it, the best first") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  std::string bundle = directory / "bundle";
  std::string log;
  auto runs_on = [&](int major, int minor) {
    FakeDriver driver({.fail_at = -1, .major = major, .minor = minor, .shared_bytes = 99 * 1024});
    Variable jit("LINNET_JIT", "0");
    std::string error;
    log = logged([&] { error = message_of<DeviceError>([&] { build({.bundles = {bundle}}); }); });
    return error == "nothing was thrown" ? loaded(driver) : "none";
  };
  compile_ahead(problem(), {}, "sm_80", bundle);
  CHECK(runs_on(8, 0) == "a cubin:");
  CHECK(log == "");
  CHECK(runs_on(8, 9) == "a cubin:");  // of its generation, and older
  CHECK(log.find("no code for sm_89, sm_80 is used") != std::string::npos);
  CHECK(runs_on(9, 0) == "none");  // of another
  compile_ahead(problem(), {}, "compute_86", bundle);
  CHECK(runs_on(9, 0) == "some PTX");
  CHECK(log.find("compute_86 is used, which the driver compiles") != std::string::npos);
  CHECK(runs_on(12, 0) == "some PTX");
  CHECK(runs_on(8, 6) == "a cubin:");
}

TEST_CASE("bundle: truncated or tampered with, it is an error and never loaded") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  std::string bundle = directory / "bundle";
  compile_ahead(problem(), {}, "sm_80", bundle);
  FakeDriver driver;
  auto spoil = [&](const std::string& name, const std::string& expected, auto change) {
    CAPTURE(name);
    for (const fs::path& file : files_named(bundle, name)) {
      std::string text = text_of(file), spoilt = text;
      change(spoilt);
      std::ofstream(file, std::ios::binary) << spoilt;
      CHECK(text_of(file) != text);
      std::string message = message_of<DeviceError>([&] { build({.bundles = {bundle}}); });
      CHECK_MESSAGE(message.starts_with("bundle: "), message);
      CHECK_MESSAGE(message.find(expected) != std::string::npos, message);
      std::ofstream(file, std::ios::binary) << text;
    }
  };
  auto cut = [](std::string& text) { text.resize(text.size() / 2); };
  auto flip = [](std::string& text) { text[text.size() / 2] ^= 1; };
  spoil("kernels.bin", "bytes, got", cut);
  spoil("kernels.bin", "its digest is not the manifest's", flip);
  spoil("program.txt", "bytes, got", cut);
  spoil("program.txt", "its digest is not the manifest's", flip);
  spoil("image.txt", "its digest is not the manifest's", flip);
  spoil("manifest.json", "is damaged", cut);
  build({.bundles = {bundle}});  // whole again
  fs::remove_all(files_named(bundle, "kernels.bin")[0].parent_path());
  CHECK(message_of<DeviceError>([&] { build({.bundles = {bundle}}); }).find("which is not there") !=
        std::string::npos);
}

TEST_CASE("bundle: wrong targets, directories and sizes are refused") {
  Directory directory;
  Variable cache("LINNET_CACHE_DIR", directory / "cache");
  std::string bundle = directory / "bundle";
  auto refusal = [&](const std::string& target) {
    return message_of<Error>([&] { compile_ahead(problem(), {}, target, bundle); });
  };
  for (const char* target :
       {"", "80", "sm80", "sm_", "sm_8", "sm_80x", "sm_1234567", "virtual:sm_80"})
    CHECK(refusal(target) ==
          std::string("arch: expected sm_<number>, machine code, or compute_<number>, PTX; got '") +
              target + "'");
  CHECK(refusal("sm_85").starts_with("arch: expected one of sm_80, sm_86"));
  CHECK(refusal("sm_75").starts_with("arch: expected one of sm_80, sm_86"));
  // The fake NVRTC knows 80, 86 and 90.
  CHECK(refusal("sm_120").starts_with(
      "arch: expected sm_80, sm_86, sm_90, which NVRTC 13.4 compiles for; got sm_120: no such "
      "architecture, or "));
  compiler().shared_bytes = 120 * 1024;
  CHECK(refusal("sm_86") ==
        "fake_map: expected at most 101376 bytes of shared memory on sm_86, needs 122880");
  CHECK(refusal("sm_90") == "nothing was thrown");
  compiler().shared_bytes = 1000;
  CHECK(message_of<UserError>([&] { build({.bundles = {directory / "none"}}); }) ==
        "bundle: expected a directory made by `linnet compile`; got '" + (directory / "none") +
            "', which is none");
  std::ofstream(directory / "file") << "text";
  CHECK(message_of<DeviceError>([&] {
          compile_ahead(problem(), {}, "sm_80", directory / "file");
        }).starts_with("bundle: expected a directory that takes files"));
}
