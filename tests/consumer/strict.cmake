# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0

# Our headers stand the warnings of others, and bring none along.
target_compile_options(consumer PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
get_target_property(options omni::omni INTERFACE_COMPILE_OPTIONS)
if(options)
  message(FATAL_ERROR "omni::omni forces compile options on its users: ${options}")
endif()
