// `linnet`: shows, checks, draws and times what is derived from a law.
#include <fmt/format.h>

#include "compiler/cli/commands.h"
#include "linnet/compiler.h"
#include "linnet/error.h"

int main(int argc, char** argv) {
  linnet::use_compiler(linnet_compiler());
  CLI::App app(
      "Linnet derives chunk-wise linear attention from the law of one token.\n"
      "  linnet list                              the recurrences it knows\n"
      "  linnet show kda --stage graph            the chunk algorithm derived for one\n"
      "  linnet show kda --stage backward         its gradients\n"
      "  linnet check kda                         hold both against a token-by-token reference\n"
      "  linnet draw kda -o kda.svg               a picture of the stages\n"
      "  linnet bench --compile                   how long the derivation takes\n"
      "  linnet compile kda --arch sm_90 -o dir   kernels compiled ahead, for GPUs elsewhere\n"
      "  linnet tune kda --budget 120s            find the best schedules for this machine\n"
      "  linnet profile kda                       what its kernels do on a GPU that need not be "
      "here\n"
      "  linnet cache list                        the compiled kernels kept on disk",
      "linnet");
  app.set_version_flag("--version", std::string("linnet ") + LINNET_VERSION);
  app.require_subcommand(1);
  linnet::cli::add_list(app);
  linnet::cli::add_show(app);
  linnet::cli::add_inspect(app);
  linnet::cli::add_check(app);
  linnet::cli::add_draw(app);
  linnet::cli::add_bench(app);
  linnet::cli::add_cache(app);
  linnet::cli::add_compile(app);
  linnet::cli::add_tune(app);
  linnet::cli::add_profile(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const linnet::cli::ExitCode& exit) {
    return exit.code;
  } catch (const linnet::InternalError& error) {
    fmt::print(stderr, "linnet: internal error, please report it: {}\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "linnet: {}\n", error.what());
    return 1;
  }
  return 0;
}
