#include "compiler/cli/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <fstream>

#include "autotune/workload.h"
#include "compiler/cli/commands.h"
#include "linnet/compiler.h"
#include "linnet/error.h"
#include "ops/registry.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nvrtc.h"

namespace linnet::cli {

double Profile::seconds() const {
  double sum = 0;
  for (const ProfiledKernel& kernel : kernels) sum += kernel.cost.seconds;
  return sum;
}

double Profile::sum(double (vgpu::KernelCounts::*of)() const) const {
  double sum = 0;
  for (const ProfiledKernel& kernel : kernels) sum += (kernel.counts.*of)();
  return sum;
}

double Profile::flop() const {
  double sum = 0;
  for (const ProfiledKernel& kernel : kernels) sum += kernel.counts[LINNET_COUNT_FLOP];
  return sum;
}

double Profile::token_heads() const {
  return static_cast<double>(shape.sequences * shape.tokens * shape.value_heads);
}

std::string Profile::law() const {
  if (scaled_from.empty())
    return fmt::format("counted: the whole call was run, by the virtual GPU in {:.2f} s",
                       host_seconds);
  const char* law = cut ? "N H (a + b n + c m + d n m), n segments of m chunks," : "N H (a + b T)";
  std::string calls = fmt::format("scaled from calls on {} tokens, {} heads",
                                  fmt::join(scaled_from, ", "), small_heads);
  if (exact) return calls + fmt::format(": exact, the law {} held to the last digit", law);
  double worst = 0;
  for (const ProfiledKernel& kernel : kernels) worst = std::max(worst, kernel.error);
  return calls + fmt::format(": an estimate, the law {} was off by up to {:.2g} %{}", law,
                             100 * worst,
                             worst > 0 ? ""
                             : cut     ? " but the last segment is not whole"
                                       : " but the last chunk is not whole");
}

namespace {

void write_file(const std::string& option, const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush())
    throw UserError(
        fmt::format("--{}: expected a file that can be written, got '{}'", option, path));
}

struct ProfileCommand : GraphArguments {
  std::string device = "virtual:sm_90", gpu, plot, html;
  Shape shape{1, 8192, 96, 96};
  bool json = false, whole = false;

  void run() {
    check_arguments();
    ops::find(op);  // its error is better than the compiler's
    const Profile profile = take();
    fmt::print("{}", json ? profile_json(profile) : profile_table(profile));
    if (!plot.empty()) write_file("plot", plot, roofline(profile));
    if (!html.empty()) write_file("html", html, profile_page(profile));
  }

  void check_arguments() {
    auto at_least_one = [](const char* name, int64_t value) {
      if (value < 1) throw UserError(fmt::format("--{}: expected at least 1, got {}", name, value));
    };
    at_least_one("tokens", shape.tokens);
    at_least_one("batch", shape.batch);
    at_least_one("heads", shape.heads);
    if (!device.starts_with("virtual:sm_"))
      throw UserError(fmt::format("--device: expected virtual:sm_<arch>, got '{}'", device));
    shape.value_heads = shape.heads;
    // `finish` knows the directions that have a graph of their own.
    const bool decode = direction == "decode";
    if (decode) direction = "forward";
    finish();
    if (decode) options.direction = Direction::decode;
  }

  const vgpu::DeviceProfile& profile_of_gpu() const {
    const std::string name = gpu.empty() ? device.substr(8) : gpu;
    if (const auto* found = vgpu::find_profile(name)) return *found;
    std::string known;
    for (const auto& one : vgpu::device_profiles()) known += (known.empty() ? "" : ", ") + one.arch;
    throw UserError(fmt::format("--gpu: expected one of {}, got '{}'", known, name));
  }

  Profile take() {
    Profile profile{.op = op, .device = device, .gpu = profile_of_gpu()};
    const bool decode = options.direction == Direction::decode;
    const int64_t chunk = decode ? 1 : options.chunk_size;
    if (decode) schedule.chunk = 1;
    profile.what = fmt::format(
        "{}, {}, K = {}, V = {}{}{}", decode ? "decode" : direction, precision, problem.key_dim,
        problem.value_dim, decode ? "" : fmt::format(", chunk {}", chunk),
        schedule.segment ? fmt::format(", segments of {} tokens", schedule.segment) : "");
    profile.shape = {shape.batch, shape.tokens, shape.value_heads, schedule.segment};
    const Device gpu_device = Device::open(device);
    count(profile, gpu_device, chunk);
    add_resources(profile);
    for (ProfiledKernel& kernel : profile.kernels)
      kernel.cost = vgpu::model_cost(profile.gpu, kernel.counts, kernel.resources);
    return profile;
  }

