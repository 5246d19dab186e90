#include <doctest/doctest.h>

#include "exec/decoder.h"
#include "ptx/parser.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

std::string error_of(const std::string& ptx) {
  PtxRunner runner;
  try {
    runner.load(ptx);
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

std::string kernel(const std::string& body) {
  return kHeader +
         ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred "
         "%q<2>;\n" +
         body + "\nret;\n}\n";
}

}  // namespace

TEST_CASE("parser: an unknown instruction or modifier is named with its line") {
  CHECK(error_of(kernel("frobnicate.u32 %r0, %r1;")) ==
        "PTX line 7: unknown instruction 'frobnicate.u32'");
  CHECK(error_of(kernel("\nadd.wobbly.u32 %r0, %r1, %r2;")) ==
        "PTX line 8: unknown modifier '.wobbly' in 'add.wobbly.u32'");
  CHECK(error_of(kernel("add.u32 %r0, %r1;")) == "PTX line 7: 'add.u32' does not take 2 operands");
  CHECK(error_of(kernel("cvt.rni %r0, %r1;")).find("lacks a modifier") != std::string::npos);
}

TEST_CASE("parser: undeclared names, wrong widths and missing labels are errors with a line") {
  CHECK(error_of(kernel("mov.u32 %r0, %zz;")).find("line 7: unknown register '%zz'") !=
        std::string::npos);
  CHECK(error_of(kernel("bra NOWHERE;")).find("line 7: label 'NOWHERE' is not defined") !=
        std::string::npos);
  CHECK(error_of(kernel("add.u32 %r0, %d1, %r2;"))
            .find("line 7: register '%d1' of type .b64 does not fit") != std::string::npos);
  CHECK(error_of(kernel("mov.u64 %d0, nothing;")).find("'nothing' is not declared") !=
        std::string::npos);
  CHECK(error_of(kernel("call missing;")).find("function 'missing' is not declared") !=
        std::string::npos);
  CHECK(error_of(kernel(".wobble 3;")).find("unknown directive '.wobble'") != std::string::npos);
}

TEST_CASE("parser: scopes hide names, labels may repeat in blocks, comments vanish") {
  CHECK(error_of(kernel("{ .reg .f64 %r0; add.f64 %r0, %r0, %r0; } // gone\n add.u32 %r0, %r0, 1; "
                        "/* two\nlines */")) == "");
  CHECK(error_of(kernel("{ bra L; L: } { bra L; L: }")) == "");
  CHECK(error_of(kernel("L: bra L; L:")).find("defined twice") != std::string::npos);
}

TEST_CASE("parser: directives, debug sections and pragmas of real modules are understood") {
  const Module module = parse_module(R"(
.version 8.4
.target sm_80, debug
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 16 .b8 text[4] = {104, 105, 10, 0};
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24])
.maxntid 128, 2, 1
.minnctapersm 2
.pragma "nounroll";
{
  .reg .b32 %r<3>;
  .loc 1 12 3
  mov.u32 %r0, 1;
  .loc 2 7 1, function_name $L__info0, inlined_at 1 12 3
  mov.u32 %r1, 2;
  ret;
}
.file 1 "a.cu"
.file 2 "b.h", 1700000000, 99
.section .debug_str { $L__info0: .b8 1,2,0 }
)");
  CHECK(module.version == 84);
  CHECK(module.files.at(2) == "b.h");
  const Function& function = module.functions.back();
  CHECK(function.bounds.max_threads[0] == 128);
  CHECK(function.bounds.max_threads[1] == 2);
  CHECK(function.instructions[1].location == SourceLocation{2, 7, 1});
  CHECK(function.params[1].bytes == 24);
}

TEST_CASE("parser: every opcode of the table has a decoder") {
  for (const std::string_view opcode : known_opcodes())
    CHECK_MESSAGE(bool(find_decoder(opcode)), std::string(opcode));
}
