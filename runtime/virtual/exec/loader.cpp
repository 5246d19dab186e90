#include "exec/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "exec/decoder.h"
#include "memory/device_memory.h"
#include "ptx/parser.h"

namespace linnet::vgpu {
namespace {

class Loader {
 public:
  Loader(Program& program, DeviceMemory& memory) : program_(program), memory_(memory) {
    program_.memory = &memory;
  }

  void run(std::string_view ptx) {
    program_.module = parse_module(ptx);
    number_functions();
    place_variables();
    place_workspace();
    fill_variables();
    decode_functions();
  }

 private:
  // Functions are numbered before decoding, because calls may go forwards.
  void number_functions() {
    for (const Function& function : program_.module.functions) {
      if (function.is_declaration) continue;
      const int index = static_cast<int>(program_.codes.size());
      program_.code_index[function.name] = index;
      layout_.symbols[function.name] = {SymbolValue::Kind::Constant,
                                        kFunctionWindow + static_cast<uint64_t>(index), 0};
      auto code = std::make_unique<Code>();
      code->name = function.name;
      code->is_entry = function.is_entry;
      code->bounds = function.bounds;
      program_.codes.push_back(std::move(code));
    }
  }

  void place_variables() {
    for (const Variable& variable : program_.module.variables) {
      const SymbolValue value = place(variable);
      if (!layout_.symbols.emplace(variable.name, value).second)
        throw PtxError(variable.line, fmt::format("'{}' is declared twice", variable.name));
    }
  }

  SymbolValue place(const Variable& variable) {
    if (variable.space == Space::Shared) {
      if (variable.is_extern) return {SymbolValue::Kind::DynamicShared, 0, 0};
      uint32_t& end = layout_.shared_bytes;
      end = (end + variable.align - 1) / variable.align * variable.align;
      const uint32_t offset = end;
      if (variable.bytes > (1u << 24))
        throw PtxError(variable.line, fmt::format("'{}' is too large", variable.name));
      end += static_cast<uint32_t>(variable.bytes);
      return {SymbolValue::Kind::Constant, offset, static_cast<uint32_t>(variable.bytes)};
    }
    if (variable.is_extern)
      throw PtxError(variable.line, fmt::format("'{}' is .extern: linking modules is not supported",
                                                variable.name));
    if (variable.align > 512)
      throw PtxError(variable.line, fmt::format("alignment of '{}' is too large", variable.name));
    const uint64_t address =
        memory_.allocate(std::max<uint64_t>(variable.bytes, 1), RegionKind::Module, variable.name);
    if (!address) throw std::bad_alloc();
    program_.globals[variable.name] = {address, variable.bytes};
    return {SymbolValue::Kind::Constant, address, static_cast<uint32_t>(variable.bytes)};
  }

  // Cooperative groups keep their grid barrier in memory whose address the driver provides.
  void place_workspace() {
    const std::vector<uint8_t> zeros(256, 0);
    const uint64_t address = memory_.allocate(zeros.size(), RegionKind::Module, "grid workspace");
    if (!address) throw std::bad_alloc();
    program_.globals["%grid_workspace"] = {address, zeros.size()};
    program_.grid_workspace = address;
    std::memcpy(reinterpret_cast<void*>(address), zeros.data(), zeros.size());
    memory_.mark_written(address, zeros.size());
  }

  void fill_variables() {
    for (const Variable& variable : program_.module.variables) {
      const auto global = program_.globals.find(variable.name);
      if (global == program_.globals.end()) continue;
      std::vector<uint8_t> image = variable.image;
      image.resize(variable.bytes, 0);
      for (const Relocation& relocation : variable.relocations) {
        const auto symbol = layout_.symbols.find(relocation.symbol);
        if (symbol == layout_.symbols.end())
          throw PtxError(variable.line,
                         fmt::format("'{}' in the initialiser of '{}' is not declared",
                                     relocation.symbol, variable.name));
        const uint64_t value = symbol->second.value + static_cast<uint64_t>(relocation.addend);
        std::memcpy(image.data() + relocation.offset, &value,
                    static_cast<size_t>(relocation.bytes));
      }
      std::memcpy(reinterpret_cast<void*>(global->second.address), image.data(), image.size());
      memory_.mark_written(global->second.address, image.size());
    }
  }

  void decode_functions() {
    for (const Function& function : program_.module.functions) {
      if (function.is_declaration) continue;
      Code& code = *program_.codes[static_cast<size_t>(program_.code_index[function.name])];
      FunctionDecoder(function, layout_, program_, code).run();
      code.first_counter = program_.op_total;
      program_.op_total += static_cast<uint32_t>(code.ops.size());
    }
  }

  Program& program_;
  DeviceMemory& memory_;
  ModuleLayout layout_;
};

}  // namespace

Program::~Program() {
  if (!memory) return;
  for (const auto& [name, global] : globals) memory->release(global.address);
}

std::string Program::file_name(int file) const {
  const auto found = module.files.find(file);
  return found == module.files.end() ? "" : found->second;
}

std::unique_ptr<Program> load_program(std::string_view ptx, DeviceMemory& memory) {
  auto program = std::make_unique<Program>();
  Loader(*program, memory).run(ptx);
  return program;
}

}  // namespace linnet::vgpu
