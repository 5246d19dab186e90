// A shared library opened at run time, and functions of it by name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace linnet::cuda {

class Library {
 public:
  // Throws DeviceError with the loader's reason.
  explicit Library(const std::filesystem::path& path, bool global = false);

  // Throws DeviceError naming the function and the library.
  template <class F>
  void bind(const char* name, F& function) const {
    function = reinterpret_cast<F>(find(name));
  }
  // Null if there is none.
  void* try_find(const char* name) const;
  const std::string& path() const { return path_; }

 private:
  void* find(const char* name) const;
  std::string path_;
  void* handle_;  // never closed: drivers do not survive that
};

// The folders of this library and of the running program: what was built with them is found from
// there.
std::vector<std::filesystem::path> own_folders();

}  // namespace linnet::cuda
