#include "runtime/cuda/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "generator_id.h"
#include "runtime/cuda/architectures.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/log.h"
#include "runtime/plugin.h"
#include "runtime/tuning/defaults.h"

namespace linnet {

namespace {

constexpr const char* kImage = "image.txt";  // "sm_90 <key>": where the code is
constexpr const char* kProgram = "program.txt";
constexpr const char* kCode = "kernels.bin";
constexpr const char* kLog = "compiler.log";

bool is_ptx(const std::string& target) { return target.starts_with("compute_"); }

// A bundle belongs to no NVRTC: who runs it may have none.
CacheKey program_key(const std::string& what, const std::string& target,
                     const std::string& nvrtc = "") {
  CacheKey::Fields fields = {
      {"kind", "cuda program"}, {"what", what}, {"target", target}, {"generator", kGeneratorId}};
  if (!nvrtc.empty()) fields.emplace_back("nvrtc", nvrtc);
  return CacheKey(fields);
}

std::vector<std::string> options_for(const std::string& target) {
  // The emitted lines are named in what the virtual GPU finds.
  if (is_ptx(target)) return {"--generate-line-info"};
  // ptxas tells registers and spills. Kernels are compiled in parallel, a thread each.
  std::vector<std::string> options = {"--ptxas-options=-v"};
  if (cuda::Nvrtc::get().can_split()) options.push_back("--split-compile=0");
  return options;
}

CacheKey image_key(const CudaProgram& program, const std::string& target,
                   const std::string& nvrtc) {
  std::string templates;
  for (const auto& [name, text] : program.headers)
    templates += fmt::format("{} {}\n{}\n", name, text.size(), text);
  return CacheKey({{"kind", "cuda code"},
                   {"name", program.name},
                   {"target", target},
                   {"nvrtc", nvrtc},
                   {"options", fmt::format("{}", fmt::join(options_for(target), " "))},
                   {"source", program.source},
                   {"templates", templates}});
}

Files program_files(const CudaProgram& program, const std::string& target, const CacheKey& image) {
  return {{kProgram, program.describe()}, {kImage, fmt::format("{} {}", target, image.hex())}};
}

std::pair<std::string, std::string> target_and_key(const std::string& text) {
  size_t space = std::min(text.find(' '), text.size());
  return {text.substr(0, space), text.substr(std::min(space + 1, text.size()))};
}

CudaImage image_of(Files& program, Files& image, const CacheKey& key) {
  return {CudaProgram::parse(program[kProgram]), std::move(image[kCode]), std::move(image[kLog]),
          key.hex()};
}

Files compile(const CudaProgram& program, const std::string& target, const std::string& what) {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  auto start = std::chrono::steady_clock::now();
  std::string file = program.name + ".cu", code, log;
  if (is_ptx(target)) {
    code = nvrtc.compile(program.source, file, target, program.headers, options_for(target));
  } else {
    auto made =
        nvrtc.compile_cubin(program.source, file, target, program.headers, options_for(target));
    code = std::move(made.image);
    log = std::move(made.log);
  }
  std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  log_debug("compiled {} for {} in {:.0f} ms", what, target, taken.count());
  for (const CudaKernel& kernel : program.kernels)
    if (int bytes = cuda::resources_of(log, kernel.name).spilled; bytes > 0)
      log_info("{} for {}: registers do not suffice, {} bytes are spilled", kernel.name, target,
               bytes);
  return {{kCode, code}, {kLog, log}, {file, program.source}};
}

// What a GPU can run, the best first: its own machine code, that of an older one of its generation,
// PTX. PTX for the executor, which knows nothing else.
std::vector<std::string> targets_for(const std::string& arch, bool is_virtual) {
  int number = cuda::architecture_number(arch);
  std::vector<std::string> machine, ptx;
  for (const cuda::Architecture& a : cuda::architectures()) {
    if (a.number > number) continue;
    if (a.number / 10 == number / 10) machine.push_back(fmt::format("sm_{}", a.number));
    ptx.push_back(fmt::format("compute_{}", a.number));
  }
  std::reverse(machine.begin(), machine.end());
  std::reverse(ptx.begin(), ptx.end());
  if (is_virtual) return ptx;
  machine.insert(machine.end(), ptx.begin(), ptx.end());
  return machine;
}

void log_if_another(const std::string& target, const std::string& arch, bool is_virtual,
                    const std::string& what) {
  int number = cuda::architecture_number(arch);
  if (target == fmt::format("{}_{}", is_virtual ? "compute" : "sm", number)) return;
  log_info("{}: no code for {}, {} is used{}", what, arch, target,
           is_ptx(target) && !is_virtual ? ", which the driver compiles when it is loaded" : "");
}

// The target, or PTX for an older GPU where NVRTC does not know it.
std::string known_target(const cuda::Nvrtc& nvrtc, const std::string& target) {
  if (nvrtc.knows(target)) return target;
  int number = cuda::architecture_number(target);
  std::vector<int> older;
  for (int known : nvrtc.architectures())
    if (known < number && known >= cuda::kOldestArchitecture) older.push_back(known);
  if (older.empty()) nvrtc.check(target);  // which throws
  return fmt::format("compute_{}", older.back());
}

}  // namespace

CudaRequest cuda_request(const Problem& problem, const BuildOptions& options) {
  auto refuse = [](const char* name, const char* expected, const std::string& given) {
    throw UserError(fmt::format("{}: expected {} on a GPU, got {}", name, expected, given));
  };
  if (!options.target_cpu.empty()) refuse("target_cpu", "nothing", options.target_cpu);
  auto wished = wished_schedule(DeviceKind::gpu, problem, options);
  return {problem, options.direction,
          wished ? *wished : default_schedule(DeviceKind::gpu, problem, options.direction)};
}

std::optional<CudaImage> CudaKernels::find_in_bundles(const std::string& what,
                                                      const std::string& arch, bool is_virtual) {
  if (!cache_.has_bundles()) return std::nullopt;
  for (const std::string& target : targets_for(arch, is_virtual)) {
    CacheKey key = program_key(what, target);
    auto program = cache_.find_in_bundles(key.hex());
    if (!program) continue;
    std::string image_key = target_and_key((*program)[kImage]).second;
    auto image = cache_.find_in_bundles(image_key);
    if (!image)
      throw DeviceError(fmt::format("bundle: entry {} names the code {}, which is not there: {}",
                                    key.hex(), image_key, what));
    log_if_another(target, arch, is_virtual, what);
    return image_of(*program, *image, key);
  }
  return std::nullopt;
}

bool CudaKernels::is_in_bundles_of_another_build(const std::string& what) const {
  for (const CacheKey::Fields& fields : cache_.bundled()) {
    auto has = [&](const char* name, const std::string& text) {
      return std::find(fields.begin(), fields.end(), std::pair(std::string(name), text)) !=
             fields.end();
    };
    if (has("kind", "cuda program") && has("what", what) && !has("generator", kGeneratorId))
      return true;
  }
  return false;
}

CudaKernels::Built CudaKernels::build(const CudaRequest& request, const std::string& target,
                                      const CacheKey& key) {
  std::string what = request.describe();
  std::string missing = fmt::format("{} for {} (key {})", what, target, key.hex());
  if (cache_.has_bundles() && is_in_bundles_of_another_build(what))
    missing += ", which a bundle has from another build of Linnet";
  Compiler& compiler = compiler_for(missing);
  if (cache_.has_bundles()) log_info("compiling what no bundle has: {}", missing);
  CudaProgram program = compiler.emit(request);
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  std::string known = known_target(nvrtc, target);
  CacheKey image = image_key(program, known, nvrtc.full_version());
  bool cached = true;
  Files files = cache_.find_or_build(image, [&] {
    cached = false;
    return compile(program, known, what);
  });
  return {std::move(program),     known, image, std::move(files[kCode]),
          std::move(files[kLog]), cached};
}

CudaImage CudaKernels::load(const CudaRequest& request, const std::string& arch, bool is_virtual) {
  std::string what = request.describe();
  int number = cuda::architecture_number(arch);
  if (number < cuda::kOldestArchitecture)
    throw DeviceError(fmt::format("device: expected a GPU of sm_{} or later, got {}",
                                  cuda::kOldestArchitecture, arch));
  if (auto bundled = find_in_bundles(what, arch, is_virtual)) return *std::move(bundled);
  std::string target = fmt::format("{}_{}", is_virtual ? "compute" : "sm", number);
  CacheKey key = program_key(what, target, cuda::nvrtc_identity());
  std::optional<Built> built;
  Files program = cache_.find_or_build(key, [&] {
    built = build(request, target, key);
    return program_files(built->program, built->target, built->image);
  });
  auto [used, image_key] = target_and_key(program[kImage]);
  log_if_another(used, arch, is_virtual, what);
  auto from = [&](Built& made) -> CudaImage {
    return {std::move(made.program), std::move(made.code), std::move(made.log), key.hex(), false};
  };
  if (built) return from(*built);
  if (auto image = cache_.find(image_key)) return image_of(program, *image, key);
  // The code alone was removed from the cache, or damaged.
  built = build(request, target, key);
  return from(*built);
}

Bundled CudaKernels::add_to(const Store& bundle, const CudaRequest& request,
                            const std::string& target) {
  const cuda::Architecture& architecture = cuda::find_architecture(target);
  CacheKey key = program_key(request.describe(), target);
  cuda::Nvrtc::get().check(target);  // nothing else will do in a bundle
  Built built = build(request, target, key);
  for (const CudaKernel& kernel : built.program.kernels)
    if (kernel.shared_bytes > architecture.shared_per_block)
      throw DeviceError(fmt::format(
          "{}: expected at most {} bytes of shared memory on sm_{}, needs {}", kernel.name,
          architecture.shared_per_block, architecture.number, kernel.shared_bytes));
  std::string file = built.program.name + ".cu";
  bundle.write(built.image, {{kCode, built.code}, {kLog, built.log}, {file, built.program.source}});
  bundle.write(key, program_files(built.program, target, built.image));
  return {key.hex(), static_cast<int>(built.program.kernels.size()), built.code.size(),
          built.cached};
}

Bundled compile_ahead(const Problem& problem, const BuildOptions& options,
                      const std::string& target, const std::filesystem::path& bundle) {
  cuda::find_architecture(target);
  CudaRequest request = cuda_request(problem, options);
  Cache::Options cache;
  cache.bundles.clear();
  try {
    return CudaKernels(cache).add_to(Store(std::filesystem::absolute(bundle)), request, target);
  } catch (const std::system_error& error) {
    throw DeviceError(fmt::format("bundle: expected a directory that takes files; {}: {}",
                                  bundle.string(), error.what()));
  }
}

}  // namespace linnet
