# Writes OUTPUT, a source file with the text of every template in FILES.
set(text "// Generated from templates/*.cuh.\n#include \"templates/embedded.h\"\n\n")
string(APPEND text "namespace linnet {\n\nconst std::map<std::string, std::string>& embedded_templates() {\n")
string(APPEND text "  static const std::map<std::string, std::string> texts = {\n")
foreach(file ${FILES})
  file(READ ${file} content)
  get_filename_component(name ${file} NAME)
  # A string literal may have 64 KiB at most by the standard; templates are a few hundred lines.
  string(APPEND text "{\"${name}\", R\"cuda(${content})cuda\"},\n")
endforeach()
string(APPEND text "  };\n  return texts;\n}\n\n}  // namespace linnet\n")
file(WRITE ${OUTPUT} "${text}")
