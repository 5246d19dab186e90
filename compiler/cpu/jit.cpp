#include "compiler/cpu/jit.h"

#include <fmt/format.h>

#include "compiler/cpu/link.h"
#include "compiler/diagnostics.h"
#include "linnet/error.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"

namespace linnet::cpu {

namespace {

void start_llvm() {
  static const bool started = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)started;
}

// What the emitter wants to know of a processor.
void read_features(Target& target, const llvm::MCSubtargetInfo& info) {
  bool x86 = info.getTargetTriple().isX86();
  target.has_fma = !x86 || info.checkFeatures("+fma");
  target.has_f16 = !x86 || info.checkFeatures("+f16c") || info.checkFeatures("+avx512f");
  target.lanes = !x86                                            ? 4
                 : info.checkFeatures("+avx512f")                ? 16
                 : info.checkFeatures("+avx2") && target.has_fma ? 8
                                                                 : 4;
  target.vector_registers = !x86 || info.checkFeatures("+avx512f") ? 32 : 16;
  target.reads_rows_ahead = llvm::StringRef(target.cpu).starts_with("znver");
  target.stores_past_caches = x86 && target.lanes >= 8;
  target.ahead_into = target.cpu == "znver5" ? 1 : 2;
  bool dots = x86 && info.checkFeatures("+avx512bf16,+avx512bw");
  bool tiles = dots && info.checkFeatures("+amx-bf16,+amx-tile");
  target.narrow_unit = tiles ? NarrowUnit::tiles : dots ? NarrowUnit::dots : NarrowUnit::none;
}

// What code for a processor may take for granted, in Linux' names: what LLVM chooses from by itself
// when it writes vectors and addresses. (The matrix unit has a permission of its own.)
std::vector<std::string> needs_of(const llvm::MCSubtargetInfo& info, bool converts_f16) {
  static constexpr std::pair<const char*, const char*> kFeatures[] = {
      {"avx", "avx"},
      {"avx2", "avx2"},
      {"fma", "fma"},
      {"f16c", "f16c"},
      {"bmi", "bmi1"},
      {"bmi2", "bmi2"},
      {"lzcnt", "abm"},
      {"movbe", "movbe"},
      {"avx512f", "avx512f"},
      {"avx512bw", "avx512bw"},
      {"avx512cd", "avx512cd"},
      {"avx512dq", "avx512dq"},
      {"avx512vl", "avx512vl"},
      {"avx512ifma", "avx512ifma"},
      {"avx512vbmi", "avx512vbmi"},
      {"avx512vbmi2", "avx512_vbmi2"},
      {"avx512vnni", "avx512_vnni"},
      {"avx512bitalg", "avx512_bitalg"},
      {"avx512vpopcntdq", "avx512_vpopcntdq"},
      {"avx512bf16", "avx512_bf16"},
      {"gfni", "gfni"},
      {"avx512fp16", "avx512_fp16"},
  };
  std::vector<std::string> needs;
  if (!info.getTargetTriple().isX86()) return needs;
  for (auto [feature, name] : kFeatures)
    if (info.checkFeatures(fmt::format("+{}", feature)) &&
        (converts_f16 || llvm::StringRef(feature) != "avx512fp16"))
      needs.emplace_back(name);
  return needs;
}

std::unique_ptr<llvm::TargetMachine> machine_for(const Target& target) {
  start_llvm();
  std::string error, triple = llvm::sys::getDefaultTargetTriple();
  const auto* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) throw InternalError("cpu: " + error);
  // Constants lie beside the code: where it would have to reach anywhere, as code of a JIT's does
  // unless told otherwise, each costs an instruction and a register more.
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, target.cpu, target.features, {}, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Aggressive, true));
}

