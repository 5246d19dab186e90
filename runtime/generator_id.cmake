# Writes the header with one hash of all FILES.
set(all "")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(WRITE ${OUTPUT} "// Written by generator_id.cmake.\n#pragma once\n\nnamespace linnet {\ninline constexpr const char* kGeneratorId = \"${id}\";\n}\n")
