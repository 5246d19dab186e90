# Writes OUTPUT, a header with the text of every profile in FILES.
set(text "// Generated from runtime/virtual/profiles/*.ini.\n#pragma once\n\n")
string(APPEND text "namespace linnet::vgpu {\n\nconstexpr const char* kEmbeddedProfiles[] = {\n")
foreach(file ${FILES})
  file(READ ${file} content)
  string(APPEND text "R\"profile(${content})profile\",\n")
endforeach()
string(APPEND text "};\n\n}  // namespace linnet::vgpu\n")
file(WRITE ${OUTPUT} "${text}")
