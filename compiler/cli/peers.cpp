#include "compiler/cli/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

namespace linnet::cli {

namespace fs = std::filesystem;

std::unique_ptr<Peers> Peers::start(int threads, std::string& why) {
  fs::path root = LINNET_SOURCE_DIR, script = root / "python/bench/peers.py";
  fs::path python = root / ".venv/bin/python";
  if (!fs::exists(script) || !fs::exists(python)) {
    why = fmt::format("no {} or {}", script.string(), python.string());
    return nullptr;
  }
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    why = "no pipe";
    return nullptr;
  }
  signal(SIGPIPE, SIG_IGN);  // a server that died is seen by what it does not answer
  std::string count = std::to_string(threads);
  int process = fork();
  if (process == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    execl(python.c_str(), python.c_str(), script.c_str(), "--threads", count.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  std::unique_ptr<Peers> peers(new Peers(process, to[1], from[0]));
  auto hello = peers->read_line(120);
  if (!hello || hello->find("\"ready\"") == std::string::npos) {
    why = "python/bench/peers.py does not start: " + hello.value_or("no answer");
    return nullptr;
  }
  return peers;
}

Peers::~Peers() {
  close(to_);
  close(from_);
  kill(process_, SIGTERM);
  waitpid(process_, nullptr, 0);
}

std::optional<std::string> Peers::read_line(double limit_s) {
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  for (;;) {
    if (size_t at = buffer_.find('\n'); at != std::string::npos) {
      std::string line = buffer_.substr(0, at);
      buffer_.erase(0, at + 1);
      return line;
    }
    double left = std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
    pollfd wait{from_, POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left * 1000) + 1) <= 0) return std::nullopt;
    char bytes[4096];
    ssize_t count = read(from_, bytes, sizeof bytes);
    if (count <= 0) return std::nullopt;
    buffer_.append(bytes, count);
  }
}

llvm::json::Object Peers::ask(llvm::json::Object question, double limit_s) {
  std::string text = llvm::formatv("{0}", llvm::json::Value(std::move(question))).str() + "\n";
  llvm::json::Object failed{{"error", "the peers' server does not answer"}};
  if (write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return failed;
  auto line = read_line(limit_s);
  if (!line) return failed;
  auto value = llvm::json::parse(*line);
  if (!value) {
    llvm::consumeError(value.takeError());
    return failed;
  }
  auto* object = value->getAsObject();
  return object ? std::move(*object) : failed;
}

double Peers::matmul_ms(double limit_s) {
  llvm::json::Object question{{"do", "mm"}, {"limit_s", limit_s}};
  return ask(std::move(question), 120).getNumber("ms").value_or(0);
}

double Peers::scale_bandwidth(int64_t bytes, double limit_s) {
  llvm::json::Object question{{"do", "scale"}, {"bytes", bytes}, {"limit_s", limit_s}};
  return ask(std::move(question), 120).getNumber("gb_per_s").value_or(0) * 1e9;
}

std::vector<std::string> Peers::names(const std::string& op, const std::string& direction) {
  if (!list_) list_ = ask(llvm::json::Object{{"do", "list"}}, 120);
  std::vector<std::string> names;
  auto* ops = list_->getObject("ops");
  auto* directions = ops ? ops->getObject(op) : nullptr;
  if (auto* found = directions ? directions->getArray(direction) : nullptr)
    for (const auto& name : *found)
      if (auto text = name.getAsString()) names.push_back(text->str());
  return names;
}

Peers::Time Peers::time(const std::string& peer, const std::string& op,
                        const std::string& direction, const Shape& shape, const Problem& problem,
                        double give_up_s) {
  auto answer = ask(llvm::json::Object{{"do", "time"},
                                       {"op", op},
                                       {"peer", peer},
                                       {"direction", direction},
                                       {"batch", shape.batch},
                                       {"tokens", shape.tokens},
                                       {"heads", shape.heads},
                                       {"value_heads", shape.value_heads},
                                       {"key_dim", problem.key_dim},
                                       {"value_dim", problem.value_dim},
                                       {"dtype", name_of(problem.dtype)},
                                       {"limit_s", 5},
                                       {"give_up_s", give_up_s}},
                    give_up_s + 60);
  Time time{.peer = peer};
  time.ms = answer.getNumber("ms").value_or(0);
  time.compile_s = answer.getNumber("compile_s").value_or(0);
  time.other_load = answer.getNumber("other_load").value_or(0);
  if (auto error = answer.getString("error")) time.error = error->str();
  return time;
}

}  // namespace linnet::cli