// Vector, scf, arith and math to the LLVM dialect.
void lower(mlir::ModuleOp module) {
  Diagnostics diagnostics(module.getContext());
  mlir::PassManager manager(module.getContext());
  manager.addPass(mlir::createCanonicalizerPass());
  manager.addPass(mlir::createCSEPass());
  manager.addPass(mlir::createLoopInvariantCodeMotionPass());
  manager.addPass(mlir::createConvertSCFToCFPass());
  manager.addPass(mlir::createConvertVectorToLLVMPass());
  manager.addPass(mlir::createConvertMathToLLVMPass());
  manager.addPass(mlir::createArithToLLVMConversionPass());
  manager.addPass(mlir::createConvertControlFlowToLLVMPass());
  manager.addPass(mlir::createConvertFuncToLLVMPass());
  manager.addPass(mlir::createReconcileUnrealizedCastsPass());
  if (failed(manager.run(module)))
    throw InternalError("cpu: lowering failed: " + diagnostics.text());
}

void tidy(llvm::Module& module, llvm::TargetMachine& machine) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple().str());
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", "512");
    // The code must stand alone: no calls of memset, and no tables for exceptions.
    function.addFnAttr("no-builtins");
    function.setDoesNotThrow();
  }
  // The code is written the way it should run, and MLIR has folded and hoisted: LLVM's own
  // pipelines took three times as long as everything else and ran no faster where they were timed.
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) llvm::EarlyCSEPass().run(function, functions);
}

struct Translated {
  CpuKernel kernel;
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};

Translated translate(const Programs& programs, const Target& target, const MemoryOptions& memory,
                     llvm::TargetMachine& machine) {
  mlir::MLIRContext& context = *programs.whole.graph()->getContext();
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  context.appendDialectRegistry(registry);
  context.loadDialect<mlir::func::FuncDialect, mlir::LLVM::LLVMDialect, mlir::scf::SCFDialect,
                      mlir::vector::VectorDialect>();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  Translated result;
  result.kernel = emit_kernel(*module, programs, target, memory);
  lower(*module);
  result.context = std::make_unique<llvm::LLVMContext>();
  result.module = mlir::translateModuleToLLVMIR(*module, *result.context);
  if (!result.module) throw InternalError("cpu: the kernel does not translate to LLVM IR");
  tidy(*result.module, machine);
  return result;
}

}  // namespace

Target Target::host() {
  Target target;
  target.cpu = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    target.features += (target.features.empty() ? "" : ",") +
                       std::string(feature.second ? "+" : "-") + feature.first().str();
  read_features(target, *machine_for(target)->getMCSubtargetInfo());
  return target;
}

Target Target::named(const std::string& cpu) {
  // Asked of any processor: LLVM speaks up itself about one it does not know.
  if (!machine_for({})->getMCSubtargetInfo()->isCPUStringValid(cpu))
    throw UserError(
        fmt::format("target_cpu: expected a processor LLVM knows, e.g. x86-64-v3, znver4, "
                    "sapphirerapids; got '{}'",
                    cpu));
  Target target{.cpu = cpu, .by_name = true};
  read_features(target, *machine_for(target)->getMCSubtargetInfo());
  return target;
}

namespace {

llvm::SmallString<0> emit(Translated& translated, llvm::TargetMachine& machine,
                          llvm::CodeGenFileType type) {
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    throw InternalError("cpu: this target emits no code");
  passes.run(*translated.module);
  return bytes;
}

}  // namespace

CpuKernel compile(const Programs& programs, const Target& target, const MemoryOptions& memory) {
  auto machine = machine_for(target);
  Translated translated = translate(programs, target, memory, *machine);
  CpuKernel kernel = std::move(translated.kernel);
  auto object = emit(translated, *machine, llvm::CodeGenFileType::ObjectFile);
  std::vector<std::string> names;
  for (const auto& entry : kernel.entries) names.push_back(fmt::format("entry{}", entry.offset));
  Image image = link(object.str(), names);
  kernel.code = std::move(image.bytes);
  for (size_t i = 0; i < names.size(); ++i) kernel.entries[i].offset = image.entries[i];
  if (target.by_name)
    kernel.needs = needs_of(*machine->getMCSubtargetInfo(),
                            llvm::any_of(kernel.arguments, [](const KernelArgument& argument) {
                              return argument.storage == DType::f16;
                            }));
  return kernel;
}

std::string assembly_of(const TileProgram& program, const Target& target) {
  auto machine = machine_for(target);
  Translated translated = translate({program}, target, {}, *machine);
  return emit(translated, *machine, llvm::CodeGenFileType::AssemblyFile).str().str();
}

}  // namespace linnet::cpu
