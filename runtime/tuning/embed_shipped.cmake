# Writes OUTPUT, a header with the text of every shipped tuning file in FILES.
set(text "// Generated from runtime/tuning/shipped/*.json.\n#pragma once\n\n")
string(APPEND text "namespace linnet {\n\nconstexpr const char* kShippedTuning[] = {\n")
foreach(file ${FILES})
  file(READ ${file} content)
  string(APPEND text "R\"tuning(${content})tuning\",\n")
endforeach()
string(APPEND text "\"\"};\n\n}  // namespace linnet\n")
file(WRITE ${OUTPUT} "${text}")