  void count(Profile& profile, const Device& gpu_device, int64_t chunk) const {
    const auto gpu_handle = cuda::Device::open(device);
    const cuda::Driver& driver = gpu_handle->driver();
    const auto read = vgpu::launch_reader(driver.virtual_launches, driver.virtual_reset);
    const vgpu::Counting counting{
        [&](const vgpu::CallShape& call) {
          Schedule how = schedule;
          how.segment = call.segment;
          BuildOptions build{.direction = options.direction, .schedule = how};
          if (options.direction == Direction::decode && schedule_text.empty())
            build.schedule.reset();
          const Op built = gpu_device.build(problem, build);
          Workload work(gpu_device, built,
                        {call.sequences, call.tokens, call.value_heads, call.value_heads});
          const auto start = std::chrono::steady_clock::now();
          work.run();
          gpu_device.synchronise();
          profile.host_seconds =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        },
        [&] {
          profile.lines = driver.virtual_counts();
          return read();
        }};
    if (whole) {
      for (const auto& kernel : counting.count(profile.shape).kernels)
        profile.kernels.push_back({.counts = kernel});
      return;
    }
    const int64_t heads = 16;
    const auto scaled = vgpu::count_scaled(counting, profile.shape, chunk, heads);
    profile.exact = scaled.exact;
    profile.small_heads = std::min(heads, profile.shape.value_heads);
    for (const auto& call : vgpu::small_calls(profile.shape, chunk, heads))
      profile.scaled_from.push_back(call.tokens);
    profile.cut = schedule.segment > 0 && schedule.segment < shape.tokens;
    for (size_t i = 0; i < scaled.kernels.size(); ++i)
      profile.kernels.push_back({.counts = scaled.kernels[i], .error = scaled.errors[i]});
  }

  // What ptxas makes of the same source for the same architecture.
  void add_resources(Profile& profile) const {
    const std::string arch = device.substr(8);
    CudaProgram program = linnet_compiler()->emit({problem, options.direction, schedule});
    const std::string file = program.name + ".cu";
    const auto made = cuda::Nvrtc::get().compile_cubin(program.source, file, arch, program.headers,
                                                       {"--ptxas-options=-v"});
    for (ProfiledKernel& kernel : profile.kernels)
      kernel.resources = vgpu::resources_of(made.log, kernel.counts.kernel);
    profile.sources = std::move(program.headers);
    profile.sources[file] = program.source;
  }
};

}  // namespace

void add_profile(CLI::App& app) {
  auto profile = std::make_shared<ProfileCommand>();
  profile->options.chunk_size = 16;
  profile->precision = "bf16";
  CLI::App* command = app.add_subcommand(
      "profile",
      "count what an op's kernels do on a GPU that need not be here, and model their times\n"
      "  linnet profile kda --device virtual:sm_90 --tokens 8192 --heads 96\n"
      "  linnet profile gla --direction backward --html report.html --plot roofline.svg\n"
      "Counts come from the virtual GPU: small calls are run with all checks, and scaled where "
      "the\n"
      "law allows. Times are modelled, never measured (docs/virtual-gpu.md).");
  profile->add_to(*command);
  command->add_option("--direction", profile->direction, "forward, backward or decode")
      ->capture_default_str();
  command->add_option("--device", profile->device, "the virtual GPU the kernels are run on")
      ->capture_default_str();
  command->add_option("--gpu", profile->gpu,
                      "the GPU whose times are modelled, where it is not the one of --device");
  command->add_option("--batch", profile->shape.batch, "sequences")->capture_default_str();
  command->add_option("--tokens", profile->shape.tokens, "length of a sequence")
      ->capture_default_str();
  command->add_option("--heads", profile->shape.heads, "heads")->capture_default_str();
  command->add_flag("--whole", profile->whole,
                    "run the whole call instead of scaling small ones; takes its time");
  command->add_flag("--json", profile->json, "print JSON instead of tables");
  command->add_option("--plot", profile->plot, "draw the roofline into this .svg file");
  command->add_option("--html", profile->html,
                      "write a page with kernels, source lines and their counts into this file");
  command->callback([profile] { profile->run(); });
}

}  // namespace linnet::cli
