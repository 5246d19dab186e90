#include "compiler/cpu/link.h"

#include <fmt/format.h>

#include <cstring>

#include "linnet/error.h"
#include "llvm/ExecutionEngine/RuntimeDyld.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"

namespace linnet::cpu {

namespace {

constexpr size_t kPage = 4096;

// All sections one after another in one block that starts on a page.
class LinkMemory : public llvm::RuntimeDyld::MemoryManager {
 public:
  explicit LinkMemory(size_t bytes) : storage_(bytes + kPage) {
    auto address = reinterpret_cast<uintptr_t>(storage_.data());
    base_ = reinterpret_cast<uint8_t*>((address + kPage - 1) / kPage * kPage);
  }

  uint8_t* allocateCodeSection(uintptr_t size, unsigned alignment, unsigned,
                               llvm::StringRef) override {
    return allocate(size, alignment);
  }
  uint8_t* allocateDataSection(uintptr_t size, unsigned alignment, unsigned, llvm::StringRef,
                               bool) override {
    return allocate(size, alignment);
  }
  void registerEHFrames(uint8_t*, uint64_t, size_t) override {}
  void deregisterEHFrames() override {}
  bool finalizeMemory(std::string*) override { return false; }

  llvm::ArrayRef<uint8_t> used() const { return {base_, used_}; }

 private:
  uint8_t* allocate(size_t size, size_t alignment) {
    used_ = (used_ + alignment - 1) / alignment * alignment;
    uint8_t* place = base_ + used_;
    used_ += size;
    if (place + size > storage_.data() + storage_.size())
      throw InternalError("cpu: sections are larger than their object file");
    return place;
  }
  std::vector<uint8_t> storage_;
  uint8_t* base_;
  size_t used_ = 0;
};

// Knows nothing, and remembers what it was asked.
class NoSymbols : public llvm::LegacyJITSymbolResolver {
 public:
  llvm::JITSymbol findSymbol(const std::string& name) override {
    if (name != "_GLOBAL_OFFSET_TABLE_") asked += " " + name;
    return nullptr;
  }
  llvm::JITSymbol findSymbolInLogicalDylib(const std::string&) override { return nullptr; }
  std::string asked;
};

Image link_into(LinkMemory& block, const llvm::object::ObjectFile& object,
                const std::vector<std::string>& functions) {
  NoSymbols resolver;
  llvm::RuntimeDyld linker(block, resolver);
  linker.loadObject(object);
  linker.resolveRelocations();
  if (!resolver.asked.empty())
    throw InternalError(fmt::format("cpu: the code calls what is not in it:{}", resolver.asked));
  if (linker.hasError()) throw InternalError("cpu: " + linker.getErrorString().str());
  Image image;
  llvm::ArrayRef<uint8_t> used = block.used();
  image.bytes.resize(used.size());
  std::memcpy(image.bytes.data(), used.data(), used.size());
  for (const std::string& name : functions) {
    auto symbol = linker.getSymbol(name);
    if (!symbol) throw InternalError(fmt::format("cpu: the object has no function {}", name));
    image.entries.push_back(symbol.getAddress() - reinterpret_cast<uintptr_t>(used.data()));
  }
  return image;
}

}  // namespace

Image link(llvm::StringRef bytes, const std::vector<std::string>& functions) {
  auto buffer = llvm::MemoryBuffer::getMemBuffer(bytes, "kernel", false);
  auto object = llvm::object::ObjectFile::createObjectFile(buffer->getMemBufferRef());
  if (!object) throw InternalError("cpu: " + llvm::toString(object.takeError()));
  // Two blocks at once lie at different addresses: code that is the same in both does not know
  // where it is.
  LinkMemory here(2 * bytes.size() + 16 * kPage), there(2 * bytes.size() + 16 * kPage);
  Image image = link_into(here, **object, functions), other = link_into(there, **object, functions);
  if (image.bytes != other.bytes)
    throw InternalError("cpu: the code depends on where it lies in memory");
  return image;
}

}  // namespace linnet::cpu
