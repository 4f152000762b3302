# cmake -DTO=FILE -P embed.cmake writes the files of page/ as a C source: plain and gzipped. Each has its
# type, and a tag that its content decides. Two runs write equal bytes.
file(GLOB names RELATIVE ${CMAKE_CURRENT_LIST_DIR}/page ${CMAKE_CURRENT_LIST_DIR}/page/*)
list(SORT names)
set(types "html=text/html" "css=text/css" "js=text/javascript" "svg=image/svg+xml")
set(arrays "")
set(rows "")
set(number 0)

function(write_array name path drops_time)
  file(READ ${path} bytes HEX)
  if(drops_time) # bytes 4 to 7 of gzip's head
    string(SUBSTRING "${bytes}" 0 8 head)
    string(SUBSTRING "${bytes}" 16 -1 rest)
    set(bytes "${head}00000000${rest}")
  endif()
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  set(arrays "${arrays}static const unsigned char ${name}[] = {\n${bytes}\n};\n" PARENT_SCOPE)
endfunction()

foreach(name ${names})
  set(path ${CMAKE_CURRENT_LIST_DIR}/page/${name})
  get_filename_component(kind ${name} LAST_EXT)
  string(SUBSTRING ${kind} 1 -1 kind)
  string(REGEX MATCH "${kind}=[a-z/+]+" type "${types}")
  string(REPLACE "${kind}=" "" type "${type}")
  file(ARCHIVE_CREATE OUTPUT ${TO}.gz PATHS ${path} FORMAT raw COMPRESSION GZip)
  file(SHA256 ${path} tag)
  string(SUBSTRING ${tag} 0 16 tag)
  write_array(plain_${number} ${path} FALSE)
  write_array(small_${number} ${TO}.gz TRUE)
  string(APPEND rows "    {\"${name}\", \"${type}; charset=utf-8\", \"\\\"${tag}\\\"\", {plain_${number}, sizeof plain_${number}}, "
         "{small_${number}, sizeof small_${number}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(REMOVE ${TO}.gz)
file(WRITE ${TO} "/* Made by embed.cmake of page/. */\n#include \"web/page.h\"\n\n${arrays}\n"
     "const page_file page_files[] = {\n${rows}    {NULL, NULL, NULL, {NULL, 0}, {NULL, 0}},\n};\n")
