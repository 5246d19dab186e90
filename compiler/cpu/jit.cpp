#include "compiler/cpu/jit.h"

#include <fmt/format.h>

#include "compiler/diagnostics.h"
#include "linnet/error.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ThreadSafeModule.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
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

[[noreturn]] void refuse(llvm::Error error) {
  throw InternalError(fmt::format("cpu: {}", llvm::toString(std::move(error))));
}

int64_t lanes_of(const llvm::MCSubtargetInfo& info) {
  if (info.checkFeatures("+avx512f")) return 16;
  return info.checkFeatures("+avx2") && info.checkFeatures("+fma") ? 8 : 4;
}

std::unique_ptr<llvm::TargetMachine> machine_for(const Target& target) {
  start_llvm();
  std::string error, triple = llvm::sys::getDefaultTargetTriple();
  const auto* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) throw InternalError("cpu: " + error);
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, target.cpu, target.features, {}, llvm::Reloc::PIC_,
                                 std::nullopt, llvm::CodeGenOptLevel::Aggressive, true));
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

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple().str());
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", "512");
  }
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;  // the code is vectors already
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  // The code is written the way it should run; O2 took longer to compile and ran no faster where it was timed.
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O1).run(module, modules);
}

struct Translated {
  Signature signature;
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};

Translated translate(const TileProgram& program, const Target& target,
                     llvm::TargetMachine& machine) {
  mlir::MLIRContext& context = *program.graph()->getContext();
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  context.appendDialectRegistry(registry);
  context.loadDialect<mlir::func::FuncDialect, mlir::LLVM::LLVMDialect, mlir::scf::SCFDialect,
                      mlir::vector::VectorDialect>();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  Translated result;
  result.signature = emit_kernel(*module, program, target);
  lower(*module);
  result.context = std::make_unique<llvm::LLVMContext>();
  result.module = mlir::translateModuleToLLVMIR(*module, *result.context);
  if (!result.module) throw InternalError("cpu: the kernel does not translate to LLVM IR");
  optimise(*result.module, machine);
  return result;
}

}  // namespace

Target Target::host() {
  Target target;
  target.cpu = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    target.features += (target.features.empty() ? "" : ",") +
                       std::string(feature.second ? "+" : "-") + feature.first().str();
  target.lanes = lanes_of(*machine_for(target)->getMCSubtargetInfo());
  return target;
}

Target Target::named(const std::string& cpu) {
  Target target;
  target.cpu = cpu;
  auto machine = machine_for(target);
  if (!machine->getMCSubtargetInfo()->isCPUStringValid(cpu))
    throw UserError(
        fmt::format("target-cpu: expected a processor LLVM knows, e.g. x86-64-v3, znver4, "
                    "sapphirerapids; got '{}'",
                    cpu));
  target.lanes = lanes_of(*machine->getMCSubtargetInfo());
  return target;
}

CompiledKernel CompiledKernel::compile(const TileProgram& program, const Target& target) {
  auto machine = machine_for(target);
  Translated translated = translate(program, target, *machine);
  auto builder = llvm::orc::JITTargetMachineBuilder(machine->getTargetTriple());
  builder.setCPU(target.cpu).setCodeGenOptLevel(llvm::CodeGenOptLevel::Aggressive);
  builder.getFeatures() = llvm::SubtargetFeatures(target.features);
  auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(builder).create();
  if (!jit) refuse(jit.takeError());
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      (*jit)->getDataLayout().getGlobalPrefix());
  if (!process) refuse(process.takeError());
  (*jit)->getMainJITDylib().addGenerator(std::move(*process));
  if (auto error =
          (*jit)->addIRModule({std::move(translated.module), std::move(translated.context)}))
    refuse(std::move(error));
  auto symbol = (*jit)->lookup(translated.signature.name);
  if (!symbol) refuse(symbol.takeError());
  return CompiledKernel(std::move(translated.signature), std::move(*jit),
                        symbol->toPtr<void (*)(const int64_t*)>());
}

CompiledKernel::CompiledKernel(Signature signature, std::unique_ptr<llvm::orc::LLJIT> jit,
                               void (*function)(const int64_t*))
    : signature_(std::move(signature)), jit_(std::move(jit)), function_(function) {}
CompiledKernel::CompiledKernel(CompiledKernel&&) = default;
CompiledKernel::~CompiledKernel() = default;

std::string assembly_of(const TileProgram& program, const Target& target) {
  auto machine = machine_for(target);
  Translated translated = translate(program, target, *machine);
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    throw InternalError("cpu: this target prints no assembly");
  passes.run(*translated.module);
  return text.str().str();
}

}  // namespace linnet::cpu
