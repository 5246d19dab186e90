#include "exec/report.h"

#include "exec/cta.h"

namespace linnet::vgpu {
namespace {

Finding make_finding(const Warp& warp, const Code& code, int pc, FindingKind kind, int lane,
                     uint64_t address, const std::string& text) {
  Finding finding;
  finding.kind = kind;
  finding.kernel = warp.launch.kernel->name;
  finding.address = address;
  finding.text = text;
  if (pc >= 0 && pc < static_cast<int>(code.sources.size())) {
    const OpSource& source = code.sources[static_cast<size_t>(pc)];
    finding.file = warp.launch.program->file_name(source.location.file);
    finding.line = source.location.line;
    finding.ptx_line = source.ptx_line;
    finding.instruction = code.texts[source.text];
  }
  const Dim3& block = warp.launch.block;
  const uint32_t thread = warp.index * kLanes + static_cast<uint32_t>(lane);
  finding.thread[0] = thread % block[0];
  finding.thread[1] = thread / block[0] % block[1];
  finding.thread[2] = thread / block[0] / block[1];
  for (size_t i = 0; i < 3; ++i) finding.block[i] = warp.cta.block[i];
  return finding;
}

}  // namespace

void fault(const Warp& warp, FindingKind kind, int lane, uint64_t address,
           const std::string& text) {
  const Finding finding =
      make_finding(warp, *warp.code, warp.current_pc(), kind, lane, address, text);
  warp.launch.findings->add(finding);
  throw KernelFault(finding);
}

void report(const Warp& warp, FindingKind kind, int lane, uint64_t address,
            const std::string& text) {
  report_at(warp, *warp.code, warp.current_pc(), kind, lane, address, text);
}

void report_at(const Warp& warp, const Code& code, int pc, FindingKind kind, int lane,
               uint64_t address, const std::string& text) {
  warp.launch.findings->add(make_finding(warp, code, pc, kind, lane, address, text));
  warp.launch.finding_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace linnet::vgpu
